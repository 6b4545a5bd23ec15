//! A flow of any kind.

use underload_aqm::packet::Packet;
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use crate::endpoint::{Endpoint, Port};
use crate::net::Segment;
use crate::tcp::Tcp;

/// A flow of any kind, in a box, so that many flows are found in little memory. TCP is known by
/// its type: nearly all packets are its own, and it is asked for more than the others.
pub(crate) enum Agent {
    Tcp(Box<Tcp>),
    Other(Box<dyn Endpoint>),
}

impl Agent {
    /// What most is asked of, whatever the kind.
    pub(crate) fn endpoint(&self) -> &dyn Endpoint {
        match self {
            Self::Tcp(tcp) => tcp.as_ref(),
            Self::Other(other) => other.as_ref(),
        }
    }

    /// The same, to be changed.
    pub(crate) fn endpoint_mut(&mut self) -> &mut dyn Endpoint {
        match self {
            Self::Tcp(tcp) => tcp.as_mut(),
            Self::Other(other) => other.as_mut(),
        }
    }

    /// Its TCP connection, if that is what it is.
    #[inline]
    pub(crate) fn tcp(&self) -> Option<&Tcp> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    /// The same, to be changed.
    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    /// Nothing new is sent from now on. Other flows than TCP know their end beforehand.
    pub(crate) fn stop(&mut self) {
        if let Self::Tcp(tcp) = self {
            tcp.stop();
        }
    }

    /// [`Endpoint::receive`], which a packet of TCP reaches without a table of functions.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        port: &mut Port<'_>,
        direction: Direction,
        packet: &Packet<Segment>,
    ) {
        match self {
            Self::Tcp(tcp) => tcp.receive(port, direction, packet),
            Self::Other(other) => other.receive(port, direction, packet),
        }
    }

    /// [`Endpoint::on_timer`] in the same way: the timers of paced flows are as many as packets.
    #[inline]
    pub(crate) fn on_timer(&mut self, port: &mut Port<'_>) {
        match self {
            Self::Tcp(tcp) => tcp.on_timer(port),
            Self::Other(other) => other.on_timer(port),
        }
    }

    /// [`Endpoint::deadline`] in the same way.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.deadline(),
            Self::Other(other) => other.deadline(),
        }
    }

    /// Bytes of memory, the structure included.
    pub(crate) fn bytes_reserved(&self) -> usize {
        let endpoint = self.endpoint();
        size_of_val(endpoint) + endpoint.bytes_reserved()
    }
}
