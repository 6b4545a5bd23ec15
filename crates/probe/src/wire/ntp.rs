//! The two number formats that STAMP shares with NTP and OWAMP.

/// Seconds from 1900-01-01, where NTP counts from, to 1970-01-01, where Unix does (RFC 5905).
const UNIX_EPOCH_IN_NTP_SECONDS: u64 = 2_208_988_800;
/// Seconds in one NTP era, the range of the 32-bit seconds field.
const ERA_SECONDS: u64 = 1 << 32;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// An instant in NTP's 64-bit format: 32 bits of seconds since 1900 and 32 bits of fraction
/// (RFC 5905 section 6, RFC 8762 section 4.2.1). One unit is 233 picoseconds.
///
/// The seconds wrap in February 2036; conversions to Unix time take values before 1970 to belong to
/// the next era, which is right until the year 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NtpTimestamp(pub u64);

impl NtpTimestamp {
    /// All bits zero: by NTP's convention, an unknown time.
    pub const UNKNOWN: Self = Self(0);

    /// From nanoseconds since 1970, rounded to the nearest representable instant.
    pub fn from_unix_nanos(nanos: u64) -> Self {
        let seconds = (nanos / NANOS_PER_SECOND + UNIX_EPOCH_IN_NTP_SECONDS) % ERA_SECONDS;
        let remainder = nanos % NANOS_PER_SECOND;
        let fraction = ((remainder << 32) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
        // A fraction is at most (10^9 - 1) * 2^32 / 10^9 + 1/2 < 2^32, so the fields cannot
        // overlap.
        Self(seconds << 32 | fraction)
    }

    /// Nanoseconds since 1970, rounded to the nearest; `None` for [`NtpTimestamp::UNKNOWN`].
    pub fn to_unix_nanos(self) -> Option<u64> {
        if self == Self::UNKNOWN {
            return None;
        }
        let ntp_seconds = self.0 >> 32;
        let unix_seconds = if ntp_seconds >= UNIX_EPOCH_IN_NTP_SECONDS {
            ntp_seconds - UNIX_EPOCH_IN_NTP_SECONDS
        } else {
            ntp_seconds + ERA_SECONDS - UNIX_EPOCH_IN_NTP_SECONDS
        };
        let fraction = self.0 & 0xffff_ffff;
        let nanos = (fraction * NANOS_PER_SECOND + (1 << 31)) >> 32;
        Some(unix_seconds * NANOS_PER_SECOND + nanos)
    }

    /// Big-endian bytes, as they travel.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// From big-endian bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

/// How far the sender thinks its clock may be off: S, Z, 6 bits of scale, 8 bits of multiplier (RFC
/// 4656 section 4.1.2, RFC 8762 section 4.2.1). The error is `multiplier * 2^(scale - 32)` seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    const SYNCHRONIZED: u16 = 0x8000;

    /// A clock that makes no claim about Coordinated Universal Time: S = 0, and the largest error
    /// the field can hold (a multiplier of 0 would be invalid).
    pub const UNSYNCHRONIZED: Self = Self(0x3fff);

    /// A clock synchronised to within `error_nanos`, rounded up; NTP format (Z = 0).
    pub fn synchronized_within(error_nanos: u64) -> Self {
        let units = (u128::from(error_nanos) << 32).div_ceil(u128::from(NANOS_PER_SECOND));
        let mut multiplier = units.max(1);
        let mut scale = 0u16;
        while multiplier > 0xff {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        // 2^64 ns shifted by 32 needs 66 bits, so the scale stays below 2^6.
        Self(Self::SYNCHRONIZED | scale.min(63) << 8 | multiplier as u16)
    }

    /// True if the clock claims to be synchronised to Coordinated Universal Time.
    pub fn is_synchronized(self) -> bool {
        self.0 & Self::SYNCHRONIZED != 0
    }

    /// The error in nanoseconds, rounded up and saturating.
    pub fn error_nanos(self) -> u64 {
        let multiplier = u128::from(self.0 & 0xff);
        let scale = u32::from(self.0 >> 8 & 0x3f);
        let nanos =
            (multiplier << scale).saturating_mul(u128::from(NANOS_PER_SECOND)).div_ceil(1 << 32);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_unix_epoch_is_2208988800_ntp_seconds() {
        assert_eq!(
            NtpTimestamp::from_unix_nanos(0).to_bytes(),
            [0x83, 0xaa, 0x7e, 0x80, 0, 0, 0, 0]
        );
        let half = NtpTimestamp::from_unix_nanos(500_000_000);
        assert_eq!(half.to_bytes(), [0x83, 0xaa, 0x7e, 0x80, 0x80, 0, 0, 0]);
    }

    #[test]
    fn the_second_era_follows_the_first() {
        // 2036-02-07 06:28:16 UTC is the first second of era 1 (RFC 5905 section 6).
        let rollover = NtpTimestamp::from_unix_nanos(2_085_978_496 * NANOS_PER_SECOND + 1_000);
        assert_eq!(rollover.0 >> 32, 0);
        assert_eq!(rollover.to_unix_nanos(), Some(2_085_978_496 * NANOS_PER_SECOND + 1_000));
    }

    #[test]
    fn error_estimates_cover_the_error_they_were_made_from() {
        assert_eq!(ErrorEstimate::synchronized_within(0).error_nanos(), 1);
        let estimate = ErrorEstimate::synchronized_within(1_000_000);
        assert!(estimate.is_synchronized());
        assert!((1_000_000..1_010_000).contains(&estimate.error_nanos()));
        assert!(!ErrorEstimate::UNSYNCHRONIZED.is_synchronized());
        assert_eq!(ErrorEstimate(0x3fff).error_nanos(), u64::MAX);
    }

    proptest! {
        #[test]
        fn unix_time_survives_the_round_trip(nanos in 0u64..4_200_000_000 * NANOS_PER_SECOND) {
            prop_assume!(NtpTimestamp::from_unix_nanos(nanos) != NtpTimestamp::UNKNOWN);
            prop_assert_eq!(NtpTimestamp::from_unix_nanos(nanos).to_unix_nanos(), Some(nanos));
        }

        #[test]
        fn estimates_are_never_optimistic(error in any::<u64>()) {
            prop_assert!(ErrorEstimate::synchronized_within(error).error_nanos() >= error);
        }
    }
}
