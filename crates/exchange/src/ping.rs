//! The lines that `ping` prints on Linux, macOS and Windows: a probe each, whose answer is missing
//! if its number is.
//!
//! `ping -D` prints the time of each answer. Without it, probes count as sent a second apart, the
//! default of `ping`.

use std::collections::BTreeMap;

use underload_record::schema::Sample;

use super::imported::{ImportError, Imported, probe, probe_flow};
use super::numbers::nanos;
use super::rows::ROWS_MAX;

const SECOND_NS: u64 = 1_000_000_000;
/// The year 2286; later times are not accepted.
const STAMP_MAX_SECONDS: f64 = 1e10;
/// `ping` counts with 16 bits.
const NUMBERS: u64 = 1 << 16;

/// Whether a line of the first ones is an answer.
pub(super) fn is_ping(text: &str) -> bool {
    text.lines().take(20).any(|line| answer(line).is_some())
}

/// An answer: its number, the round trip, and when it came.
struct Answer {
    number: Option<u64>,
    rtt_ns: u64,
    came_ns: Option<u64>,
}

impl Answer {
    fn sent_at_ns(&self) -> Option<u64> {
        Some(self.came_ns?.saturating_sub(self.rtt_ns))
    }
}

fn answer(line: &str) -> Option<Answer> {
    let after = |word: &str| {
        let (_, rest) = line.split_once(word)?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        Some(&rest[..end])
    };
    // Windows prints `time=12ms` and `time<1ms`, and no number.
    let time = after("time=").or_else(|| after("time<"))?;
    let rtt_ns = nanos(time.parse::<f64>().ok()? / 1e3)?;
    let number = after("icmp_seq=").or_else(|| after("icmp_seq ")).and_then(|it| it.parse().ok());
    let stamp = line.strip_prefix('[').and_then(|rest| rest.split_once(']')?.0.parse().ok());
    let stamp = stamp.filter(|seconds: &f64| (0.0..STAMP_MAX_SECONDS).contains(seconds));
    let came_ns = stamp.map(|seconds| (seconds * 1e9) as u64);
    line.contains("rom ").then_some(Answer { number, rtt_ns, came_ns })
}

pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    // Answers by number, starting at `NUMBERS`, because the answer to a later probe may arrive
    // first.
    let mut answers: BTreeMap<u64, Answer> = BTreeMap::new();
    let mut first = None;
    for answer in text.lines().filter_map(answer) {
        let last = answers.last_key_value().map(|(number, _)| *number);
        let number = match answer.number {
            Some(number) => {
                let low = number.wrapping_sub(*first.get_or_insert(number)) % NUMBERS;
                with_all_bits(low, last.unwrap_or(NUMBERS))
            }
            None => last.map_or(NUMBERS, |last| last + 1),
        };
        if number >= NUMBERS + ROWS_MAX as u64 {
            return Err(ImportError::content("ping", "it has too many probes"));
        }
        // A second answer to a probe is not counted as a probe.
        answers.entry(number).or_insert(answer);
    }
    let begin = answers.first_key_value().map_or(0, |(number, _)| *number);
    let began_ns = answers.values().filter_map(Answer::sent_at_ns).min();
    let answered = answers.into_iter().map(|(number, answer)| {
        let sequence = number - begin;
        let sent_ns = match answer.sent_at_ns().zip(began_ns) {
            Some((sent, began)) => sent.saturating_sub(began),
            None => sequence * SECOND_NS,
        };
        probe(sequence, sent_ns, Some(answer.rtt_ns))
    });
    Ok(Imported::of_probes("ping", vec![probe_flow("ping")], with_lost(answered)))
}

/// Returns the number whose lowest 16 bits are `low`, and which is nearest to `last`.
const fn with_all_bits(low: u64, last: u64) -> u64 {
    let near = low + last / NUMBERS * NUMBERS;
    if near + NUMBERS / 2 < last {
        near + NUMBERS
    } else if near > last + NUMBERS / 2 && near >= NUMBERS {
        near - NUMBERS
    } else {
        near
    }
}

/// Adds the lost probes, whose numbers are missing between answers, at equal distances.
fn with_lost(answered: impl Iterator<Item = Sample>) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for next in answered {
        let (last, since) = samples.last().map_or((0, 0), |it| (it.sequence, it.sent_ns));
        let step = next.sent_ns.saturating_sub(since) / (next.sequence - last).max(1);
        let lost = last + 1..next.sequence;
        samples.extend(lost.map(|it| probe(it, since + (it - last) * step, None)));
        samples.push(next);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_three_systems_are_probes_and_gaps_are_losses() {
        let linux = "PING a.example (192.0.2.1) 56(84) bytes of data.\n\
            64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=12.5 ms\n\
            64 bytes from 192.0.2.1: icmp_seq=4 ttl=64 time=13 ms\n\
            64 bytes from 192.0.2.1: icmp_seq=4 ttl=64 time=14 ms (DUP!)\n\
            --- a.example ping statistics ---\nrtt min/avg/max/mdev = 1/2/3/4 ms\n";
        let stamped = "[1700000000.5] 64 bytes from 192.0.2.1: icmp_seq=9 ttl=64 time=100 ms\n\
            [1700000000.8] 64 bytes from 192.0.2.1: icmp_seq=10 ttl=64 time=200 ms\n";
        let macos = "64 bytes from 192.0.2.1: icmp_seq=0 ttl=64 time=5.0 ms\n\
            Request timeout for icmp_seq 1\n64 bytes from 192.0.2.1: icmp_seq=2 ttl=64 time=6 ms\n";
        let windows = "Reply from 192.0.2.1: bytes=32 time=12ms TTL=64\r\n\
            Reply from 192.0.2.1: bytes=32 time<1ms TTL=64\r\n";
        let read = |text: &str| {
            assert!(is_ping(text), "{text}");
            let samples = read(text).expect(text).samples;
            let facts = |it: &Sample| (it.sent_ns / 1_000_000, it.rtt_ns.map(|ns| ns / 100_000));
            samples.iter().map(facts).collect::<Vec<_>>()
        };
        assert_eq!(read(linux), [(0, Some(125)), (1_000, None), (2_000, None), (3_000, Some(130))]);
        assert_eq!(read(stamped), [(0, Some(1_000)), (200, Some(2_000))]);
        assert_eq!(read(macos), [(0, Some(50)), (1_000, None), (2_000, Some(60))]);
        assert_eq!(read(windows), [(0, Some(120)), (1_000, Some(10))]);
        assert!(!is_ping("time=5 is a setting"));
        // The number starts over.
        let around = "from x: icmp_seq=65535 time=1 ms\nfrom x: icmp_seq=0 time=1 ms\n";
        assert_eq!(read(around), [(0, Some(10)), (1_000, Some(10))]);
        // A probe that was overtaken is neither lost nor sent twice, whatever its file repeats.
        let overtaken = "from x: icmp_seq=1 time=1 ms\nfrom x: icmp_seq=3 time=1 ms\n\
            from x: icmp_seq=2 time=2 ms\nfrom x: icmp_seq=4 time=1 ms\n";
        let answers = [10, 20, 10, 10].map(Some);
        let expected: Vec<_> = (0..).map(|second| second * 1_000).zip(answers).collect();
        assert_eq!(read(overtaken), expected);
        let behind = "from x: icmp_seq=2 time=1 ms\nfrom x: icmp_seq=1 time=2 ms\n";
        assert_eq!(read(behind), [(0, Some(20)), (1_000, Some(10))]);
        let jumps = "from x: icmp_seq=1 time=1 ms\nfrom x: icmp_seq=30001 time=1 ms\n".repeat(99);
        assert_eq!(read(&jumps).len(), 30_001);
        let late = "[1e300] from x: icmp_seq=1 time=1 ms\n[9e99] from x: icmp_seq=3 time=1 ms\n";
        assert_eq!(read(late).len(), 3);
    }
}
