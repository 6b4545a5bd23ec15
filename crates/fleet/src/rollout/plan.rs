//! The plan of a rollout, parsed from a file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::device::Attributes;
use crate::plan::{PlanError, error, mistakes, name, within};

/// Longest list of a plan.
const ENTRIES_MAX: usize = 1_000;

/// A plan that was parsed and checked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutPlan {
    /// Lower-case letters, digits and hyphens; never used again for another rollout.
    pub name: String,
    /// The plan by which the lines are measured.
    pub plan: String,
    /// The step of that plan whose latency decides, and the DSCP of its probes.
    pub step: String,
    pub dscp: u8,
    /// Attributes of the lines that take part, with their values; empty for all lines.
    #[serde(rename = "where")]
    pub lines: BTreeMap<String, Vec<String>>,
    /// Share of the lines that each stage reaches, ascending.
    pub stages_percent: Vec<f64>,
    /// Stages after which a person has to confirm, from 1.
    pub pause_after_stages: Vec<usize>,
    /// People who may confirm; empty for all who may write to the store.
    pub confirmers: Vec<String>,
    /// Days before the start that a line is compared with.
    pub before_days: u32,
    /// Days of a stage before it may end, and after which a person has to decide.
    pub least_days: u32,
    pub most_days: u32,
    /// Largest rise of the p99 that is no harm.
    pub margin_percent: f64,
    /// A line is harmed on a day whose p99 is above its own earlier one by more than this.
    pub harmed_above_percent: f64,
    /// Largest share of lines that are harmed beyond the share of untouched lines.
    pub harmed_percent: f64,
    /// Share of a stage's lines that the connector may fail on.
    pub failures_percent: f64,
    /// The connector: a program with its arguments, or a URL; the other one is empty.
    pub command: Vec<String>,
    pub url: String,
    #[serde(rename = "file")]
    pub files: Vec<ConfigurationFile>,
}

/// The configuration of the lines with a model and a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigurationFile {
    /// Empty for all models.
    pub model: String,
    /// `UP/DOWN` in Mbit/s; empty for all tiers.
    pub tier: String,
    pub path: String,
}

impl Default for RolloutPlan {
    fn default() -> Self {
        Self {
            name: String::new(),
            plan: String::new(),
            step: String::new(),
            dscp: 0,
            lines: BTreeMap::new(),
            stages_percent: vec![1.0, 10.0, 50.0, 100.0],
            pause_after_stages: vec![1],
            confirmers: Vec::new(),
            before_days: 7,
            least_days: 7,
            most_days: 28,
            margin_percent: 10.0,
            harmed_above_percent: 50.0,
            harmed_percent: 5.0,
            failures_percent: 5.0,
            command: Vec::new(),
            url: String::new(),
            files: Vec::new(),
        }
    }
}

impl RolloutPlan {
    /// Parses and checks a plan.
    ///
    /// # Errors
    /// Returns all mistakes of the text, or the first value that is outside of its range.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mistakes::Reading { file, mistakes, .. } = mistakes::read::<Self>(text);
        let mut mistakes = mistakes.into_iter();
        match (mistakes.next(), file) {
            (Some(first), _) => Err(PlanError { others: mistakes.collect(), ..first }),
            (None, None) => Err(error("it cannot be read")),
            (None, Some(plan)) => plan.checked(),
        }
    }

    fn checked(self) -> Result<Self, PlanError> {
        name("name", &self.name, false)?;
        name("plan", &self.plan, false)?;
        if self.step.is_empty() {
            return Err(error("step: missing; it names the step whose latency decides"));
        }
        let unknown = self.lines.keys().find(|name| !Attributes::NAMES.contains(&name.as_str()));
        if let Some(name) = unknown {
            let known = Attributes::NAMES.join(", ");
            return Err(error(format!("where: unknown attribute `{name}`; expected {known}")));
        }
        let stages = &self.stages_percent;
        let is_share = |percent: &f64| (0.001..=100.0).contains(percent);
        if stages.is_empty()
            || stages.len() > 100
            || !stages.iter().all(is_share)
            || !stages.is_sorted_by(|before, after| before < after)
        {
            return Err(error("stages_percent: expected ascending shares from 0.001 to 100"));
        }
        for (key, value, least, most) in [
            ("dscp", f64::from(self.dscp), 0.0, 63.0),
            ("before_days", f64::from(self.before_days), 1.0, 100.0),
            ("least_days", f64::from(self.least_days), 1.0, 100.0),
            ("most_days", f64::from(self.most_days), f64::from(self.least_days), 400.0),
            ("margin_percent", self.margin_percent, 1.0, 1_000.0),
            ("harmed_above_percent", self.harmed_above_percent, 1.0, 1_000.0),
            ("harmed_percent", self.harmed_percent, 0.5, 100.0),
            ("failures_percent", self.failures_percent, 0.0, 100.0),
            ("[[file]]", self.files.len() as f64, 1.0, ENTRIES_MAX as f64),
            ("confirmers", self.confirmers.len() as f64, 0.0, ENTRIES_MAX as f64),
        ] {
            within(key, value, least, most)?;
        }
        if self.command.is_empty() == self.url.is_empty() {
            return Err(error("expected either `command` or `url`"));
        }
        Ok(self)
    }

    /// Returns the file of a line: the first whose model and tier match.
    pub fn file_of(&self, line: &Attributes) -> Option<&ConfigurationFile> {
        let (model, tier) = (&line.model, line.get("tier").unwrap_or_default());
        let is = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        self.files.iter().find(|file| is(&file.model, model) && is(&file.tier, &tier))
    }

    /// Whether a line takes part: it has the attributes, and there is a file for it.
    pub fn includes(&self, line: &Attributes) -> bool {
        let meets = |(name, values): (&String, &Vec<String>)| {
            line.get(name).is_some_and(|value| values.contains(&value))
        };
        self.lines.iter().all(meets) && self.file_of(line).is_some()
    }
}

#[cfg(test)]
pub(super) use tests::PLAN;

#[cfg(test)]
mod tests {
    use super::*;

    pub(in super::super) const PLAN: &str = "
        name = 'pie'
        plan = 'trial'
        step = 'upload'
        command = ['true']
        [[file]]
        path = 'pie.cm'
    ";

    #[test]
    fn mistakes_are_reported_with_their_lines_and_ranges() {
        let plan = RolloutPlan::parse(PLAN).expect("a plan");
        assert_eq!(plan.pause_after_stages, [1], "a person confirms after 1 %");
        for (from, to, expected) in [
            ("plan =", "plam =", "line 3: unknown key `plam`; did you mean `plan`?"),
            ("name = 'pie'", "", "name: ``"),
            ("step = 'upload'", "step = ''", "step: missing"),
            ("step", "stages_percent = [10, 1]\n step", "stages_percent: expected ascending"),
            ("step", "stages_percent = [nan]\n step", "stages_percent: expected ascending"),
            ("step", "least_days = 30\n step", "most_days: 28 is not from 30"),
            ("step", "where = { mac = ['00'] }\n step", "unknown attribute `mac`"),
            ("['true']", "['true']\n url = 'http://x'", "either `command` or `url`"),
            ("['true']", "[]", "either `command` or `url`"),
        ] {
            let told = RolloutPlan::parse(&PLAN.replacen(from, to, 1)).expect_err(expected);
            assert!(told.to_string().contains(expected), "{told}");
        }
        let none = PLAN.split("[[file]]").next().expect("a part");
        assert!(RolloutPlan::parse(none).is_err(), "no file");
    }

    #[test]
    fn a_line_has_the_first_file_of_its_model_and_tier() {
        let text = PLAN.replace("[[file]]", "[[file]]\nmodel = 'XB7'\ntier = '35/350'")
            + "[[file]]\nmodel = 'XB8'\npath = 'eight.cm'";
        let plan = RolloutPlan::parse(&text).expect("a plan");
        let line = |model: &str, up| Attributes {
            model: model.to_owned(),
            tier_up_bit_per_s: up,
            tier_down_bit_per_s: 350_000_000,
            ..Attributes::default()
        };
        let file = |line: &Attributes| plan.file_of(line).map(|file| file.path.as_str());
        assert_eq!(file(&line("XB7", 35_000_000)), Some("pie.cm"));
        assert_eq!(file(&line("XB8", 1)), Some("eight.cm"));
        assert!(!plan.includes(&line("XB7", 10_000_000)), "no file for this tier");
    }
}
