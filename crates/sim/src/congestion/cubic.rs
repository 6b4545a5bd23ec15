//! CUBIC (RFC 9438) with the constants and the integer arithmetic of Linux `tcp_cubic.c`:
//! C = 0.4 (410/1024 in units of 2^-10 s), beta = 717/1024, fast convergence, the Reno-friendly
//! region by counting acknowledged segments, at most one window of growth per two acknowledged
//! segments, HyStart.
//!
//! Deviations: time in units of 2^-10 s is computed from nanoseconds, while Linux counts jiffies
//! first; the cube root is exact, while Linux has a table and one Newton step (error up to 0.2 %).
//! Deviations from RFC 9438, as Linux: alpha remains 3(1-beta)/(1+beta) when the friendly window
//! passes the window before the loss; the undo of a spurious loss does not restart the epoch.

use underload_aqm::time::{Span, Time};

use super::{Ack, Cause, CongestionControl, HyStart, Loss, SlowStartExit, Window};

#[derive(Debug, Default)]
pub struct Cubic {
    hystart: HyStart,
    /// Window before the last reduction, lowered by fast convergence.
    last_max: u32,
    /// The plateau of the current epoch.
    origin: u32,
    /// Time from the epoch's start to the plateau, in 2^-10 s.
    to_origin: u64,
    epoch_start: Option<Time>,
    /// Window and time of the last computation.
    last_window: u32,
    last_time: Time,
    /// Segments acknowledged in the epoch and not counted in `friendly` yet.
    acknowledged: u32,
    /// The window that Reno would have now.
    friendly: u32,
    /// Acknowledged segments per segment of growth.
    per_segment: u32,
}

impl Cubic {
    pub fn new(exit: SlowStartExit) -> Self {
        Self { hystart: HyStart::new(exit), per_segment: 1, ..Self::default() }
    }

    fn update(&mut self, ack: &Ack, acknowledged: u32, size: u32) {
        self.acknowledged += acknowledged;
        let unchanged = self.last_window == size && ack.now.since(self.last_time) <= UPDATE_GAP;
        if unchanged {
            return;
        }
        self.last_window = size;
        self.last_time = ack.now;
        let start = match self.epoch_start {
            Some(start) => start,
            None => self.begin_epoch(ack.now, acknowledged, size),
        };
        let target = self.target(ack.now.since(start) + ack.min_rtt);
        let mut per_segment =
            if target > size { size / (target - size) } else { size.saturating_mul(100) };
        // Before the first loss the window grows by at least 5 % per RTT.
        if self.last_max == 0 && per_segment > 20 {
            per_segment = 20;
        }
        self.follow_reno(size, &mut per_segment);
        self.per_segment = per_segment.max(2);
    }

    fn begin_epoch(&mut self, now: Time, acknowledged: u32, size: u32) -> Time {
        self.epoch_start = Some(now);
        self.acknowledged = acknowledged;
        self.friendly = size;
        if self.last_max <= size {
            self.to_origin = 0;
            self.origin = size;
        } else {
            self.to_origin = cube_root(CUBE_FACTOR * u64::from(self.last_max - size));
            self.origin = self.last_max;
        }
        now
    }

    /// W_cubic(t) of RFC 9438 equation 1, one round trip ahead.
    fn target(&self, elapsed: Span) -> u32 {
        let ticks = (u128::from(elapsed.as_nanos()) * 1_024 / 1_000_000_000) as u64;
        // The minimum round trip is unbounded before its first sample.
        let offset = u128::from(ticks.abs_diff(self.to_origin).min(MAX_OFFSET_TICKS));
        let delta = ((C_SCALED * offset * offset * offset) >> 40) as u64;
        let delta = delta.min(u64::from(u32::MAX / 2)) as u32;
        if ticks < self.to_origin {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        }
    }

    /// The Reno-friendly region (RFC 9438 section 4.3).
    fn follow_reno(&mut self, size: u32, per_segment: &mut u32) {
        let step = ((u64::from(size) * FRIENDLY_SCALE) >> 3).max(1) as u32;
        self.friendly += self.acknowledged / step;
        self.acknowledged %= step;
        if self.friendly > size {
            *per_segment = (*per_segment).min(size / (self.friendly - size));
        }
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.hystart.on_ack(ack, window);
        if !ack.may_grow() {
            return;
        }
        let mut acknowledged = ack.acknowledged;
        if window.in_slow_start() {
            acknowledged = window.slow_start(self.hystart.share(acknowledged));
            if acknowledged == 0 || window.in_slow_start() {
                return;
            }
        }
        self.update(ack, acknowledged, window.size);
        window.grow(acknowledged, self.per_segment);
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        self.epoch_start = None;
        self.last_max = if window.size < self.last_max {
            (u64::from(window.size) * (1_024 + BETA) / 2_048) as u32
        } else {
            window.size
        };
        window.threshold = ((u64::from(window.size) * BETA / 1_024) as u32).max(2);
        if loss.cause == Cause::Timeout {
            // Linux resets the whole state on a timeout, except how slow start ends.
            *self = Self::new(self.hystart.exit);
        }
    }

    /// Idle time does not count for the epoch.
    fn on_restart(&mut self, now: Time, idle: Span, _window: &mut Window) {
        if let Some(start) = &mut self.epoch_start {
            *start = (*start + idle).min(now);
        }
    }
}

/// The largest `n` with `n^3 <= value`.
fn cube_root(value: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let candidate = root | (1 << bit);
        if u128::from(candidate).pow(3) <= u128::from(value) {
            root = candidate;
        }
    }
    root
}

/// Beta in 1/1024: 0.7002.
const BETA: u64 = 717;
/// 10 * 41: C in units of 2^-10 segments per (2^-10 s)^3, times 2^10.
const C_SCALED: u128 = 410;
/// Longest time in the cubic function: over an hour, when the window has long reached its limit.
const MAX_OFFSET_TICKS: u64 = 1 << 22;
// 2^40 / 410.
const CUBE_FACTOR: u64 = (1 << 40) / 410;
/// 8 * (1024 + 717) / 3 / (1024 - 717): segments per segment of Reno's growth, times 8 / window.
const FRIENDLY_SCALE: u64 = 15;
/// The least time between two updates of the target, Linux's HZ / 32.
const UPDATE_GAP: Span = Span::from_nanos(1_000_000_000 / 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_root_is_exact() {
        for root in [0_u64, 1, 2, 3, 100, 4_095, 1_000_000, 2_000_000] {
            let cube = root * root * root;
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), if root == 0 { 1 } else { root });
            if root > 0 {
                assert_eq!(cube_root(cube - 1), root - 1);
            }
        }
    }

    #[test]
    fn a_round_trip_time_that_is_not_known_yet_does_not_overflow() {
        let cubic = Cubic::new(SlowStartExit::Loss);
        assert_eq!(cubic.target(Span::from_nanos(u64::MAX)), u32::MAX / 2);
    }

    #[test]
    fn the_plateau_is_reached_after_k_seconds() {
        // RFC 9438: K = cbrt(W_max (1 - beta) / C). With W_max = 1000 segments the reduction is
        // 300, and K = cbrt(750) = 9.09 s.
        let mut cubic = Cubic::new(SlowStartExit::Loss);
        cubic.last_max = 1_000;
        cubic.begin_epoch(Time::ZERO, 0, 700);
        let k = cubic.to_origin as f64 / 1_024.0;
        assert!((k - 9.09).abs() < 0.03, "{k}");
        assert_eq!(cubic.target(Span::from_nanos((k * 1e9) as u64)), 1_000);
        assert!((695..=705).contains(&cubic.target(Span::ZERO)), "{}", cubic.target(Span::ZERO));
    }
}
