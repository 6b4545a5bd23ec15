//! `underload serve`: the server for `underload measure`.
//!
//! - [`token`]: `underload serve token`, keys and tokens.
//! - [`extra`]: servers for clients of other tools.
//! - [`fleet`]: membership in a fleet.

mod extra;
pub mod fleet;
mod token;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::json;
use underload_agent::member::{Member, Membership};
use underload_aqm::config::{Kind, Value};
use underload_compat::listeners::{Listener, Listeners};
use underload_compat::metrics::Metrics;
use underload_probe::network::{Line, raise_descriptor_limit};
use underload_probe::wire::MarkingPolicy;
use underload_report::sentences;
use underload_service::{Access, Identity, Limits, Service, ServiceConfig, TokenKeys};
use underload_terminal::console::{count, note, warning};
use underload_terminal::exit::{OrBadInput, refuse};
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity::{self, from_to, rate};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The server uses one TCP and one UDP port: control over TLS 1.3, load and probes. SIGTERM lets
running sessions end and grants no new ones; Ctrl-C, or a second SIGTERM, stops at once.

Examples:
  underload serve                                                  for this machine only
  underload serve token rotate --keys /etc/underload/keys          creates keys for tokens
  underload serve token new --keys /etc/underload/keys > token     creates a token for a client
  underload serve --bind 0.0.0.0 --bind :: --token-keys /etc/underload/keys \\
    --capacity-up 1gbit --capacity-down 1gbit"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serving: Serving,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates keys, and tokens that are signed with them.
    Token(token::Arguments),
}

#[derive(Debug, Args)]
pub struct Serving {
    /// An address to listen at; may be given several times. Addresses beyond loopback need
    /// --token-keys or --anonymous [default: 127.0.0.1 and ::1].
    #[arg(long, value_name = "ADDRESS", value_parser = bind_address)]
    bind: Vec<IpAddr>,
    /// TCP port, and UDP port without --udp-port; 0 selects a free port.
    #[arg(long, value_name = "PORT", default_value_t = ServiceConfig::PORT)]
    port: u16,
    /// UDP port [default: that of TCP].
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    udp_port: Option<u16>,
    /// Requires a token from clients, signed with a key of this file (see `underload serve token`).
    #[arg(long, value_name = "FILE")]
    token_keys: Option<PathBuf>,
    /// Also admits clients without a token, with a smaller quota.
    #[arg(long)]
    anonymous: bool,
    /// Rate towards this machine for all clients together [default: 1gbit; on loopback no limit].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    capacity_up: Option<u64>,
    /// Rate from this machine for all clients together [default: 1gbit; on loopback no limit].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    capacity_down: Option<u64>,
    /// Rate of one client in each direction [default: the capacity].
    #[arg(long, value_name = "RATE", value_parser = rate, hide_short_help = true)]
    session_rate: Option<u64>,
    /// Number of simultaneous sessions [default: 16].
    #[arg(long, value_name = "N", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// Longest session [default: 2min].
    #[arg(long, value_name = "TIME", value_parser = from_to("1s", "1d"), hide_short_help = true)]
    session_time: Option<Duration>,
    /// Bytes per hour that one network (/24, /56) or one token may transfer, such as 50GB.
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    quota: Option<u64>,
    /// Bytes per hour that one network may transfer without a token.
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    anonymous_quota: Option<u64>,
    /// Network interface towards the clients; may be given several times; none disables the check.
    /// While all traffic of the interface exceeds the capacity, the server admits no new client
    /// [default: the interfaces of the default routes; on loopback none].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    interface: Vec<String>,
    /// DSCPs that the server sends on request, joined by +.
    #[arg(long, value_name = "DSCPS", value_parser = dscps, default_value = "0+8+45")]
    #[arg(hide_short_help = true)]
    dscp_allow: u64,
    /// Answers GET /metrics at this loopback address with numbers for Prometheus.
    #[arg(long, value_name = "ADDRESS:PORT", hide_short_help = true)]
    metrics: Option<SocketAddr>,
    /// Directory of the server's self-signed certificate [default:
    /// ~/.local/share/underload/server].
    #[arg(long, value_name = "DIR", conflicts_with = "cert", hide_short_help = true)]
    identity: Option<PathBuf>,
    /// Directory of the list of used tokens [default: that of --identity].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    state: Option<PathBuf>,
    /// A certificate in PEM, which replaces the self-signed one; the server reads a new file.
    #[arg(long, value_name = "FILE", requires = "key", hide_short_help = true)]
    cert: Option<PathBuf>,
    /// The key of --cert, PKCS #8 in PEM.
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    key: Option<PathBuf>,
    /// Prints the addresses as one JSON document instead of lines, when all are ready.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    extra: extra::Listeners,
    #[command(flatten)]
    fleet: fleet::Arguments,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Some(Command::Token(arguments)) => token::run(arguments),
        None => arguments.serving.run(),
    }
}

impl Serving {
    fn run(&self) -> anyhow::Result<()> {
        raise_descriptor_limit(DESCRIPTORS);
        let mut config = self.config()?;
        let fingerprint = config.identity.fingerprint().to_string();
        let member = self.fleet.member(|| self.state_directory(), fingerprint)?;
        config.leases = member.as_ref().map(Member::leases);
        if self.metrics.is_some_and(|at| !at.ip().is_loopback()) {
            refuse!("--metrics: expected a loopback address");
        }
        let (addresses, policy, limits) = (config.addresses.clone(), config.policy, config.limits);
        let tls = config.identity.server_config()?;
        let interrupt = Interrupt::watch()?;
        let service = Arc::new(Service::start(config)?);
        let measured = Arc::clone(&service);
        let page = Arc::new(move || measured.state().to_prometheus());
        let start = |at| Metrics::start(at, page).with_context(|| format!("--metrics {at}"));
        let metrics = self.metrics.map(start).transpose()?;
        let shared = Listeners {
            tls,
            stamp_from: Vec::new(),
            policy,
            bit_per_s: limits.compat_bit_per_s,
            ledger: service.compat(),
            wording: sentences,
        };
        let extra = self.extra.start(&addresses, shared)?;
        let member = member
            .map(|member| member.start(Arc::clone(&service), limits))
            .transpose()
            .context("starting the thread of heartbeats")?;
        announce(&service, metrics.as_ref().map(Metrics::address), &extra, self.json)?;
        #[cfg(namespaces)]
        if !service.address().ip().is_loopback()
            && let Some(closed) = underload_emu::command::closed_port(service.address().port())
        {
            warning!("warning: {closed}");
        }
        wait_for_stop(&service, member, &interrupt);
        Ok(())
    }

    fn config(&self) -> anyhow::Result<ServiceConfig> {
        let loopback = || vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let mut addresses = if self.bind.is_empty() { loopback() } else { self.bind.clone() };
        let is_local = addresses.iter().all(IpAddr::is_loopback);
        let access = self.access(is_local).or_bad_input()?;
        // `access` has refused a server beyond loopback without any of these options.
        let is_anonymous = self.anonymous || self.anonymous_quota.is_some();
        self.extra.check_access(is_local, is_anonymous).or_bad_input()?;
        // Without IPv6.
        if self.bind.is_empty() && UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            addresses.truncate(1);
        }
        Ok(ServiceConfig {
            addresses,
            tcp_port: self.port,
            udp_port: self.udp_port.unwrap_or(self.port),
            limits: self.limits(is_local),
            policy: MarkingPolicy {
                dscp_allowed: self.dscp_allow,
                congestion_experienced_allowed: false,
            },
            access,
            identity: self.identity()?,
            line: self.line(is_local).or_bad_input()?,
            leases: None,
            state: (self.token_keys.is_some() || self.fleet.is_member())
                .then(|| self.state_directory())
                .transpose()?,
        })
    }

    fn identity(&self) -> anyhow::Result<Identity> {
        server_identity(self.identity.as_ref(), self.cert.as_ref().zip(self.key.as_ref()))
    }

    fn state_directory(&self) -> anyhow::Result<PathBuf> {
        identity_directory(self.state.as_ref().or(self.identity.as_ref()))
    }

    fn access(&self, is_local: bool) -> anyhow::Result<Access> {
        if let Some(keys) = &self.token_keys {
            TokenKeys::load(keys).context(token::WHAT_CREATES_KEYS).context("--token-keys")?;
        }
        match (&self.token_keys, self.anonymous) {
            (Some(keys), false) => Ok(Access::Tokens(keys.clone())),
            (Some(keys), true) => Ok(Access::TokensOrAnonymous(keys.clone())),
            (None, false) if self.fleet.is_member() => Ok(Access::Leases),
            (None, false) if !is_local => bail!(
                "--bind: beyond loopback everyone could use this server: give --token-keys FILE \
                 (`underload serve token rotate --keys FILE` creates it), or --anonymous"
            ),
            (None, _) => Ok(Access::Everybody),
        }
    }

    fn line(&self, is_local: bool) -> anyhow::Result<Line> {
        match self.interface.as_slice() {
            [] if is_local => Ok(Line::Ignored),
            [] => Ok(Line::OfDefaultRoutes),
            [none] if none == "none" => Ok(Line::Ignored),
            names => {
                for name in names {
                    let is_there = Line::Named(vec![name.clone()]).bytes().is_some();
                    ensure!(is_there, "--interface {name}: no such network interface");
                }
                Ok(Line::Named(names.to_vec()))
            }
        }
    }

    fn limits(&self, is_local: bool) -> Limits {
        let base = if is_local { Limits::generous() } else { Limits::default() };
        let (up, down) = (
            self.capacity_up.unwrap_or(base.up_bit_per_s),
            self.capacity_down.unwrap_or(base.down_bit_per_s),
        );
        let session = base.session_bit_per_s.min(up.max(down));
        let compat = if self.extra.is_empty() { 0 } else { up.min(down) / COMPAT_SHARE };
        Limits {
            sessions_max: self.sessions.map_or(base.sessions_max, |sessions| sessions as usize),
            up_bit_per_s: up,
            down_bit_per_s: down,
            session_bit_per_s: self.session_rate.unwrap_or(if is_local {
                session
            } else {
                up.max(down)
            }),
            duration_max: self.session_time.unwrap_or(base.duration_max),
            network_bytes_per_hour: self.quota.unwrap_or(base.network_bytes_per_hour),
            token_bytes_per_hour: self.quota.unwrap_or(base.token_bytes_per_hour),
            anonymous_bytes_per_hour: self.anonymous_quota.unwrap_or(base.anonymous_bytes_per_hour),
            compat_bit_per_s: compat,
            ..base
        }
    }
}

/// All clients of other tools together may use 1/4 of the capacity.
const COMPAT_SHARE: u64 = 4;
/// Descriptors for the largest number of connections that the limits allow.
const DESCRIPTORS: u64 = 8_192;

/// Returns the server's certificate: from PEM files, or a self-signed one.
pub fn server_identity(
    directory: Option<&PathBuf>,
    pem: Option<(&PathBuf, &PathBuf)>,
) -> anyhow::Result<Identity> {
    if let Some((certificate, key)) = pem {
        return Identity::from_pem(certificate, key).or_bad_input();
    }
    let directory = identity_directory(directory)?;
    Identity::load_or_create(&directory).context("this server's certificate")
}

/// Returns the directory of the self-signed certificate.
pub fn identity_directory(directory: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    directory.cloned().map_or_else(|| Ok(home::data()?.join("server")), Ok)
}

/// Prints one line per address on stdout, for scripts that wait for the server, or one document;
/// and the client's command on stderr.
fn announce(
    service: &Service,
    metrics: Option<SocketAddr>,
    tools: &[Listener],
    json: bool,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (fingerprint, udp_port) = (service.fingerprint(), service.udp_port());
    if json {
        let tools = tools.iter().map(|it| json!({ "tool": it.tool.name(), "address": it.address }));
        let document = json!({
            "version": 1,
            "addresses": service.addresses,
            "udp_port": udp_port,
            "fingerprint": fingerprint.to_string(),
            "metrics": metrics,
            "other_tools": tools.collect::<Vec<_>>(),
        });
        writeln!(out, "{document}")?;
    } else {
        for address in &service.addresses {
            writeln!(out, "listening {address} udp {udp_port} {fingerprint}")?;
        }
    }
    out.flush()?;
    let command = measure_command(service.address());
    note!("{command} --trust {fingerprint}");
    Ok(())
}

fn measure_command(address: SocketAddr) -> String {
    let is_here = address.ip().is_loopback();
    let place = if is_here { "on this machine" } else { "on the other machine" };
    format!("{place}: underload measure {}", to_connect_to(address))
}

/// Returns the address that clients connect to. Clients cannot connect to an unspecified address
/// such as `0.0.0.0`: a placeholder for the machine's name or address replaces it.
fn to_connect_to(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!("NAME-OR-ADDRESS-OF-THIS-ONE:{}", address.port());
    }
    address.to_string()
}

/// Interval at which keys and certificates are read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

fn wait_for_stop(service: &Service, mut member: Option<Membership>, interrupt: &Interrupt) {
    let (mut drains, mut reloaded) = (false, Instant::now());
    // A second signal ends the program at once.
    while !interrupt.is_requested() || interrupt.is_termination() {
        if interrupt.is_requested() {
            if !drains {
                drains = true;
                service.drain();
                // Ends the membership, so that no agent is sent here; running leases continue.
                drop(member.take());
                note!("stopping after {}", count(service.sessions(), "session"));
            }
            if service.sessions() == 0 {
                break;
            }
        }
        if reloaded.elapsed() >= RELOAD_INTERVAL {
            reloaded = Instant::now();
            for news in service.reload_files() {
                warning!("{news}");
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    note!("stopped");
}

fn bind_address(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err("an address with a zone cannot be chosen alone; `--bind ::` listens at all \
                    link-local addresses, too"
            .to_owned());
    }
    text.parse().map_err(|_| "expected an address such as 192.0.2.1, 0.0.0.0 or ::".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = quantity::size(text)?;
    if bytes > 0 { Ok(bytes) } else { Err("expected more than 0".to_owned()) }
}

fn dscps(text: &str) -> Result<u64, String> {
    match Kind::DscpSet.read(text) {
        Some(Value::DscpSet(set)) => Ok(set),
        _ => Err(format!("expected {}", Kind::DscpSet.expectation())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        serving: Serving,
    }

    /// Clients of other tools show neither tokens nor leases.
    #[test]
    fn compatible_tools_do_not_bypass_a_fleets_leases() {
        let home = underload_disk::faults::private_tempdir().unwrap();
        let identity = home.path().to_str().unwrap();
        let config = |more: &[&str]| {
            let member = "serve --bind 192.0.2.7 --fleet https://127.0.0.1:9 --enrol x --name s \
                          --public 192.0.2.7:4862 --identity";
            let words = member.split_whitespace().chain([identity]).chain(more.iter().copied());
            <CommandLine as clap::Parser>::try_parse_from(words).unwrap().serving.config()
        };
        for open in [&["--web"][..], &["--compat", "nq"]] {
            let error = format!("{:#}", config(open).err().unwrap());
            assert!(error.contains("--anonymous-quota"), "{error}");
            let stated = [open, &["--anonymous-quota", "1GB"]].concat();
            assert!(config(&stated).is_ok(), "{stated:?}");
        }
        assert!(config(&["--compat", "stamp", "--stamp-from", "192.0.2.0/24"]).is_ok());
        assert!(config(&[]).is_ok());
    }

    #[test]
    fn an_unspecified_address_is_never_printed_as_a_target() {
        let command = |address: &str| measure_command(address.parse().unwrap());
        for any in ["0.0.0.0:4862", "[::]:4862"] {
            let said = command(any);
            assert!(said.ends_with("underload measure NAME-OR-ADDRESS-OF-THIS-ONE:4862"), "{said}");
        }
        assert_eq!(to_connect_to(([0, 0, 0, 0], 4863).into()), "NAME-OR-ADDRESS-OF-THIS-ONE:4863");
        assert_eq!(command("127.0.0.1:1"), "on this machine: underload measure 127.0.0.1:1");
        assert_eq!(command("192.0.2.7:1"), "on the other machine: underload measure 192.0.2.7:1");
    }
}
