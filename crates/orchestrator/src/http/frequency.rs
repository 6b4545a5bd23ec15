//! Counts requests per minute by sender, in constant memory.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts requests by sender. Each sender counts in two places, which a keyed hash chooses and
/// which others may share. The smaller count decides, so a busy sender in one of the places does
/// not get others refused.
pub(crate) struct Frequency {
    /// The minute in the upper half, its count in the lower.
    places: Box<[AtomicU64]>,
    keyed: RandomState,
    per_minute: u32,
}

/// 2 MiB: a quarter of a million senders per minute have two free places.
const PLACES: usize = 1 << 18;
const MINUTE_MS: u64 = 60_000;

impl Frequency {
    pub fn new(per_minute: u32) -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, keyed: RandomState::new(), per_minute }
    }

    /// Counts a request of a sender in the current minute.
    ///
    /// # Errors
    /// Returns the seconds to the next minute if the sender has exceeded `per_minute`.
    pub fn admit(&self, who: impl Hash, now_ms: u64) -> Result<(), u64> {
        let hash = self.keyed.hash_one(who);
        let minute = now_ms / MINUTE_MS;
        let places = [hash as u32, (hash >> 32) as u32].map(|half| half as usize % PLACES);
        let counts = places.map(|place| count(&self.places[place], minute as u32));
        if counts[0].min(counts[1]) <= self.per_minute {
            return Ok(());
        }
        Err(((minute + 1) * MINUTE_MS - now_ms).div_ceil(1_000))
    }
}

/// Counts one more request in `minute`. Returns the new count.
fn count(place: &AtomicU64, minute: u32) -> u32 {
    let more = |kept: u64| {
        let count = if (kept >> 32) as u32 == minute { kept as u32 } else { 0 };
        u64::from(minute) << 32 | u64::from(count.saturating_add(1))
    };
    let before = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| Some(more(kept)));
    more(before.unwrap_or_else(|kept| kept)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_limit_counts_each_sender_alone() {
        let frequency = Frequency::new(3);
        let now = 90_000;
        (0..3).for_each(|_| assert_eq!(frequency.admit("a", now), Ok(())));
        assert_eq!(frequency.admit("a", now), Err(30));
        assert_eq!(frequency.admit("b", now), Ok(()));
        assert_eq!(frequency.admit("a", 119_999), Err(1));
        assert_eq!(frequency.admit("a", 120_000), Ok(()), "another minute");
        // A sender that shares one of its two slots with some of 100,000 others has a second slot.
        let others = Frequency::new(10);
        let refused = (0..100_000).filter(|who| others.admit(who, now).is_err()).count();
        assert_eq!(refused, 0, "each asked once");
    }
}
