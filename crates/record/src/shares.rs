//! Goodput ratios between entries of a scenario that share a link.

use crate::schema::{Direction, FlowDirection, FlowRecord, Interval, TrialRecord, VariantRatio};
use crate::stats::{CONFIDENCE, RunningMean};

/// The mean over trials of the ratio in each trial. It exists only if every trial has a ratio: a
/// mean over the other trials would hide that the divisor's flows got nothing in one.
#[derive(Debug)]
pub(crate) struct Ratio {
    flow: String,
    over: String,
    /// `None`: the sum of the directions in which a flow sends.
    direction: Option<Direction>,
    mean: RunningMean,
    lacks_one: bool,
}

impl Ratio {
    /// Parses the name `FLOW/ratio.OTHER`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (flow, rest) = name.split_once('/')?;
        Some(Self::new(flow, rest.strip_prefix("ratio.")?, None))
    }

    fn new(flow: &str, over: &str, direction: Option<Direction>) -> Self {
        let (flow, over) = (flow.to_owned(), over.to_owned());
        Self { flow, over, direction, mean: RunningMean::default(), lacks_one: false }
    }

    /// Adds a valid trial.
    pub(crate) fn add(&mut self, trial: &TrialRecord) {
        match self.ratio(trial) {
            Some(ratio) => self.mean.push(ratio),
            None => self.lacks_one = true,
        }
    }

    fn ratio(&self, trial: &TrialRecord) -> Option<f64> {
        let rate = |flow: &FlowRecord| match self.direction {
            Some(direction) => goodput(flow, direction),
            None => payload(flow),
        };
        let total = |entry: &str| -> Option<f64> {
            let rates: Option<Vec<f64>> = flows_of(entry, trial).map(rate).collect();
            rates.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum())
        };
        let divisor = total(&self.over).filter(|rate| *rate > 0.0)?;
        Some(total(&self.flow)? / divisor)
    }

    /// Returns the mean over trials.
    pub(crate) fn interval(&self) -> Option<Interval> {
        if self.lacks_one { None } else { self.mean.interval(CONFIDENCE) }
    }

    pub(crate) fn summary(&self) -> Option<VariantRatio> {
        let (flow, over) = (self.flow.clone(), self.over.clone());
        Some(VariantRatio { flow, over, value: self.interval()? })
    }
}

/// Returns the ratio of the first entry with congestion control in a direction to each further one.
/// Applications are excluded: their rate depends on their needs, not on their share.
pub(crate) fn ratios(trial: &TrialRecord, direction: Direction) -> Vec<Ratio> {
    let bulk = trial.flows.iter().filter(|flow| flow.congestion_control.is_some());
    let mut entries: Vec<&str> = Vec::new();
    for flow in bulk.filter(|flow| goodput(flow, direction).is_some()) {
        let entry = entry_of(&flow.name, trial);
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    let Some((first, others)) = entries.split_first() else { return Vec::new() };
    others.iter().map(|other| Ratio::new(first, other, Some(direction))).collect()
}

/// Returns the goodput of a flow, summed over the directions in which it sends.
fn payload(flow: &FlowRecord) -> Option<f64> {
    let each = [Direction::Up, Direction::Down].map(|direction| goodput(flow, direction));
    each.into_iter().flatten().reduce(|up, down| up + down)
}

/// Returns the flow with the name of an entry, or all numbered flows of the entry.
fn flows_of<'a>(entry: &'a str, trial: &'a TrialRecord) -> impl Iterator<Item = &'a FlowRecord> {
    let is_one = trial.flows.iter().any(|flow| flow.name == entry);
    let of_entry = move |flow: &&FlowRecord| {
        if is_one { flow.name == entry } else { numbered(&flow.name) == Some(entry) }
    };
    trial.flows.iter().filter(of_entry)
}

/// Returns the entry of a flow: `bulk` for `bulk-1`, if there is a `bulk-0`. Entries that a user
/// named `bulk-1` and `bulk-2` are separate.
fn entry_of<'a>(flow: &'a str, trial: &TrialRecord) -> &'a str {
    let Some(entry) = numbered(flow) else { return flow };
    let starts_at_zero =
        trial.flows.iter().any(|first| first.name.strip_prefix(entry) == Some("-0"));
    if starts_at_zero { entry } else { flow }
}

fn numbered(flow: &str) -> Option<&str> {
    let (entry, number) = flow.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !entry.is_empty()).then_some(entry)
}

/// Returns the goodput of a flow in a direction; a flow may send in only one.
pub(crate) fn goodput(flow: &FlowRecord, direction: Direction) -> Option<f64> {
    let rate = match (direction, flow.direction) {
        (Direction::Up, FlowDirection::Up | FlowDirection::Both) => flow.goodput_up_bit_per_s,
        (Direction::Down, FlowDirection::Down | FlowDirection::Both) => flow.goodput_down_bit_per_s,
        _ => None,
    };
    rate.map(|rate| rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::FlowDirection;

    /// A trial of flows down, each with its name, goodput and whether it is bulk.
    fn trial(flows: &[(&str, Option<u64>, bool)]) -> TrialRecord {
        let flow = |(name, rate, is_bulk): &(&str, Option<u64>, bool)| FlowRecord {
            name: (*name).to_owned(),
            direction: FlowDirection::Down,
            congestion_control: is_bulk.then(|| "cubic".to_owned()),
            goodput_down_bit_per_s: *rate,
            ..FlowRecord::default()
        };
        TrialRecord { flows: flows.iter().map(flow).collect(), ..TrialRecord::default() }
    }

    fn interval(trials: &[TrialRecord], mut ratio: Ratio) -> Option<Interval> {
        for trial in trials {
            ratio.add(trial);
        }
        ratio.interval()
    }

    fn mean_ratio(trials: &[TrialRecord], name: &str) -> Option<f64> {
        interval(trials, Ratio::parse(name)?).map(|ratio| ratio.mean)
    }

    /// Returns the ratios of one trial, with the entries of their divisors.
    fn shown(trial: &TrialRecord, direction: Direction) -> Vec<(String, f64)> {
        let mean = |ratio: Ratio| {
            let over = ratio.over.clone();
            let value = interval(std::slice::from_ref(trial), ratio).expect("a ratio").mean;
            (over, value)
        };
        ratios(trial, direction).into_iter().map(mean).collect()
    }

    #[test]
    fn trials_are_divided_before_they_are_averaged() {
        let shares = |prague, classic| {
            trial(&[("prague", Some(prague), true), ("classic", Some(classic), true)])
        };
        let trials = [shares(30, 10), shares(20, 20)];
        assert_eq!(
            mean_ratio(&trials, "prague/ratio.classic"),
            Some(2.0),
            "3 and 1, not 50 over 30"
        );
        assert_eq!(
            mean_ratio(&trials, "classic/ratio.prague"),
            Some(f64::midpoint(1.0 / 3.0, 1.0))
        );
        let ratio = Ratio::parse("prague/ratio.classic").expect("a ratio");
        let interval = interval(&trials, ratio).expect("two");
        assert_eq!(interval.repeats, 2);
    }

    #[test]
    fn flows_of_an_entry_count_together() {
        let trials = [trial(&[
            ("prague-0", Some(30), true),
            ("prague-1", Some(10), true),
            ("old-2", Some(5), true),
            ("old-3", Some(15), true),
            ("call", Some(2), false),
        ])];
        assert_eq!(mean_ratio(&trials, "prague/ratio.old"), Some(2.0));
        assert_eq!(
            mean_ratio(&trials, "prague-0/ratio.old-3"),
            Some(2.0),
            "one of them by its name"
        );
        assert_eq!(
            mean_ratio(&trials, "prague/ratio.call"),
            Some(20.0),
            "asked for, any flow counts"
        );
        let down = shown(&trials[0], Direction::Down);
        let down: Vec<_> = down.iter().map(|(over, ratio)| (over.as_str(), *ratio)).collect();
        assert_eq!(down, [("old-2", 8.0), ("old-3", 40.0 / 15.0)], "no `old-0`: entries");
        assert_eq!(shown(&trials[0], Direction::Up), []);
    }

    #[test]
    fn flows_without_goodput_have_no_ratio() {
        let fair = trial(&[("a", Some(30), true), ("b", Some(10), true)]);
        let starved = trial(&[("a", Some(30), true), ("b", Some(0), true)]);
        let unknown = trial(&[("a", Some(30), true), ("b", None, true)]);
        for other in [starved.clone(), unknown, trial(&[("a", Some(30), true)])] {
            assert_eq!(mean_ratio(&[fair.clone(), other], "a/ratio.b"), None);
        }
        assert_eq!(mean_ratio(&[starved], "b/ratio.a"), Some(0.0));
        for name in ["a/ratio.", "/ratio.b", "a/ratio.c", "ratio.b", "a/ratio", "a/share.b", ""] {
            assert_eq!(mean_ratio(std::slice::from_ref(&fair), name), None, "{name:?}");
        }
        assert_eq!(mean_ratio(&[], "a/ratio.b"), None);
        assert_eq!(mean_ratio(&[fair], "a/ratio.a"), Some(1.0));
    }
}
