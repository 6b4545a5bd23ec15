//! `underload serve`: the far end of `underload measure`.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use underload_probe::service::{Identity, Limits, Service, ServiceConfig};

use crate::exit::OrBadInput;
use crate::home;
use crate::quantity::rate;
use crate::run::Interrupt;

/// The command line of `underload serve`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The address to listen at. Beyond loopback a token is needed.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// TCP and UDP port.
    #[arg(long, value_name = "PORT", default_value_t = ServiceConfig::PORT)]
    port: u16,
    /// Another UDP port than the TCP one.
    #[arg(long, value_name = "PORT")]
    udp_port: Option<u16>,
    /// A file whose first line is what clients have to show.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Rate towards this machine that all clients together may declare.
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "10gbit")]
    capacity_up: u64,
    /// Rate from this machine that all clients together may declare.
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "10gbit")]
    capacity_down: u64,
    /// Where this server keeps its certificate and key [default: ~/.local/share/underload/server].
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
}

/// Serves until told to stop.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let secret = arguments.token_file.as_deref().map(home::first_line).transpose()?;
    if !arguments.bind.is_loopback() && secret.is_none() {
        let refused = bail_open(arguments.bind);
        return refused.or_bad_input();
    }
    let directory = match &arguments.identity {
        Some(directory) => directory.clone(),
        None => home::data()?.join("server"),
    };
    let identity = Identity::load_or_create(&directory).context("this server's certificate")?;
    let at = |port| SocketAddr::new(arguments.bind, port);
    let limits = Limits {
        up_bit_per_s: arguments.capacity_up,
        down_bit_per_s: arguments.capacity_down,
        ..Limits::default()
    };
    let load_port = if arguments.port == 0 { 0 } else { arguments.port + 1 };
    let config = ServiceConfig {
        control: at(arguments.port),
        load: at(load_port),
        probe: at(arguments.udp_port.unwrap_or(arguments.port)),
        limits,
        secret,
        identity,
    };
    let interrupt = Interrupt::watch()?;
    let service = Service::start(config)?;
    // The one line on stdout, for scripts that wait for it.
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening {} {}", service.address(), service.fingerprint())?;
    out.flush()?;
    drop(out);
    eprintln!("underload measure {} --trust {}", service.address(), service.fingerprint());
    while !interrupt.is_requested() {
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("stopping");
    Ok(())
}

fn bail_open(bind: IpAddr) -> anyhow::Result<()> {
    bail!("--bind {bind}: beyond loopback anybody could use this server: give --token-file")
}
