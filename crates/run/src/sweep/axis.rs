//! Axes of a sweep, and their values.

use std::collections::BTreeSet;

use toml::Value;
use underload_scenario::keys::{Fault, Faults, Tables};
use underload_scenario::study::{Quantity, Unit};
use underload_scenario::tables::{Override, Overrides};
use underload_store::sweep::{AxisColumn, AxisValue};

use super::file::{AxisKeys, PointKeys, Scale};

/// A dimension of a sweep.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub name: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Levels(Vec<Level>),
    Range(Range),
}

/// A value, and its overrides of a scenario's keys.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub value: AxisValue,
    pub changes: Vec<Override>,
}

/// All values between two.
#[derive(Debug, Clone)]
struct Range {
    key: String,
    from: Amount,
    to: Amount,
    scale: Scale,
    /// Number of values; `None` for any value between the two.
    steps: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Amount {
    form: Form,
    amount: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// A text with a unit: `"17ms"`.
    Quantity(Unit),
    /// A TOML integer: `17`.
    Whole,
    /// A TOML float: `1.7`.
    Number,
}

/// Maximum number of values of an axis in a list.
const MOST_LISTED: usize = 8;

impl Axis {
    /// Reads an axis. `steps` may be missing unless `is_grid`, as other designs draw values.
    pub(super) fn read(keys: AxisKeys, is_grid: bool) -> Result<Self, Fault> {
        let kind = match &keys {
            AxisKeys { key: Some(key), values: Some(values), from: None, to: None, .. }
                if keys.point.is_none() && keys.steps.is_none() && keys.scale.is_none() =>
            {
                Kind::Levels(values.iter().map(|value| level(key, value)).collect())
            }
            AxisKeys { key: Some(key), values: None, from: Some(from), to: Some(to), .. }
                if keys.point.is_none() =>
            {
                let scale = keys.scale.unwrap_or_default();
                Kind::Range(Range::read(key, (from, to), scale, (keys.steps, is_grid))?)
            }
            AxisKeys {
                key: None, values: None, from: None, to: None, point: Some(points), ..
            } if keys.steps.is_none() && keys.scale.is_none() => Kind::Levels(levels(points)?),
            _ => {
                let problem = "expected `key` and `values`, or `key`, `from`, `to` and `steps`, or \
                               [[axis.point]] tables";
                return Err(Fault::new("", problem));
            }
        };
        if matches!(&kind, Kind::Levels(levels) if levels.is_empty()) {
            return Err(Fault::new("values", "is empty; expected at least one value"));
        }
        let axis =
            Self { name: keys.name.or(keys.key).unwrap_or_else(|| "point".to_owned()), kind };
        axis.check_distinct()?;
        Ok(axis)
    }

    fn check_distinct(&self) -> Result<(), Fault> {
        let twice = |key: &str, text: &str| {
            Err(Fault::new(key, format!("`{text}` occurs twice; values must differ")))
        };
        match &self.kind {
            Kind::Levels(levels) => {
                let mut seen = BTreeSet::new();
                let mut texts = levels.iter().map(|level| level.value.text.as_str());
                texts.find(|text| !seen.insert(*text)).map_or(Ok(()), |text| twice("values", text))
            }
            // Values rise, so that only neighbours can be equal after rounding.
            Kind::Range(range) => {
                let text = |level| self.level(level).value.text;
                let mut later = 1..range.steps.unwrap_or_default();
                match later.find(|level| text(*level) == text(level - 1)) {
                    Some(level) => twice("steps", &text(level)),
                    None => Ok(()),
                }
            }
        }
    }

    pub(super) fn column(&self) -> AxisColumn {
        let is_amount = match &self.kind {
            Kind::Levels(levels) => levels.iter().all(|level| level.value.amount.is_some()),
            Kind::Range(_) => true,
        };
        AxisColumn { name: self.name.clone(), is_amount }
    }

    /// Returns the keys of the scenario that the axis overrides.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        match &self.kind {
            Kind::Levels(levels) => {
                let changes = levels.iter().flat_map(|level| &level.changes);
                changes.map(|change| change.key.as_str()).collect()
            }
            Kind::Range(range) => BTreeSet::from([range.key.as_str()]),
        }
    }

    /// Returns the key of the sweep file that has the values.
    pub(super) fn place(&self) -> &'static str {
        match &self.kind {
            Kind::Levels(levels) if levels.iter().any(|level| level.changes.len() > 1) => "point",
            Kind::Levels(_) => "values",
            Kind::Range(_) => "from",
        }
    }

    /// Returns the number of values; `None` for a range without `steps`, of which points take any
    /// value.
    pub(super) fn levels(&self) -> Option<u64> {
        match &self.kind {
            Kind::Levels(levels) => Some(levels.len() as u64),
            Kind::Range(range) => range.steps,
        }
    }

    /// Returns the ends of a range, and whether it grows by factors; `None` for listed values.
    pub(super) fn ends(&self) -> Option<(f64, f64, bool)> {
        let Kind::Range(range) = &self.kind else { return None };
        let amount = |share| range.at(share).value.amount;
        Some((amount(0.0)?, amount(1.0)?, range.scale == Scale::Log))
    }

    /// Returns its values in words: `5mbit, 10mbit and 3 more`, `5ms to 200ms in 20 steps (log)`.
    pub(super) fn words(&self) -> String {
        match &self.kind {
            Kind::Levels(levels) => {
                let texts = levels.iter().take(MOST_LISTED).map(|level| level.value.text.as_str());
                let shown = texts.collect::<Vec<_>>().join(", ");
                match levels.len().saturating_sub(MOST_LISTED) {
                    0 => shown,
                    more => format!("{shown} and {more} more"),
                }
            }
            Kind::Range(range) => {
                let [from, to] = [0.0, 1.0].map(|share| range.at(share).value.text);
                let steps = range.steps.map_or(String::new(), |steps| format!(" in {steps} steps"));
                let scale = if range.scale == Scale::Log { " (log)" } else { "" };
                format!("{from} to {to}{steps}{scale}")
            }
        }
    }

    /// Returns the value at a position.
    pub(super) fn level(&self, level: u64) -> Level {
        match &self.kind {
            Kind::Levels(levels) => levels[(level as usize).min(levels.len() - 1)].clone(),
            Kind::Range(range) => {
                let last = range.steps.unwrap_or(2).max(2) - 1;
                range.at(level as f64 / last as f64)
            }
        }
    }

    /// Returns the value at a share of the axis, from 0 to below 1.
    pub(super) fn at(&self, share: f64) -> Level {
        match self.levels() {
            Some(levels) => self.level(((share * levels as f64) as u64).min(levels - 1)),
            None => match &self.kind {
                Kind::Range(range) => range.at(share),
                Kind::Levels(_) => self.level(0),
            },
        }
    }
}

impl Range {
    fn read(
        key: &str,
        (from, to): (&Value, &Value),
        scale: Scale,
        (steps, is_grid): (Option<u64>, bool),
    ) -> Result<Self, Fault> {
        let mut from = Amount::read(from).map_err(|fault| fault.under("from"))?;
        let mut to = Amount::read(to).map_err(|fault| fault.under("to"))?;
        // A whole number and another number, such as `from = 1` and `to = 2.5`, are both numbers.
        if [from.form, to.form].iter().all(|form| matches!(form, Form::Whole | Form::Number))
            && from.form != to.form
        {
            (from.form, to.form) = (Form::Number, Form::Number);
        }
        if from.form != to.form {
            return Err(Fault::new("to", "has another unit than `from`; expected an equal unit"));
        }
        if from.amount >= to.amount {
            return Err(Fault::new("to", "expected more than `from`"));
        }
        if scale == Scale::Log && from.amount <= 0.0 {
            return Err(Fault::new("from", "expected more than 0 with scale = \"log\""));
        }
        if is_grid && steps.is_none() {
            return Err(Fault::new("steps", "is missing: the number of values of the range"));
        }
        Ok(Self { key: key.to_owned(), from, to, scale, steps })
    }

    /// Returns the value at a share of the range, from 0 to 1.
    fn at(&self, share: f64) -> Level {
        let (from, to) = (self.from.amount, self.to.amount);
        let amount = match self.scale {
            // Rounding must not exceed the ends.
            _ if share <= 0.0 => from,
            _ if share >= 1.0 => to,
            Scale::Linear => from + (to - from) * share,
            Scale::Log => from * libm::exp(libm::log(to / from) * share),
        };
        level(&self.key, &Amount { form: self.from.form, amount }.value())
    }
}

impl Amount {
    fn read(value: &Value) -> Result<Self, Fault> {
        let read = match value {
            Value::String(text) => Quantity::read(text).map(|quantity| Self {
                form: Form::Quantity(quantity.unit),
                amount: quantity.amount,
            }),
            Value::Integer(number) => Some(Self { form: Form::Whole, amount: *number as f64 }),
            Value::Float(number) if number.is_finite() => {
                Some(Self { form: Form::Number, amount: *number })
            }
            _ => None,
        };
        let problem =
            || format!("{value}: expected a time, rate, size or number, such as \"17ms\"");
        read.ok_or_else(|| Fault::new("", problem()))
    }

    /// Returns the value for a scenario, rounded as [`Quantity`] does, or to a millionth.
    fn value(self) -> Value {
        match self.form {
            Form::Quantity(unit) => {
                Value::String(Quantity { unit, amount: self.amount }.to_string())
            }
            Form::Whole => Value::Integer(libm::round(self.amount) as i64),
            Form::Number => Value::Float(libm::round(self.amount * 1e6) / 1e6),
        }
    }
}

fn level(key: &str, value: &Value) -> Level {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let amount = Amount::read(value).ok().map(|amount| match amount.form {
        Form::Quantity(Unit::Time) => amount.amount / 1e9,
        _ => amount.amount,
    });
    let changes = vec![Override { key: key.to_owned(), value: value.clone() }];
    Level { value: AxisValue { text, amount }, changes }
}

fn levels(points: &Tables<PointKeys>) -> Result<Vec<Level>, Fault> {
    let mut faults = Faults::default();
    let mut levels = Vec::new();
    for (place, keys) in points.read("point", &mut faults) {
        let Some(PointKeys { name, overrides: Overrides(changes) }) = keys else { continue };
        if name.is_empty() {
            faults.add(Fault::new(format!("{place}.name"), "is empty; expected a text in quotes"));
        }
        if changes.is_empty() {
            let example = "expected a key, such as path.up = \"20mbit\"";
            faults.add(Fault::new(place, format!("`{name}` overrides nothing; {example}")));
        }
        levels.push(Level { value: AxisValue { text: name, amount: None }, changes });
    }
    faults.result(Some(levels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str, is_grid: bool) -> Result<Axis, Fault> {
        Axis::read(super::super::keys_of(text)?, is_grid)
    }

    fn texts(axis: &Axis) -> Vec<String> {
        (0..axis.levels().expect("levels")).map(|level| axis.level(level).value.text).collect()
    }

    #[test]
    fn a_range_has_its_ends_and_grows_as_it_says() {
        let linear = axis("key = \"path.rtt\"\nfrom = \"10ms\"\nto = \"30ms\"\nsteps = 3", true);
        assert_eq!(texts(&linear.expect("right")), ["10ms", "20ms", "30ms"]);
        let log =
            "key = \"path.up\"\nfrom = \"1mbit\"\nto = \"100mbit\"\nsteps = 3\nscale = \"log\"";
        let log = axis(log, true).expect("right");
        assert_eq!(texts(&log), ["1mbit", "10mbit", "100mbit"]);
        assert_eq!(log.level(1).value.amount, Some(1e7));
        let counts = axis("key = \"flow.bulk.count\"\nfrom = 1\nto = 5\nsteps = 3", true);
        let counts = counts.expect("right");
        let key = "flow.bulk.count".to_owned();
        assert_eq!(counts.level(1).changes, [Override { key, value: Value::Integer(3) }]);
        let numbers = axis("key = \"k\"\nfrom = 1\nto = 2.5\nsteps = 4", true).expect("right");
        assert_eq!(texts(&numbers), ["1.0", "1.5", "2.0", "2.5"]);
    }

    #[test]
    fn equal_parts_of_an_axis_belong_to_each_value() {
        let listed =
            axis("key = \"k\"\nvalues = [\"a\", \"b\", \"c\", \"d\"]", false).expect("right");
        let met: Vec<String> =
            (0..8).map(|eighth| listed.at(f64::from(eighth) / 8.0).value.text).collect();
        assert_eq!(met, ["a", "a", "b", "b", "c", "c", "d", "d"]);
        assert!(!listed.column().is_amount);
        let any = axis("key = \"k\"\nfrom = \"0ms\"\nto = \"1s\"", false).expect("right");
        assert_eq!((any.levels(), any.at(0.25).value.text), (None, "250ms".to_owned()));
        assert_eq!(any.at(0.25).value.amount, Some(0.25));
    }

    #[test]
    fn faults_name_their_key() {
        for (text, key) in [
            ("key = \"k\"", ""),
            ("key = \"k\"\nvalues = []", "values"),
            ("key = \"k\"\nvalues = [1, 1]", "values"),
            ("key = \"k\"\nvalues = [1]\nsteps = 2", ""),
            ("key = \"k\"\nfrom = \"1ms\"\nto = \"1mbit\"\nsteps = 2", "to"),
            ("key = \"k\"\nfrom = \"2ms\"\nto = \"1ms\"\nsteps = 2", "to"),
            ("key = \"k\"\nfrom = \"fast\"\nto = \"1ms\"\nsteps = 2", "from"),
            ("key = \"k\"\nfrom = \"1ms\"\nto = \"2ms\"", "steps"),
            ("key = \"k\"\nfrom = \"1ms\"\nto = \"2ms\"\nsteps = 1", "steps"),
            ("key = \"k\"\nfrom = 0\nto = 2\nsteps = 2\nscale = \"log\"", "from"),
            // Times are rounded to a microsecond: not all of them differ.
            ("key = \"k\"\nfrom = \"1us\"\nto = \"3us\"\nsteps = 9", "steps"),
            ("[[point]]\nname = \"a\"", "point[0]"),
            ("[[point]]\npath.up = \"1mbit\"", "point[0].name"),
            ("[[point]]\nname = \"a\"\nnone.up = 1", "point[0].none"),
        ] {
            assert_eq!(axis(text, true).expect_err(text).key, key, "{text}");
        }
    }
}
