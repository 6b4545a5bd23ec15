//! Conditions on a measured line, such as `grade < B` or `added > 50ms`.

use underload_aqm::config::{ConfigError, Kind, Value};

use super::{Grade, Judgement, StepJudgement};
use crate::schema::Finding;

crate::named! {
    /// A number that a condition may name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Limited {
        /// The grade of the worst step.
        Grade = "grade",
        /// The delay that the load adds in the worst step, ms.
        Added = "added",
        /// Lost probes in the worst step, percent.
        Loss = "loss",
        /// Goodput of the fastest step, Mbit/s.
        Down = "goodput-down",
        /// As `Down`.
        Up = "goodput-up",
    }
}

/// A condition: a number below or above a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub limited: Limited,
    comparison: &'static str,
    /// In the unit of [`Limited`]; of a grade its number, the best highest.
    value: f64,
}

/// The comparisons; the longer ones first, which begin with the others.
const COMPARISONS: [&str; 4] = ["<=", ">=", "<", ">"];

impl Limit {
    /// Parses `NAME < VALUE`, or with `>`, `<=` or `>=`. A value without a unit has that of [`Limited`].
    ///
    /// # Errors
    /// Returns the faulty part and what is accepted.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let refused = |problem: String| ConfigError::Refused(problem);
        let expected = "expected a number, < or >, and a limit, such as `grade < B`";
        let split = |it: &&'static str| Some((*it, text.split_once(*it)?));
        let found = COMPARISONS.iter().find_map(split);
        let (comparison, (name, limit)) = found.ok_or_else(|| refused(expected.to_owned()))?;
        let (name, limit) = (name.trim(), limit.trim());
        let limited = Limited::from_name(name).ok_or_else(|| {
            let known = Limited::ALL.map(Limited::name).join(", ");
            refused(format!("`{name}` is no number of a line; expected one of {known}"))
        })?;
        let value = limited.read(limit).map_err(|expected| {
            refused(format!("`{limit}` is no limit of {name}; expected {expected}"))
        })?;
        Ok(Self { limited, comparison, value })
    }

    /// Whether a value is beyond the limit.
    pub fn applies_to(&self, value: f64) -> bool {
        match self.comparison {
            "<" => value < self.value,
            ">" => value > self.value,
            "<=" => value <= self.value,
            _ => value >= self.value,
        }
    }
}

impl Limited {
    /// Returns the measured value: `None` without one, infinite for a delay that is lost.
    pub fn of(self, judgement: &Judgement, findings: &[Finding]) -> Option<f64> {
        let graded = || judgement.steps.iter().filter(|step| step.grade.is_some());
        let valid = || findings.iter().filter(|finding| finding.valid);
        match self {
            Self::Grade => judgement.grade.map(grade_number),
            Self::Added => graded().filter_map(StepJudgement::worst_ms).reduce(f64::max),
            // Servers of other projects report no losses.
            Self::Loss if findings.iter().any(|it| it.foreign.is_some()) => None,
            Self::Loss => graded().map(|step| step.lost_percent).reduce(f64::max),
            Self::Down => valid().filter_map(|it| it.goodput_down_mbit_s).reduce(f64::max),
            Self::Up => valid().filter_map(|it| it.goodput_up_mbit_s).reduce(f64::max),
        }
    }

    /// Formats a value with its unit.
    pub fn shown(self, value: f64) -> String {
        let unit = match self {
            Self::Grade => {
                let grade = Grade::ALL.into_iter().find(|it| grade_number(*it) <= value);
                return grade.unwrap_or(Grade::F).name().to_owned();
            }
            Self::Added if value.is_infinite() => return "lost".to_owned(),
            Self::Added => "ms",
            Self::Loss => "%",
            Self::Down | Self::Up => "Mbit/s",
        };
        format!("{value:.2} {unit}")
    }

    /// Parses a limit; the error is an accepted one.
    fn read(self, text: &str) -> Result<f64, &'static str> {
        let is_usable = |it: &f64| it.is_finite() && *it >= 0.0;
        let number = |text: &str| text.trim().parse().ok().filter(is_usable);
        let of = |kind: Kind| number(text).or_else(|| kind.read(text).as_ref().map(plain));
        let (value, example) = match self {
            Self::Grade => (Grade::from_name(text).map(grade_number), "a grade from A+ to F"),
            Self::Loss => (number(text.strip_suffix('%').unwrap_or(text)), "percent such as 1%"),
            Self::Added => (of(Kind::Span), "a time such as 50ms, or ms such as 50"),
            Self::Down | Self::Up => {
                (of(Kind::Rate), "a rate such as 20mbit, or Mbit/s such as 20")
            }
        };
        value.ok_or(example)
    }
}

/// Returns a time in ms, or a rate in Mbit/s.
fn plain(value: &Value) -> f64 {
    match value {
        Value::Span(span) => span.as_nanos() as f64 / 1e6,
        Value::Rate(rate) => rate.bits_per_second() as f64 / 1e6,
        _ => f64::NAN,
    }
}

/// Returns the number of a grade: the best has the highest.
fn grade_number(grade: Grade) -> f64 {
    -f64::from(grade as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::PerDirection;

    fn judgement(grades: &[Grade]) -> Judgement {
        let step = |grade: &Grade| StepJudgement {
            grade: Some(*grade),
            ..super::super::LoadedStep::default().judge()
        };
        let steps: Vec<StepJudgement> = grades.iter().map(step).collect();
        Judgement { grade: grades.iter().max().copied(), steps, ..Judgement::default() }
    }

    #[test]
    fn worse_than_b_is_c_d_and_f() {
        let limit = Limit::parse("grade < B").unwrap();
        let applies =
            |grade| limit.applies_to(Limited::Grade.of(&judgement(&[grade]), &[]).unwrap());
        let worse = Grade::ALL.into_iter().filter(|grade| applies(*grade)).collect::<Vec<_>>();
        assert_eq!(worse, [Grade::C, Grade::D, Grade::F]);
        let better = Limit::parse("grade>=A").unwrap();
        assert!(
            better.applies_to(grade_number(Grade::APlus))
                && better.applies_to(grade_number(Grade::A))
        );
        assert!(!better.applies_to(grade_number(Grade::B)));
        for grade in Grade::ALL {
            assert_eq!(Limited::Grade.shown(grade_number(grade)), grade.name());
        }
    }

    #[test]
    fn the_worst_step_and_the_fastest_count_and_nothing_is_invented() {
        use super::super::{HighPercentile, LoadedStep, Quantile, judge};
        let step = |added_ms: i64, lost_percent: f64| LoadedStep {
            valid: true,
            loaded: true,
            idle_p50_ns: Some(10_000_000),
            beside: Some(HighPercentile {
                quantile: Quantile::P99,
                ns: Some((10 + added_ms) * 1_000_000),
            }),
            lost_percent,
            mbit_s: PerDirection::new(None, None),
            ..LoadedStep::default()
        };
        let judged = judge(&[step(12, 2.5), step(80, 0.5)]);
        let finding =
            |down, valid| Finding { valid, goodput_down_mbit_s: Some(down), ..Finding::default() };
        let findings = [finding(20.0, true), finding(30.0, true), finding(99.0, false)];
        let of = |limited: Limited| limited.of(&judged, &findings);
        assert_eq!(of(Limited::Added), Some(80.0));
        assert_eq!((of(Limited::Loss), of(Limited::Down)), (Some(2.5), Some(30.0)));
        assert_eq!(of(Limited::Up), None);
        let foreign = Finding { foreign: Some(Box::default()), ..Finding::default() };
        assert_eq!(Limited::Loss.of(&judged, &[foreign]), None, "unknown, not zero");
        let none = judge(&[LoadedStep::default()]);
        assert_eq!(Limited::Grade.of(&none, &[]), None);
        assert_eq!((Limited::Added.of(&none, &[]), Limited::Loss.of(&none, &[])), (None, None));
    }

    #[test]
    fn a_number_without_a_unit_has_that_of_its_name() {
        for (bare, with_unit) in [
            ("added > 50", "added > 50ms"),
            ("added>=0.5", "added >= 500us"),
            ("loss > 1.5", "loss > 1.5%"),
            ("goodput-down < 20", "goodput-down < 20mbit"),
            ("goodput-up <= 2.5", "goodput-up <= 2500kbit"),
        ] {
            assert_eq!(Limit::parse(bare).unwrap(), Limit::parse(with_unit).unwrap(), "{bare}");
        }
    }

    #[test]
    fn a_faulty_condition_is_refused_with_what_is_accepted() {
        for (text, said) in [
            ("grade B", "expected a number, < or >"),
            ("speed > 5", "`speed` is no number of a line; expected one of grade, added, loss"),
            ("grade < G", "`G` is no limit of grade; expected a grade from A+ to F"),
            (
                "added > fast",
                "`fast` is no limit of added; expected a time such as 50ms, or ms such as 50",
            ),
            ("added > -50", "`-50` is no limit of added"),
            ("added > 50mbit", "expected a time such as 50ms"),
            ("loss > 1ms", "expected percent such as 1%"),
            ("loss > nan%", "`nan%` is no limit of loss"),
            ("goodput-down < 20ms", "expected a rate such as 20mbit, or Mbit/s such as 20"),
            ("goodput-up < inf", "`inf` is no limit of goodput-up"),
            ("added >> 5ms", "`> 5ms` is no limit"),
            ("", "expected a number"),
        ] {
            let error = Limit::parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_condition_is_what_its_numbers_say(limit in 0_u32..500, value in 0.0..500.0_f64) {
            let applies = |comparison: &str| {
                let parsed = Limit::parse(&format!("added {comparison} {limit}ms"));
                parsed.unwrap().applies_to(value)
            };
            let limit = f64::from(limit);
            prop_assert_eq!(applies("<"), value < limit);
            prop_assert_eq!(applies(">"), value > limit);
            prop_assert_eq!(applies("<="), !applies(">"));
            prop_assert_eq!(applies(">="), !applies("<"));
        }
    }
}
