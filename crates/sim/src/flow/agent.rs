//! A flow of any kind.

use underload_aqm::packet::Packet;
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use crate::endpoint::{Endpoint, Port};
use crate::net::Segment;
use crate::tcp::Tcp;

/// A flow of any kind, boxed so that the array of flows is small. TCP has a variant because nearly
/// all packets are TCP's, and because it has methods that other kinds lack.
pub(crate) enum Agent {
    Tcp(Box<Tcp>),
    Other(Box<dyn Endpoint>),
}

impl Agent {
    pub(crate) fn endpoint(&self) -> &dyn Endpoint {
        match self {
            Self::Tcp(tcp) => tcp.as_ref(),
            Self::Other(other) => other.as_ref(),
        }
    }

    pub(crate) fn endpoint_mut(&mut self) -> &mut dyn Endpoint {
        match self {
            Self::Tcp(tcp) => tcp.as_mut(),
            Self::Other(other) => other.as_mut(),
        }
    }

    #[inline]
    pub(crate) fn tcp(&self) -> Option<&Tcp> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        if let Self::Tcp(tcp) = self { Some(tcp) } else { None }
    }

    /// Stops sending new data. Other kinds of flows know their end from the start.
    pub(crate) fn stop(&mut self) {
        if let Self::Tcp(tcp) = self {
            tcp.stop();
        }
    }

    /// [`Endpoint::receive`] without dynamic dispatch for TCP.
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

    /// [`Endpoint::on_timer`] without dynamic dispatch for TCP, whose pacing needs many timers.
    #[inline]
    pub(crate) fn on_timer(&mut self, port: &mut Port<'_>) {
        match self {
            Self::Tcp(tcp) => tcp.on_timer(port),
            Self::Other(other) => other.on_timer(port),
        }
    }

    /// [`Endpoint::deadline`] without dynamic dispatch for TCP.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.deadline(),
            Self::Other(other) => other.deadline(),
        }
    }
}
