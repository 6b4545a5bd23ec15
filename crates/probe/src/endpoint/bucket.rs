//! A limit on packets per second.

/// A token bucket over packets, exact to the nanosecond.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate_per_second: u64,
    /// Tokens in units of 10^-9 packets, so that a nanosecond adds exactly `rate_per_second`.
    nano_tokens: u64,
    filled_ns: u64,
}

const NANO_TOKENS_PER_PACKET: u64 = 1_000_000_000;

impl Bucket {
    /// Returns a full bucket of `packets_per_second_max`, with a burst of a tenth of a second.
    pub fn new(packets_per_second_max: u32) -> Self {
        let rate_per_second = u64::from(packets_per_second_max);
        let mut bucket = Self { rate_per_second, nano_tokens: 0, filled_ns: 0 };
        bucket.nano_tokens = bucket.capacity();
        bucket
    }

    /// Returns a tenth of a second's packets, at least one packet unless the rate is 0.
    fn capacity(&self) -> u64 {
        if self.rate_per_second == 0 {
            return 0;
        }
        (self.rate_per_second * (NANO_TOKENS_PER_PACKET / 10)).max(NANO_TOKENS_PER_PACKET)
    }

    /// Consumes one packet's tokens; returns false if the packet exceeds the rate.
    pub fn take(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = now_ns;
        let added = elapsed_ns.saturating_mul(self.rate_per_second);
        self.nano_tokens = self.nano_tokens.saturating_add(added).min(self.capacity());
        let rest = self.nano_tokens.checked_sub(NANO_TOKENS_PER_PACKET);
        self.nano_tokens = rest.unwrap_or(self.nano_tokens);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_limit_passes_a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(100);
        let burst = (0..50).filter(|_| bucket.take(0)).count();
        assert_eq!(burst, 10);
        // 20 ms at 100 packets per second are two packets.
        let later = (0..50).filter(|_| bucket.take(20_000_000)).count();
        assert_eq!(later, 2);
        assert!(!Bucket::new(0).take(u64::MAX));
    }
}
