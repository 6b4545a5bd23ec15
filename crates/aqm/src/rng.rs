//! Seeded random numbers in labelled child streams.
//!
//! Each component draws from its own stream, derived from the run's seed and a label, so that one
//! more draw in one component never shifts another's numbers. The generator is PCG XSH RR 64/32
//! (O'Neill 2014): its output is fixed by its definition, so results do not change with a library's
//! release.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    increment: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Rng {
    /// Returns the root stream of a run.
    pub fn new(seed: u64) -> Self {
        Self::with_stream(seed, 0)
    }

    /// Returns an independent stream for the component `label`. The parent is not advanced.
    #[must_use]
    pub fn child(&self, label: &str) -> Self {
        // The identity is FNV-1a over the label, mixed with the parent's identity.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in label.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self::with_stream(mix(self.state ^ hash), mix(self.increment.wrapping_add(hash)))
    }

    fn with_stream(seed: u64, stream: u64) -> Self {
        let mut rng = Self { state: 0, increment: (stream << 1) | 1 };
        rng.next_u32();
        rng.state = rng.state.wrapping_add(mix(seed));
        rng.next_u32();
        rng
    }

    /// Returns 32 uniform bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let xorshifted = (((old >> 18) ^ old) >> 27) as u32;
        xorshifted.rotate_right((old >> 59) as u32)
    }

    /// Returns 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        (u64::from(self.next_u32()) << 32) | u64::from(self.next_u32())
    }

    /// Returns a uniform number below `bound`, zero if `bound` is zero (Lemire 2019, without the
    /// rejection: the bias is below `bound / 2^32`).
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): spreads nearby seeds apart.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_pcg32_demo_stream() {
        // pcg32-demo of the reference implementation: seed 42, stream 54, first six outputs.
        let mut rng = Rng { state: 0, increment: (54 << 1) | 1 };
        rng.next_u32();
        rng.state = rng.state.wrapping_add(42);
        rng.next_u32();
        let expected =
            [0xa15c_02b7_u32, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e];
        for value in expected {
            assert_eq!(rng.next_u32(), value);
        }
    }

    #[test]
    fn children_differ_by_label_and_do_not_depend_on_draws_elsewhere() {
        let root = Rng::new(7);
        let mut first = root.child("pie");
        let mut other = root.child("red");
        assert_ne!(first.next_u64(), other.next_u64());
        let again = root.child("pie").next_u64();
        assert_eq!(again, root.child("pie").next_u64());
    }

    #[test]
    fn below_returns_every_value_under_the_bound() {
        let mut rng = Rng::new(1);
        let draws: alloc::vec::Vec<u32> = (0..1_000).map(|_| rng.below(10)).collect();
        assert!(draws.iter().all(|&draw| draw < 10));
        assert!(draws.contains(&0) && draws.contains(&9));
    }
}
