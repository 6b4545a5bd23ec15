//! A rate that changes at given instants and is constant in between: `steps`, and traces in
//! profile `exact`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::piecewise::{Pieces, Transmitter};
use crate::rate::Rate;
use crate::time::{Span, Time};

/// A checked rate over time. A change applies to the rest of a packet in transmission.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) cursor: Cursor,
    transmitter: Transmitter,
}

#[derive(Clone, Debug)]
pub(super) struct Cursor {
    steps: Arc<[Step]>,
    period: Option<Period>,
    /// The index of the step at the cursor, and the start of its cycle.
    index: usize,
    cycle_start: Time,
}

/// A rate that holds from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offset from the start of the cycle.
    pub start: Span,
    /// The rate from `start` on; zero is an outage.
    pub rate: Rate,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    length: Span,
    work_nanobits: u128,
}

impl Schedule {
    /// A trace of nine hours that changes every millisecond.
    pub const MAX_STEPS: usize = 1 << 25;

    /// Returns a schedule that repeats, or whose last rate holds for ever; or what is wrong.
    pub fn new(steps: Vec<Step>, repeat: Option<Span>) -> Result<Self, String> {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err("a schedule needs at least one step, such as 0s=6mbit".to_string());
        };
        if steps.len() > Self::MAX_STEPS {
            return Err(format!("at most {} steps are accepted", Self::MAX_STEPS));
        }
        if first.start > Span::ZERO {
            return Err("the first step must start at 0s".to_string());
        }
        if let Some(at) = steps.windows(2).position(|pair| pair[0].start >= pair[1].start) {
            return Err(format!("step {} must start after step {}", at + 2, at + 1));
        }
        let period = match repeat {
            Some(length) if length <= last.start => {
                return Err("`repeat` must be later than the last step".to_string());
            }
            Some(length) => {
                let ends = steps.iter().skip(1).map(|step| step.start).chain([length]);
                let work = steps.iter().zip(ends).map(|(step, end)| {
                    let nanos = end.saturating_sub(step.start).as_nanos();
                    u128::from(step.rate.bits_per_second()) * u128::from(nanos)
                });
                Some(Period { length, work_nanobits: work.sum() })
            }
            None => None,
        };
        if period.map_or(last.rate.is_zero(), |period| period.work_nanobits == 0) {
            return Err("a rate of zero must not last for ever".to_string());
        }
        let cursor = Cursor { steps: steps.into(), period, index: 0, cycle_start: Time::ZERO };
        Ok(Self { cursor, transmitter: Transmitter::default() })
    }

    /// Returns the mean rate of a schedule that repeats, otherwise its first rate above zero. The
    /// defaults of queues depend on this rate.
    pub fn nominal_rate(&self) -> Rate {
        match self.cursor.period {
            Some(period) => {
                let mean = period.work_nanobits / u128::from(period.length.as_nanos());
                Rate::from_bits_per_second(mean as u64)
            }
            None => {
                let rates = self.cursor.steps.iter().map(|step| step.rate);
                rates.clone().find(|rate| !rate.is_zero()).unwrap_or_default()
            }
        }
    }

    /// Returns the integral of the rate.
    pub(super) fn offered_nanobits(&self, from: Time, to: Time) -> u128 {
        self.cursor.nanobits_until(to).saturating_sub(self.cursor.nanobits_until(from))
    }

    pub(super) fn next_start(&mut self, ready: Time) -> Time {
        self.transmitter.next_start(&mut self.cursor, ready)
    }

    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Time {
        self.transmitter.transmit(&mut self.cursor, start, len)
    }
}

impl Cursor {
    /// Returns the integral of the rate from the beginning to `time`, without the cursor.
    fn nanobits_until(&self, time: Time) -> u128 {
        let time = time.since(Time::ZERO);
        let (whole, offset) = match self.period {
            Some(period) => {
                let cycles = time.as_nanos() / period.length.as_nanos();
                let within = time.saturating_sub(period.length * cycles);
                (period.work_nanobits * u128::from(cycles), within)
            }
            None => (0, time),
        };
        let ends = self.steps.iter().skip(1).map(|step| step.start).chain([offset]);
        let begun = self.steps.iter().zip(ends).take_while(|(step, _)| step.start < offset);
        let work = begun.map(|(step, end)| {
            let nanos = end.min(offset).saturating_sub(step.start).as_nanos();
            u128::from(step.rate.bits_per_second()) * u128::from(nanos)
        });
        whole + work.sum::<u128>()
    }
}

impl Pieces for Cursor {
    fn rate(&self) -> Rate {
        self.steps[self.index].rate
    }

    fn piece_end(&self) -> Time {
        match (self.steps.get(self.index + 1), self.period) {
            (Some(next), _) => self.cycle_start + next.start,
            (None, Some(period)) => self.cycle_start + period.length,
            (None, None) => Time::MAX,
        }
    }

    fn enter_next(&mut self) {
        let end = self.piece_end();
        self.index += 1;
        if self.index == self.steps.len() {
            self.index = 0;
            self.cycle_start = end;
        }
    }

    fn seek(&mut self, time: Time) {
        if time < self.piece_end() {
            return;
        }
        if let Some(period) = self.period {
            let cycles = time.since(self.cycle_start).as_nanos() / period.length.as_nanos();
            if cycles > 0 {
                self.cycle_start += period.length * cycles;
                self.index = 0;
            }
        }
        let offset = time.since(self.cycle_start);
        let behind = self.steps[self.index..].partition_point(|step| step.start <= offset);
        self.index += behind.saturating_sub(1);
    }

    /// Skips the whole cycles of a transmission, so that fewer steps than one cycle's remain.
    fn skip(&mut self, now: Time, work_nanobits: u64) -> (Time, u64) {
        let Some(period) = self.period else { return (now, work_nanobits) };
        let cycles = u128::from(work_nanobits.saturating_sub(1)) / period.work_nanobits;
        if cycles == 0 {
            return (now, work_nanobits);
        }
        let skipped = period.length * cycles as u64;
        self.cycle_start += skipped;
        (now + skipped, work_nanobits - (cycles * period.work_nanobits) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn step(start: Span, bits_per_second: u64) -> Step {
        Step { start, rate: Rate::from_bits_per_second(bits_per_second) }
    }

    fn millis(steps: &[(u64, u64)], repeat_ms: Option<u64>) -> Result<Schedule, String> {
        let steps = steps.iter().map(|&(ms, kbit)| step(Span::from_millis(ms), kbit * 1_000));
        Schedule::new(steps.collect(), repeat_ms.map(Span::from_millis))
    }

    #[test]
    fn a_change_in_mid_transmission_splits_the_packet() {
        // 1000 B at 8 Mbit/s take 1 ms; half of them leave before the change, and the other 500 B
        // take 5 ms at 0.8 Mbit/s.
        let mut schedule = millis(&[(0, 8_000), (10, 800)], None).unwrap();
        let start = schedule.next_start(Time::from_micros(9_500));
        assert_eq!(schedule.transmit(start, 1_000), Time::from_millis(15));
    }

    #[test]
    fn an_outage_holds_back_the_head_and_interrupts_a_transmission() {
        let mut schedule = millis(&[(0, 8_000), (10, 0), (30, 8_000)], None).unwrap();
        assert_eq!(schedule.transmit(Time::from_micros(9_500), 1_000), Time::from_micros(30_500));
        let mut schedule = millis(&[(0, 8_000), (10, 0), (30, 8_000)], None).unwrap();
        assert_eq!(schedule.next_start(Time::from_millis(12)), Time::from_millis(30));
    }

    #[test]
    fn a_repeat_restarts_the_schedule_and_distant_times_are_found_without_stepping() {
        let mut schedule = millis(&[(0, 8_000), (10, 0)], Some(20)).unwrap();
        let far = Time::from_secs(100_000_000) + Span::from_millis(15);
        assert_eq!(schedule.next_start(far), Time::from_secs(100_000_000) + Span::from_millis(20));
        assert_eq!(schedule.nominal_rate(), Rate::from_megabits_per_second(4));
    }

    #[test]
    fn invalid_schedules_are_refused_with_the_reason() {
        for (steps, repeat, expected) in [
            (vec![], None, "at least one step"),
            (vec![(1, 8)], None, "must start at 0s"),
            (vec![(0, 8), (5, 9), (5, 8)], None, "step 3 must start after step 2"),
            (vec![(0, 8), (5, 0)], None, "for ever"),
            (vec![(0, 0)], Some(10), "for ever"),
            (vec![(0, 8), (5, 9)], Some(5), "later than the last step"),
        ] {
            let error = millis(&steps, repeat).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn extreme_rates_neither_overflow_nor_hang() {
        for bits_per_second in [1, 100_000_000_000] {
            let slow = vec![step(Span::ZERO, bits_per_second), step(Span::from_nanos(1), 0)];
            let mut schedule = Schedule::new(slow, Some(Span::from_millis(1))).unwrap();
            let start = schedule.next_start(Time::ZERO);
            assert!(schedule.transmit(start, 65_535) > start);
        }
        // 1500 B at 1 bit/s: 12,000 s; at 100 Gbit/s: 120 ns.
        let mut slow = Schedule::new(vec![step(Span::ZERO, 1)], None).unwrap();
        assert_eq!(slow.transmit(Time::ZERO, 1_500), Time::from_secs(12_000));
        let mut fast = Schedule::new(vec![step(Span::ZERO, 100_000_000_000)], None).unwrap();
        assert_eq!(fast.transmit(Time::ZERO, 1_500), Time::from_nanos(120));
    }

    proptest! {
        /// A busy link passes exactly the bits of its schedule, whatever the packet sizes.
        #[test]
        fn throughput_is_exact(
            rates in prop::collection::vec(0_u64..3_000_000, 1..6),
            lens in prop::collection::vec(1_u32..9_000, 1..200),
            repeats in any::<bool>(),
        ) {
            prop_assume!(rates.iter().any(|&rate| rate > 0));
            let last = if repeats { 0 } else { 1_000 };
            let starts = (0..).map(|ms| Span::from_micros(ms * 700));
            let all = rates.iter().copied().chain([last]);
            let steps: Vec<Step> = starts.zip(all).map(|(start, rate)| step(start, rate)).collect();
            let period = Span::from_micros(700 * steps.len() as u64);
            let mut schedule = Schedule::new(steps.clone(), repeats.then_some(period)).unwrap();
            let mut end = Time::ZERO;
            let mut bits = 0_u128;
            for len in lens {
                let start = schedule.next_start(end);
                end = schedule.transmit(start, len);
                bits += u128::from(len) * 8;
            }
            // `end` is the last nanosecond up to which the link carried no more than the bits: one
            // nanosecond later it could have carried more.
            let repeat = repeats.then_some(period);
            let capacity = |until: Time| capacity_nanobits(&steps, repeat, until);
            let sent = bits * 1_000_000_000;
            prop_assert!(capacity(end) <= sent && sent < capacity(end + Span::from_nanos(1)) + 1);
        }
    }

    /// Integral of the rate, step by step.
    fn capacity_nanobits(steps: &[Step], period: Option<Span>, until: Time) -> u128 {
        let within = |offset: Span| -> u128 {
            let ends = steps.iter().skip(1).map(|s| s.start).chain([Span::from_nanos(u64::MAX)]);
            steps
                .iter()
                .zip(ends)
                .map(|(step, end)| {
                    let nanos = end.min(offset).saturating_sub(step.start).as_nanos();
                    u128::from(step.rate.bits_per_second()) * u128::from(nanos)
                })
                .sum()
        };
        let until = until.since(Time::ZERO);
        match period {
            None => within(until),
            Some(period) => {
                let cycles = until.as_nanos() / period.as_nanos();
                let rest = Span::from_nanos(until.as_nanos() % period.as_nanos());
                within(period) * u128::from(cycles) + within(rest)
            }
        }
    }
}
