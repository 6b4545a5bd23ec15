//! The way of a packet between its transmission and the far end, besides a fixed delay: jitter and
//! reordering.
//!
//! A link without these options has no [`Flight`] and pays one test per packet.

use crate::rng::Rng;
use crate::time::{Span, Time};

use super::draw::{exponential_q32, normal_q16};

/// The extra delays of one direction.
#[derive(Clone, Debug)]
pub struct Flight {
    options: FlightOptions,
    jitter_rng: Rng,
    reorder_rng: Rng,
    /// The earliest arrival of a packet that must not overtake earlier ones.
    latest: Time,
}

/// The parameters of the extra delays of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlightOptions {
    /// A random delay of each packet; `None` for none.
    pub jitter: Option<Jitter>,
    /// Delays packets so that later ones overtake them.
    pub reorder: Option<Reorder>,
}

impl FlightOptions {
    /// Returns whether packets have no extra delay.
    pub const fn is_empty(&self) -> bool {
        self.jitter.is_none() && self.reorder.is_none()
    }
}

/// A random delay from zero to `most`, drawn for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Jitter {
    /// The longest extra delay of a packet.
    pub most: Span,
    /// Distribution of the delay.
    pub law: JitterLaw,
    /// Whether a packet waits for those sent before it, as on a link that retransmits. Otherwise it
    /// arrives after its own delay, and may overtake.
    pub keep_order: bool,
}

/// The distribution of jitter from zero to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterLaw {
    /// Uniform; the mean is half of `most`.
    Uniform,
    /// Normal, cut at both ends; the mean is half of `most`, the standard deviation a sixth.
    Normal,
    /// Exponential, cut at `most` (0.03 % of the packets); the mean is an eighth of `most`.
    Exponential,
}

/// Packets that are delayed so that later ones overtake them.
#[derive(Clone, Copy, Debug)]
pub struct Reorder {
    /// Probability per packet, as a fraction of 2^32.
    pub probability_q32: u64,
    /// The extra delay of a reordered packet.
    pub by: Span,
}

impl Flight {
    /// Returns extra delays that draw from child streams of `rng`.
    pub fn new(options: FlightOptions, rng: &Rng) -> Self {
        Self {
            options,
            jitter_rng: rng.child("jitter"),
            reorder_rng: rng.child("reorder"),
            latest: Time::ZERO,
        }
    }

    /// Returns when a packet reaches the far end. Its transmission ended at `end`, and it would
    /// arrive after `delay`.
    pub(super) fn arrival(&mut self, end: Time, delay: Span) -> Time {
        let mut arrival = end + delay;
        if let Some(jitter) = self.options.jitter {
            arrival += jitter.draw(&mut self.jitter_rng);
            if jitter.keep_order {
                arrival = arrival.max(self.latest);
                self.latest = arrival;
            }
        }
        if let Some(reorder) = self.options.reorder
            && u64::from(self.reorder_rng.next_u32()) < reorder.probability_q32
        {
            arrival += reorder.by;
        }
        arrival
    }
}

impl Jitter {
    fn draw(self, rng: &mut Rng) -> Span {
        const ONE_Q32: u64 = 1 << 32;
        let part_q32 = match self.law {
            JitterLaw::Uniform => u64::from(rng.next_u32()),
            JitterLaw::Normal => {
                let sixth_q32 = (normal_q16(rng) << 16) / 6;
                (ONE_Q32 as i64 / 2 + sixth_q32).clamp(0, ONE_Q32 as i64) as u64
            }
            JitterLaw::Exponential => (exponential_q32(rng) / 8).min(ONE_Q32),
        };
        let nanos = (u128::from(self.most.as_nanos()) * u128::from(part_q32)) >> 32;
        Span::from_nanos(nanos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn arrivals(options: FlightOptions, count: u64) -> Vec<Time> {
        let mut flight = Flight::new(options, &Rng::new(3));
        let end = |number: u64| Time::from_millis(1) + Span::from_micros(100) * number;
        (0..count).map(|number| flight.arrival(end(number), Span::from_millis(5))).collect()
    }

    #[test]
    fn jitter_has_the_promised_mean_and_bounds() {
        for (law, mean_us) in [
            (JitterLaw::Uniform, 4_000.0),
            (JitterLaw::Normal, 4_000.0),
            (JitterLaw::Exponential, 1_000.0),
        ] {
            let most = Span::from_millis(8);
            let jitter = Some(Jitter { most, law, keep_order: false });
            let out = arrivals(FlightOptions { jitter, ..FlightOptions::default() }, 50_000);
            let mut sum = 0.0;
            for (number, arrival) in out.iter().enumerate() {
                let earliest = Time::from_micros(6_000 + 100 * number as u64);
                assert!(*arrival >= earliest && *arrival <= earliest + most, "{law:?}");
                sum += arrival.since(earliest).as_nanos() as f64 / 1e3;
            }
            let mean = sum / 50_000.0;
            assert!((mean / mean_us - 1.0).abs() < 0.02, "{law:?}: {mean} us");
        }
    }

    #[test]
    fn jitter_keeps_the_order_where_it_should() {
        for keep_order in [true, false] {
            let most = Span::from_millis(8);
            let jitter = Some(Jitter { most, law: JitterLaw::Uniform, keep_order });
            let out = arrivals(FlightOptions { jitter, ..FlightOptions::default() }, 1_000);
            assert_eq!(out.is_sorted(), keep_order);
        }
    }

    #[test]
    fn reordered_packets_fall_behind_and_the_others_stay() {
        let by = Span::from_millis(1);
        let reorder = Some(Reorder { probability_q32: (1 << 32) / 10, by });
        let out = arrivals(FlightOptions { reorder, ..FlightOptions::default() }, 10_000);
        let due = |number: usize| Time::from_micros(6_000 + 100 * number as u64);
        let late = out.iter().enumerate().filter(|(number, time)| **time == due(*number) + by);
        let on_time = out.iter().enumerate().filter(|(number, time)| **time == due(*number));
        let late = late.count();
        assert_eq!(late + on_time.count(), 10_000);
        assert!((900..1_100).contains(&late), "{late}");
    }
}
