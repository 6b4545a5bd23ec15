//! Input and output of the players' bit-rate adaptation.

use underload_aqm::time::Span;

/// The state from which a player chooses a bit rate.
#[derive(Clone, Copy, Debug)]
pub(in crate::application::video) struct View<'a> {
    /// Bit rates in Mbit/s, ascending.
    pub(in crate::application::video) ladder: &'a [f64],
    /// Length of a chunk in seconds.
    pub(in crate::application::video) chunk_s: f64,
    /// Video in the buffer, and its capacity, in seconds.
    pub(in crate::application::video) buffer_s: f64,
    pub(in crate::application::video) buffer_max_s: f64,
    /// Throughput of each loaded chunk in Mbit/s, the oldest first.
    pub(in crate::application::video) throughputs: &'a [f64],
    /// Rung of the ladder of each loaded chunk, the oldest first.
    pub(in crate::application::video) rungs: &'a [usize],
    /// Chunks not loaded yet.
    pub(in crate::application::video) chunks_left: usize,
}

impl View<'_> {
    /// Returns the highest bit rate, which is the penalty of a second of rebuffering.
    pub(super) fn highest(&self) -> f64 {
        self.ladder.last().copied().unwrap_or_default()
    }
}

/// A player's decision about the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::application::video) struct Choice {
    /// Rung of the ladder.
    pub(in crate::application::video) rung: usize,
    /// Time to wait before the request.
    pub(in crate::application::video) wait: Span,
}

/// Returns the harmonic mean of the last `count` values; 0 without values.
pub(super) fn harmonic_mean(values: &[f64], count: usize) -> f64 {
    let recent = &values[values.len().saturating_sub(count)..];
    if recent.is_empty() {
        return 0.0;
    }
    recent.len() as f64 / recent.iter().map(|value| 1.0 / value).sum::<f64>()
}
