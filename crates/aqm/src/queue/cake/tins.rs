//! The tin of each codepoint, and the share of the rate of each tin.

/// How packets are sorted into tins by their codepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tins {
    /// One tin for all packets.
    BestEffort,
    /// Eight tins, by the three highest bits alone (RFC 791).
    Precedence,
    /// Background, best effort, latency sensitive.
    Three,
    /// Background, best effort, video, voice.
    Four,
    /// Eight tins, by the classes of RFC 4594.
    Eight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The rate of the tin, if the rate of all tins is `rate`.
    pub rate: u64,
    /// The weight of the tin while nothing shapes.
    pub weight: u32,
}

impl Tins {
    /// Returns the number of tins.
    pub const fn count(self) -> usize {
        match self {
            Self::BestEffort => 1,
            Self::Three => 3,
            Self::Four => 4,
            Self::Precedence | Self::Eight => 8,
        }
    }

    /// Returns the tin of a codepoint. A higher tin has precedence within its share.
    #[inline]
    pub const fn tin(self, codepoint: u8) -> usize {
        let codepoint = codepoint & 63;
        match self {
            Self::BestEffort => 0,
            Self::Precedence => (codepoint >> 3) as usize,
            Self::Three => THREE[codepoint as usize] as usize,
            Self::Four => FOUR[codepoint as usize] as usize,
            Self::Eight => EIGHT[codepoint as usize] as usize,
        }
    }

    /// Returns the share of tin `tin` of `rate`. The tins of [`Tins::Three`] and [`Tins::Four`]
    /// have fixed shares, and the tin with the highest priority may use at most a quarter. Each of
    /// eight has seven eighths of the one before it.
    pub(super) fn share(self, tin: usize, rate: u64) -> Share {
        let part = |shift: u32| Share { rate: rate >> shift, weight: 1_024 >> shift };
        match self {
            Self::BestEffort => Share { rate, weight: 65_535 },
            Self::Three => part([0, 4, 2][tin]),
            Self::Four => part([0, 4, 1, 2][tin]),
            Self::Precedence | Self::Eight => {
                let step =
                    |share: Share| Share { rate: share.rate * 7 / 8, weight: share.weight * 7 / 8 };
                (0..tin).fold(Share { rate, weight: 256 }, |share, _| step(share))
            }
        }
    }
}

/// Returns a table of tins by codepoint: `rest`, except for the listed codepoints.
const fn table(rest: u8, listed: &[(u8, &[u8])]) -> [u8; 64] {
    let mut tins = [rest; 64];
    let mut row = 0;
    while row < listed.len() {
        let (tin, codepoints) = listed[row];
        let mut column = 0;
        while column < codepoints.len() {
            tins[codepoints[column] as usize] = tin;
            column += 1;
        }
        row += 1;
    }
    tins
}

const LE: u8 = 1;
const TOS2: u8 = 2;
const TOS4: u8 = 4;
const CS1: u8 = 8;
const CS2: u8 = 16;
const CS3: u8 = 24;
const CS4: u8 = 32;
const CS5: u8 = 40;
const CS6: u8 = 48;
const CS7: u8 = 56;
const VOICE_ADMIT: u8 = 44;
const EF: u8 = 46;
const AF11: u8 = 10;
const AF21: u8 = 18;
const AF31: u8 = 26;
const AF41: u8 = 34;

const THREE: [u8; 64] = table(0, &[(1, &[LE, CS1]), (2, &[TOS4, VOICE_ADMIT, EF, CS6, CS7])]);

const FOUR: [u8; 64] = table(
    0,
    &[
        (1, &[LE, CS1]),
        (2, &[TOS4, CS2, AF21, AF21 + 2, AF21 + 4, CS3, AF31, AF31 + 2, AF31 + 4]),
        (2, &[AF41, AF41 + 2, AF41 + 4]),
        (3, &[CS4, CS5, VOICE_ADMIT, EF, CS6, CS7]),
    ],
);

const EIGHT: [u8; 64] = table(
    2,
    &[
        (0, &[LE]),
        (1, &[TOS2, CS1, AF11, AF11 + 2, AF11 + 4]),
        (3, &[CS3, AF31, AF31 + 2, AF31 + 4, AF41, AF41 + 2, AF41 + 4]),
        (4, &[TOS4, AF21, AF21 + 2, AF21 + 4]),
        (5, &[CS2]),
        (6, &[CS4, CS5, VOICE_ADMIT, EF]),
        (7, &[CS6, CS7]),
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Codepoints of RFC 4594 and their tins according to `tc-cake(8)`.
    #[test]
    fn codepoints_map_to_the_tins_of_the_manual() {
        for (codepoint, three, four, eight) in [
            (0, 0, 0, 2),
            (LE, 1, 1, 0),
            (CS1, 1, 1, 1),
            (AF11, 0, 0, 1),
            (AF21 + 2, 0, 2, 4),
            (AF31 + 4, 0, 2, 3),
            (AF41, 0, 2, 3),
            (CS2, 0, 2, 5),
            (CS4, 0, 3, 6),
            (EF, 2, 3, 6),
            (VOICE_ADMIT, 2, 3, 6),
            (45, 0, 0, 2),
            (CS6, 2, 3, 7),
            (CS7, 2, 3, 7),
        ] {
            let tins = [Tins::Three, Tins::Four, Tins::Eight].map(|tins| tins.tin(codepoint));
            assert_eq!(tins, [three, four, eight], "{codepoint}");
        }
        assert_eq!([7, 8, 63].map(|codepoint| Tins::Precedence.tin(codepoint)), [0, 1, 7]);
        assert_eq!(Tins::BestEffort.tin(46), 0);
    }

    #[test]
    fn every_codepoint_has_a_tin_that_exists() {
        for tins in [Tins::BestEffort, Tins::Precedence, Tins::Three, Tins::Four, Tins::Eight] {
            let highest = (0..=u8::MAX).map(|codepoint| tins.tin(codepoint)).max();
            assert_eq!(highest, Some(tins.count() - 1), "{tins:?}");
        }
    }

    #[test]
    fn tin_rates_are_fractions_of_the_whole_or_seven_eighths_of_the_tin_before() {
        let rates = |tins: Tins| -> alloc::vec::Vec<u64> {
            (0..tins.count()).map(|tin| tins.share(tin, 1_600_000).rate).collect()
        };
        assert_eq!(rates(Tins::BestEffort), [1_600_000]);
        assert_eq!(rates(Tins::Three), [1_600_000, 100_000, 400_000]);
        assert_eq!(rates(Tins::Four), [1_600_000, 100_000, 800_000, 400_000]);
        assert_eq!(rates(Tins::Eight)[..3], [1_600_000, 1_400_000, 1_225_000]);
        assert_eq!(rates(Tins::Precedence), rates(Tins::Eight));
        assert_eq!(Tins::Eight.share(7, 0), Share { rate: 0, weight: 98 });
        assert_eq!(Tins::Three.share(2, 0).weight, 256);
    }
}
