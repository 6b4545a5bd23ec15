//! `underload fleet orchestrator`: admits runs and collects what they measured.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use underload_fleet::retention::Retention;
use underload_orchestrator::http::{Cidr, Limits, StartError};
use underload_orchestrator::store::Place;
use underload_probe::control::Fingerprint;
use underload_service::Identity;
use underload_terminal::console::{note, warning};
use underload_terminal::exit::{OrBadInput, bad_input};
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;

use super::certificate::{ServerConfig, server_config};
use super::service::{Service, Setup, first_token};

pub(super) const PORT: u16 = 4870;
/// Name of the default store's directory, in the program's data directory.
const STORE: &str = "fleet";
/// The environment variable that names the store: on a command line every user of the machine can
/// read the password of a database.
const STORE_VARIABLE: &str = "UNDERLOAD_STORE";

#[derive(Debug, Args)]
#[command(after_help = "\
At its first start it writes a token for an operator to a file and prints the path. With the token
one logs in to the pages and runs `underload fleet plan apply`, `fleet code` and `fleet token`.

On loopback it speaks plain HTTP, elsewhere TLS, with the certificate of --cert or one that it
creates, which devices trust by its fingerprint (--trust).

Examples:
  underload fleet orchestrator
  underload fleet orchestrator --store sqlite:/var/lib/underload-orchestrator --listen [::]:443 \\
    --cert fullchain.pem --key privkey.pem --public-url https://fleet.example
  underload fleet orchestrator --store postgres://underload@db.example/fleet?sslmode=require \\
    --listen [::]:443")]
pub(super) struct Arguments {
    /// The store: sqlite:DIR, or postgres://USER@HOST/DATABASE for any number of orchestrators
    /// [default: the environment variable UNDERLOAD_STORE, which hides a password from other users,
    /// else sqlite:~/.local/share/underload/fleet].
    #[arg(long, value_name = "STORE")]
    store: Option<Place>,
    /// Moves past days to Parquet files in this directory [default: `archive` in DIR of the store;
    /// with PostgreSQL, days stay in the database].
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Keeps results in the database for this many days, then in files.
    #[arg(long, value_name = "DAYS", default_value_t = Retention::default().raw_days,
        value_parser = clap::value_parser!(u32).range(1..=36_500))]
    raw_days: u32,
    /// Keeps single runs for this many days from the day of the run, then only sums of lines that
    /// are alike.
    #[arg(long, value_name = "DAYS", default_value_t = Retention::default().bins_days,
        value_parser = clap::value_parser!(u32).range(1..=36_500))]
    #[arg(hide_short_help = true)]
    bins_days: u32,
    /// Listens on this address; [::] is all of IPv6 and IPv4.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = default_listen(),
        value_parser = socket_address)]
    listen: SocketAddr,
    /// The URL that people and devices use, if it differs: behind a proxy, or with a host name.
    #[arg(long, value_name = "URL", value_parser = url)]
    public_url: Option<String>,
    /// A certificate with its chain, PEM; read again when the file is replaced.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Proxies, such as 10.0.0.0/8, whose X-Forwarded-For names the clients to which limits apply; may
    /// be given several times.
    #[arg(long = "trusted-proxy", value_name = "CIDR", hide_short_help = true)]
    trusted_proxies: Vec<Cidr>,
    /// Balancers of connections that begin each with their client's address, by version 2 of the PROXY
    /// protocol; may be given several times.
    #[arg(long, value_name = "CIDR", hide_short_help = true)]
    proxy_protocol: Vec<Cidr>,
    /// Requests without a session that one address may send in a minute, to enrol or to begin a
    /// session.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().strangers_per_minute)]
    #[arg(hide_short_help = true)]
    requests: u32,
    /// Connections that one address may have.
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections_per_network)]
    #[arg(hide_short_help = true)]
    connections: usize,
    /// Directory of the first operator's token and of a certificate that it creates [default: DIR
    /// of the store, else ~/.local/share/underload/fleet].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, PORT).into()
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected ADDRESS:PORT, such as 0.0.0.0:{PORT} or [::]:443"))
}

/// Parses a URL without a path, since the API defines the paths.
fn url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    let is_good = host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '?', '#', '@']) && !host.contains(' ')
    });
    let expected = || "expected https://HOST[:PORT], without a path".to_owned();
    if is_good { Ok(text.trim_end_matches('/').to_owned()) } else { Err(expected()) }
}

/// Returns the store that a command line names, or the default one.
pub(super) fn store(named: Option<&Place>) -> anyhow::Result<Place> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    match std::env::var(STORE_VARIABLE).ok().filter(|place| !place.is_empty()) {
        // The error names the variable and not its value, which may contain a password.
        Some(place) => place.parse().context(STORE_VARIABLE).or_bad_input(),
        None => Ok(Place::Sqlite(home::data()?.join(STORE))),
    }
}

/// Returns the store that a command line names, or the default one, if its directory exists.
pub(super) fn existing_store(named: Option<&Place>) -> anyhow::Result<Place> {
    let place = store(named)?;
    if place.directory().is_some_and(|directory| !directory.is_dir()) {
        return Err(bad_input(anyhow!(
            "{place}: no such store; `underload fleet orchestrator` creates it"
        )));
    }
    Ok(place)
}

/// The token file that the orchestrator of this machine writes by default.
pub(super) fn default_token() -> anyhow::Result<PathBuf> {
    Ok(first_token(&home::data()?.join(STORE)))
}

struct Tls {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
}

impl Arguments {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let store = store(self.store.as_ref())?;
        let state = match (&self.state, store.directory()) {
            (Some(state), _) => state.clone(),
            (None, Some(directory)) => directory.to_owned(),
            (None, None) => home::data()?.join(STORE),
        };
        let tls = self.tls(&state)?;
        let fingerprint = tls.as_ref().map(|tls| tls.fingerprint);
        let is_tls = tls.is_some();
        let interrupt = Interrupt::watch()?;
        let service = Service::start(Setup {
            store: store.clone(),
            archive: self.archive.clone(),
            retention: Retention { raw_days: self.raw_days, bins_days: self.bins_days },
            listen: self.listen,
            tls: tls.map(|tls| tls.config),
            is_public_tls: self.public_url.as_ref().is_some_and(|it| it.starts_with("https://")),
            limits: Limits {
                trusted_proxies: self.trusted_proxies.clone().leak(),
                proxy_protocol: self.proxy_protocol.clone().leak(),
                strangers_per_minute: self.requests,
                connections_per_network: self.connections,
                ..Limits::default()
            },
            state: state.clone(),
            tell: Arc::new(|words| warning!("{words}")),
        });
        let service = match service {
            Err(error @ (StartError::Plain(_) | StartError::Listen { .. })) => {
                return Err(error).or_bad_input();
            }
            service => service.with_context(|| store.to_string())?,
        };
        self.announce(service.address(), is_tls, fingerprint, &state)?;
        while !interrupt.is_requested() {
            std::thread::sleep(LOOK_INTERVAL);
        }
        service.stop();
        Ok(())
    }

    fn tls(&self, state: &Path) -> anyhow::Result<Option<Tls>> {
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key) {
            let config = server_config(certificate, key).or_bad_input()?;
            let identity = Identity::from_pem(certificate, key).or_bad_input()?;
            return Ok(Some(Tls { config, fingerprint: identity.fingerprint() }));
        }
        if self.listen.ip().to_canonical().is_loopback() {
            return Ok(None);
        }
        let identity = Identity::load_or_create(&state.join("tls")).context("its certificate")?;
        let fingerprint = identity.fingerprint();
        Ok(Some(Tls { config: identity.server_config()?, fingerprint }))
    }

    /// Prints a line on stdout, which scripts wait for, and what to do next on stderr.
    fn announce(
        &self,
        address: SocketAddr,
        is_tls: bool,
        fingerprint: Option<Fingerprint>,
        state: &Path,
    ) -> anyhow::Result<()> {
        let scheme = if is_tls { "https" } else { "http" };
        let mut out = std::io::stdout().lock();
        match fingerprint {
            Some(fingerprint) => writeln!(out, "listening {scheme}://{address} {fingerprint}")?,
            None => writeln!(out, "listening {scheme}://{address}")?,
        }
        out.flush()?;
        let reached = match &self.public_url {
            Some(url) => url.clone(),
            None if address.ip().is_unspecified() => {
                format!("{scheme}://NAME-OF-THIS-MACHINE:{}", address.port())
            }
            None => format!("{scheme}://{address}"),
        };
        let token = first_token(state);
        if token.is_file() {
            note!("pages: {reached}/ (log in with the token in {})", token.display());
        } else {
            // Another orchestrator of this store wrote the first operator's token.
            note!(
                "pages: {reached}/ (log in with an operator's token; `underload fleet token new \
                 NAME --store ...` makes one)"
            );
        }
        if self.cert.is_none()
            && let Some(fingerprint) = fingerprint
        {
            note!("devices and servers trust it by --trust {fingerprint}");
        }
        Ok(())
    }
}

/// Interval at which signals are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_path() {
        assert_eq!(url("https://fleet.example/"), Ok("https://fleet.example".to_owned()));
        assert_eq!(url("http://[::1]:4870"), Ok("http://[::1]:4870".to_owned()));
        for wrong in ["", "fleet.example", "https://", "https://a/b", "ftp://a", "https://u@a"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
