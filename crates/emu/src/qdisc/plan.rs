//! The commands that set up routers and queues, as text for `ip` and `tc`.

use std::net::{Ipv4Addr, Ipv6Addr};

use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::machine::{CLIENT_V4, CLIENT_V6, DEVICE, SERVER_V4, SERVER_V6};

/// One direction of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// `None` if only the delay limits packets; then there is no queue, and nothing is counted.
    pub shaping: Option<Shaping>,
    /// From the end of a packet's transmission to its arrival.
    pub delay: Span,
    /// The probability that a packet is lost after its transmission, as a fraction of 2^32.
    pub loss_q32: u64,
}

/// A rate, and the queue before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaping {
    pub rate: Rate,
    /// Bytes that a packet is longer on the link than as an IP packet.
    pub overhead_bytes: u32,
    /// The queue's kind and arguments, as [`underload_tc::words::arguments`] returns them.
    pub queue: Vec<String>,
    /// Whether the queue itself shapes, slower than `rate`.
    pub is_shaper: bool,
}

/// Bytes that a veth device counts in addition to an IP packet.
const ETHERNET_BYTES: i64 = 14;
/// Handles of the queue and of what follows the link.
pub(super) const QUEUE: &str = "10:";
pub(super) const WIRE: &str = "20:";
/// Maximum number of packets between the routers and the ends: more than the rate and delay of any
/// scenario need.
const IN_FLIGHT: u32 = 1_000_000;

/// Devices of the routers, by the end that they lead to.
pub(super) const TO_CLIENT: &str = "to-client";
pub(super) const TO_SERVER: &str = "to-server";

impl Hop {
    /// The lines for `tc` at the router before the link.
    pub(super) fn queue(&self, device: &str) -> String {
        let Some(Shaping { rate, queue, is_shaper, .. }) = &self.shaping else {
            return String::new();
        };
        let queue = queue.join(" ");
        let size = match self.overhead() {
            0 => String::new(),
            overhead => format!(" stab overhead {overhead} linklayer ethernet"),
        };
        if *is_shaper {
            return format!("qdisc add dev {device} root handle {QUEUE}{size} {queue}\n");
        }
        // With a burst of a byte, a packet is sent when the one before it has been transmitted.
        format!(
            "qdisc add dev {device} root handle 1:{size} htb default 1\n\
             class add dev {device} parent 1: classid 1:1 htb rate {rate} ceil {rate} burst 1 \
             cburst 1 quantum 1514\n\
             qdisc add dev {device} parent 1:1 handle {QUEUE} {queue}\n"
        )
    }

    /// The lines for `tc` at the router behind the link: a packet's own transmission, which HTB
    /// does not wait for, its delay and its loss.
    pub(super) fn wire(&self, device: &str) -> String {
        let mut options = Vec::new();
        if self.delay > Span::ZERO {
            options.push(format!("delay {}", self.delay));
        }
        if let Some(shaping) = &self.shaping {
            options.push(format!("rate {} {}", shaping.rate, self.overhead()));
        }
        if self.loss_q32 > 0 {
            let millionths = (self.loss_q32 * 100_000_000 + (1 << 31)) >> 32;
            let (percent, fraction) = (millionths / 1_000_000, millionths % 1_000_000);
            options.push(format!("loss random {percent}.{fraction:06}%"));
        }
        if options.is_empty() {
            return String::new();
        }
        let options = options.join(" ");
        format!("qdisc add dev {device} root handle {WIRE} netem limit {IN_FLIGHT} {options}\n")
    }

    /// Bytes of the link's overhead that the device does not count, or counts too many.
    fn overhead(&self) -> i64 {
        let overhead = self.shaping.as_ref().map(|shaping| i64::from(shaping.overhead_bytes));
        overhead.map_or(0, |overhead| overhead - ETHERNET_BYTES)
    }
}

/// A device with a fixed address, so that no address resolution is sent over the path.
struct Port {
    name: &'static str,
    address: &'static str,
}

const CLIENT: Port = Port { name: DEVICE, address: "02:00:00:00:00:01" };
const NEAR_CLIENT: Port = Port { name: TO_CLIENT, address: "02:00:00:00:00:02" };
const NEAR_SERVER: Port = Port { name: TO_SERVER, address: "02:00:00:00:00:03" };
const FAR_CLIENT: Port = Port { name: TO_CLIENT, address: "02:00:00:00:00:04" };
const FAR_SERVER: Port = Port { name: TO_SERVER, address: "02:00:00:00:00:05" };
const SERVER: Port = Port { name: DEVICE, address: "02:00:00:00:00:06" };

/// The networks, as `ip` finds them.
pub(super) struct Networks {
    pub client: String,
    pub far: String,
    pub server: String,
}

/// The lines for `ip` in the near router that create all devices.
pub(super) fn cables(networks: &Networks, mtu: u16) -> String {
    let cable = |own: &Port, peer: &Port, network: &str| {
        format!(
            "link add {} address {} mtu {mtu} type veth peer name {} address {} mtu {mtu} \
             netns {network}\n",
            own.name, own.address, peer.name, peer.address
        )
    };
    cable(&NEAR_CLIENT, &CLIENT, &networks.client)
        + &cable(&NEAR_SERVER, &FAR_CLIENT, &networks.far)
}

/// The line for `ip` in the far router that creates the device of the server.
pub(super) fn last_cable(networks: &Networks, mtu: u16) -> String {
    format!(
        "link add {} address {} mtu {mtu} type veth peer name {} address {} mtu {mtu} netns {}\n",
        FAR_SERVER.name, FAR_SERVER.address, SERVER.name, SERVER.address, networks.server
    )
}

/// The lines for `ip` at the client (`true`) or the server: one packet at a time, as on a wire, and
/// the address of the router for everything.
pub(super) fn end(is_client: bool) -> String {
    let (v4, v6, router) = if is_client {
        (SERVER_V4, SERVER_V6, NEAR_CLIENT.address)
    } else {
        (CLIENT_V4, CLIENT_V6, FAR_SERVER.address)
    };
    format!("link set {DEVICE} gso_max_segs 1\n{}", neighbours(DEVICE, v4, v6, router))
}

/// The lines for `ip` at the near (`true`) or the far router.
pub(super) fn router(is_near: bool) -> String {
    let (client, server) = if is_near {
        (CLIENT.address, FAR_CLIENT.address)
    } else {
        (NEAR_SERVER.address, SERVER.address)
    };
    let port = |device: &str, v4: Ipv4Addr, v6: Ipv6Addr, address: &str| {
        format!(
            "link set {device} addrgenmode none\n\
             link set {device} up\n\
             route add {v4}/32 dev {device}\n\
             route add {v6}/128 dev {device}\n"
        ) + &neighbours(device, v4, v6, address)
    };
    port(TO_CLIENT, CLIENT_V4, CLIENT_V6, client) + &port(TO_SERVER, SERVER_V4, SERVER_V6, server)
}

fn neighbours(device: &str, v4: Ipv4Addr, v6: Ipv6Addr, address: &str) -> String {
    format!(
        "neigh add {v4} lladdr {address} dev {device} nud permanent\n\
         neigh add {v6} lladdr {address} dev {device} nud permanent\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(overhead_bytes: u32) -> Hop {
        Hop {
            shaping: Some(Shaping {
                rate: Rate::from_megabits_per_second(20),
                overhead_bytes,
                queue: vec!["pfifo".to_owned(), "limit".to_owned(), "50".to_owned()],
                is_shaper: false,
            }),
            delay: Span::from_millis(20),
            loss_q32: 0,
        }
    }

    #[test]
    fn a_link_is_shaped_before_its_delay() {
        assert_eq!(
            hop(14).queue("d"),
            "qdisc add dev d root handle 1: htb default 1\n\
             class add dev d parent 1: classid 1:1 htb rate 20mbit ceil 20mbit burst 1 cburst 1 \
             quantum 1514\n\
             qdisc add dev d parent 1:1 handle 10: pfifo limit 50\n"
        );
        let wire = "qdisc add dev d root handle 20: netem limit 1000000 delay 20ms rate 20mbit 0\n";
        assert_eq!(hop(14).wire("d"), wire);
    }

    #[test]
    fn an_overhead_different_from_the_devices_is_corrected() {
        let first = |hop: &Hop| hop.queue("d").lines().next().map(str::to_owned);
        let expected = "qdisc add dev d root handle 1: stab overhead -14 linklayer ethernet htb \
                        default 1";
        assert_eq!(first(&hop(0)).as_deref(), Some(expected));
        assert!(hop(0).wire("d").ends_with("rate 20mbit -14\n"));
        assert!(hop(18).wire("d").ends_with("rate 20mbit 4\n"));
    }

    #[test]
    fn a_shaping_queue_has_no_token_bucket_and_a_wide_link_no_queue() {
        let mut cake = hop(14);
        if let Some(shaping) = &mut cake.shaping {
            shaping.is_shaper = true;
        }
        assert_eq!(cake.queue("d"), "qdisc add dev d root handle 10: pfifo limit 50\n");
        let wide = Hop { shaping: None, delay: Span::ZERO, loss_q32: 1 << 25 };
        assert_eq!(wide.queue("d"), "");
        let loss = "qdisc add dev d root handle 20: netem limit 1000000 loss random 0.781250%\n";
        assert_eq!(wide.wire("d"), loss);
        assert_eq!(Hop { loss_q32: 0, ..wide }.wire("d"), "");
    }
}
