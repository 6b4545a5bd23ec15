//! Follows a line whose rate varies: chooses the rate of one direction, ten times a second.
//!
//! [`Follower`] sees what a program without rights over other people's traffic can see: round trips
//! to a reflector, and the counters of its own shaper. Time is an argument, so the simulator and a
//! real device drive the same code.
//!
//! 1. The base of the round trip is the smallest of the last 20 s (`BASE_SECONDS`).
//! 2. Two of the last three answers are 10 ms and the time of six packets above the base, under
//!    load: the line became slower (`HIGH_US`, `HIGH_BYTES`).
//! 3. Then the rate is what the line carried, less what empties its queue (`DRAIN_MS`).
//! 4. Once the queue is empty the rate is 95 % of what the line carried, for half a second
//!    (`RESUME_PERMILLE`, `HOLD_MS`).
//! 5. Under load and without delay the rate grows (`GROWTH_PERMILLE`).
//! 6. A delay that emptying does not shorten is the path's own: a new base
//!    (`DRAIN_LONGEST_MS`).
//! 7. A direction that is idle for 10 s returns to its base rate (`IDLE_AFTER_MS`).
//! 8. Fewer than three valid answers, or none for a second: the rate stays (`ANSWERS_MIN`).
//! 9. A reflector that is gone, sends nonsense, or is as late without load as with it: the rate
//!    returns to its base and stays there ([`Cause`]).

use std::collections::VecDeque;
use std::fmt;

use underload_aqm::rate::Rate;
use underload_record::schema::Direction;

/// The base round trip is the smallest of this many seconds. A shorter time would make a lasting
/// queue the base; a longer one would notice a changed path late.
const BASE_SECONDS: usize = 20;
/// Delay above the base from which the delay counts as a queue, in addition to the delay of
/// [`HIGH_BYTES`].
const HIGH_US: i64 = 10_000;
/// Bytes that may always wait, because slow lines send several packets at once: six of 1500 bytes.
const HIGH_BYTES: u64 = 9_000;
/// The time within which a queue should drain, in addition to the round trip that senders need to
/// react.
const DRAIN_MS: u64 = 150;
/// Bounds of the share of the line's rate that is left free to drain a queue.
const DRAIN_PERMILLE: (u64, u64) = (80, 500);
/// After this time the queue is assumed to be empty; a delay that persists belongs to the path.
const DRAIN_LONGEST_MS: u64 = 1_000;
/// The rate after the queue has drained, as a share of the rate that the line carried.
const RESUME_PERMILLE: u64 = 950;
/// Time for which the rate stays constant after the queue has drained.
const HOLD_MS: u64 = 500;
/// Growth of the rate per 100 ms: slow first, because the line's rate is probably near; then
/// faster, so that the rate doubles within 5 s.
const GROWTH_PERMILLE: [u64; 4] = [10, 15, 20, 30];
/// Time for which each growth applies before the next.
const GROWTH_STEP_MS: u64 = 1_500;
/// A direction counts as loaded from `LOADED_PERMILLE` of its rate on, and as idle below
/// `IDLE_PERMILLE`.
const LOADED_PERMILLE: u64 = 750;
const IDLE_PERMILLE: u64 = 250;
/// A shaper that sends this share of its rate has packets waiting, so its input is not limited by a
/// slower hop.
const FULL_PERMILLE: u64 = 950;
/// A direction that was idle for this time is not the cause of a queue. With a shorter time, a line
/// that suddenly loses most of its rate would look idle.
const BLAMED_MS: u64 = 3_000;
/// Idle time before the rate returns to its base, by a tenth of the distance each second.
const IDLE_AFTER_MS: u64 = 10_000;
/// Minimum number of answers for a decision.
const ANSWERS_MIN: usize = 3;
/// Without an answer for this time, the rate does not change.
const SILENT_MS: u64 = 1_000;
/// The rate grows only if the last answer is not older than this.
const FRESH_MS: u64 = 200;
/// Without an answer for this time the reflector counts as gone.
const GONE_MS: u64 = 10_000;
/// Longest accepted round trip: longer ones do not measure a line.
const ROUND_TRIP_MAX_US: i64 = 10_000_000;
/// Longest accepted time between two readings; after a longer one, the clock jumped or the machine
/// slept.
const STEP_MAX_MS: u64 = 2_000;
/// Readings over which the delivered rate is measured: 300 ms.
const RATE_READINGS: usize = 4;
/// The reflector is judged once `JUDGED_MIN` answers are counted. At `JUDGED_MAX` the counts are
/// halved, so that recent answers weigh more.
const JUDGED_MAX: u32 = 2_000;
const JUDGED_MIN: u32 = 400;
/// Shares of implausible answers, and of high delays without load, above which the reflector is not
/// used.
const NONSENSE_PERMILLE: u32 = 500;
const NOISE_PERMILLE: u32 = 200;

/// The rates between which a direction is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    min: u64,
    max: u64,
}

/// An answer of the reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// When the probe was sent, microseconds of the readings' clock.
    pub sent_us: u64,
    pub round_trip_us: i64,
}

/// Answers and bytes since the previous reading, about 100 ms before.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Milliseconds of a clock that no change of the time of day moves.
    pub time_ms: u64,
    /// Answers that arrived since the previous reading, by the time of their probes.
    pub answers: &'a [Answer],
    /// Bytes that the shaper has sent since it exists.
    pub sent_bytes: u64,
}

/// The rate from now on, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub rate: Rate,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Fewer answers or readings than the rules need.
    Learning,
    /// The rate fits, or the direction carries too little traffic for a decision.
    Fits,
    /// Under load the round trip stays near its base.
    Grows,
    /// A queue at the line is being emptied.
    Empties,
    /// The direction is idle.
    Idle,
    /// The line cannot be followed: the rate stays fixed.
    Unfollowable(Cause),
}

/// Why a line cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("the reflector does not answer")]
    NoAnswers,
    #[error("the reflector's answers are no round trips")]
    Nonsense,
    #[error("its delay is as high without load as with it")]
    Noise,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Learning => f.write_str("too few answers to decide"),
            Self::Fits => f.write_str("fits"),
            Self::Grows => f.write_str("grows"),
            Self::Empties => f.write_str("empties a queue"),
            Self::Idle => f.write_str("idle"),
            Self::Unfollowable(cause) => {
                write!(f, "fixed: this line cannot be followed, because {cause}")
            }
        }
    }
}

impl Bounds {
    /// Returns bounds; `None` unless 0 < `min` <= `max`.
    pub fn new(min: Rate, max: Rate) -> Option<Self> {
        let (min, max) = (min.bits_per_second(), max.bits_per_second());
        (min > 0 && min <= max).then_some(Self { min, max })
    }

    /// Returns the rate of an idle or unfollowable line: the geometric mean.
    pub fn base(self) -> Rate {
        let product = u128::from(self.min) * u128::from(self.max);
        Rate::from_bits_per_second((product.isqrt() as u64).clamp(self.min, self.max))
    }
}

/// Follows one direction of a line.
#[derive(Debug, Clone)]
pub struct Follower {
    /// Up, the shaper is before the line: it delivers what it may, and the line's queue grows.
    /// Down, it is behind the line, and delivers what the line carries.
    direction: Direction,
    bounds: Bounds,
    rate: u64,
    phase: Phase,
    base: Base,
    /// The last valid answers, oldest first.
    answers: VecDeque<Answer>,
    /// Time and sent bytes of the last readings, oldest first.
    sent: VecDeque<(u64, u64)>,
    /// When the last valid answer came.
    answered_ms: u64,
    /// When the direction was last not idle; `None` if it always was.
    busy_ms: Option<u64>,
    /// Answers outside the accepted range of round trips.
    nonsense: Share,
    /// Answers with a high delay while the direction is idle, and while it is not.
    high_idle: Share,
    high_busy: Share,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Grows from `from_ms` on.
    Steady { from_ms: u64 },
    /// Empties the line's queue since `since_ms`, then continues at `resume`.
    Emptying { since_ms: u64, resume: u64, excess_us: i64 },
}

/// The smallest round trip of each of the last seconds.
#[derive(Debug, Clone, Default)]
struct Base {
    seconds: VecDeque<(u64, i64)>,
}

/// A share of recent events.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    hits: u32,
    all: u32,
}

impl Share {
    fn count(&mut self, is_hit: bool) {
        if self.all >= JUDGED_MAX {
            self.all /= 2;
            self.hits /= 2;
        }
        self.all += 1;
        self.hits += u32::from(is_hit);
    }

    /// Whether enough events were counted, and this share is not larger than another.
    fn is_at_most(self, other: Self) -> bool {
        self.all >= JUDGED_MIN && self.hits * other.all <= other.hits * self.all
    }

    fn is_above(self, permille: u32) -> bool {
        self.all >= JUDGED_MIN && self.hits * 1_000 > self.all * permille
    }
}

impl Base {
    fn add(&mut self, time_ms: u64, round_trip_us: i64) {
        let second = time_ms / 1_000;
        match self.seconds.back_mut() {
            Some((last, smallest)) if *last == second => *smallest = (*smallest).min(round_trip_us),
            _ => self.seconds.push_back((second, round_trip_us)),
        }
        let is_old = |(begin, _): &(u64, i64)| second - begin.min(&second) > BASE_SECONDS as u64;
        while self.seconds.len() > BASE_SECONDS || self.seconds.front().is_some_and(is_old) {
            self.seconds.pop_front();
        }
    }

    fn smallest(&self) -> Option<i64> {
        self.seconds.iter().map(|(_, smallest)| *smallest).min()
    }
}

impl Follower {
    /// Returns a follower that begins at the base rate.
    pub fn new(direction: Direction, bounds: Bounds) -> Self {
        Self {
            direction,
            bounds,
            rate: bounds.base().bits_per_second(),
            phase: Phase::Steady { from_ms: 0 },
            base: Base::default(),
            answers: VecDeque::with_capacity(ANSWERS_MIN),
            sent: VecDeque::with_capacity(RATE_READINGS),
            answered_ms: 0,
            busy_ms: None,
            nonsense: Share::default(),
            high_idle: Share::default(),
            high_busy: Share::default(),
        }
    }

    /// Returns the rate that is in force.
    pub fn rate(&self) -> Rate {
        Rate::from_bits_per_second(self.rate)
    }

    /// Takes in what happened, and decides on the rate from now on.
    pub fn decide(&mut self, reading: &Reading<'_>) -> Decision {
        if !self.is_continued(reading) {
            self.restart(reading);
        }
        self.sent.push_back((reading.time_ms, reading.sent_bytes));
        if self.sent.len() > RATE_READINGS {
            self.sent.pop_front();
        }
        let delivered = self.delivered();
        self.learn(reading, delivered);
        let reason = self.judge(reading.time_ms, delivered);
        self.rate = self.rate.clamp(self.bounds.min, self.bounds.max);
        Decision { rate: self.rate(), reason }
    }

    /// Whether a reading follows the previous one within the time and with counts that only grow.
    fn is_continued(&self, reading: &Reading<'_>) -> bool {
        self.sent.back().is_some_and(|&(time_ms, sent_bytes)| {
            let step = reading.time_ms.checked_sub(time_ms);
            step.is_some_and(|step| (1..=STEP_MAX_MS).contains(&step))
                && reading.sent_bytes >= sent_bytes
        })
    }

    /// Forgets everything but the rate.
    fn restart(&mut self, reading: &Reading<'_>) {
        let rate = self.rate;
        *self = Self { rate, ..Self::new(self.direction, self.bounds) };
        self.answered_ms = reading.time_ms;
        self.phase = Phase::Steady { from_ms: reading.time_ms };
    }

    /// Returns the rate at which the shaper sent during the last readings, bit/s.
    fn delivered(&self) -> Option<u64> {
        let (&(first_ms, first), &(last_ms, last)) = (self.sent.front()?, self.sent.back()?);
        let millis = last_ms.checked_sub(first_ms).filter(|millis| *millis > 0)?;
        let bits = u128::from(last - first) * 8_000 / u128::from(millis);
        (self.sent.len() >= ANSWERS_MIN).then_some(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Whether the direction carries at least this share of its rate.
    fn carries(&self, delivered: u64, permille: u64) -> bool {
        u128::from(delivered) * 1_000 >= u128::from(self.rate) * u128::from(permille)
    }

    /// Takes in the answers of a reading.
    fn learn(&mut self, reading: &Reading<'_>, delivered: Option<u64>) {
        let is_busy = delivered.is_some_and(|rate| self.carries(rate, IDLE_PERMILLE));
        for answer in reading.answers {
            let is_valid = (1..=ROUND_TRIP_MAX_US).contains(&answer.round_trip_us);
            let is_newer = self.answers.back().is_none_or(|last| last.sent_us < answer.sent_us);
            self.nonsense.count(!is_valid);
            if !is_valid || !is_newer {
                continue;
            }
            self.base.add(reading.time_ms, answer.round_trip_us);
            self.answered_ms = reading.time_ms;
            if self.answers.len() == ANSWERS_MIN {
                self.answers.pop_front();
            }
            self.answers.push_back(*answer);
            let is_high = self.excess(answer) >= self.high_us();
            let share = if is_busy { &mut self.high_busy } else { &mut self.high_idle };
            share.count(is_high);
        }
        if is_busy {
            self.busy_ms = Some(reading.time_ms);
        }
    }

    /// Returns the delay above the base that counts as a queue at the present rate.
    fn high_us(&self) -> i64 {
        HIGH_US + (HIGH_BYTES * 8_000_000 / self.rate.max(1)) as i64
    }

    /// Returns the delay of an answer above the base.
    fn excess(&self, answer: &Answer) -> i64 {
        answer.round_trip_us - self.base.smallest().unwrap_or(answer.round_trip_us)
    }

    /// Applies the rules in their order, and changes the rate.
    fn judge(&mut self, now_ms: u64, delivered: Option<u64>) -> Reason {
        if let Some(cause) = self.unfollowable(now_ms) {
            self.approach_base();
            return Reason::Unfollowable(cause);
        }
        let is_silent = now_ms - self.answered_ms >= SILENT_MS;
        let Some(delivered) = delivered.filter(|_| !is_silent) else { return Reason::Learning };
        if self.answers.len() < ANSWERS_MIN {
            return Reason::Learning;
        }
        if let Phase::Emptying { since_ms, resume, excess_us } = self.phase {
            return self.empty(now_ms, delivered, (since_ms, resume, excess_us));
        }
        let high =
            self.answers.iter().filter(|answer| self.excess(answer) >= self.high_us()).count();
        if high >= 2 && self.was_busy_within(now_ms, BLAMED_MS) {
            return self.begin_emptying(now_ms, delivered);
        }
        if !self.was_busy_within(now_ms, IDLE_AFTER_MS) {
            self.approach_base();
            return Reason::Idle;
        }
        let is_fresh = now_ms - self.answered_ms < FRESH_MS;
        if high == 0 && is_fresh && self.carries(delivered, LOADED_PERMILLE) {
            return self.grow(now_ms);
        }
        Reason::Fits
    }

    fn was_busy_within(&self, now_ms: u64, limit_ms: u64) -> bool {
        self.busy_ms.is_some_and(|busy_ms| now_ms - busy_ms < limit_ms)
    }

    fn unfollowable(&self, now_ms: u64) -> Option<Cause> {
        if self.nonsense.is_above(NONSENSE_PERMILLE) {
            return Some(Cause::Nonsense);
        }
        if now_ms - self.answered_ms >= GONE_MS {
            return Some(Cause::NoAnswers);
        }
        let is_noise =
            self.high_idle.is_above(NOISE_PERMILLE) && self.high_busy.is_at_most(self.high_idle);
        is_noise.then_some(Cause::Noise)
    }

    /// Moves the rate towards its base by a hundredth of the distance, ten times a second.
    fn approach_base(&mut self) {
        let base = self.bounds.base().bits_per_second();
        let step = self.rate.abs_diff(base).div_ceil(100);
        self.rate = if self.rate < base { self.rate + step } else { self.rate - step };
    }

    fn grow(&mut self, now_ms: u64) -> Reason {
        let Phase::Steady { from_ms } = self.phase else { return Reason::Fits };
        let Some(grown_ms) = now_ms.checked_sub(from_ms) else { return Reason::Fits };
        let step = (grown_ms / GROWTH_STEP_MS) as usize;
        let permille = GROWTH_PERMILLE[step.min(GROWTH_PERMILLE.len() - 1)];
        self.rate = self.rate.saturating_add(share(self.rate, permille));
        Reason::Grows
    }

    /// Estimates what the line carries, and lowers the rate so far that its queue empties.
    fn begin_emptying(&mut self, now_ms: u64, delivered: u64) -> Reason {
        let excess_us = self.answers.iter().map(|answer| self.excess(answer)).max().unwrap_or(0);
        let line = match self.direction {
            Direction::Down => delivered,
            // The queue grows by what arrives beyond what the line carries.
            Direction::Up => share_of(delivered, 1_000, 1_000 + self.slope_permille()),
        };
        let line = line.min(self.rate);
        let free = (excess_us as u64 / DRAIN_MS).clamp(DRAIN_PERMILLE.0, DRAIN_PERMILLE.1);
        let lowest = self.rate / 2;
        let resume = share(line, RESUME_PERMILLE).max(lowest);
        self.rate = share(line, 1_000 - free).max(lowest);
        self.phase = Phase::Emptying { since_ms: now_ms, resume, excess_us };
        self.answers.clear();
        Reason::Empties
    }

    /// Continues to empty the queue, or ends that.
    fn empty(
        &mut self,
        now_ms: u64,
        delivered: u64,
        (since_ms, resume, excess_us): (u64, u64, i64),
    ) -> Reason {
        let mut excess = self.answers.iter().map(|answer| self.excess(answer));
        let (lowest, last) = (excess.clone().min().unwrap_or(0), excess.next_back().unwrap_or(0));
        if last < self.high_us() / 2 {
            self.rate = resume.clamp(self.rate, self.rate.saturating_mul(2));
            self.phase = Phase::Steady { from_ms: now_ms.saturating_add(HOLD_MS) };
            return Reason::Fits;
        }
        if now_ms - since_ms < DRAIN_LONGEST_MS {
            return Reason::Empties;
        }
        let is_full = self.carries(delivered, FULL_PERMILLE);
        if is_full && lowest > excess_us - excess_us / 4 && self.slope_permille() < 10 {
            let round_trips = self.answers.iter().map(|answer| answer.round_trip_us);
            let smallest = round_trips.min().unwrap_or(0);
            self.base.seconds.clear();
            self.base.add(now_ms, smallest);
            self.rate = resume.clamp(self.rate, self.rate.saturating_mul(2));
            self.phase = Phase::Steady { from_ms: now_ms };
            return Reason::Fits;
        }
        self.begin_emptying(now_ms, delivered)
    }

    /// Returns by how much the round trip grows in a thousandth of the time, at least 0.
    fn slope_permille(&self) -> u64 {
        let (Some(first), Some(last)) = (self.answers.front(), self.answers.back()) else {
            return 0;
        };
        let growth = (last.round_trip_us - first.round_trip_us).max(0) as u64;
        let time = last.sent_us.saturating_sub(first.sent_us).max(1);
        (growth.saturating_mul(1_000) / time).min(1_000)
    }
}

/// Returns a share of a rate.
fn share(rate: u64, permille: u64) -> u64 {
    share_of(rate, permille, 1_000)
}

fn share_of(rate: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX)
}
