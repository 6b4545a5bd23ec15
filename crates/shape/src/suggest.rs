//! Chooses rates and a queue for a line from measurements: which trial comes next, and what follows
//! from all of them.
//!
//! 1. A direction is good if the load adds at most a limit to the latency beside itself, and at
//!    most 20 ms more inside itself; the time of two packets is added to both limits, because slow
//!    lines need it ([`Limit`]). A direction that is good without a shaper is not shaped.
//! 2. The others are shaped to shares of what they carried, the largest first ([`SHARES_PERCENT`]).
//!    A share counts if two measurements find it good ([`PASSES`]), and is given up after one that
//!    does not.
//! 3. The queue with the largest share in its worse direction is chosen; of two with the same share
//!    the first one in the list. So a later queue is tried only with larger shares.
//! 4. If even the smallest share is not good, no rate is chosen. The reason is either that the line
//!    carried less than before, or that packets wait on another line ([`Outcome`]).

use std::fmt::{self, Write as _};

use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_record::judgement::{AddedDelay, LoadedStep};
use underload_record::schema::{Direction, Finding, PerDirection};

/// The shares of the measured goodput that are tried, percent, largest first.
pub const SHARES_PERCENT: [u64; 4] = [95, 90, 85, 75];
/// Measurements that have to find a share good.
pub const PASSES: usize = 2;
/// A line that carries less than this share of the shaper's rate, percent, has become slower. TCP
/// reaches about 93 % through CAKE.
const CARRIED_PERCENT: u64 = 85;
/// Size of a full Ethernet frame, bytes.
const PACKET_BYTES: u64 = 1_514;
/// Full packets that may wait on any line: one is sent while another arrives.
const PACKETS: u64 = 2;

/// The findings of a measurement about a loaded direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub goodput: Rate,
    /// The p99 of all probes sent under load minus the idle median, ms; infinite if the percentile
    /// is a lost probe.
    pub beside_ms: f64,
    /// The p99 of the round trips of the loading connections minus the idle median, ms; `None` if
    /// unknown.
    pub inside_ms: Option<f64>,
}

/// Why a measurement cannot be used to judge the line.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("step {step} is invalid: {reasons}")]
    Invalid { step: String, reasons: String },
    #[error("the server, not the line, limited the load {step}: choose another server")]
    HeldBack { step: String },
    #[error("step {step}: too few probes were answered to judge the line")]
    Unanswered { step: String },
}

impl Reading {
    /// Returns what a step found about the direction that it loaded.
    ///
    /// # Errors
    /// Returns [`Unreadable`] if the line cannot be judged by the measurement.
    pub fn new(finding: &Finding) -> Result<Self, Unreadable> {
        let step = finding.step.clone();
        if !finding.valid {
            let reasons = finding.invalid_because.join("; ");
            return Err(Unreadable::Invalid { step, reasons });
        }
        if finding.is_held_back() {
            return Err(Unreadable::HeldBack { step });
        }
        let goodput = finding.goodput_up_mbit_s.or(finding.goodput_down_mbit_s);
        let loaded = LoadedStep::from(finding);
        let judged = loaded.judge();
        let goodput = goodput.filter(|mbit| *mbit > 0.0).zip(judged.beside);
        let (mbit, beside) = goodput.ok_or(Unreadable::Unanswered { step })?;
        let goodput = Rate::from_bits_per_second((mbit * 1e6) as u64);
        let is_lost = loaded.beside.is_some_and(|high| high.ns.is_none());
        Ok(Self {
            goodput,
            beside_ms: if is_lost { f64::INFINITY } else { beside.ms() },
            inside_ms: judged.inside.as_ref().map(AddedDelay::ms),
        })
    }

    /// Returns the latency that the load adds beside or inside itself, ms, whichever is more.
    pub fn added_ms(&self) -> f64 {
        self.beside_ms.max(self.inside_ms.unwrap_or(f64::NEG_INFINITY))
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.goodput.bits_per_second() as f64 / 1e6;
        let added_ms = self.added_ms();
        if !added_ms.is_finite() {
            return write!(f, "{mbit:.1} Mbit/s, the load loses more than 1 % of the probes");
        }
        let inside = if added_ms > self.beside_ms { " inside itself" } else { "" };
        write!(f, "{mbit:.1} Mbit/s, the load adds {:.0} ms{inside}", added_ms.max(0.0))
    }
}

/// The latency that a load may add beside itself, ms, besides the time of two packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub added_ms: f64,
}

/// The latency inside the load may exceed [`Limit`] by this much, ms: CUBIC fills a line only while
/// some of its packets wait. Four downloads waited 15 ms in CAKE, and 19 ms in FQ-CoDel.
pub const INSIDE_MORE_MS: f64 = 20.0;

impl Limit {
    /// Whether a direction with this rate is good.
    pub fn accepts(self, reading: &Reading, rate: Rate) -> bool {
        let packets_ms =
            rate.time_for(PACKETS * PACKET_BYTES).map_or(0.0, |time| time.as_nanos() as f64 / 1e6);
        let limit_ms = self.added_ms + packets_ms;
        reading.beside_ms <= limit_ms
            && reading.inside_ms.is_none_or(|inside_ms| inside_ms <= limit_ms + INSIDE_MORE_MS)
    }
}

/// A measurement of the line behind a shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The position of the queue in the caller's list.
    pub queue: usize,
    /// The share of each direction, percent; `None` leaves the direction unshaped.
    pub percent: PerDirection<Option<u64>>,
    /// The rate of each direction at its share; `None` leaves the direction unshaped.
    pub rates: PerDirection<Option<Rate>>,
    /// The directions to load, one after the other.
    pub loads: PerDirection<bool>,
}

impl Trial {
    /// Returns the queue and the rates, such as `cake, down 18mbit (95 %)`.
    pub fn label(&self, queue: &Spec) -> String {
        let mut text = queue.to_string();
        for direction in [Direction::Down, Direction::Up] {
            if let Some((rate, percent)) = self.rates[direction].zip(self.percent[direction]) {
                let _ = write!(text, ", {direction} {rate} ({percent} %)");
            }
        }
        text
    }
}

/// The next step of a search: another measurement, or its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    Measure(Trial),
    Done(Outcome),
}

/// The answer of a search, from all of its measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The line is good without a shaper.
    NothingToMend,
    Shape(Choice),
    /// No fixed rate is good: the line carried less during the trials than before.
    Varies,
    /// The delay stays although the line is not full: packets wait somewhere else.
    WaitsElsewhere,
}

/// A queue and rates that were found good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub queue: usize,
    pub percent: PerDirection<Option<u64>>,
    pub rates: PerDirection<Option<Rate>>,
    /// The last reading of each direction that is shaped.
    pub after: PerDirection<Option<Reading>>,
}

/// A search for a queue and rates: its measurements so far, and the rule that chooses the next
/// trial.
#[derive(Debug, Clone)]
pub struct Search {
    limit: Limit,
    queues: usize,
    /// The line without a shaper; `None` for a direction that is not judged.
    before: PerDirection<Option<Reading>>,
    trials: Vec<(Trial, PerDirection<Option<Reading>>)>,
}

/// The state of the search for one queue.
enum OfQueue {
    Try(Trial),
    Good(Choice),
    /// No share that could still win is good.
    Fails,
}

impl Search {
    /// Begins with the measurement of the line without a shaper, for a list of `queues` queues.
    pub fn new(before: PerDirection<Option<Reading>>, limit: Limit, queues: usize) -> Self {
        Self { limit, queues, before, trials: Vec::new() }
    }

    /// Adds the readings of a trial.
    pub fn add(&mut self, trial: Trial, readings: PerDirection<Option<Reading>>) {
        self.trials.push((trial, readings));
    }

    /// Returns the directions that are to be shaped.
    pub fn needs(&self) -> PerDirection<bool> {
        self.before.map(|reading| reading.is_some_and(|it| !self.limit.accepts(&it, it.goodput)))
    }

    /// Returns the next trial, or the outcome.
    pub fn next(&self) -> Next {
        if self.needs() == PerDirection::default() {
            return Next::Done(Outcome::NothingToMend);
        }
        if self.carried_less() {
            return Next::Done(Outcome::Varies);
        }
        let mut best: Option<Choice> = None;
        for queue in 0..self.queues {
            let above = best.map_or(0, |choice| least(choice.percent));
            match self.of_queue(queue, above) {
                OfQueue::Try(trial) => return Next::Measure(trial),
                OfQueue::Good(choice) => best = Some(choice),
                OfQueue::Fails => {}
            }
        }
        Next::Done(best.map_or(Outcome::WaitsElsewhere, Outcome::Shape))
    }

    /// Returns what is known of a queue whose shares have to be above `above` percent.
    fn of_queue(&self, queue: usize, above: u64) -> OfQueue {
        let needs = self.needs();
        let mut percent = PerDirection::<Option<u64>>::default();
        let mut loads = PerDirection::<bool>::default();
        for direction in Direction::ALL.into_iter().filter(|direction| needs[*direction]) {
            let readings = |share| self.readings(queue, direction, share);
            let is_open = |share: &u64| {
                *share > above && readings(*share).all(|it| self.is_good(direction, *share, it))
            };
            let Some(share) = SHARES_PERCENT.into_iter().find(is_open) else {
                return OfQueue::Fails;
            };
            percent[direction] = Some(share);
            loads[direction] = readings(share).count() < PASSES;
        }
        let rates = PerDirection::from_fn(|it| Some(self.rate(it, percent[it]?)));
        if loads != PerDirection::default() {
            return OfQueue::Try(Trial { queue, percent, rates, loads });
        }
        let after =
            PerDirection::from_fn(|it| self.readings(queue, it, percent[it]?).last().copied());
        OfQueue::Good(Choice { queue, percent, rates, after })
    }

    /// Returns the readings of a direction behind a queue at a share.
    fn readings(
        &self,
        queue: usize,
        direction: Direction,
        share: u64,
    ) -> impl Iterator<Item = &Reading> {
        let is_of =
            move |trial: &Trial| trial.queue == queue && trial.percent[direction] == Some(share);
        self.trials
            .iter()
            .filter(move |(trial, _)| is_of(trial))
            .filter_map(move |(_, readings)| readings[direction].as_ref())
    }

    fn is_good(&self, direction: Direction, share: u64, reading: &Reading) -> bool {
        self.limit.accepts(reading, self.rate(direction, share))
    }

    /// Returns a share of what a direction carried, in three digits.
    fn rate(&self, direction: Direction, share: u64) -> Rate {
        let carried = self.before[direction].map_or(0, |reading| reading.goodput.bits_per_second());
        let bits = u128::from(carried) * u128::from(share) / 100;
        let bits = u64::try_from(bits).unwrap_or(u64::MAX);
        let unit = 10_u64.pow(bits.checked_ilog10().unwrap_or(0).saturating_sub(2));
        Rate::from_bits_per_second(bits / unit * unit)
    }

    /// Whether the smallest share was not good because the line carried less than that.
    fn carried_less(&self) -> bool {
        let smallest = SHARES_PERCENT[SHARES_PERCENT.len() - 1];
        let is_less = |(trial, readings): &(Trial, PerDirection<Option<Reading>>)| {
            Direction::ALL.into_iter().any(|direction| {
                let (Some(reading), Some(rate)) = (readings[direction], trial.rates[direction])
                else {
                    return false;
                };
                let carried = reading.goodput.bits_per_second().saturating_mul(100);
                let expected = rate.bits_per_second().saturating_mul(CARRIED_PERCENT);
                trial.percent[direction] == Some(smallest)
                    && !self.is_good(direction, smallest, &reading)
                    && carried < expected
            })
        };
        self.trials.iter().any(is_less)
    }
}

/// Returns a line of text for each direction: its reading without a shaper, and with the chosen
/// rate.
pub fn before_and_after(before: &PerDirection<Option<Reading>>, choice: Option<&Choice>) -> String {
    let mut text = String::new();
    for direction in [Direction::Down, Direction::Up] {
        let Some(reading) = before[direction] else { continue };
        let _ = write!(text, "{:<5} without a shaper {reading}", direction.name());
        let chosen = choice.and_then(|it| it.rates[direction].zip(it.after[direction]));
        if let Some((rate, after)) = chosen {
            let _ = write!(text, "; shaped to {rate} {after}");
        } else if choice.is_some() {
            text += "; stays as it is";
        }
        text.push('\n');
    }
    text
}

/// Returns the smaller share of the directions that are shaped.
fn least(percent: PerDirection<Option<u64>>) -> u64 {
    percent.into_iter().filter_map(|(_, percent)| percent).min().unwrap_or(0)
}
