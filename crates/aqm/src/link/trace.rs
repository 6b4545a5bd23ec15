//! Recorded links in Mahimahi's format: one delivery opportunity per line, as whole milliseconds
//! that do not decrease; the recording starts over at its last time stamp. A file of two columns is
//! a rate over time instead, in seconds and Mbit/s.
//!
//! # Profiles
//! * `mahimahi`: as `mm-link` (`link_queue.cc`). An opportunity carries 1504 bytes (1500 and 4 of
//!   TUN header, which all its sizes include) at one instant. An opportunity without a packet is
//!   lost. Bytes that remain after a packet carry further packets of that instant; a packet that
//!   exceeds the opportunity is completed by the next ones. A packet larger than an opportunity can
//!   never pass.
//! * `exact`: the opportunities of a millisecond are spread over the millisecond that ends at their
//!   time stamp, as a constant rate. Being idle for a part of a millisecond loses only that part,
//!   and small packets are carried fairly. Over any whole milliseconds both profiles offer the same
//!   bytes.
//!
//! Profile `mahimahi` differs from `mm-link` in one point: a packet that arrives exactly at the
//! instant of an opportunity can still use it, as in all links here; `mm-link` reads its clock in
//! milliseconds, and uses the opportunities of a millisecond before its arrivals.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::schedule::{Schedule, Step};
use crate::config::{Kind, Value};
use crate::rate::Rate;
use crate::time::{Span, Time};

/// A recording: the times of its delivery opportunities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The opportunities in milliseconds, not decreasing. The last, which is not zero, is the
    /// length of the recording.
    opportunities_ms: Arc<[u32]>,
}

impl Trace {
    /// The maximum number of lines of a recording.
    pub const MAX_OPPORTUNITIES: usize = 1 << 24;

    /// Parses a recording. Lines end with LF or CR LF; the last may end without. An error names the
    /// first wrong line, counted from 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if body.is_empty() {
            return Err("the trace is empty: one time stamp in ms per line".to_string());
        }
        let mut opportunities_ms = Vec::new();
        let mut previous_ms = 0;
        for (number, line) in (1..).zip(body.split(|&byte| byte == b'\n')) {
            if number > Self::MAX_OPPORTUNITIES {
                return Err(format!("at most {} lines are accepted", Self::MAX_OPPORTUNITIES));
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return Err(format!("line {number} is empty: expected a time in ms"));
            }
            let ms = whole_number(line).ok_or_else(|| {
                let words = line.split(|byte| b",;\t ".contains(byte));
                let columns = words.filter(|word| !word.is_empty()).count();
                if columns > 2 {
                    return format!(
                        "line {number} has {columns} columns; expected seconds and Mbit/s alone: a \
                         link's delay is constant, `delay=20ms`, with a random part, `jitter=5ms`"
                    );
                }
                format!(
                    "line {number}: expected a whole number of milliseconds, at most 2^32 - 1, or \
                     in each line seconds and Mbit/s"
                )
            })?;
            if ms < previous_ms {
                return Err(format!(
                    "line {number}: its time is before that of line {}",
                    number - 1
                ));
            }
            previous_ms = ms;
            opportunities_ms.push(ms);
        }
        if previous_ms == 0 {
            return Err("the last time stamp is 0: the trace has no length".to_string());
        }
        Ok(Self { opportunities_ms: opportunities_ms.into() })
    }

    /// Parses a recording of rates: two columns, seconds and Mbit/s, separated by a comma, semicolon,
    /// tab or spaces; a first line without numbers is a header. The recording starts over after the
    /// last interval. `None` if the file has other lines.
    ///
    /// # Errors
    /// Returns an error that names the first wrong line, counted from 1, or a property that no
    /// schedule can have.
    pub(crate) fn rates(bytes: &[u8]) -> Option<Result<Schedule, String>> {
        let text = core::str::from_utf8(bytes).ok()?;
        let columns = |line: &str| {
            let mut words = line.split([',', ';', '\t', ' ']).filter(|word| !word.is_empty());
            let pair = [words.next()?.trim().to_string(), words.next()?.trim().to_string()];
            words.next().is_none().then_some(pair)
        };
        let step = |[seconds, rate]: [String; 2]| {
            let Some(Value::Span(start)) = Kind::Span.read(&(seconds + "s")) else { return None };
            let Some(Value::Rate(rate)) = Kind::Rate.read(&(rate + "mbit")) else { return None };
            Some(Step { start, rate })
        };
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let (_, first) = lines.clone().next().filter(|(_, line)| columns(line).is_some())?;
        if columns(first).and_then(step).is_none() {
            lines.next();
        }
        let expected = "expected two columns, seconds and Mbit/s";
        let steps = lines.map(|(number, line)| {
            columns(line).and_then(step).ok_or_else(|| format!("line {number}: {expected}"))
        });
        Some(steps.collect::<Result<Vec<Step>, String>>().and_then(|mut steps| {
            let begin = steps.first().map_or(Span::ZERO, |step| step.start);
            for step in &mut steps {
                step.start = step.start.saturating_sub(begin);
            }
            let last = steps.last().map_or(Span::ZERO, |step| step.start);
            let before = steps.iter().rev().nth(1).map(|step| step.start);
            let interval = before.map_or(Span::from_secs(1), |it| last.saturating_sub(it));
            Schedule::new(steps, Some(last + interval))
        }))
    }

    /// Returns the length of the recording.
    pub fn duration(&self) -> Span {
        Span::from_millis(u64::from(self.duration_ms()))
    }

    /// Returns the mean rate if each opportunity carries `opportunity_bytes`.
    pub fn mean_rate(&self, opportunity_bytes: u32) -> Rate {
        let bits = self.opportunities_ms.len() as u64 * u64::from(opportunity_bytes) * 8;
        let per_second = u128::from(bits) * 1_000 / u128::from(self.duration_ms());
        Rate::from_bits_per_second(per_second as u64)
    }

    /// Returns profile `exact`: each millisecond's opportunities as a constant rate.
    pub fn to_schedule(&self, opportunity_bytes: u32) -> Schedule {
        let bits_per_ms = |count: u64| count * u64::from(opportunity_bytes) * 8;
        let rate = |count| Rate::from_bits_per_second(bits_per_ms(count) * 1_000);
        let mut steps: Vec<Step> = Vec::new();
        let mut from_ms = 0;
        for group in self.opportunities_ms.chunk_by(|a, b| a.max(&1) == b.max(&1)) {
            // Opportunities at 0 ms count as those at 1 ms.
            let until_ms = group[0].max(1);
            if until_ms - 1 > from_ms {
                push_step(&mut steps, from_ms, Rate::default());
            }
            push_step(&mut steps, until_ms - 1, rate(group.len() as u64));
            from_ms = until_ms;
        }
        Schedule::new(steps, Some(self.duration()))
            .expect("a trace has a length and at least one opportunity")
    }

    /// Returns the number of opportunities before `time`, with the recording repeated.
    fn opportunities_before(&self, time: Time) -> u64 {
        let time_ms = time.as_nanos().div_ceil(NANOS_PER_MS);
        // The cycles whose last opportunity is before `time`, and the current one.
        let cycles = time_ms.saturating_sub(1) / u64::from(self.duration_ms());
        let offset_ms = time_ms - cycles * u64::from(self.duration_ms());
        let rest = self.opportunities_ms.partition_point(|&ms| u64::from(ms) < offset_ms);
        cycles * self.opportunities_ms.len() as u64 + rest as u64
    }

    fn duration_ms(&self) -> u32 {
        self.opportunities_ms[self.opportunities_ms.len() - 1]
    }
}

/// Appends a step, unless the previous step has the same rate.
fn push_step(steps: &mut Vec<Step>, start_ms: u32, rate: Rate) {
    if steps.last().is_none_or(|last| last.rate != rate) {
        steps.push(Step { start: Span::from_millis(u64::from(start_ms)), rate });
    }
}

fn whole_number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Profile `mahimahi`: a link that transmits at the times of a recording's opportunities.
#[derive(Clone, Debug)]
pub struct Opportunities {
    trace: Trace,
    opportunity_bytes: u32,
    /// The next opportunity that is neither used nor missed, and the start of its cycle.
    index: usize,
    cycle_start_ms: u64,
    /// Bytes left of the last opportunity; only usable at its own time.
    left_bytes: u32,
    left_at: Time,
}

impl Opportunities {
    /// Returns a link at the start of `trace`; `opportunity_bytes` must not be zero.
    pub fn new(trace: Trace, opportunity_bytes: u32) -> Self {
        assert!(opportunity_bytes > 0, "configuration refuses empty opportunities");
        Self {
            trace,
            opportunity_bytes,
            index: 0,
            cycle_start_ms: 0,
            left_bytes: 0,
            left_at: Time::ZERO,
        }
    }

    /// Returns the bytes of the opportunities from `from` on and before `to`, used or not.
    pub(super) fn offered_bytes(&self, from: Time, to: Time) -> u64 {
        let number = self.trace.opportunities_before(to) - self.trace.opportunities_before(from);
        number * u64::from(self.opportunity_bytes)
    }

    pub(super) fn next_start(&mut self, ready: Time) -> Time {
        if self.left_bytes > 0 && self.left_at == ready {
            return ready;
        }
        self.left_bytes = 0;
        self.miss_before(ready);
        self.next_opportunity()
    }

    pub(super) fn transmit(&mut self, start: Time, len: u32) -> Option<Time> {
        if len > self.opportunity_bytes {
            return None;
        }
        if self.left_at != start {
            self.left_bytes = 0;
        }
        let (mut now, mut wanted) = (start, len);
        while wanted > self.left_bytes {
            wanted -= self.left_bytes;
            now = self.next_opportunity().max(now);
            self.consume();
            self.left_bytes = self.opportunity_bytes;
        }
        self.left_bytes -= wanted;
        self.left_at = now;
        Some(now)
    }

    fn next_opportunity(&self) -> Time {
        let offset_ms = u64::from(self.trace.opportunities_ms[self.index]);
        Time::ZERO + Span::from_millis(1) * (self.cycle_start_ms.saturating_add(offset_ms))
    }

    fn consume(&mut self) {
        self.index += 1;
        if self.index == self.trace.opportunities_ms.len() {
            self.index = 0;
            self.cycle_start_ms += u64::from(self.trace.duration_ms());
        }
    }

    /// Skips all opportunities before `ready`, without walking through them.
    fn miss_before(&mut self, ready: Time) {
        if self.next_opportunity() >= ready {
            return;
        }
        let ready_ms = ready.as_nanos().div_ceil(NANOS_PER_MS);
        let duration_ms = u64::from(self.trace.duration_ms());
        // The cycle whose last opportunity is not before `ready`.
        let cycles = (ready_ms - self.cycle_start_ms).div_ceil(duration_ms).saturating_sub(1);
        if cycles > 0 {
            self.cycle_start_ms += cycles * duration_ms;
            self.index = 0;
        }
        let offset_ms = ready_ms - self.cycle_start_ms;
        let rest = &self.trace.opportunities_ms[self.index..];
        self.index += rest.partition_point(|&ms| u64::from(ms) < offset_ms);
    }
}

const NANOS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn link(text: &str) -> Opportunities {
        Opportunities::new(Trace::parse(text.as_bytes()).expect("a trace"), 1_504)
    }

    /// Sends packets of these sizes through a link that is always busy. Returns when the
    /// transmission of each ends, ms.
    fn busy_ends_ms(link: &mut Opportunities, lens: &[u32]) -> Vec<u64> {
        let mut end = Time::ZERO;
        let ends = lens.iter().map(|&len| {
            let start = link.next_start(end);
            end = link.transmit(start, len).expect("it fits");
            end.as_millis()
        });
        ends.collect()
    }

    #[test]
    fn one_full_packet_leaves_per_opportunity_and_the_trace_wraps() {
        let ends = busy_ends_ms(&mut link("5\n5\n7\n"), &[1_504; 7]);
        assert_eq!(ends, [5, 5, 7, 12, 12, 14, 19]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_the_last_is_finished_by_the_next() {
        // 500 + 500 leave 504 for the third packet, whose other 96 bytes wait for the next.
        let ends = busy_ends_ms(&mut link("5\n8\n"), &[500, 500, 600, 1_000, 408]);
        assert_eq!(ends, [5, 5, 8, 8, 8]);
        let ends = busy_ends_ms(&mut link("5\n8\n"), &[500, 500, 600, 1_000, 409]);
        assert_eq!(ends, [5, 5, 8, 8, 13]);
    }

    #[test]
    fn idle_opportunities_and_leftovers_are_lost() {
        let mut link = link("5\n8\n10\n");
        assert_eq!(link.next_start(Time::from_micros(5_001)), Time::from_millis(8));
        assert_eq!(link.transmit(Time::from_millis(8), 4), Some(Time::from_millis(8)));
        assert_eq!(link.next_start(Time::from_millis(8)), Time::from_millis(8));
        assert_eq!(link.next_start(Time::from_micros(8_001)), Time::from_millis(10));
        assert_eq!(link.transmit(Time::from_millis(10), 1_504), Some(Time::from_millis(10)));
    }

    #[test]
    fn distant_times_are_found_without_stepping_through_the_trace_also_at_its_wrap() {
        let mut link = link("0\n5\n10\n");
        let day = Time::from_secs(86_400);
        assert_eq!(link.next_start(day), day);
        assert_eq!(busy_ends_ms(&mut link, &[])[..], []);
        assert_eq!(link.transmit(day, 1_504), Some(day));
        assert_eq!(link.next_start(day), day, "the last of one cycle and the first of the next");
        assert_eq!(link.transmit(day, 1_504), Some(day));
        assert_eq!(link.next_start(day), day + Span::from_millis(5));
    }

    #[test]
    fn a_packet_larger_than_an_opportunity_never_passes() {
        assert_eq!(link("1\n").transmit(Time::from_millis(1), 1_505), None);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("", "the trace is empty"),
            ("\n", "the trace is empty"),
            ("1\n\n2\n", "line 2 is empty"),
            ("1\n2x\n", "line 2: expected a whole number"),
            ("1\n-2\n", "line 2: expected a whole number"),
            ("4294967296\n", "line 1: expected a whole number"),
            ("1\n5\n4\n", "line 3: its time is before that of line 2"),
            ("0\n0\n", "the trace has no length"),
        ] {
            let error = Trace::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        assert_eq!(Trace::parse(b"1\r\n2").map(|trace| trace.duration()), Ok(Span::from_millis(2)));
    }

    #[test]
    fn too_many_lines_are_refused() {
        let text = "1\n".repeat(Trace::MAX_OPPORTUNITIES + 1);
        let error = Trace::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error, "at most 16777216 lines are accepted");
    }

    #[test]
    fn a_trace_becomes_a_schedule_that_spreads_each_millisecond_and_merges_equal_ones() {
        // 12.032 Mbit/s in the second to fourth millisecond, none in the first and fifth.
        let trace = Trace::parse(b"2\n3\n4\n6\n6\n").unwrap();
        let mut schedule = trace.to_schedule(1_504);
        let (mut end, mut ends_us) = (Time::ZERO, Vec::new());
        for _ in 0..4 {
            let start = schedule.next_start(end);
            end = schedule.transmit(start, 1_504);
            ends_us.push(end.as_nanos() / 1_000);
        }
        assert_eq!(ends_us, [2_000, 3_000, 4_000, 5_500]);
        assert_eq!(schedule.nominal_rate(), trace.mean_rate(1_504));
    }

    proptest! {
        /// A busy link uses every byte of every opportunity, in both profiles alike.
        #[test]
        fn throughput_is_exact(
            gaps in prop::collection::vec(0_u32..4, 1..40),
            lens in prop::collection::vec(1_u32..=1_504, 1..300),
        ) {
            let mut at = 0;
            let mut times: Vec<u32> = gaps.iter().map(|gap| { at += gap; at }).collect();
            times.push(at + 1);
            let lines: Vec<String> = times.iter().map(ToString::to_string).collect();
            let text = lines.join("\n");
            let trace = Trace::parse(text.as_bytes()).unwrap();
            let mut link = Opportunities::new(trace.clone(), 1_504);
            let ends = busy_ends_ms(&mut link, &lens);
            let mut sent = 0_u64;
            for (len, end_ms) in lens.iter().zip(ends) {
                sent += u64::from(*len);
                // The packet ends with the opportunity that carries its last byte.
                let opportunity = (sent - 1) / 1_504;
                let cycle = opportunity / times.len() as u64;
                let offset = times[(opportunity % times.len() as u64) as usize];
                let expected = cycle * u64::from(at + 1) + u64::from(offset);
                prop_assert_eq!(end_ms, expected);
            }
        }
    }
}
