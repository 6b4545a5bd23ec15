//! The de-jitter buffer, which determines when a frame is played.

use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use super::super::numbers::uniform;

/// How long a receiver delays frames so that slower ones arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterBuffer {
    /// The first frame waits for `delay`; all others are played as long after their sending.
    Fixed { delay: Span },
    /// Mean plus four deviations of the delay (Ramjee, Kurose, Towsley and Schulzrinne 1994,
    /// algorithm 1), at most `max` above the smallest delay. The value changes at the start of each
    /// talkspurt, where the change is inaudible. Talkspurts with their pauses last 2.591 s on
    /// average (ITU-T P.59), exponentially distributed.
    Adaptive { max: Span },
}

/// The playout schedule of a listener.
pub(super) struct Playout {
    buffer: JitterBuffer,
    rng: Rng,
    /// Delay from sending to playing, ns.
    offset_ns: u64,
    smallest_ns: u64,
    mean_ns: f64,
    deviation_ns: f64,
    /// First frame of the next talkspurt; 0 before the first frame arrives.
    next_talkspurt: u32,
}

impl Playout {
    pub(super) fn new(buffer: JitterBuffer, rng: Rng) -> Self {
        Self {
            buffer,
            rng,
            offset_ns: 0,
            smallest_ns: u64::MAX,
            mean_ns: 0.0,
            deviation_ns: 0.0,
            next_talkspurt: 0,
        }
    }

    /// Records an arrival after `delay`; returns the time from sending to playing unless late.
    pub(super) fn arrive(&mut self, frame: u32, delay: Span) -> Option<Span> {
        let delay_ns = delay.as_nanos();
        let first = self.smallest_ns == u64::MAX;
        self.smallest_ns = self.smallest_ns.min(delay_ns);
        match self.buffer {
            JitterBuffer::Fixed { delay } if first => {
                self.offset_ns = delay_ns + delay.as_nanos();
            }
            JitterBuffer::Fixed { .. } => {}
            JitterBuffer::Adaptive { max } => self.adapt(frame, delay_ns, max, first),
        }
        (delay_ns <= self.offset_ns).then(|| Span::from_nanos(self.offset_ns))
    }

    fn adapt(&mut self, frame: u32, delay_ns: u64, max: Span, first: bool) {
        let delay = delay_ns as f64;
        if first {
            self.mean_ns = delay;
            self.deviation_ns = FIRST_DEVIATION_NS;
        }
        self.mean_ns = MEMORY * self.mean_ns + (1.0 - MEMORY) * delay;
        let error = libm::fabs(self.mean_ns - delay);
        self.deviation_ns = MEMORY * self.deviation_ns + (1.0 - MEMORY) * error;
        if frame >= self.next_talkspurt {
            let most = self.smallest_ns + max.as_nanos();
            self.offset_ns = ((self.mean_ns + 4.0 * self.deviation_ns) as u64).min(most);
            let frames = -libm::log(uniform(&mut self.rng)) * MEAN_TALKSPURT_FRAMES;
            self.next_talkspurt = frame + 1 + frames as u32;
        }
    }
}

/// Weight of the past per frame, as in the source.
const MEMORY: f64 = 0.998_002;
/// Four deviations are a margin of 40 ms at the first frame.
const FIRST_DEVIATION_NS: f64 = 10e6;
/// 1.004 s of talk and 1.587 s of pause in frames of 20 ms (ITU-T P.59).
const MEAN_TALKSPURT_FRAMES: f64 = 129.55;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_fixed_buffer_plays_at_a_constant_distance_and_calls_the_rest_late() {
        let delay = Span::from_millis(40);
        let mut playout = Playout::new(JitterBuffer::Fixed { delay }, Rng::new(1));
        let arrive =
            |playout: &mut Playout, frame, ms| playout.arrive(frame, Span::from_millis(ms));
        assert_eq!(arrive(&mut playout, 0, 30), Some(Span::from_millis(70)));
        assert_eq!(arrive(&mut playout, 1, 70), Some(Span::from_millis(70)));
        assert_eq!(arrive(&mut playout, 2, 71), None);
        assert_eq!(arrive(&mut playout, 3, 10), Some(Span::from_millis(70)));
    }

    #[test]
    fn an_adaptive_buffer_grows_with_jitter_up_to_its_limit_and_shrinks_again() {
        let max = Span::from_millis(150);
        let mut playout = Playout::new(JitterBuffer::Adaptive { max }, Rng::new(1));
        let run = |playout: &mut Playout, frames: std::ops::Range<u32>, jitter_ms: u64| {
            let mut offset = 0;
            for frame in frames {
                let delay = 20 * MS + u64::from(frame % 5) * jitter_ms * MS / 4;
                if let Some(played) = playout.arrive(frame, Span::from_nanos(delay)) {
                    offset = played.as_nanos();
                }
            }
            offset
        };
        let calm = run(&mut playout, 0..5_000, 0);
        assert!(calm < 22 * MS, "{calm}");
        let rough = run(&mut playout, 5_000..10_000, 40);
        assert!((60 * MS..=130 * MS).contains(&rough), "{rough}");
        let terrible = run(&mut playout, 10_000..15_000, 400);
        assert!(terrible <= 170 * MS, "{terrible}");
        let calm_again = run(&mut playout, 15_000..25_000, 0);
        assert!(calm_again < 25 * MS, "{calm_again}");
    }
}
