//! Speaking to what people already run: servers for clients of other tools.
//!
//! - [`bind`]: sockets of which IPv4 and IPv6 have one each.
//! - `channel` (with the feature of that name): the page's probes as datagrams, over WebRTC.
//! - [`https`]: questions and messages to servers of others, without a runtime.
//! - [`irtt`]: fixed-schedule UDP probes of `irtt client`.
//! - [`iperf3`]: TCP and UDP load of `iperf3 -c`.
//! - [`ndt7`]: a client of M-Lab's servers, and of anybody's that speak as they do.
//! - [`nq`]: responsiveness tests of `networkQuality` and goresponsiveness, and a client of such
//!   servers.
//! - [`stamp`]: a reflector for STAMP and TWAMP-light senders.
//!
//! They stand on `underload-probe`: its sockets, clocks and STAMP packets, and its ledger
//! ([`CompatLedger`](underload_service::CompatLedger)), which says what all of them together
//! may take from a server that also serves our own clients.
//!
//! Each protocol is written from its description, without its authors' code, and answers as their
//! servers do, with what a public server needs beside: bounded state, leases by the server's own
//! clock, no amplification, payload that is generated here and never echoed, and no panic on any
//! bytes. `docs/interoperability.md` has the transcripts.

pub mod bind;
#[cfg(feature = "channel")]
pub mod channel;
pub mod https;
pub mod iperf3;
pub mod irtt;
pub mod ndt7;
pub mod nq;
pub mod stamp;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use underload_probe::network::{self, CustomerNetwork, PlaceLimits};

/// Why a server for other tools could not start.
#[derive(Debug, thiserror::Error)]
pub enum CompatError {
    /// A socket operation failed.
    #[error("{protocol} server: {step}")]
    Socket {
        /// The protocol that it speaks, such as "iperf3".
        protocol: &'static str,
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A UDP socket could not be prepared.
    #[error(transparent)]
    Endpoint(#[from] underload_probe::endpoint::EndpointError),
}

/// Places of which each network (a /24 of IPv4, a /56 of IPv6) has its share.
type Places = network::Places<CustomerNetwork>;
type Place = network::Place<CustomerNetwork>;

/// A holder of a place is safe from its own network for this long.
const GRACE: Duration = Duration::from_secs(1);

fn places(in_all: usize, per_network: usize) -> Places {
    Places::new(PlaceLimits { in_all, per_network, grace: GRACE })
}

/// Returns the oldest entry of the network that has the most of `entries`.
fn oldest_of_fullest<K, A: Copy + Ord>(
    entries: impl Iterator<Item = (K, CustomerNetwork, A)> + Clone,
) -> Option<K> {
    let mut counts: BTreeMap<CustomerNetwork, usize> = BTreeMap::new();
    for (_, network, _) in entries.clone() {
        *counts.entry(network).or_insert(0) += 1;
    }
    let rank = |(_, network, since): &(K, CustomerNetwork, A)| {
        (counts.get(network).copied(), Reverse(*since))
    };
    entries.max_by_key(rank).map(|(key, ..)| key)
}
