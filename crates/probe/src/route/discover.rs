//! Finds the first hops of a route.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use underload_record::schema::PathHop;

use crate::survey::{ECHO_BYTES, EchoSocket, echo, fill};

/// The hops before the far end that are worth probing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Nearest first. The router is missing if this machine is connected to the provider itself.
    pub near: Vec<RouteHop>,
    /// Distance of the far end; `None` if it is behind [`DISTANCE_MAX`] or answers no echoes.
    pub far_distance: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteHop {
    pub hop: PathHop,
    /// `None` if no hop at this place reports itself.
    pub address: Option<SocketAddr>,
    /// Number of hops from this machine; `None` without an address.
    pub distance: Option<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error(
        "this user may not send ICMP echoes: run as root, or let everybody send them with \
         `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
    )]
    Privilege,
    #[error("finding the hops to {target}: {source}")]
    Socket { target: SocketAddr, source: io::Error },
}

/// The hops up to this distance are looked for.
pub const DISTANCE_MAX: u8 = 6;
const ATTEMPTS: usize = 2;
/// Interval between echoes, within the rate at which routers answer.
const INTERVAL: Duration = Duration::from_millis(10);
/// How long to wait for answers after the last echo of an attempt.
const PATIENCE: Duration = Duration::from_millis(400);
/// Longest wait for the answer of a hop to an echo that is sent to its address.
const ANSWER_MAX: Duration = Duration::from_millis(700);

impl Route {
    /// Finds the router and the provider's first hop towards `target`, in the network of the
    /// calling thread, through the network interface `device` alone if one is named. Takes up to
    /// three seconds.
    ///
    /// # Errors
    /// Returns [`RouteError::Privilege`] if this user may not send echoes, another error without a
    /// route.
    pub fn discover(target: SocketAddr, device: Option<&str>) -> Result<Self, RouteError> {
        let error = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => RouteError::Privilege,
            _ => RouteError::Socket { target, source },
        };
        let mut search = Search::open(target, device).map_err(error)?;
        for _ in 0..ATTEMPTS {
            search.attempt().map_err(error)?;
            if search.is_complete() {
                break;
            }
        }
        let hops = search.before_target();
        let answering = answering(hops, device);
        let near = chosen(hops, |address| answering.contains(&address));
        Ok(Self { near, far_distance: search.target_at })
    }
}

/// Returns the hops that answer an echo sent to their address. Probes all of them at once.
fn answering(hops: &[Option<SocketAddr>], device: Option<&str>) -> Vec<SocketAddr> {
    let ask = |address: SocketAddr| {
        let answers = (0..ATTEMPTS).any(|_| echo(address, device, ANSWER_MAX).is_ok());
        answers.then_some(address)
    };
    thread::scope(|scope| {
        let asked: Vec<_> = hops.iter().flatten().map(|it| scope.spawn(|| ask(*it))).collect();
        asked.into_iter().filter_map(|it| it.join().ok().flatten()).collect()
    })
}

/// Chooses the router and the provider's first hop among the addresses at distances from 1.
///
/// The router is the first hop, unless its IPv4 address is public. The provider's first hop is the
/// nearest one behind it whose IPv4 address is not private and that answers echoes; if there is
/// none, the nearest one that answers echoes, else the nearest one known.
fn chosen(hops: &[Option<SocketAddr>], answers: impl Fn(SocketAddr) -> bool) -> Vec<RouteHop> {
    let is_direct = hops.first().copied().flatten().is_some_and(is_public_v4);
    let known = (1..).zip(hops).skip(usize::from(!is_direct));
    let known: Vec<(u8, SocketAddr)> = known.filter_map(|(at, it)| Some((at, (*it)?))).collect();
    let answering: Vec<bool> = known.iter().map(|(_, address)| answers(*address)).collect();
    let pairs = || known.iter().zip(&answering);
    let of_provider = pairs()
        .find(|((_, address), answers)| **answers && !is_private_v4(*address))
        .or_else(|| pairs().find(|(_, answers)| **answers))
        .or_else(|| pairs().next())
        .map(|(hop, _)| *hop);
    let hop = |hop, found: Option<(u8, SocketAddr)>| RouteHop {
        hop,
        address: found.map(|(_, address)| address),
        distance: found.map(|(distance, _)| distance),
    };
    let router = hops.first().copied().flatten().map(|address| (1, address));
    let mut near = vec![hop(PathHop::Router, router), hop(PathHop::Provider, of_provider)];
    if is_direct {
        near.remove(0);
    }
    near
}

fn is_private_v4(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V4(v4) if v4.ip().is_private() || v4.ip().is_link_local())
}

fn is_public_v4(address: SocketAddr) -> bool {
    address.is_ipv4() && !is_private_v4(address)
}

struct Search {
    socket: EchoSocket,
    /// Random bytes by which the target's answers are known.
    secret: [u8; 8],
    /// By distance from 1.
    hops: Vec<Option<SocketAddr>>,
    target_at: Option<u8>,
}

impl Search {
    fn open(target: SocketAddr, device: Option<&str>) -> io::Result<Self> {
        let socket = EchoSocket::open(target, device)?;
        socket.report_errors()?;
        let mut secret = [0; 8];
        fill(&mut secret)?;
        let hops = vec![None; usize::from(DISTANCE_MAX)];
        Ok(Self { socket, secret, hops, target_at: None })
    }

    /// Sends an echo to each distance that is not known, then waits for answers.
    fn attempt(&mut self) -> io::Result<()> {
        for distance in 1..=DISTANCE_MAX {
            let is_known = self.hops[usize::from(distance) - 1].is_some();
            if is_known || self.target_at.is_some_and(|at| distance >= at) {
                continue;
            }
            self.socket.set_ttl(distance)?;
            let mut payload = [0; ECHO_BYTES];
            payload[..8].copy_from_slice(&self.secret);
            payload[8] = distance;
            // Sending may return the error of an earlier echo, which `listen` reads.
            let _ = self.socket.send_numbered(&payload, u16::from(distance));
            self.listen(Instant::now() + INTERVAL);
        }
        self.listen(Instant::now() + PATIENCE);
        Ok(())
    }

    fn listen(&mut self, until: Instant) {
        while Instant::now() < until && !self.is_complete() {
            while let Some((number, hop)) = self.socket.expired_at() {
                if let Some(slot) = usize::from(number).checked_sub(1) {
                    self.hops.get_mut(slot).map(|slot| slot.get_or_insert(hop));
                }
            }
            let received = self.socket.receive(Duration::from_millis(5));
            let Ok(Some(payload)) = received else { continue };
            if payload[..8] == self.secret {
                let distance = payload[8];
                self.target_at = Some(self.target_at.map_or(distance, |at| at.min(distance)));
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.before_target().iter().all(Option::is_some)
    }

    fn before_target(&self) -> &[Option<SocketAddr>] {
        let count = self.target_at.map_or(self.hops.len(), |at| usize::from(at.max(1)) - 1);
        &self.hops[..count.min(self.hops.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(addresses: &[&str]) -> Vec<Option<SocketAddr>> {
        addresses.iter().map(|it| it.parse().ok().map(|ip| SocketAddr::new(ip, 0))).collect()
    }

    /// The chosen hops as `DISTANCE address`, where `silent` answer no echoes.
    fn choice(addresses: &[&str], silent: &[&str]) -> Vec<String> {
        let answers = |it: SocketAddr| !silent.contains(&it.ip().to_string().as_str());
        let name = |it: RouteHop| match (it.distance, it.address) {
            (Some(distance), Some(address)) => {
                format!("{} {distance} {}", it.hop.name(), address.ip())
            }
            _ => format!("{} unknown", it.hop.name()),
        };
        chosen(&hops(addresses), answers).into_iter().map(name).collect()
    }

    #[test]
    fn the_provider_begins_at_the_first_public_hop_that_answers() {
        let home = ["192.168.1.1", "10.0.0.1", "100.64.0.1", "203.0.113.9"];
        let [router, first] =
            ["router 1 192.168.1.1", "provider's first hop 3 100.64.0.1"].map(str::to_owned);
        assert_eq!(choice(&home, &[]), [router.clone(), first]);
        assert_eq!(
            choice(&home, &["100.64.0.1", "192.168.1.1"]),
            [router.clone(), "provider's first hop 4 203.0.113.9".to_owned()]
        );
        assert_eq!(
            choice(&["192.168.1.1", "10.0.0.1", "-"], &[]),
            [router.clone(), "provider's first hop 2 10.0.0.1".to_owned()]
        );
        assert_eq!(
            choice(&["-", "203.0.113.1"], &["203.0.113.1"]),
            ["router unknown", "provider's first hop 2 203.0.113.1"]
        );
        assert_eq!(choice(&[], &[]), ["router unknown", "provider's first hop unknown"]);
        assert_eq!(choice(&["192.168.1.1"], &[]), [&router, "provider's first hop unknown"]);
    }

    #[test]
    fn a_machine_without_a_router_of_its_own_has_no_router_hop() {
        assert_eq!(
            choice(&["203.0.113.1", "203.0.113.9"], &[]),
            ["provider's first hop 1 203.0.113.1"]
        );
        // An IPv6 address does not show whether a hop is the customer's or the provider's.
        assert_eq!(
            choice(&["2001:db8::1", "2001:db8:1::1"], &[]),
            ["router 1 2001:db8::1", "provider's first hop 2 2001:db8:1::1"]
        );
    }
}
