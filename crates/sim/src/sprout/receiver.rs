//! The receiving end: arrivals, silence and forecasts.

use underload_aqm::time::{Span, Time};

use super::model::{Belief, TICK};
use crate::net::{Flight, Forecast};

#[derive(Debug, Default)]
pub(super) struct Receiver {
    belief: Belief,
    /// End of the current tick; `Time::MAX` before the first packet.
    pub(super) tick_end: Time,
    ticks: u32,
    /// Packets that arrived in this tick while the link was busy, and for how long it was busy.
    observed: u32,
    observed_time: Span,
    /// Whether a packet arrived after an announced silence, which only shows that the link works.
    alive: bool,
    /// End of the time that has been observed or excluded.
    observed_until: Time,
    /// End of the announced silence after a flight; in the past within a flight.
    silent_until: Time,
    /// Every byte before this one was received or is lost.
    settled: u32,
    /// Packets received beyond `settled`: first byte and length.
    recent: Vec<(u32, u16)>,
    pub(super) received_bytes: u64,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self { tick_end: Time::MAX, silent_until: Time::MAX, ..Self::default() }
    }

    pub(super) fn on_packet(&mut self, now: Time, packet: &Flight) {
        if self.tick_end == Time::MAX {
            self.tick_end = now + TICK;
        }
        // The gap after the end of a flight shows nothing about the rate, and the packet that ends
        // it shows only that the link works.
        let counts = self.observe_until(now);
        self.observed += u32::from(counts);
        self.alive |= !counts;
        self.observed_until = now;
        self.silent_until = now + Span::from_millis(u64::from(packet.time_to_next_ms));
        self.received_bytes += u64::from(packet.len);
        let settled = packet.sequence.wrapping_sub(u32::from(packet.unsettled_bytes));
        if is_after(settled, self.settled) {
            self.settled = settled;
            self.recent.retain(|(sequence, _)| !is_after(settled, *sequence));
        }
        if !is_after(self.settled, packet.sequence) && self.recent.len() < MAX_RECENT {
            self.recent.push((packet.sequence, packet.len));
        }
    }

    /// If the tick has ended, updates the model and returns the forecast.
    pub(super) fn on_timer(&mut self, now: Time) -> Option<Forecast> {
        if now < self.tick_end {
            return None;
        }
        self.belief.evolve();
        self.observe_until(self.tick_end);
        let observed = self.observed_time > Span::ZERO;
        if observed {
            self.belief.observe(self.observed, self.observed_time);
        }
        if self.alive && !(observed && self.observed > 0) {
            self.belief.observe_life();
        }
        (self.observed, self.observed_time, self.alive) = (0, Span::ZERO, false);
        self.tick_end += TICK;
        self.ticks += 1;
        let recent: u32 = self.recent.iter().map(|(_, len)| u32::from(*len)).sum();
        Some(Forecast {
            tick: self.ticks,
            received_or_lost: self.settled.wrapping_add(recent),
            packets: self.belief.forecast(),
        })
    }

    /// Observes the time up to `now` but an announced silence. Returns whether any was observed.
    fn observe_until(&mut self, now: Time) -> bool {
        let from = self.observed_until.max(self.silent_until);
        if from > now {
            return false;
        }
        self.observed_time = self.observed_time + now.since(from);
        self.observed_until = now;
        true
    }
}

/// Returns whether `a` is after `b` in a sequence space that wraps around.
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Maximum number of stored packets. Within the reordering time of 10 ms, 12 Mbit/s carry 10
/// packets; a flight has up to 240.
const MAX_RECENT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sprout::model::PACKET_BYTES;

    fn packet(sequence: u32, unsettled_bytes: u16, time_to_next_ms: u16) -> Flight {
        Flight { sequence, unsettled_bytes, time_to_next_ms, len: PACKET_BYTES }
    }

    #[test]
    fn a_lost_packet_counts_once_it_can_no_longer_be_late() {
        let mut receiver = Receiver::new();
        let unit = u32::from(PACKET_BYTES);
        receiver.on_packet(Time::ZERO, &packet(0, 0, 0));
        // The second packet is missing; the third may have overtaken it.
        receiver.on_packet(Time::ZERO, &packet(2 * unit, 2 * PACKET_BYTES, 0));
        let forecast = receiver.on_timer(Time::from_millis(20)).unwrap();
        assert_eq!(forecast.received_or_lost, 2 * unit);
        // No packet before the fourth is in flight.
        receiver.on_packet(Time::from_millis(25), &packet(3 * unit, 0, 0));
        let forecast = receiver.on_timer(Time::from_millis(40)).unwrap();
        assert_eq!(forecast.received_or_lost, 4 * unit);
        assert_eq!(receiver.received_bytes, 3 * u64::from(unit));
    }

    #[test]
    fn announced_silence_does_not_count_as_an_outage() {
        let silent = |time_to_next_ms| {
            let mut receiver = Receiver::new();
            let mut forecast = None;
            for tick in 0..50 {
                for number in 0..5 {
                    let announced = if number == 4 { time_to_next_ms } else { 0 };
                    let sequence = (tick * 5 + number) * u32::from(PACKET_BYTES);
                    let now = Time::from_millis(20 * u64::from(tick));
                    receiver.on_packet(now, &packet(sequence, 0, announced));
                }
                forecast = receiver.on_timer(Time::from_millis(20 * u64::from(tick) + 20));
            }
            for tick in 51..56 {
                forecast = receiver.on_timer(Time::from_millis(20 * tick));
            }
            forecast.unwrap().packets[4]
        };
        assert!(silent(500) > 0, "the sender announced the silence");
        assert_eq!(silent(0), 0, "packets were on their way");
    }
}
