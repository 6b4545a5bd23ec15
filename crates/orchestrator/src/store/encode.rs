//! The encoding of stored results.
//!
//! The fields of a result are stored in the order of its type, without their names. A change of a
//! type needs a new [`FORMAT`], which the test `encoding_of_this_format_does_not_change` checks.

use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::RunResult;
use underload_fleet::store::{StoreError, StoredResult};

/// First byte of a result. Its last four bytes are a checksum of the device and the bytes before.
const FORMAT: u8 = 1;

/// A result without its device, which is in another column: epoch, sequence number, time of storing,
/// pseudonym and cohort, with the attributes of the line and the result.
type Body<Text, Line, Run> = (u32, u64, u64, [u8; 16], Text, Line, Run);

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
    let StoredResult { device, epoch, sequence, stored_ms, pseudonym, cohort, attributes, result } =
        stored;
    let body: Body<&str, &Attributes, &RunResult> =
        (*epoch, *sequence, *stored_ms, pseudonym.0, cohort, attributes, result);
    // Fails only for types of unknown length, which are not used here.
    let mut bytes = postcard::to_extend(&body, vec![FORMAT]).unwrap_or_default();
    bytes.extend(checksum(&[&device.0, &bytes]));
    bytes
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
    let (body, rest): (Body<String, Attributes, RunResult>, _) =
        postcard::take_from_bytes(body).ok()?;
    let (epoch, sequence, stored_ms, pseudonym, cohort, attributes, result) = body;
    let pseudonym = Pseudonym(pseudonym);
    rest.is_empty().then_some(StoredResult {
        device,
        epoch,
        sequence,
        stored_ms,
        pseudonym,
        cohort,
        attributes,
        result,
    })
}

#[cfg(test)]
mod tests {
    use underload_fleet::outcome::Outcome;
    use underload_fleet::plan::Kind;
    use underload_record::judgement::Grade;

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
