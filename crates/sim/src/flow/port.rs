//! Where a flow meets the network.

use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::time::Time;
use underload_report::schema::Direction;

use crate::net::{Body, Network, Segment};

/// The address of a flow in the queues' eyes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// Position of the flow in the trial.
    pub(crate) flow: u32,
    /// What queues hash: looks random, repeats with the seed.
    pub(crate) label: u32,
    /// Number of the client host.
    pub(crate) host: u32,
    pub(crate) dscp: Dscp,
}

/// The network as one flow sees it at one instant.
pub(crate) struct Port<'a> {
    pub(crate) now: Time,
    pub(crate) address: Address,
    pub(crate) network: &'a mut Network,
}

impl Port<'_> {
    /// Sends a packet of `len` bytes at the IP layer.
    #[inline]
    pub(crate) fn send(&mut self, direction: Direction, len: u32, ecn: Ecn, body: Body) {
        let Address { flow, label, host, dscp } = self.address;
        let (src, dst) = match direction {
            Direction::Up => (host, SERVER),
            Direction::Down => (SERVER, host),
        };
        let arrived = Time::ZERO;
        let meta = Meta { len, flow: label, src, dst, dscp, ecn, arrived };
        let packet = Packet { meta, payload: Segment { flow, body } };
        self.network.send(self.now, direction, packet);
    }
}

/// Host number of the far end.
const SERVER: u32 = u32::MAX;
