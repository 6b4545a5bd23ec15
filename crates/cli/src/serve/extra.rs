//! What else listens while the server runs: servers for clients of other tools.
//!
//! A listener is started in [`start`] and kept in [`Extra`], whose end is its end.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use underload_probe::compat::iperf3::{IPERF3_PORT, Iperf3Limits, Iperf3Server};
use underload_probe::compat::irtt::{IRTT_PORT, IrttLimits, IrttServer};
use underload_probe::compat::nq::{NQ_PORT, NqLimits, NqServer};
use underload_probe::endpoint::{Reflector, ReflectorConfig};
use underload_probe::service::{Identity, Limits};

/// Which of them.
#[derive(Debug, Args)]
pub struct Listeners {
    /// Also answers clients of other tools: irtt, iperf3, nq (responsiveness, as networkQuality
    /// tests it), stamp, each at its usual port or at NAME:PORT. They cannot show tokens: whoever
    /// reaches the port may use them, within limits.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compat: Vec<Listener>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    tool: Tool,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Irtt,
    Iperf3,
    Nq,
    Stamp,
}

impl FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let (tool, default) = match name {
            "irtt" => (Tool::Irtt, IRTT_PORT),
            "iperf3" => (Tool::Iperf3, IPERF3_PORT),
            "nq" => (Tool::Nq, NQ_PORT),
            "stamp" => (Tool::Stamp, STAMP_PORT),
            _ => return Err("expected irtt, iperf3, nq or stamp".to_owned()),
        };
        let wrong = |_| format!("expected a port from 0 to 65535 after {name}:");
        let port = port.map_or(Ok(default), |port| port.parse().map_err(wrong))?;
        Ok(Self { tool, port })
    }
}

/// The running ones.
#[derive(Debug)]
enum Running {
    Irtt { _server: IrttServer },
    Iperf3 { _server: Iperf3Server },
    Nq { _server: NqServer },
    Stamp { _server: Reflector },
}

/// STAMP's UDP port (RFC 8762 section 4.1); below 1024, so it needs privileges.
const STAMP_PORT: u16 = 862;

/// All that runs beside the service; dropping it ends it.
#[derive(Debug)]
pub struct Extra {
    _running: Vec<Running>,
}

/// Starts what was asked for, at every address of the server.
///
/// # Errors
/// What could not be started, by name and address.
pub fn start(
    listeners: &Listeners,
    addresses: &[IpAddr],
    limits: &Limits,
    identity: impl Fn() -> anyhow::Result<Identity>,
) -> anyhow::Result<Extra> {
    let mut running = Vec::new();
    for listener in &listeners.compat {
        for address in addresses {
            let at = SocketAddr::new(*address, listener.port);
            let started = one(listener.tool, at, limits, &identity);
            running.push(started.with_context(|| format!("--compat {listener:?} at {at}"))?);
        }
    }
    Ok(Extra { _running: running })
}

fn one(
    tool: Tool,
    at: SocketAddr,
    limits: &Limits,
    identity: &impl Fn() -> anyhow::Result<Identity>,
) -> anyhow::Result<Running> {
    match tool {
        Tool::Irtt => {
            let socket = UdpSocket::bind(at)?;
            let limits = IrttLimits { duration_max: limits.duration_max, ..IrttLimits::default() };
            eprintln!("irtt clients at {}", socket.local_addr()?);
            Ok(Running::Irtt { _server: IrttServer::start(socket, limits, None)? })
        }
        Tool::Iperf3 => {
            let listener = TcpListener::bind(at)?;
            let at = listener.local_addr()?;
            let base = Iperf3Limits::default();
            // All tests together stay within what one session may have.
            let share = limits.session_bit_per_s / base.tests_max.max(1) as u64;
            let bit_per_s_max = Some(share.max(1));
            let limits = Iperf3Limits { bit_per_s_max, duration_max: limits.duration_max, ..base };
            eprintln!("iperf3 clients at {at}");
            let socket = UdpSocket::bind(at)?;
            Ok(Running::Iperf3 { _server: Iperf3Server::start(listener, socket, limits)? })
        }
        Tool::Nq => {
            let listener = TcpListener::bind(at)?;
            eprintln!("responsiveness clients at {}", listener.local_addr()?);
            let server = NqServer::start(listener, identity()?, NqLimits::default())?;
            Ok(Running::Nq { _server: server })
        }
        Tool::Stamp => {
            let socket = UdpSocket::bind(at)?;
            eprintln!("STAMP senders at {}", socket.local_addr()?);
            let server = Reflector::start(vec![socket], ReflectorConfig::default())?;
            Ok(Running::Stamp { _server: server })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_their_usual_port_or_another() {
        let irtt = Listener { tool: Tool::Irtt, port: 2112 };
        assert_eq!("irtt".parse(), Ok(irtt));
        assert_eq!("iperf3:99".parse(), Ok(Listener { tool: Tool::Iperf3, port: 99 }));
        for wrong in ["", "netperf", "irtt:", "irtt:70000"] {
            assert!(wrong.parse::<Listener>().is_err(), "{wrong}");
        }
    }
}
