//! `--follow`: the rule of `underload shape auto` on a line whose rate varies, beside the best fixed
//! rate and an oracle.

use underload_aqm::config::{Kind, Value};
use underload_aqm::link::hop_stream;
use underload_aqm::rate::Rate;
use underload_aqm::registry::LinkSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, PerDirection};

use super::home::{self, with_unit};
use super::{CURE, PLAIN, Question, QuestionFault, fault};
use crate::Keys;
use crate::rule::oracle_rate;
use crate::simulation::repeat_seed;

/// The least and the largest rate of a direction that is followed.
pub type Range = (Rate, Rate);

const EXPECTED: &str = "expected rates such as 3..60, or 3..60/1..10 down and up";

/// Parses `DOWN` or `DOWN/UP`, each `MIN..MAX` in Mbit/s or with a unit.
pub(super) fn ranges(text: &str) -> Result<PerDirection<Option<Range>>, QuestionFault> {
    let range = |text: &str| {
        let (min, max) = text.split_once("..")?;
        let rate = |text: &str| match Kind::Rate.read(&with_unit(text.trim(), "mbit"))? {
            Value::Rate(rate) => Some(rate).filter(|rate| !rate.is_zero()),
            _ => None,
        };
        Some((rate(min)?, rate(max)?)).filter(|(min, max)| min < max)
    };
    let plain = text.replace("bit/s", "bit");
    let (down, up) = match plain.split_once('/') {
        Some((down, up)) => (range(down), Some(range(up))),
        None => (range(&plain), None),
    };
    match (down, up) {
        (None, _) | (_, Some(None)) => Err(fault("--follow", format!("`{text}`: {EXPECTED}"))),
        (down, up) => Ok(PerDirection::new(up.flatten(), down)),
    }
}

impl Question {
    /// Whether a router follows the line's rate.
    pub(super) fn is_followed(&self) -> bool {
        self.follow.iter().any(|(_, range)| range.is_some())
    }

    /// Sets the directions that are followed; a link of a constant rate there varies in its range.
    pub(super) fn set_follow(&mut self, text: &str) -> Result<(), QuestionFault> {
        self.follow = ranges(text)?;
        let mut is_varied = false;
        for (direction, range) in self.follow.iter() {
            let link = &mut self.links[direction];
            let is_constant = LinkSetup::parse(link).is_ok_and(|link| !link.rate.varies());
            if let Some(range) = range.filter(|_| is_constant) {
                *link = varying(range);
                is_varied = true;
            }
        }
        if is_varied {
            let rate = |(direction, range): (Direction, &Option<Range>)| match range {
                Some((min, max)) => format!("{min} to {max} {direction}"),
                None => format!("{} {direction}", self.links[direction]),
            };
            let rates: Vec<String> = self.follow.iter().map(rate).collect();
            self.line = Some(rates.join(", "));
        }
        Ok(())
    }

    /// Returns the name and the overrides of each variant: the best fixed rate first.
    pub(super) fn followed(&self) -> Vec<(String, Keys)> {
        let fixed = PerDirection::from_fn(|direction| {
            self.follow[direction].map(|range| self.best_fixed(direction, range))
        });
        let rates: Vec<String> =
            [fixed.down, fixed.up].iter().flatten().map(ToString::to_string).collect();
        let variant = |rule: Option<&str>| {
            self.follow.iter().fold(Keys::new(), |keys, (direction, range)| {
                let (Some((min, max)), Some(rate)) = (range, fixed[direction]) else { return keys };
                let name = format!("path.hop.router.{direction}");
                let keys = keys.set(&name, rate.to_string()).set(&format!("{name}_queue"), CURE);
                match rule {
                    Some(rule) => {
                        let text = format!("{rule}:min={min},max={max}");
                        keys.set(&format!("{name}_rule"), text)
                    }
                    None => keys,
                }
            })
        };
        vec![
            (format!("fixed-{}", rates.join("-")), variant(None)),
            ("follow".to_owned(), variant(Some("follow"))),
            ("oracle".to_owned(), variant(Some("oracle"))),
            (home::NO_ROUTER.to_owned(), Keys::new().set("path.hop.router.up_queue", PLAIN)),
        ]
    }

    /// Returns the largest fixed rate that lets a queue of more than 30 ms form before the line in 1 %
    /// of the time, or as often as the oracle's; the least of the range if none does. Who sets a fixed
    /// rate does not know the line's future, which this rate does.
    fn best_fixed(&self, direction: Direction, (min, max): Range) -> Rate {
        let courses = self.courses(direction);
        let clamped = |rate: Rate| rate.clamp(min, max);
        let oracle = late_share(&courses, |bytes| clamped(oracle_rate(bytes)));
        let limit = oracle.max(LATE_SHARE);
        let rates = (1..=FIXED_RATES)
            .rev()
            .map(|part| Rate::from_bits_per_second(max.bits_per_second() / FIXED_RATES * part));
        let mut rates = rates.take_while(|rate| *rate > min);
        rates.find(|rate| late_share(&courses, |_| *rate) <= limit).unwrap_or(min)
    }

    /// Returns the bytes that the line carries in each step of each repeat; empty for a wrong link,
    /// which the scenario refuses.
    fn courses(&self, direction: Direction) -> Vec<Vec<u64>> {
        let Ok(link) = LinkSetup::parse(&self.links[direction]) else { return Vec::new() };
        let before = match direction {
            Direction::Up => usize::from(self.wifi.is_some()) + 1,
            Direction::Down => usize::from(self.policer.is_some()),
        };
        let load = match Kind::Span.read(&self.load) {
            Some(Value::Span(load)) => load.min(LONGEST),
            _ => Span::ZERO,
        };
        let steps = load.as_nanos() / STEP.as_nanos();
        let course = |repeat: u32| {
            let rng =
                hop_stream(&Rng::new(repeat_seed(self.seed, repeat)), direction.name(), before);
            let mut process = link.rate.started(&rng);
            let at = |step: u64| Time::ZERO + BEFORE_LOAD + STEP * step;
            process.offered_bytes(Time::ZERO, at(0));
            let bytes = (0..steps).map(|step| process.offered_bytes(at(step), at(step + 1)));
            bytes.map(|bytes| bytes.unwrap_or(u64::MAX)).collect()
        };
        (0..self.repeats.min(MOST_COURSES)).map(course).collect()
    }
}

/// Returns the share of steps that end with more than 30 ms of a queue if `rate` is sent all the time.
fn late_share(courses: &[Vec<u64>], rate: impl Fn(u64) -> Rate) -> f64 {
    let (mut late, mut all) = (0_u64, 0_u64);
    for course in courses {
        let mut backlog = 0_u64;
        for bytes in course {
            let sent = rate(*bytes).bytes_in(STEP);
            backlog = backlog.saturating_add(sent).saturating_sub(*bytes);
            late += u64::from(backlog > bytes / 100 * 30);
            all += 1;
        }
    }
    late as f64 / all.max(1) as f64
}

/// Returns a link whose rate wanders between two rates, as that of a mobile line.
fn varying((min, max): Range) -> String {
    let (least, most) = (min.bits_per_second(), max.bits_per_second());
    let [centre, volatility] = [least.midpoint(most), (most - least) / 9]
        .map(|bits| Rate::from_bits_per_second(bits.max(1)));
    format!(
        "cellular:centre={centre},min={min},max={max},volatility={volatility},reversion=6s,\
         outage-gap=0s"
    )
}

/// As the steps of the rules.
const STEP: Span = Span::from_millis(100);
/// Idle time and the ramp of a trial in virtual time.
const BEFORE_LOAD: Span = Span::from_secs(12);
const LONGEST: Span = Span::from_secs(3_600);
const MOST_COURSES: u32 = 20;
const LATE_SHARE: f64 = 0.01;
/// The fixed rates are multiples of this part of the largest.
const FIXED_RATES: u64 = 20;

#[cfg(test)]
mod tests {
    use underload_record::schema::{Phase, TrialRecord};
    use underload_sim::trial::{TrialLabel, run};

    use super::*;
    use crate::Scenario;
    use crate::simulation::configure;

    fn asked(options: &[(&str, &str)]) -> Result<Question, QuestionFault> {
        let options: Vec<(&str, String)> =
            options.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Question::asked(&[], &options, false)
    }

    fn scenario(options: &[(&str, &str)]) -> (Question, Scenario) {
        let question = asked(options).expect("a question");
        let scenario = question.scenario("try").expect("a scenario");
        (question, scenario)
    }

    #[test]
    fn rates_are_given_down_and_up() {
        let mbit = Rate::from_megabits_per_second;
        let down = PerDirection::new(None, Some((mbit(3), mbit(60))));
        assert_eq!(ranges("3..60"), Ok(down));
        assert_eq!(ranges("3mbit..60Mbit/s"), Ok(down));
        let both = PerDirection::new(Some((mbit(1), mbit(10))), Some((mbit(3), mbit(60))));
        assert_eq!(ranges("3..60/1..10"), Ok(both));
        for wrong in ["3", "60..3", "3..3", "0..3", "3..60/4", "3..60/", "/1..2", "", "..", "a..b"]
        {
            let fault = ranges(wrong).expect_err(wrong).to_string();
            assert!(fault.starts_with(&format!("--follow: `{wrong}`: {EXPECTED}")), "{fault}");
        }
        let beside = asked(&[("follow", "3..60"), ("queue", "pie")]).expect_err("two");
        assert!(beside.to_string().ends_with("expected no --queue"), "{beside}");
    }

    #[test]
    fn a_fixed_rate_an_oracle_and_no_shaper_are_beside_the_follower() {
        let (question, scenario) = scenario(&[("follow", "4..40")]);
        let title = "20mbit up, 4mbit to 40mbit down, 30ms away: download, call; CAKE in the router \
                     follows the rate";
        assert_eq!(question.title(), title);
        let names: Vec<&str> = scenario.variants.iter().map(|it| it.name.as_str()).collect();
        let fixed = names[0].strip_prefix("fixed-").and_then(|rate| rate.strip_suffix("mbit"));
        assert!(fixed.is_some_and(|rate| (4..30).contains(&rate.parse().expect("a rate"))));
        assert_eq!(names[1..], ["follow", "oracle", "no-router"]);
        // A line that varies by itself remains what it is.
        let down = "steps:0s=20mbit,20s=10mbit";
        let options = [("follow", "5..20/1..8"), ("down", down), ("up", "cellular:preset=3g")];
        let (question, _) = self::scenario(&options);
        assert_eq!(
            question.links,
            PerDirection::new("cellular:preset=3g", down).map(str::to_owned)
        );
        assert_eq!((question.uploads, question.downloads), (1, 1));
        let mbit = Rate::from_megabits_per_second;
        // Half of the time has 10 Mbit/s, and every fixed rate above it a queue.
        assert_eq!(question.best_fixed(Direction::Down, (mbit(5), mbit(20))), mbit(10));
    }

    /// Goodput in Mbit/s, and the 99th percentile of round trips under load in ms.
    fn outcome(scenario: &Scenario, name: &str) -> (f64, f64) {
        let variant = scenario.variants.iter().find(|it| it.name.starts_with(name)).expect(name);
        let label = TrialLabel { variant: variant.name.clone(), ..TrialLabel::default() };
        let config = configure(variant, repeat_seed(scenario.seed, 0), label).expect("a trial");
        let TrialRecord { flows, latencies, .. } = run(config).expect("a trial").record;
        let goodput: u64 = flows.iter().filter_map(|flow| flow.goodput_down_bit_per_s).sum();
        let of_load = latencies.iter().find(|it| it.window.phase == Phase::Load);
        let p99_ns = of_load.and_then(|it| it.distribution).expect("samples").p99_ns;
        (goodput as f64 / 1e6, p99_ns as f64 / 1e6)
    }

    #[test]
    fn the_follower_carries_more_than_a_fixed_rate_and_less_than_the_oracle() {
        let (_, scenario) = scenario(&[("follow", "4..40"), ("download", ""), ("load", "60")]);
        let [fixed, follow, oracle, none] =
            ["fixed", "follow", "oracle", "no-router"].map(|name| outcome(&scenario, name));
        let said = format!("{fixed:?} {follow:?} {oracle:?} {none:?}");
        assert!(none.1 > 300.0, "the premise, a full buffer: {said}");
        assert!(fixed.1 < 80.0 && oracle.1 < 80.0 && follow.1 < 150.0, "{said}");
        assert!(follow.0 > fixed.0 && follow.0 < oracle.0 * 1.02, "{said}");
        assert!(follow.0 > oracle.0 * 0.8, "{said}");
    }
}
