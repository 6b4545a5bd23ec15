//! The encoding of stored results.
//!
//! The types here are the format on disk, independent of the API. A change needs a new [`FORMAT`],
//! which the test `encoding_of_this_format_does_not_change` checks.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::{StoreError, StoredResult};
use underload_record::judgement::Grade;

/// First byte of a result. Its last four bytes are a checksum of the device and the bytes before.
const FORMAT: u8 = 1;

/// A result without its device, which is in another column.
#[derive(Serialize, Deserialize)]
struct Body<'a> {
    epoch: u32,
    sequence: u64,
    stored_ms: u64,
    pseudonym: [u8; 16],
    cohort: &'a str,
    /// Model, firmware, segment, region, configured, measured.
    texts: [&'a str; 6],
    /// Rates of the tier, up and down.
    bit_per_s: [u64; 2],
    plan: &'a str,
    run: u64,
    at_ms: u64,
    /// The index in [`Outcome::ALL`].
    outcome: u8,
    reason: &'a str,
    server: &'a str,
    version: &'a str,
    #[serde(borrow)]
    steps: Vec<StepBody<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StepBody<'a> {
    step: &'a str,
    /// The index in [`Kind::ALL`].
    kind: u8,
    goodput_bit_per_s: Option<u64>,
    tier_percent: Option<f64>,
    /// The index in [`Grade::ALL`].
    grade: Option<u8>,
    #[serde(borrow)]
    series: Vec<SeriesBody<'a>>,
    #[serde(borrow)]
    inside: Option<SeriesBody<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SeriesBody<'a> {
    dscp: u8,
    sent: u64,
    lost: u64,
    bins: std::borrow::Cow<'a, [u8]>,
    /// Median, 99th percentile, mean, maximum.
    us: [Option<u64>; 4],
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    let broken = |error| StoreError::broken("a row cannot be written").because(error);
    serde_json::to_string(value).map_err(broken)
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    let broken = |error| StoreError::broken("a stored row is damaged").because(error);
    serde_json::from_str(text).map_err(broken)
}

/// CRC-32 of the parts, which detects changes by a disk or a copy.
pub(super) fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    for part in parts {
        sum.update(part);
    }
    sum.finalize().to_le_bytes()
}

pub(crate) fn encode(stored: &StoredResult) -> Vec<u8> {
    let (attributes, result) = (&stored.attributes, &stored.result);
    let body = Body {
        epoch: stored.epoch,
        sequence: stored.sequence,
        stored_ms: stored.stored_ms,
        pseudonym: stored.pseudonym.0,
        cohort: &stored.cohort,
        texts: [
            &attributes.model, &attributes.firmware, &attributes.segment, &attributes.region,
            &attributes.configured, &attributes.measured,
        ],
        bit_per_s: [attributes.tier_up_bit_per_s, attributes.tier_down_bit_per_s],
        plan: &result.plan,
        run: result.run,
        at_ms: result.at_ms,
        outcome: result.outcome as u8,
        reason: &result.reason,
        server: &result.server,
        version: &result.version,
        steps: result.steps.iter().map(step_body).collect(),
    };
    // Fails only for types of unknown length, which are not used here.
    let mut bytes = postcard::to_extend(&body, vec![FORMAT]).unwrap_or_default();
    bytes.extend(checksum(&[&stored.device.0, &bytes]));
    bytes
}

fn step_body(step: &StepResult) -> StepBody<'_> {
    StepBody {
        step: &step.step,
        kind: step.kind as u8,
        goodput_bit_per_s: step.goodput_bit_per_s,
        tier_percent: step.tier_percent,
        grade: step.grade.map(|grade| grade as u8),
        series: step.series.iter().map(series_body).collect(),
        inside: step.inside.as_ref().map(series_body),
    }
}

fn series_body(series: &SeriesResult) -> SeriesBody<'_> {
    SeriesBody {
        dscp: series.dscp,
        sent: series.sent,
        lost: series.lost,
        bins: bytes_of_bins(&series.bins).into(),
        us: [series.p50_us, series.p99_us, series.mean_us, series.max_us],
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// Rises in the order of arrival.
    pub(crate) number: i64,
    pub(crate) device: DeviceId,
    pub(crate) body: Vec<u8>,
}

impl Encoded {
    /// Verifies the checksum and decodes the result.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if the bytes are damaged or of another format.
    pub(crate) fn decode(&self) -> Result<StoredResult, StoreError> {
        let Self { number, device, body: bytes } = self;
        match bytes.first() {
            Some(&FORMAT) => {}
            Some(format) if *format > FORMAT => {
                return Err(StoreError::broken(format!(
                    "the stored result {number} of device {device} has format {format}, this \
                     program reads format {FORMAT}: start the program that wrote it"
                )));
            }
            _ => return Err(self.damaged()),
        }
        let (checked, sum) = bytes.split_last_chunk().ok_or_else(|| self.damaged())?;
        let body = checked.split_first().map(|(_, body)| body);
        let body = body.filter(|_| checksum(&[&device.0, checked]) == *sum);
        body.and_then(|body| result_of(*device, body)).ok_or_else(|| self.damaged())
    }

    fn damaged(&self) -> StoreError {
        let Self { number, device, .. } = self;
        StoreError::broken(format!(
            "the stored result {number} of device {device} is damaged: restore a copy of the \
             store, or delete this result with `DELETE FROM results WHERE number = {number}`"
        ))
    }
}

fn result_of(device: DeviceId, body: &[u8]) -> Option<StoredResult> {
    let (body, rest): (Body<'_>, _) = postcard::take_from_bytes(body).ok()?;
    let steps: Option<Vec<StepResult>> = body.steps.iter().map(step_result).collect();
    let outcome = Outcome::ALL.get(usize::from(body.outcome)).copied();
    let (Some(steps), Some(outcome), true) = (steps, outcome, rest.is_empty()) else {
        return None;
    };
    let [model, firmware, segment, region, configured, measured] = body.texts.map(str::to_owned);
    let [tier_up_bit_per_s, tier_down_bit_per_s] = body.bit_per_s;
    Some(StoredResult {
        device,
        epoch: body.epoch,
        sequence: body.sequence,
        stored_ms: body.stored_ms,
        pseudonym: Pseudonym(body.pseudonym),
        cohort: body.cohort.to_owned(),
        attributes: Attributes {
            model,
            firmware,
            tier_up_bit_per_s,
            tier_down_bit_per_s,
            segment,
            region,
            configured,
            measured,
        },
        result: RunResult {
            plan: body.plan.to_owned(),
            run: body.run,
            at_ms: body.at_ms,
            outcome,
            reason: body.reason.to_owned(),
            server: body.server.to_owned(),
            version: body.version.to_owned(),
            steps,
        },
    })
}

fn series_result(body: &SeriesBody<'_>) -> Option<SeriesResult> {
    let [p50_us, p99_us, mean_us, max_us] = body.us;
    let mut bins = Bins::default();
    visit_bins(&body.bins, |bin, count| bins.add_to(bin, count))?;
    let SeriesBody { dscp, sent, lost, .. } = *body;
    Some(SeriesResult { dscp, sent, lost, bins, p50_us, p99_us, mean_us, max_us })
}

fn step_result(body: &StepBody<'_>) -> Option<StepResult> {
    Some(StepResult {
        step: body.step.to_owned(),
        kind: *Kind::ALL.get(usize::from(body.kind))?,
        goodput_bit_per_s: body.goodput_bit_per_s,
        tier_percent: body.tier_percent,
        grade: match body.grade {
            Some(grade) => Some(*Grade::ALL.get(usize::from(grade))?),
            None => None,
        },
        series: body.series.iter().map(series_result).collect::<Option<_>>()?,
        inside: match &body.inside {
            Some(inside) => Some(series_result(inside)?),
            None => None,
        },
    })
}

/// Encodes bins: for each bin the difference to the one before and its count, as LEB128.
pub(super) fn bytes_of_bins(bins: &Bins) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    let mut before = 0;
    for (bin, count) in bins.iter() {
        push_number(&mut bytes, u64::from(bin - before));
        push_number(&mut bytes, count);
        before = bin;
    }
    bytes
}

/// Calls `see` with each bin of [`bytes_of_bins`] and its count; `None` if the bytes are damaged.
pub(super) fn visit_bins(mut bytes: &[u8], mut see: impl FnMut(u16, u64)) -> Option<()> {
    let mut bin = 0_u64;
    while !bytes.is_empty() {
        bin = bin.checked_add(take_number(&mut bytes)?)?;
        let count = take_number(&mut bytes)?;
        see(u16::try_from(bin).ok().filter(|bin| *bin <= underload_fleet::bins::BIN_MAX)?, count);
    }
    Some(())
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;

    fn decode((number, device): (i64, DeviceId), bytes: &[u8]) -> Result<StoredResult, StoreError> {
        Encoded { number, device, body: bytes.to_owned() }.decode()
    }

    #[test]
    fn decoding_returns_the_encoded_result() {
        for number in 0..200 {
            let mut stored = testing::result(number, number / 7);
            if number % 2 == 0 {
                stored = testing::with_inside(stored);
            }
            let back = decode((1, stored.device), &encode(&stored)).expect("it is whole");
            assert_eq!(back, stored);
        }
    }

    #[test]
    fn flipped_bits_and_missing_bytes_are_errors_that_name_the_result() {
        let stored = testing::result(1, 1);
        let good = encode(&stored);
        let message = |device, bytes: &[u8]| {
            decode((77, device), bytes).expect_err("it is damaged").to_string()
        };
        for position in 0..good.len() {
            assert!(message(stored.device, &good[..position]).contains("damaged"), "{position}");
            for bit in 0..8 {
                let mut changed = good.clone();
                changed[position] ^= 1 << bit;
                let said = message(stored.device, &changed);
                let is_named = said.contains("stored result 77 of device");
                assert!(is_named && said.contains(": "), "{position}, {bit}: {said}");
            }
        }
        let mut other = stored.device;
        other.0[5] ^= 4;
        assert!(message(other, &good).contains("WHERE number = 77"), "the device counts, too");
    }

    #[test]
    fn stored_numbers_of_outcomes_loads_and_grades_do_not_change() {
        let outcomes = Outcome::ALL.map(|outcome| (outcome as u8, outcome.name()));
        let known =
            [(0, "measured"), (1, "invalid"), (2, "refused"), (3, "cross traffic"), (4, "failed")];
        assert_eq!(outcomes[..5], known);
        assert_eq!((outcomes[5], outcomes.len()), ((5, "missed"), 6));
        let loads = Kind::ALL.map(|kind| (kind as u8, kind.name()));
        assert_eq!(loads, [(0, "latency"), (1, "upload"), (2, "download")]);
        let grades = Grade::ALL.map(Grade::name);
        assert_eq!(grades, ["A+", "A", "B", "C", "D", "F"]);
    }

    #[test]
    fn encoding_of_this_format_does_not_change() {
        let stored = testing::with_inside(testing::result(3, 2));
        let bytes = data_encoding::HEXLOWER.decode(include_str!("format.hex").trim().as_bytes());
        let bytes = bytes.expect("digits");
        assert_eq!(bytes, encode(&stored));
        assert_eq!(decode((1, stored.device), &bytes).expect("it is read"), stored);
    }
}
