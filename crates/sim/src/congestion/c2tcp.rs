//! C2TCP (Abbasloo et al. 2018, 2019): CUBIC with a condition on the delay, after the authors'
//! patch for Linux 4.13.
//!
//! The good condition is a round trip at or below the target (100 ms): the window grows by
//! target / RTT (in segments per window, rounded) in addition to CUBIC's growth. When the round
//! trip has been above the target for an interval (100 ms), the bad condition is detected: CUBIC's
//! reduction sets the threshold, the window is set to one segment, and the next detection follows
//! after interval / sqrt(count), CoDel's law applied at the end host.
//!
//! Deviations: the target is fixed, where the 2019 paper lets applications choose; the square root
//! is exact; the patch's constant share of the extra growth (alpha) is left to CUBIC's own growth.

use underload_aqm::time::{Span, Time};

use super::{Ack, Cause, CongestionControl, Cubic, Loss, SlowStartExit, Window};

#[derive(Debug)]
pub struct C2tcp {
    cubic: Cubic,
    next_check: Option<Time>,
    count: u32,
    /// Growth in addition to CUBIC's, in units of 2^-16 segments.
    extra: u64,
}

impl C2tcp {
    pub fn new(exit: SlowStartExit) -> Self {
        Self { cubic: Cubic::new(exit), next_check: None, count: 1, extra: 0 }
    }

    fn good(&mut self, ack: &Ack, rtt: Span, window: &mut Window) {
        self.next_check = None;
        self.count = 1;
        if !ack.may_grow() || window.in_slow_start() {
            return;
        }
        let ratio = (u128::from(TARGET.as_nanos()) << 16) / u128::from(rtt.as_nanos().max(1));
        let step = ratio as u64 * u64::from(ack.acknowledged) / u64::from(window.size.max(1));
        self.extra += step;
        window.size = (window.size + (self.extra >> 16) as u32).min(super::MAX_WINDOW);
        self.extra &= 0xffff;
    }

    fn above(&mut self, ack: &Ack, window: &mut Window) {
        match self.next_check {
            None => self.next_check = Some(ack.now + INTERVAL),
            Some(check) if ack.now > check => {
                let root = libm::sqrt(f64::from(self.count));
                let gap = INTERVAL.as_nanos() as f64 / root;
                self.next_check = Some(ack.now + Span::from_nanos(gap as u64));
                self.count += 1;
                let Ack { now, in_flight, min_rtt, .. } = *ack;
                self.cubic.on_loss(&Loss { now, cause: Cause::Loss, in_flight, min_rtt }, window);
                window.size = 1;
            }
            Some(_) => {}
        }
    }
}

impl CongestionControl for C2tcp {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.cubic.on_ack(ack, window);
        let Some(rtt) = ack.rtt else { return };
        if rtt <= TARGET {
            self.good(ack, rtt, window);
        } else {
            self.above(ack, window);
        }
    }

    fn on_loss(&mut self, loss: &Loss, window: &mut Window) {
        self.cubic.on_loss(loss, window);
    }

    fn on_restart(&mut self, now: Time, idle: Span, window: &mut Window) {
        self.cubic.on_restart(now, idle, window);
    }
}

const TARGET: Span = Span::from_millis(100);
const INTERVAL: Span = Span::from_millis(100);
