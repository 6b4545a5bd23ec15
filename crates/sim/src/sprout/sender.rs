//! The sending end: the window.

use std::collections::VecDeque;

use underload_aqm::time::{Span, Time};

use super::model::{Belief, FORECAST_TICKS, PACKET_BYTES, TICK};
use crate::net::{Flight, Forecast};

#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Bytes sent up to now, which is the number of the next byte.
    sequence: u32,
    /// First byte and time of each flight sent within the reordering time.
    recent: VecDeque<(u32, Time)>,
    /// The latest forecast, its number, its arrival, and the current tick in it.
    forecast: [u8; FORECAST_TICKS],
    forecast_number: u32,
    forecast_at: Time,
    position: usize,
    /// Estimate of the bytes in the network.
    queued: i64,
    /// A packet is sent then regardless of the window; `Time::MAX` before the start.
    heartbeat: Time,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self { heartbeat: Time::MAX, ..Self::default() }
    }

    /// Starts with the forecast of a new model, until the first forecast arrives.
    pub(super) fn start(&mut self, now: Time) {
        self.forecast = Belief::default().forecast();
        self.forecast_at = now;
        self.heartbeat = now;
    }

    /// Returns when the window may open or a heartbeat is due.
    pub(super) fn deadline(&self) -> Time {
        let last = self.position + 1 >= FORECAST_TICKS;
        let tick = if last { Time::MAX } else { self.tick_start(self.position + 1) };
        self.heartbeat.min(tick)
    }

    pub(super) fn on_forecast(&mut self, now: Time, forecast: &Forecast) {
        if forecast.tick <= self.forecast_number {
            return;
        }
        self.forecast_number = forecast.tick;
        self.forecast = forecast.packets;
        self.forecast_at = now;
        self.position = 0;
        let under_way = self.sequence.wrapping_sub(forecast.received_or_lost) as i32;
        self.queued = i64::from(under_way).max(0);
    }

    /// Returns the next packet to send now, if any.
    pub(super) fn next_packet(&mut self, now: Time) -> Option<Flight> {
        self.pass_ticks(now);
        let unit = i64::from(PACKET_BYTES);
        let window = self.window();
        let len = if window >= unit {
            PACKET_BYTES
        } else if now >= self.heartbeat {
            0
        } else {
            return None;
        };
        let ends_flight = window < 2 * unit;
        self.heartbeat = now + HEARTBEAT;
        let sequence = self.sequence;
        while self.recent.front().is_some_and(|(_, sent)| now.since(*sent) > REORDERING) {
            self.recent.pop_front();
        }
        if self.recent.back().is_none_or(|(_, sent)| *sent < now) {
            self.recent.push_back((sequence, now));
        }
        let oldest = self.recent.front().map_or(sequence, |(oldest, _)| *oldest);
        let unsettled = sequence.wrapping_sub(oldest).min(u32::from(u16::MAX));
        self.sequence = sequence.wrapping_add(u32::from(len));
        self.queued += i64::from(len);
        Some(Flight {
            sequence,
            unsettled_bytes: unsettled as u16,
            time_to_next_ms: if ends_flight { HEARTBEAT_MS } else { 0 },
            len,
        })
    }

    /// Subtracts from the estimate the expected deliveries of the ticks that have passed.
    fn pass_ticks(&mut self, now: Time) {
        while self.position + 1 < FORECAST_TICKS && self.tick_start(self.position + 1) <= now {
            let before = self.position.checked_sub(1).map_or(0, |tick| self.forecast[tick]);
            let expected = i64::from(self.forecast[self.position] - before);
            self.queued = (self.queued - expected * i64::from(PACKET_BYTES)).max(0);
            self.position += 1;
        }
    }

    /// Returns the bytes that may be sent to be delivered within five ticks (section 3.5).
    fn window(&self) -> i64 {
        let last = (self.position + PATIENCE_TICKS).min(FORECAST_TICKS - 1);
        let packets = i64::from(self.forecast[last] - self.forecast[self.position]);
        packets * i64::from(PACKET_BYTES) - self.queued
    }

    fn tick_start(&self, position: usize) -> Time {
        self.forecast_at + TICK * position as u64
    }
}

/// 100 ms, the delay bound for 95 % of the packets.
const PATIENCE_TICKS: usize = 5;
/// Longest silence of a sender with a closed window.
const HEARTBEAT_MS: u16 = 50;
const HEARTBEAT: Span = Span::from_millis(HEARTBEAT_MS as u64);
/// How much later than its successors a packet may arrive before it counts as lost.
const REORDERING: Span = Span::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(sender: &mut Sender, now: Time) -> Vec<Flight> {
        std::iter::from_fn(|| sender.next_packet(now)).collect()
    }

    fn forecast(tick: u32, received_or_lost: u32) -> Forecast {
        Forecast { tick, received_or_lost, packets: [2, 4, 6, 8, 10, 12, 14, 16] }
    }

    #[test]
    fn flight_is_limited_to_five_ticks_of_the_forecast() {
        let mut sender = Sender::new();
        sender.start(Time::ZERO);
        let first = drain(&mut sender, Time::ZERO).len() as u32;
        let unit = u32::from(PACKET_BYTES);
        // All of it arrived: 12 - 2 packets may be sent.
        let now = Time::from_millis(40);
        sender.on_forecast(now, &forecast(1, first * unit));
        let flight = drain(&mut sender, now);
        assert_eq!(flight.len(), 10);
        assert!(flight[..9].iter().all(|packet| packet.time_to_next_ms == 0));
        assert_eq!(flight[9].time_to_next_ms, 50);
        // After a tick, two packets are expected to have left; the rest of the forecast allows
        // three.
        let now = Time::from_millis(60);
        assert_eq!(sender.deadline(), now);
        assert_eq!(drain(&mut sender, now).len(), 2);
        // Nothing arrived: the packets in flight fill the window.
        sender.on_forecast(Time::from_millis(80), &forecast(2, first * unit));
        assert!(drain(&mut sender, Time::from_millis(80)).is_empty());
    }

    #[test]
    fn without_forecasts_only_heartbeats_leave() {
        let mut sender = Sender::new();
        sender.start(Time::ZERO);
        let mut now = Time::ZERO;
        let mut sent = Vec::new();
        while now < Time::from_secs(2) {
            sent.extend(drain(&mut sender, now));
            now = sender.deadline();
        }
        let late: Vec<_> = sent.iter().rev().take(20).collect();
        assert!(late.iter().all(|packet| packet.len == 0), "{late:?}");
        assert!((35..=45).contains(&sent.iter().filter(|packet| packet.len == 0).count()));
    }

    #[test]
    fn an_older_forecast_does_not_replace_a_newer_one() {
        let mut sender = Sender::new();
        sender.start(Time::ZERO);
        let sent = drain(&mut sender, Time::ZERO).len() as u32 * u32::from(PACKET_BYTES);
        sender.on_forecast(Time::from_millis(40), &forecast(2, sent));
        sender.on_forecast(Time::from_millis(41), &forecast(1, 0));
        assert_eq!(drain(&mut sender, Time::from_millis(41)).len(), 10);
    }
}
