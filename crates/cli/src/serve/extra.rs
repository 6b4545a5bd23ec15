//! Servers for clients of other tools, beside `underload serve`.
//!
//! [`underload_compat::listeners`] has the servers; here are the options.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use underload_compat::listeners::{self, Tool};
use underload_compat::nq::NQ_PORT;
use underload_compat::stamp::{STAMP_PORT, Source};
use underload_terminal::console::note;

#[derive(Debug, Args)]
pub struct Listeners {
    /// Also answers clients of other tools: nq (responsiveness, as networkQuality tests it) and
    /// stamp, each at its usual port or at NAME:PORT. These clients have neither tokens nor leases.
    /// So, beyond loopback, a server with --token-keys or --fleet also needs --anonymous-quota or
    /// --anonymous, except for stamp with --stamp-from.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    compat: Vec<Listener>,
    /// Serves a page on this port that measures in any browser [default port: 4863]. Browsers have
    /// neither tokens nor leases: see --compat.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "4863")]
    web: Option<u16>,
    /// Answers only these STAMP and TWAMP-light senders: addresses, or networks such as
    /// 192.0.2.0/24. Only listed senders may send packets of less than 44 bytes [default: all
    /// senders; on loopback, those of this machine].
    #[arg(long, value_name = "SOURCES", value_delimiter = ',', requires = "compat")]
    #[arg(hide_short_help = true)]
    stamp_from: Vec<Source>,
}

impl Listeners {
    pub fn is_empty(&self) -> bool {
        self.compat.is_empty() && self.web.is_none()
    }

    fn all(&self) -> Vec<Listener> {
        let web = self.web.map(|port| Listener { tool: Tool::Web, port });
        self.compat.iter().copied().chain(web).collect()
    }

    /// Names of listeners that answer every client.
    fn open(&self) -> impl Iterator<Item = &'static str> {
        let knows_senders = !self.stamp_from.is_empty();
        let tools = self.all().into_iter().map(|listener| listener.tool);
        tools.filter(move |tool| *tool != Tool::Stamp || !knows_senders).map(Tool::name)
    }

    /// Refuses listeners that would open a server for tokens or leases to everyone, unless the
    /// operator has set a quota for anonymous clients.
    ///
    /// # Errors
    /// Returns an error if a listener answers every client, and the server neither listens on
    /// loopback alone nor has a quota for anonymous clients.
    pub fn check_access(&self, is_local: bool, is_anonymous: bool) -> anyhow::Result<()> {
        let names: Vec<_> = self.open().collect();
        ensure!(
            is_local || is_anonymous || names.is_empty(),
            "--compat, --web: clients of {} have neither tokens nor leases, so beyond loopback \
             everyone could use the server: give --anonymous-quota SIZE, the bytes per hour that \
             one network may transfer without a token, or restrict the clients (stamp: \
             --stamp-from)",
            names.join(", "),
        );
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    tool: Tool,
    port: u16,
}

/// The tools that `--compat` accepts, with their usual ports.
const COMPAT: [(Tool, u16); 2] = [(Tool::Nq, NQ_PORT), (Tool::Stamp, STAMP_PORT)];

impl FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |(name, port)| (name, Some(port));
        let (name, port) = text.split_once(':').map_or((text, None), port);
        let known = COMPAT.into_iter().find(|(tool, _)| tool.name() == name);
        let (tool, usual_port) = known.ok_or("expected nq or stamp")?;
        let error = |_| format!("expected a port from 0 to 65535 after {name}:");
        let port = port.map_or(Ok(usual_port), |port| port.parse().map_err(error))?;
        Ok(Self { tool, port })
    }
}

impl Listeners {
    /// Starts the listeners at every address of the server. `shared` has their settings but for
    /// those of the options.
    pub fn start(
        &self,
        addresses: &[IpAddr],
        shared: listeners::Listeners,
    ) -> anyhow::Result<Vec<listeners::Listener>> {
        let shared = listeners::Listeners { stamp_from: self.stamp_from.clone(), ..shared };
        let places = self.all().into_iter().flat_map(|listener| {
            addresses.iter().map(move |ip| (listener.tool, SocketAddr::new(*ip, listener.port)))
        });
        places.map(|(tool, at)| start(&shared, tool, at)).collect()
    }
}

fn start(
    shared: &listeners::Listeners,
    tool: Tool,
    at: SocketAddr,
) -> anyhow::Result<listeners::Listener> {
    let option = match tool {
        Tool::Web => "--web".to_owned(),
        Tool::Nq | Tool::Stamp => format!("--compat {}", tool.name()),
    };
    let started = shared.listen(tool, at).map_err(|error| anyhow!(error));
    let started = started.with_context(|| format!("{option} at {at}"))?;
    match tool {
        Tool::Nq => note!("responsiveness clients at {}", started.address),
        Tool::Stamp => note!("STAMP senders at {}", started.address),
        Tool::Web => note!("browsers at https://{}/", super::to_connect_to(started.address)),
    }
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_their_usual_port_or_another() {
        assert_eq!("nq".parse(), Ok(Listener { tool: Tool::Nq, port: 4043 }));
        assert_eq!("stamp:99".parse(), Ok(Listener { tool: Tool::Stamp, port: 99 }));
        for wrong in ["", "irtt", "web", "nq:", "nq:70000"] {
            assert!(wrong.parse::<Listener>().is_err(), "{wrong}");
        }
    }

    fn listeners(arguments: &[&str]) -> Listeners {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            listeners: Listeners,
        }
        let arguments = std::iter::once(&"serve").chain(arguments);
        <Command as clap::Parser>::try_parse_from(arguments).unwrap().listeners
    }

    #[test]
    fn compatible_tools_do_not_bypass_required_tokens() {
        let open = listeners(&["--compat", "nq,stamp"]);
        let error = open.check_access(false, false).unwrap_err().to_string();
        assert!(
            error.contains("of nq, stamp have") && error.contains("--anonymous-quota"),
            "{error}"
        );
        assert!(open.check_access(true, false).is_ok() && open.check_access(false, true).is_ok());
        let closed = ["--compat", "stamp", "--stamp-from", "192.0.2.0/24"];
        assert!(listeners(&closed).check_access(false, false).is_ok());
        assert!(listeners(&[]).check_access(false, false).is_ok());
    }
}
