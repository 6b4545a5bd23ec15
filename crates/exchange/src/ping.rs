//! The lines that `ping` prints on Linux, macOS and Windows, in any language. Each line is an
//! answered probe. A probe is lost if its number is missing, if its line reports that, or if the
//! summary counts more probes than lines.
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

/// Whether a line of the first ones is an answer, or says that none came.
pub(super) fn is_ping(text: &str) -> bool {
    text.lines().take(20).any(|line| answer(line).is_some() || is_timeout(line))
}

/// Whether a line says that a probe has no answer: on Windows, macOS, and Linux with `-O`.
fn is_timeout(line: &str) -> bool {
    ["Request timed out", "Request timeout for icmp_seq", "no answer yet for icmp_seq"]
        .iter()
        .any(|words| line.contains(words))
}

/// Returns how many probes the summary counts as sent: the first number of `4 packets transmitted, 3
/// received, 25% packet loss` or `Sent = 4, Received = 3, Lost = 1 (25% loss)`. Windows in German
/// has the share on the next line: `Gesendet = 4, Empfangen = 3, Verloren = 1`.
fn sent(line: &str) -> Option<u64> {
    let numbers = || line.split(|c: char| !c.is_ascii_digit()).filter(|it| !it.is_empty());
    // Not `fe80::1%eth0`.
    let is_share = |(at, _): (usize, &str)| {
        let is_number = line[..at].ends_with(|c: char| c.is_ascii_digit());
        is_number && !line[at + 1..].starts_with(char::is_alphanumeric)
    };
    let is_summary = line.match_indices('%').any(is_share) && numbers().count() >= 3;
    let counts: Vec<u64> = numbers().take(4).map_while(|it| it.parse().ok()).collect();
    let is_sum = matches!(*counts, [sent, got, lost] if got.checked_add(lost) == Some(sent));
    let is_counted = is_sum && line.matches(" = ").count() == 3 && !line.contains("ms");
    counts.first().copied().filter(|_| is_summary || is_counted)
}

/// An answer: the round trip, and when it came.
struct Answer {
    rtt_ns: u64,
    came_ns: Option<u64>,
}

impl Answer {
    fn sent_at_ns(&self) -> Option<u64> {
        Some(self.came_ns?.saturating_sub(self.rtt_ns))
    }
}

fn answer(line: &str) -> Option<Answer> {
    let is_answer = line.contains("rom ") || line.to_ascii_lowercase().contains("ttl=");
    let rtt_ns = nanos(is_answer.then(|| round_trip_ms(line))?? / 1e3)?;
    let stamp = line.strip_prefix('[').and_then(|rest| rest.split_once(']')?.0.parse().ok());
    let stamp = stamp.filter(|seconds: &f64| (0.0..STAMP_MAX_SECONDS).contains(seconds));
    let came_ns = stamp.map(|seconds| (seconds * 1e9) as u64);
    Some(Answer { rtt_ns, came_ns })
}

/// Returns the number of the probe; Windows prints none.
fn number(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("icmp_seq")?;
    let rest = rest.trim_start_matches(['=', ' ']);
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the round trip, whatever word is before it: `time=12.5 ms`, `time<1ms`, `Zeit=12,5 ms`.
fn round_trip_ms(line: &str) -> Option<f64> {
    line.match_indices(['=', '<']).find_map(|(at, _)| {
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))?;
        let is_time = rest[end..].trim_start().starts_with("ms");
        is_time.then(|| rest[..end].replace(',', ".").parse().ok())?
    })
}

pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    // Answers by number, starting at `NUMBERS`, because the answer to a later probe may arrive
    // first.
    let mut answers: BTreeMap<u64, Answer> = BTreeMap::new();
    let (mut first, mut last, mut total) = (None, None, 0);
    for line in text.lines() {
        let answer = answer(line);
        if answer.is_none() && !is_timeout(line) {
            total = sent(line).map_or(total, |sent| sent.min(ROWS_MAX as u64));
            continue;
        }
        let number = match number(line) {
            Some(number) => {
                let low = number.wrapping_sub(*first.get_or_insert(number)) % NUMBERS;
                with_all_bits(low, last.unwrap_or(NUMBERS))
            }
            None => last.map_or(NUMBERS, |last| last + 1),
        };
        if number >= NUMBERS + ROWS_MAX as u64 {
            return Err(ImportError::content("ping", "it has too many probes"));
        }
        last = last.max(Some(number));
        if let Some(answer) = answer {
            // A second answer to a probe is not counted as a probe.
            answers.entry(number).or_insert(answer);
        }
    }
    let began = answers.first_key_value().map_or(NUMBERS, |(number, _)| *number).min(NUMBERS);
    let began_ns = answers.values().filter_map(Answer::sent_at_ns).min();
    let answered = answers.into_iter().map(|(number, answer)| {
        let sequence = number - began;
        let sent_ns = match answer.sent_at_ns().zip(began_ns) {
            Some((sent, began)) => sent.saturating_sub(began),
            None => sequence * SECOND_NS,
        };
        probe(sequence, sent_ns, Some(answer.rtt_ns))
    });
    let total = total.max(last.map_or(0, |last| last + 1 - began));
    Ok(Imported::of_probes("ping", vec![probe_flow("ping")], with_lost(answered, total)))
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

/// Adds the lost probes, whose numbers are missing between answers, at equal distances, and those
/// before and after all answers, a second apart.
fn with_lost(answered: impl Iterator<Item = Sample>, total: u64) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for next in answered {
        let (begin, since) = samples.last().map_or((0, 0), |it| (it.sequence + 1, it.sent_ns));
        let missing = next.sequence - begin;
        let step = next.sent_ns.saturating_sub(since) / (missing + 1);
        let before = u64::from(begin > 0);
        let lost = (begin..next.sequence).map(|it| (it, since + (it - begin + before) * step));
        samples.extend(lost.map(|(it, sent_ns)| probe(it, sent_ns, None)));
        samples.push(next);
    }
    let (begin, since) = samples.last().map_or((0, 0), |it| (it.sequence + 1, it.sent_ns));
    let before = u64::from(begin > 0);
    let lost = (begin..total).map(|it| (it, since + (it - begin + before) * SECOND_NS));
    samples.extend(lost.map(|(it, sent_ns)| probe(it, sent_ns, None)));
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
        // Probes lost at the end, probes lost on Windows, and other languages.
        let ended = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=12.5 ms\n\
            4 packets transmitted, 1 received, +1 duplicates, 75% packet loss, time 3004ms\n";
        assert_eq!(read(ended), [(0, Some(125)), (1_000, None), (2_000, None), (3_000, None)]);
        let windows = "Request timed out.\r\nReply from 192.0.2.1: bytes=32 time=12ms TTL=64\r\n\
            Request timed out.\r\nReply from 192.0.2.1: bytes=32 time=9ms TTL=64\r\n\
            Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),\r\n";
        let lost = [(0, None), (1_000, Some(120)), (2_000, None), (3_000, Some(90))];
        assert_eq!(read(windows), lost);
        let german = "Antwort von 192.0.2.1: Bytes=32 Zeit=12ms TTL=57\r\n\
            Pakete: Gesendet = 2, Empfangen = 1, Verloren = 1 (50% Verlust),\r\n";
        assert_eq!(read(german), [(0, Some(120)), (1_000, None)]);
        let two_lines =
            german.replace(" (50% Verlust)", "").replace("1,\r", "1\r\n (50% Verlust)\r");
        let average = format!("{two_lines}    Minimum = 0ms, Maximum = 0ms, Mittelwert = 0ms\r\n");
        assert_eq!(read(&average), [(0, Some(120)), (1_000, None)]);
        let german = "64 Bytes von x: icmp_seq=1 ttl=57 Zeit=22,1 ms\n";
        assert_eq!(read(german), [(0, Some(221))]);
        assert_eq!(read("Request timed out.\nRequest timed out.\n"), [(0, None), (1_000, None)]);
        let answer = "from x: icmp_seq=1 time=1 ms\n";
        let many = format!("{answer}18446744073709551615 sent, 1 received, 99% lost\n{answer}");
        assert_eq!(read(&many).len(), ROWS_MAX);
        let scoped = "PING fe80::1%eth0(fe80::1%eth0) 56 data bytes\n\
            64 bytes from fe80::1%eth0: icmp_seq=1 ttl=64 time=0.5 ms\n";
        assert_eq!(read(scoped), [(0, Some(5))]);
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
