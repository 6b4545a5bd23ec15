//! The candidates for a tier: buffers, or latency targets of an AQM.

use serde::Serialize;

use super::{Choice, Service};

/// The AQM of modem and CMTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aqm {
    /// No AQM: the queue is a FIFO with the size that Buffer Control sets.
    None,
    DocsisPie,
    /// Low Latency DOCSIS: two queues, one for L4S and NQB.
    LowLatency,
}

impl Aqm {
    pub const ALL: [Self; 3] = [Self::None, Self::DocsisPie, Self::LowLatency];

    pub const fn name(self) -> &'static str {
        ["none", "docsis-pie", "low-latency"][self as usize]
    }

    pub(super) fn title(self) -> &'static str {
        ["no AQM", "DOCSIS-PIE", "Low Latency DOCSIS"][self as usize]
    }

    /// Returns the utilisation that a candidate must reach at every round trip: 95 %, at which a
    /// tier counts as reached, or 90 % with an AQM, which keeps its latency target at any rate.
    pub fn utilisation_percent(self) -> f64 {
        if self == Self::None { 95.0 } else { 90.0 }
    }

    /// Whether a candidate may be chosen. Other candidates are simulated for comparison.
    pub(super) fn allows(self, choice: Choice) -> bool {
        match choice {
            Choice::Buffer(_) => self == Self::None,
            Choice::DocsisPie(_) => self == Self::DocsisPie,
            Choice::LowLatency(_) => self == Self::LowLatency,
        }
    }
}

/// A setting with its name, such as `32KiB` or `target-10ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    pub choice: Choice,
}

impl Candidate {
    fn buffer(bytes: u64) -> Self {
        Self { name: size_name(bytes), choice: Choice::Buffer(bytes as u32) }
    }
}

impl Service {
    /// Returns the candidates with this AQM, for a modem with buffers in blocks of `block` bytes up
    /// to `limit`. Upstream, the buffer of the guideline's Table 2 without AQM is one of them.
    pub fn candidates(&self, aqm: Aqm, block: u64, limit: u64) -> Vec<Candidate> {
        let choice = match aqm {
            Aqm::None => return self.buffers(block, limit),
            Aqm::DocsisPie => Choice::DocsisPie,
            Aqm::LowLatency => Choice::LowLatency,
        };
        let target = |ms| Candidate { name: format!("target-{ms}ms"), choice: choice(ms) };
        let table = self.table_2().map(|(_, bytes)| Candidate::buffer(u64::from(bytes)));
        [5, 10, 15, 20, 30, 50].into_iter().map(target).chain(table).collect()
    }

    /// Returns 2^n and 1.5 x 2^n KiB that drain in 5 to 500 ms at the sustained rate, rounded up to
    /// blocks of the modem and up to its limit, and upstream the size of Table 2.
    fn buffers(&self, block: u64, limit: u64) -> Vec<Candidate> {
        let table = self.table_2().map(|(_, bytes)| u64::from(bytes).min(limit));
        let sizes = (0..22).flat_map(|power| [1024_u64 << power, 1536 << power]);
        let seconds = |bytes: &u64| *bytes as f64 * 8.0 / self.sustained_bit_per_s as f64;
        let mut sizes: Vec<u64> = sizes
            .filter(|bytes| (0.005..=0.5).contains(&seconds(bytes)))
            .map(|bytes| bytes.div_ceil(block) * block)
            .filter(|bytes| (4096..=limit).contains(bytes))
            .chain(table)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().map(Candidate::buffer).collect()
    }
}

/// Formats a size as `32KiB`, or in bytes if it is not a whole number of KiB.
pub(super) fn size_name(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}KiB", bytes / 1024) } else { format!("{bytes}B") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::Direction;

    #[test]
    fn buffers_span_5_to_500_milliseconds_and_include_table_2() {
        let sizes = |bit_per_s: u64, limit: u64| -> Vec<u64> {
            let tier = Service {
                direction: Direction::Upstream,
                sustained_bit_per_s: bit_per_s,
                peak_bit_per_s: bit_per_s,
                burst_bytes: 0,
            };
            let candidates = tier.candidates(Aqm::None, 1024, limit).into_iter();
            let sizes = candidates.map(|candidate| match candidate.choice {
                Choice::Buffer(bytes) => u64::from(bytes) / 1024,
                other => panic!("{other:?}"),
            });
            sizes.collect()
        };
        let all = sizes(10_000_000, 1 << 30);
        assert_eq!(all, [8, 12, 16, 24, 32, 48, 50, 64, 96, 128, 192, 256, 384, 512]);
        assert_eq!(sizes(1_000_000, 24 * 1024), [4, 6, 8, 12, 16, 24]);
    }
}
