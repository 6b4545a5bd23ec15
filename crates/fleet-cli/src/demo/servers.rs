//! The measurement servers of the demo.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use underload_agent::client::Client;
use underload_agent::identity::Identity as Key;
use underload_fleet::message::ServerAddress;
use underload_probe::network::Line;
use underload_probe::wire::MarkingPolicy;
use underload_service::{Access, Identity, Limits, Service, ServiceConfig};
use underload_terminal::console::warning;

use super::access::{FIRST_SERVER, Internet};
use super::homes::Fleet;
use underload_agent::member::{Member, Membership};

/// Capacity of a server in each direction: eight uploads.
const CAPACITY_BIT_PER_S: u64 = 48_000_000;
const NAMES: [&str; 2] = ["east", "west"];

/// A running server, which deregisters from the orchestrator when dropped.
pub(super) struct Server {
    // Dropped first: the server deregisters before it stops.
    _membership: Membership,
    _service: Arc<Service>,
}

pub(super) const COUNT: usize = NAMES.len();

/// Starts all servers; each enrols with one of the codes.
pub(super) fn start(
    internet: &Internet,
    fleet: &Fleet,
    codes: Vec<String>,
    folder: &Path,
) -> anyhow::Result<Vec<Server>> {
    let one = |((host, name), code): ((u8, &str), String)| {
        let address = internet.add_host(host)?;
        let state = folder.join(name);
        internet.inside(|| server(&address, name, fleet, code, &state))?.context("a server")
    };
    (FIRST_SERVER..).zip(NAMES).zip(codes).map(one).collect()
}

fn server(
    address: &str,
    name: &str,
    fleet: &Fleet,
    code: String,
    state: &Path,
) -> anyhow::Result<Server> {
    let ip: IpAddr = address.parse()?;
    let identity = Identity::generate()?;
    let public = ServerAddress {
        name: name.to_owned(),
        address: format!("{ip}:{}", ServiceConfig::PORT),
        fingerprint: identity.fingerprint().to_string(),
    };
    let client = Client::new(vec![fleet.orchestrator.clone()], fleet.trust)?;
    let key = Key::load_or_create(state)?;
    let member = Member::new(client, key, Some(code), public, |words| warning!("{words}"))?;
    let limits = Limits {
        sessions_max: 64,
        up_bit_per_s: CAPACITY_BIT_PER_S,
        down_bit_per_s: CAPACITY_BIT_PER_S,
        session_bit_per_s: CAPACITY_BIT_PER_S,
        ..Limits::default()
    };
    let config = ServiceConfig {
        addresses: vec![ip],
        tcp_port: ServiceConfig::PORT,
        udp_port: ServiceConfig::PORT,
        limits,
        policy: MarkingPolicy::PUBLIC,
        access: Access::Leases,
        identity,
        line: Line::Ignored,
        leases: Some(member.leases()),
        state: Some(state.to_owned()),
    };
    let service = Arc::new(Service::start(config)?);
    let membership = member.start(Arc::clone(&service), limits)?;
    Ok(Server { _membership: membership, _service: service })
}
