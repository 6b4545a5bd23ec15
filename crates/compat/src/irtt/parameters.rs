//! The parameters of a test on the wire: tagged variable-length integers.

use super::IrttLimits;

/// Parameters of a test, as requested by a client or granted by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Version of the protocol; the server supports 1.
    pub version: i64,
    /// How long the client sends, ns.
    pub duration_ns: i64,
    pub interval_ns: i64,
    /// Bytes of a probe, with its header.
    pub length: i64,
    /// Bit 0: count of packets received; bit 1: window of the last 64.
    pub received_stats: u8,
    /// Time stamps: bit 0 on sending, bit 1 on receiving; 4 alone for the midpoint.
    pub stamp_at: u8,
    /// Clocks: bit 0 wall, bit 1 monotonic.
    pub clock: u8,
    /// DSCP and ECN of probes and answers, as the IP header's byte.
    pub traffic_class: i64,
    /// Name of the payload of answers; empty if the server chooses.
    pub fill: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    #[error("the parameters end in the middle of one")]
    Truncated,
    /// A number exceeds 64 bits, or a text exceeds 32 bytes.
    #[error("a parameter is too large")]
    TooLarge,
    /// A duration or interval is not positive, or a choice is unknown.
    #[error("parameter {tag} is out of range")]
    OutOfRange { tag: u64 },
}

const VERSION: u64 = 1;
const DURATION: u64 = 2;
const INTERVAL: u64 = 3;
const LENGTH: u64 = 4;
const RECEIVED_STATS: u64 = 5;
const STAMP_AT: u64 = 6;
const CLOCK: u64 = 7;
const TRAFFIC_CLASS: u64 = 8;
const FILL: u64 = 9;

pub(super) const PROTOCOL_VERSION: i64 = 1;
const FILL_MAX: u64 = 32;
/// Smallest number of probes in an idle timeout.
const PROBES_PER_TIMEOUT: u128 = 4;
const STAMP_MIDPOINT: u8 = 4;

impl Parameters {
    /// Decodes the payload of an open request. Unknown parameters are skipped, as in irtt.
    ///
    /// # Errors
    /// Returns an error if a parameter is truncated, too large or out of range.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ParametersError> {
        let mut parameters = Self::default();
        while !bytes.is_empty() {
            let tag = take_unsigned(&mut bytes)?;
            if tag == FILL {
                parameters.fill = take_text(&mut bytes)?;
                continue;
            }
            let raw = take_unsigned(&mut bytes)?;
            parameters.note(tag, unzigzag(raw))?;
        }
        Ok(parameters)
    }

    fn note(&mut self, tag: u64, value: i64) -> Result<(), ParametersError> {
        let out_of_range = ParametersError::OutOfRange { tag };
        let positive = || if value > 0 { Ok(value) } else { Err(out_of_range) };
        let choice = |max: u8| u8::try_from(value).ok().filter(|v| *v <= max).ok_or(out_of_range);
        match tag {
            VERSION => self.version = value,
            DURATION => self.duration_ns = positive()?,
            INTERVAL => self.interval_ns = positive()?,
            LENGTH => self.length = value,
            RECEIVED_STATS => self.received_stats = choice(3)?,
            STAMP_AT => self.stamp_at = choice(STAMP_MIDPOINT)?,
            CLOCK => self.clock = choice(3)?,
            TRAFFIC_CLASS => self.traffic_class = value,
            _ => {}
        }
        Ok(())
    }

    /// Encodes the payload of an open reply. Zero values are omitted, as in irtt.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            (VERSION, self.version),
            (DURATION, self.duration_ns),
            (INTERVAL, self.interval_ns),
            (LENGTH, self.length),
            (RECEIVED_STATS, i64::from(self.received_stats)),
            (STAMP_AT, i64::from(self.stamp_at)),
            (CLOCK, i64::from(self.clock)),
            (TRAFFIC_CLASS, self.traffic_class),
        ];
        for (tag, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
            put_unsigned(out, tag);
            put_unsigned(out, zigzag(value));
        }
        if !self.fill.is_empty() {
            put_unsigned(out, FILL);
            put_unsigned(out, self.fill.len() as u64);
            out.extend_from_slice(&self.fill);
        }
    }

    /// Restricts the parameters to the limits. The client accepts the result or leaves.
    #[must_use]
    pub fn restricted(mut self, limits: &IrttLimits) -> Self {
        let nanos = |duration: u128| i64::try_from(duration).unwrap_or(i64::MAX);
        let interval_max = limits.idle_timeout.as_nanos() / PROBES_PER_TIMEOUT;
        let interval_min = nanos(limits.interval_min.as_nanos());
        self.version = PROTOCOL_VERSION;
        self.duration_ns = self.duration_ns.min(nanos(limits.duration_max.as_nanos()));
        self.interval_ns = self.interval_ns.max(interval_min).min(nanos(interval_max));
        self.length = self.length.clamp(0, i64::from(limits.length_max));
        let is_allowed = u8::try_from(self.traffic_class).is_ok_and(|class| {
            let is_ce = class & 3 == 3;
            limits.policy.allows_dscp(class >> 2)
                && (!is_ce || limits.policy.congestion_experienced_allowed)
        });
        if !is_allowed {
            self.traffic_class = 0;
        }
        if self.fill != b"rand" {
            self.fill.clear();
        }
        self
    }
}

fn take_unsigned(bytes: &mut &[u8]) -> Result<u64, ParametersError> {
    let mut value = 0u64;
    for index in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or(ParametersError::Truncated)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has only the last of 64 bits.
        if index == 9 && byte > 1 {
            return Err(ParametersError::TooLarge);
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ParametersError::TooLarge)
}

fn take_text(bytes: &mut &[u8]) -> Result<Vec<u8>, ParametersError> {
    let len = take_unsigned(bytes)?;
    if len > FILL_MAX {
        return Err(ParametersError::TooLarge);
    }
    let (text, rest) = bytes.split_at_checked(len as usize).ok_or(ParametersError::Truncated)?;
    *bytes = rest;
    Ok(text.to_vec())
}

fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_zigzag_in_groups_of_seven_bits() {
        // 1 second as irtt's client sends it: tag 2, then 2 * 10^9 in base 128.
        let mut out = Vec::new();
        Parameters { duration_ns: 1_000_000_000, ..Parameters::default() }.encode(&mut out);
        assert_eq!(out, [0x02, 0x80, 0xa8, 0xd6, 0xb9, 0x07]);
    }

    #[test]
    fn a_deal_is_never_better_than_the_limits() {
        let limits = IrttLimits::default();
        let asked = Parameters {
            version: 9,
            duration_ns: i64::MAX,
            interval_ns: 1,
            length: 70_000,
            stamp_at: 3,
            clock: 3,
            received_stats: 3,
            traffic_class: 46 << 2,
            fill: b"pattern:00".to_vec(),
        };
        let got = asked.clone().restricted(&limits);
        assert_eq!((got.version, got.length, got.traffic_class), (1, 1472, 0));
        assert_eq!((got.duration_ns, got.interval_ns), (600_000_000_000, 1_000_000));
        assert!(got.fill.is_empty());
        let nqb = Parameters { traffic_class: 0xb5, fill: b"rand".to_vec(), ..asked };
        let got = nqb.restricted(&limits);
        assert_eq!((got.traffic_class, got.fill.as_slice()), (0xb5, b"rand".as_slice()));
    }

    #[test]
    fn bad_parameters_are_refused_by_name() {
        let refused = |bytes: &[u8]| Parameters::decode(bytes).unwrap_err();
        assert_eq!(refused(&[2]), ParametersError::Truncated);
        assert_eq!(refused(&[2, 0x80]), ParametersError::Truncated);
        assert_eq!(refused(&[2, 0]), ParametersError::OutOfRange { tag: 2 });
        assert_eq!(refused(&[6, 10]), ParametersError::OutOfRange { tag: 6 });
        assert_eq!(refused(&[9, 33]), ParametersError::TooLarge);
        assert_eq!(refused(&[9, 4, b'r']), ParametersError::Truncated);
        assert_eq!(refused(&[0xff; 11]), ParametersError::TooLarge);
        assert_eq!(Parameters::decode(&[99, 4]), Ok(Parameters::default()), "unknown: skipped");
    }

    proptest! {
        #[test]
        fn parameters_survive_the_round_trip(
            numbers in any::<(i64, i64, i64)>(), duration_ns in 1i64.., interval_ns in 1i64..,
            choices in (0u8..4, 0u8..5, 0u8..4), fill in prop::collection::vec(any::<u8>(), 0..33),
        ) {
            let (version, length, traffic_class) = numbers;
            let (received_stats, stamp_at, clock) = choices;
            let parameters = Parameters {
                version, duration_ns, interval_ns, length, received_stats, stamp_at, clock,
                traffic_class, fill,
            };
            let mut out = Vec::new();
            parameters.encode(&mut out);
            prop_assert_eq!(Parameters::decode(&out), Ok(parameters));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Parameters::decode(&bytes);
        }
    }
}
