//! A policer: packets beyond a rate and a burst are dropped, and none waits for it.
//!
//! # Principle
//! A bucket of `burst` bytes fills at `rate`. An arrival that finds its bytes in the bucket takes
//! them and passes, any other is dropped. Providers limit a line so where they have no buffer.
//!
//! # Parameters
//! Linux has no default for either. Here the rate is the link's, and the burst is what the rate
//! carries in 100 ms, at least 10 full packets: settings in use reach from some milliseconds to the
//! 1.5 s of older manuals (Flach et al., SIGCOMM 2016).
//!
//! # Divergences
//! Linux counts the bucket in nanoseconds of the rate, which rounds; here nothing is rounded. Peak
//! rate, marking and other actions than a drop are left out.
//!
//! # Validation
//! A test compares each packet's fate with the arithmetic of Linux `act_police`.

use crate::aqm::{Aqm, Verdict};
use crate::config::{Bytes, LinkFacts, from_values, params};
use crate::packet::Meta;
use crate::qdisc::Backlog;
use crate::queue::avq::{RATE, rate_of};
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::rate::Rate;
use crate::time::{Span, Time};
use crate::token_bucket::TokenBucket;

from_values! {
    /// Parameters of [`Policer`]; the table of `policer` below explains them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PolicerConfig(values, link: &LinkFacts) {
        /// The rate that passes in the long run.
        pub rate: Rate = rate_of(values, link)?,
        /// Bytes that may exceed the rate at once. `None`: what the rate carries in 100 ms.
        pub burst_bytes: Option<u64> = values.get(BURST),
    }
}

/// The policer: its bucket.
#[derive(Clone, Debug)]
pub struct Policer(TokenBucket);

impl Policer {
    /// Returns a policer with a full bucket.
    pub fn new(config: PolicerConfig) -> Self {
        let usual = || (config.rate.bits_per_second() / 80).max(LEAST_BURST_BYTES);
        Self(TokenBucket::new(config.rate, config.burst_bytes.unwrap_or_else(usual)))
    }
}

impl Aqm for Policer {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, _: Backlog) -> Verdict {
        self.0.refill(now);
        if self.0.wait_for(meta.len) != Some(Span::ZERO) {
            return Verdict::Drop;
        }
        self.0.take(meta.len);
        Verdict::Pass
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("policer.tokens_bytes", self.0.bytes() as f64);
    }
}

const LEAST_BURST_BYTES: u64 = 15_000;

one_queue!(PolicerQueue, PolicerConfig, |queue, _rng| Policer::new(queue.config));

params! {
    define DEFINITION: "policer", "drops what exceeds a rate and a burst; nothing waits",
        source: "Linux act_police";
    BURST: Option<Bytes> = "burst", ("100 ms of `rate`, at least 15 kB") in "1500B".."1024MiB",
        "bytes that may exceed the rate at once";
    use RATE;
    use LIMIT;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{QueueConfig, QueueSetup};
    use crate::rng::Rng;
    use alloc::string::ToString;

    fn policer(spec: &str) -> Policer {
        match QueueSetup::parse(spec, &LinkFacts::UNKNOWN).expect(spec).config {
            QueueConfig::Policer(queue) => Policer::new(queue.config),
            other => panic!("{other:?}"),
        }
    }

    fn passes(policer: &mut Policer, now: Time, len: u32) -> bool {
        policer.on_enqueue(now, &Meta::new(len, 0), Backlog::default()) == Verdict::Pass
    }

    /// The rate is 8 Mbit/s: a byte takes exactly 1 us, so the kernel's nanoseconds are not rounded.
    #[test]
    fn packets_pass_that_linux_would_pass() {
        let burst_ns = 20_000 * 1_000;
        let (mut policer, mut rng) = (policer("policer:rate=8mbit,burst=20kB"), Rng::new(7));
        let (mut now_ns, mut last_ns, mut tokens_ns, mut passed) = (0_i64, 0_i64, burst_ns, 0);
        for number in 0..100_000_u32 {
            let most = if number % 10_000 < 5_000 { 800_000 } else { 3_000_000 };
            now_ns += i64::from(rng.below(most));
            let len = rng.below(1_514) + 1;
            let tokens = (tokens_ns + (now_ns - last_ns).min(burst_ns)).min(burst_ns);
            let left = tokens - i64::from(len) * 1_000;
            if left >= 0 {
                (last_ns, tokens_ns, passed) = (now_ns, left, passed + 1);
            }
            let now = Time::from_nanos(now_ns as u64);
            assert_eq!(passes(&mut policer, now, len), left >= 0, "packet {number}");
        }
        assert!((50_000..95_000).contains(&passed), "{passed}");
    }

    #[test]
    fn the_usual_burst_is_a_tenth_of_a_second() {
        for (spec, bytes) in [
            ("policer:rate=20mbit", 250_000),
            ("policer:rate=100kbit", LEAST_BURST_BYTES),
            ("policer:rate=20mbit,burst=3kB", 3_000),
        ] {
            assert_eq!(policer(spec).0.bytes(), bytes, "{spec}");
        }
    }

    #[test]
    fn a_rate_must_be_known() {
        let error = QueueSetup::parse("policer", &LinkFacts::UNKNOWN).unwrap_err().to_string();
        assert!(error.contains("`policer` needs `rate=`"), "{error}");
    }
}
