//! The query of a page: a filter, dimensions and a format, parsed from its address.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::civil::Date;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::plan::Kind;
use underload_fleet::store::{Dimension, Filter, PlanRow};

use super::problem::Problem;
use super::visitor::Visitor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    /// The part of a page that depends on the query.
    Fragment,
    Json,
    Csv,
}

#[derive(Debug, Clone)]
pub(super) struct Question {
    /// Non-empty values by name.
    said: BTreeMap<String, String>,
    pub(super) format: Format,
    pub(super) filter: Filter,
}

/// A query with its visitor and the current time.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) question: Question,
    pub(super) visitor: Visitor,
    pub(super) now_ms: u64,
    /// Groups of fewer devices are not shown.
    pub(super) least_devices: u64,
}

impl Ask {
    /// Today, days since 1970.
    pub(super) fn today(&self) -> u32 {
        (self.now_ms / DAY_MS) as u32
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// The value in an address.
    pub(super) key: &'static str,
    /// The value in a form.
    pub(super) words: &'static str,
}

const fn choice(key: &'static str, words: &'static str) -> Choice {
    Choice { key, words }
}

/// Groupings of results; the first is the default.
pub(super) const GROUPS: [Choice; 11] = [
    choice("cohort-dscp", "group and DSCP"),
    choice("cohort", "group"),
    choice("dscp", "DSCP"),
    choice("model", "model"),
    choice("firmware", "firmware"),
    choice("tier", "tier"),
    choice("region", "region"),
    choice("segment", "segment"),
    choice("configured", "queue as configured"),
    choice("measured", "queue as measured"),
    choice("hour", "hour, UTC"),
];

pub(super) const LOADS: [Choice; 3] = [
    choice("upload", "upstream full"),
    choice("download", "downstream full"),
    choice("latency", "idle"),
];

/// Scales of the delays of a distribution.
pub(super) const SCALES: [Choice; 2] = [choice("linear", "linear"), choice("log", "logarithmic")];
/// Selects all plans; it is not a valid name of a plan.
pub(super) const ALL_PLANS: &str = "*";

/// Parameters besides attributes. Unknown ones are rejected: a misspelt filter that is ignored
/// would lead to wrong numbers.
const KNOWN: [&str; 16] = [
    "plan", "cohort", "dscp", "hour", "from", "until", "by", "load", "scale", "low_ms", "high_ms",
    "after", "format", "table", "fragment", "silent_days",
];

const VALUE_MAX: usize = 256;

impl Question {
    /// Parses the part of an address after the question mark.
    pub(super) fn read(query: &str, format: Option<Format>) -> Result<Self, Problem> {
        let mut said = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_known = KNOWN.contains(&&*name) || Attributes::NAMES.contains(&&*name);
            if !is_known {
                return Err(Problem::bad(format!("unknown filter `{name}`")));
            }
            if value.len() > VALUE_MAX || value.chars().any(char::is_control) {
                return Err(Problem::bad(format!(
                    "`{name}` is longer than {VALUE_MAX} bytes or has control characters"
                )));
            }
            let value = value.trim();
            if !value.is_empty() && said.insert(name.to_string(), value.to_owned()).is_some() {
                return Err(Problem::bad(format!("`{name}` is given twice")));
            }
        }
        let format = match format {
            Some(format) => format,
            None if said.contains_key("fragment") => Format::Fragment,
            None => match said.get("format").map(String::as_str) {
                None | Some("html") => Format::Html,
                Some("json") => Format::Json,
                Some("csv") => Format::Csv,
                Some(_) => return Err(Problem::bad("`format` is html, json or csv")),
            },
        };
        let mut question = Self { said, format, filter: Filter::default() };
        question.filter = question.read_filter()?;
        question.load()?;
        question.group()?;
        question.is_logarithmic()?;
        question.range_ms()?;
        question.dscp()?;
        question.silent_days()?;
        Ok(question)
    }

    fn read_filter(&self) -> Result<Filter, Problem> {
        let is_attribute = |name: &&str| self.said.contains_key(*name);
        let attributes = Attributes::NAMES.into_iter().filter(is_attribute);
        let hour = self.parsed("hour", "a whole number from 0 to 23")?;
        if hour.is_some_and(|hour: u8| hour > 23) {
            return Err(Problem::bad("`hour` is a whole number from 0 to 23"));
        }
        let (from_day, last_day) = (self.day("from")?, self.day("until")?);
        if let (Some(from), Some(last)) = (from_day, last_day)
            && from > last
        {
            return Err(Problem::bad("`from` is after `until`"));
        }
        Ok(Filter {
            plan: self.text("plan").filter(|plan| *plan != ALL_PLANS).map(str::to_owned),
            cohort: self.text("cohort").map(str::to_owned),
            attributes: attributes.map(|name| (name.to_owned(), self.said[name].clone())).collect(),
            hour,
            from_day,
            // The address has the last day, the filter the day after it.
            until_day: last_day.map(|day| day.saturating_add(1)),
            silent_since_ms: None,
        })
    }

    /// Selects the running plan that was applied last, unless the query names a plan or all: plans
    /// load lines in different ways, so charts are of one plan.
    pub(super) fn choose_plan(&mut self, plans: &[PlanRow]) {
        if self.said.contains_key("plan") {
            return;
        }
        let newest = plans.iter().max_by_key(|plan| (plan.stopped_ms.is_none(), plan.applied_ms));
        if let Some(plan) = newest {
            self.said.insert("plan".to_owned(), plan.name.clone());
            self.filter.plan = Some(plan.name.clone());
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.said.get(name).map(String::as_str)
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, Problem> {
        let read = |text: &str| text.parse().map_err(|_| format!("`{name}` is {what}"));
        self.text(name).map(read).transpose().map_err(Problem::bad)
    }

    fn day(&self, name: &str) -> Result<Option<u32>, Problem> {
        let date: Option<Date> = self.parsed(name, "a date such as 2026-11-22")?;
        let day = |date: Date| u32::try_from(days_since_1970(date)).ok();
        let bad = || Problem::bad(format!("`{name}` is before 1970"));
        date.map(|date| day(date).ok_or_else(bad)).transpose()
    }

    fn chosen(&self, name: &str, of: &[Choice]) -> Result<Option<Choice>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = of.iter().find(|choice| choice.key == text).copied();
        let keys = || of.iter().map(|choice| choice.key).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| Problem::bad(format!("`{name}` is one of {}", keys())))
    }

    pub(super) fn group(&self) -> Result<Choice, Problem> {
        Ok(self.chosen("by", &GROUPS)?.unwrap_or(GROUPS[0]))
    }

    /// Returns the grouping as dimensions of an archive.
    pub(super) fn dimensions(&self) -> Result<Vec<Dimension>, Problem> {
        Ok(match self.group()?.key {
            "dscp" => vec![Dimension::Dscp],
            "cohort" => vec![Dimension::Cohort],
            "cohort-dscp" => vec![Dimension::Cohort, Dimension::Dscp],
            "hour" => vec![Dimension::Hour],
            attribute => vec![Dimension::Attribute(attribute.to_owned())],
        })
    }

    /// Returns the load; `None` for the first of [`LOADS`] that has results.
    pub(super) fn load(&self) -> Result<Option<Kind>, Problem> {
        Ok(self.chosen("load", &LOADS)?.and_then(|choice| Kind::from_name(choice.key)))
    }

    pub(super) fn dscp(&self) -> Result<Option<u8>, Problem> {
        let what = "a whole number from 0 to 63";
        match self.parsed("dscp", what)? {
            Some(64..) => Err(Problem::bad(format!("`dscp` is {what}"))),
            dscp => Ok(dscp),
        }
    }

    pub(super) fn is_logarithmic(&self) -> Result<bool, Problem> {
        Ok(self.chosen("scale", &SCALES)?.is_some_and(|scale| scale.key == "log"))
    }

    /// Returns the range of delays, milliseconds.
    pub(super) fn range_ms(&self) -> Result<(Option<f64>, Option<f64>), Problem> {
        let delay = |name: &str| -> Result<Option<f64>, Problem> {
            let value = self.parsed::<f64>(name, "a delay in milliseconds")?;
            if value.is_some_and(|value| !(0.0..=1e6).contains(&value)) {
                return Err(Problem::bad(format!("`{name}` is a delay in milliseconds")));
            }
            Ok(value)
        };
        let (low, high) = (delay("low_ms")?, delay("high_ms")?);
        if let (Some(low), Some(high)) = (low, high)
            && low >= high
        {
            return Err(Problem::bad("`low_ms` is not below `high_ms`"));
        }
        Ok((low, high))
    }

    /// Returns the number of days for which the devices made no request.
    pub(super) fn silent_days(&self) -> Result<Option<u32>, Problem> {
        self.parsed("silent_days", "a whole number of days")
    }

    /// Returns the device after which a list continues.
    pub(super) fn after(&self) -> Result<Option<DeviceId>, Problem> {
        self.parsed("after", "the identifier of a device")
    }

    /// Returns the address of this query with `changes`; an empty value removes a parameter.
    pub(super) fn address(&self, path: &str, changes: &[(&str, &str)]) -> String {
        let mut said: BTreeMap<&str, &str> =
            self.said.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        said.remove("fragment");
        for (name, value) in changes {
            said.insert(name, value);
        }
        said.retain(|_, value| !value.is_empty());
        let mut address = path.to_owned();
        if !said.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(said).finish();
            let _ = write!(address, "?{query}");
        }
        address
    }

    /// Describes the filter for captions; empty without a filter.
    pub(super) fn words(&self) -> String {
        let names = ["plan", "cohort"].into_iter().chain(Attributes::NAMES);
        let mut parts: Vec<String> = names
            .filter_map(|name| Some((name, self.text(name)?)))
            .filter(|said| *said != ("plan", ALL_PLANS))
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if let Some(dscp) = self.text("dscp") {
            parts.push(format!("DSCP {dscp}"));
        }
        if let Some(hour) = self.filter.hour {
            parts.push(format!("begun from {hour:02}:00 to {hour:02}:59 UTC"));
        }
        if let Some(days) = self.text("silent_days") {
            parts.push(format!("no request for {days} days"));
        }
        parts.join(", ")
    }
}

fn days_since_1970(date: Date) -> i32 {
    let span = date.since(Date::constant(1970, 1, 1));
    span.map_or(-1, |span| span.get_days())
}

/// Formats a day as in addresses and tables.
pub(crate) fn date_text(day: u32) -> String {
    moment(u64::from(day) * DAY_MS)
        .map_or_else(String::new, |at| at.strftime("%Y-%m-%d").to_string())
}

pub(super) fn moment(at_ms: u64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()
}

pub(super) const DAY_MS: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Question {
        Question::read(query, None).expect(query)
    }

    #[test]
    fn a_query_string_parses_and_empty_fields_are_ignored() {
        let asked = read("plan=trial&tier=35%2F800&hour=7&from=2026-11-01&until=2026-11-03&model=");
        let filter = &asked.filter;
        assert_eq!(filter.plan.as_deref(), Some("trial"));
        assert_eq!(filter.attributes, BTreeMap::from([("tier".to_owned(), "35/800".to_owned())]));
        let days = filter.until_day.expect("it is") - filter.from_day.expect("it is");
        assert_eq!((filter.hour, days), (Some(7), 3), "the last day is meant, too");
        assert_eq!(date_text(filter.from_day.expect("it is")), "2026-11-01");
        let there = asked.address("/study", &[("hour", ""), ("by", "tier")]);
        assert_eq!(
            there,
            "/study?by=tier&from=2026-11-01&plan=trial&tier=35%2F800&until=2026-11-03"
        );
        assert_eq!(read(there.split_once('?').expect("it has").1).filter.hour, None);
    }

    #[test]
    fn charts_show_the_newest_running_plan_by_default() {
        let plan = |name: &str, applied_ms, stopped_ms| PlanRow {
            name: name.to_owned(),
            text: String::new(),
            applied_ms,
            stopped_ms,
        };
        let plans = [plan("old", 1, None), plan("new", 2, None), plan("over", 3, Some(4))];
        let chosen = |query: &str, plans: &[PlanRow]| {
            let mut asked = read(query);
            asked.choose_plan(plans);
            asked.filter.plan
        };
        assert_eq!(chosen("", &plans).as_deref(), Some("new"));
        assert_eq!(chosen("plan=old", &plans).as_deref(), Some("old"));
        assert_eq!(chosen("", &plans[2..]).as_deref(), Some("over"), "better than none");
        assert_eq!((chosen("plan=*", &plans), chosen("", &[])), (None, None));
    }

    #[test]
    fn unknown_query_parameters_are_refused() {
        for bad in [
            "modell=x",
            "hour=24",
            "hour=x",
            "from=yesterday",
            "from=2026-11-03&until=2026-11-02",
            "until=1969-12-31",
            "by=mood",
            "dscp=64",
            "load=heavy",
            "low_ms=5&high_ms=5",
            "low_ms=NaN",
            "low_ms=-1",
            "high_ms=inf",
            "scale=cubic",
            "format=xml",
            "model=%00",
            "model=a&model=b",
            "hour=7&hour=7",
            &format!("model={}", "x".repeat(VALUE_MAX + 1)),
        ] {
            assert!(Question::read(bad, None).is_err(), "{bad}");
        }
    }
}
