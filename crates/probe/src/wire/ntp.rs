//! The two number formats that STAMP shares with NTP and OWAMP.

/// Seconds from 1900-01-01, the epoch of NTP, to 1970-01-01, the Unix epoch (RFC 5905).
const UNIX_EPOCH_IN_NTP_SECONDS: u64 = 2_208_988_800;
/// Seconds of one NTP era, the range of the 32-bit seconds field.
const ERA_SECONDS: u64 = 1 << 32;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// An instant in NTP's 64-bit format: 32 bits of seconds since 1900 and 32 bits of fraction (RFC
/// 5905 section 6, RFC 8762 section 4.2.1). One unit is 233 picoseconds.
///
/// The seconds wrap in February 2036. Conversions to Unix time assign values before 1970 to the
/// next era, which is right until 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NtpTimestamp(pub u64);

impl NtpTimestamp {
    /// All bits zero: by NTP's convention, an unknown time.
    pub const UNKNOWN: Self = Self(0);

    /// Converts nanoseconds since 1970, rounded to the nearest representable instant.
    pub fn from_unix_nanos(nanos: u64) -> Self {
        let seconds = (nanos / NANOS_PER_SECOND + UNIX_EPOCH_IN_NTP_SECONDS) % ERA_SECONDS;
        let remainder = nanos % NANOS_PER_SECOND;
        let fraction = ((remainder << 32) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
        // A fraction is at most (10^9 - 1) * 2^32 / 10^9 + 1/2 < 2^32, so the fields do not
        // overlap.
        Self(seconds << 32 | fraction)
    }

    /// Returns nanoseconds since 1970, rounded to the nearest; `None` for
    /// [`NtpTimestamp::UNKNOWN`].
    pub fn to_unix_nanos(self) -> Option<u64> {
        if self == Self::UNKNOWN {
            return None;
        }
        // `ERA_SECONDS` moves times of the next era behind those of this one.
        let unix_seconds = ((self.0 >> 32) + ERA_SECONDS - UNIX_EPOCH_IN_NTP_SECONDS) % ERA_SECONDS;
        let fraction = self.0 & 0xffff_ffff;
        let nanos = (fraction * NANOS_PER_SECOND + (1 << 31)) >> 32;
        Some(unix_seconds * NANOS_PER_SECOND + nanos)
    }

    /// Returns the big-endian bytes of the wire format.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Reads the big-endian bytes of the wire format.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

/// The sender's estimate of its clock's error: S, Z, 6 bits of scale, 8 bits of multiplier (RFC
/// 4656 section 4.1.2, RFC 8762 section 4.2.1). The error is `multiplier * 2^(scale - 32)` seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    /// A clock that is not synchronised to Coordinated Universal Time: S = 0, and the largest error
    /// of the field (a multiplier of 0 is invalid).
    pub const UNSYNCHRONIZED: Self = Self(0x3fff);
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

    proptest! {
        #[test]
        fn unix_time_survives_the_round_trip(nanos in 0u64..4_200_000_000 * NANOS_PER_SECOND) {
            prop_assume!(NtpTimestamp::from_unix_nanos(nanos) != NtpTimestamp::UNKNOWN);
            prop_assert_eq!(NtpTimestamp::from_unix_nanos(nanos).to_unix_nanos(), Some(nanos));
        }
    }
}
