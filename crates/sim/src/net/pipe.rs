//! A pipe with a constant delay.

use std::collections::VecDeque;

use underload_aqm::packet::Packet;
use underload_aqm::time::{Span, Time};
use underload_record::schema::Direction;

use super::Segment;

/// A ring of delayed packets in order, so that only the head is among the next events.
pub(super) struct Pipe {
    pub(super) direction: Direction,
    pub(super) delay: Span,
    packets: VecDeque<(Time, Packet<Segment>)>,
}

impl Pipe {
    pub(super) fn new(direction: Direction, delay: Span) -> Self {
        Self { direction, delay, packets: VecDeque::new() }
    }

    pub(super) fn push(&mut self, now: Time, packet: Packet<Segment>) {
        self.packets.push_back((now + self.delay, packet));
    }

    pub(super) fn pop(&mut self) -> Option<Packet<Segment>> {
        self.packets.pop_front().map(|(_, packet)| packet)
    }

    pub(super) fn next_event(&self) -> Time {
        self.packets.front().map_or(Time::MAX, |(arrival, _)| *arrival)
    }
}
