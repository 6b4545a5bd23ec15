//! Parsing and checking a plan's file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use super::error::PlanError;
use super::mistakes::Reading;
use super::{
    BYTES_MAX, Budget, Cohort, CohortRule, Kind, LINES_MAX, Lines, NAME_MAX, PRESETS, Plan,
    SERVERS_MAX, Servers, Step, Tier, mistakes, place, preset, values,
};
use crate::device::Attributes;
use crate::schedule::{DAY, Window};

/// Maximum number of steps of a run, tiers of a plan, cohorts, and classes of a step.
pub(crate) const ENTRIES_MAX: usize = 64;
/// A run ends on the day on which it begins, or on the next.
pub(crate) const RUN_LASTS_MAX: Span = Span::from_secs(3_600);
/// Probes at shorter intervals are a load.
const INTERVAL_MIN: Span = Span::from_millis(1);
/// More runs than this leave no pause between them.
const RUNS_PER_DAY_MAX: f64 = 10_000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    title: String,
    #[serde(default)]
    description: String,
    runs_per_day: f64,
    #[serde(default, deserialize_with = "values::some_window")]
    window: Option<Window>,
    #[serde(default, deserialize_with = "values::some_date")]
    until: Option<u64>,
    #[serde(default, deserialize_with = "values::some_span")]
    start_within: Option<Span>,
    lines: FileLines,
    #[serde(default)]
    cohort: Vec<FileCohort>,
    tier: Vec<FileTier>,
    preset: Option<String>,
    #[serde(default)]
    step: Vec<FileStep>,
    servers: FileServers,
    #[serde(default)]
    budget: FileBudget,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLines {
    count: u32,
    sample: Option<u32>,
    per_segment: Option<u32>,
    #[serde(default)]
    busy_percent: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCohort {
    name: String,
    #[serde(rename = "where")]
    has: Option<Alternatives>,
    share_percent: Option<f64>,
    #[serde(default, deserialize_with = "values::some_first_day")]
    from: Option<u64>,
}

/// A table of attributes, or several of which one has to match.
#[derive(Deserialize)]
#[serde(untagged)]
enum Alternatives {
    One(BTreeMap<String, Values>),
    Several(Vec<BTreeMap<String, Values>>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTier {
    share_percent: Option<f64>,
    #[serde(deserialize_with = "values::rate")]
    up: Rate,
    #[serde(deserialize_with = "values::rate")]
    down: Rate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    name: String,
    kind: Kind,
    #[serde(deserialize_with = "values::span")]
    duration: Span,
    #[serde(default, deserialize_with = "values::some_span")]
    warm_up: Option<Span>,
    classes: Option<Vec<u8>>,
    #[serde(default, deserialize_with = "values::some_span")]
    interval: Option<Span>,
    probe_bytes: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileServers {
    count: u32,
    #[serde(deserialize_with = "values::rate")]
    capacity: Rate,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileBudget {
    #[serde(default, deserialize_with = "values::some_bytes")]
    line_per_month: Option<u64>,
    #[serde(default, deserialize_with = "values::some_rate")]
    servers: Option<Rate>,
    requests_per_second: Option<f64>,
}

pub(super) fn parse(text: &str) -> Result<Plan, PlanError> {
    if text.len() > BYTES_MAX {
        return Err(error("longer than 1 MiB"));
    }
    let Reading { file, mistakes, text, numbers } = mistakes::read::<File>(text);
    let errors = Errors { text: &text, numbers: &numbers, found: mistakes };
    match file {
        Some(file) => plan(errors, file),
        None => Err(errors.into_error()),
    }
}

pub(crate) fn error(problem: impl Into<String>) -> PlanError {
    PlanError { line: None, problem: problem.into(), others: Vec::new() }
}

/// Rejects a number outside of the range of a key.
pub(crate) fn within(key: &str, value: f64, least: f64, most: f64) -> Result<f64, PlanError> {
    // NaN is in no range.
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(error(format!("{key}: {value} is not from {least} to {most}")))
}

fn count(key: &str, found: usize) -> Result<(), PlanError> {
    within(key, found as f64, 1.0, ENTRIES_MAX as f64).map(drop)
}

/// The errors of a file, as many as can be distinguished.
struct Errors<'a> {
    text: &'a str,
    /// See [`Reading::numbers`].
    numbers: &'a [usize],
    found: Vec<PlanError>,
}

impl Errors<'_> {
    /// Returns what was read, or records its error, in the `index`th section named `section`.
    fn in_section<T>(
        &mut self,
        (section, index): (&str, usize),
        read: Result<T, PlanError>,
    ) -> Option<T> {
        read.map_err(|error| {
            let line = place::line_of(self.text, section, index, &error.problem);
            let line = line.and_then(|line| self.numbers.get(line - 1).copied());
            self.found.push(PlanError { line: error.line.or(line), ..error });
        })
        .ok()
    }

    /// Returns the first error of the file, with all others.
    fn into_error(mut self) -> PlanError {
        self.found.sort_by_key(|mistake| mistake.line.unwrap_or(usize::MAX));
        let mut found = self.found.into_iter();
        let first = found.next().unwrap_or_else(|| error("it cannot be read"));
        PlanError { others: found.collect(), ..first }
    }
}

fn plan(mut errors: Errors<'_>, file: File) -> Result<Plan, PlanError> {
    let top = ("", 0);
    errors.in_section(top, name("name", &file.name, true));
    errors.in_section(top, within("runs_per_day", file.runs_per_day, 1e-6, RUNS_PER_DAY_MAX));
    let start_within = file.start_within.unwrap_or(Span::from_secs(3_600));
    let start_s = start_within.as_secs_f64();
    errors.in_section(top, within("start_within (s)", start_s, 0.0, 86_400.0));
    let servers = f64::from(file.servers.count);
    let servers = within("servers.count", servers, 1.0, f64::from(SERVERS_MAX));
    errors.in_section(("servers", 0), servers);
    let requests = file.budget.requests_per_second.unwrap_or(0.0);
    let requests = within("budget.requests_per_second", requests, 0.0, 1e12);
    errors.in_section(("budget", 0), requests);
    let lines = errors.in_section(("lines", 0), lines(&file.lines));
    let tiers = errors.in_section(("tier", 0), tiers(&file.tier));
    let cohorts = cohorts(&mut errors, file.cohort);
    let steps = steps(&mut errors, file.preset.as_deref(), file.step);
    let (Some(lines), Some(tiers), true) = (lines, tiers, errors.found.is_empty()) else {
        return Err(errors.into_error());
    };
    let plan = Plan {
        name: file.name,
        title: file.title,
        description: file.description,
        runs_per_day: file.runs_per_day,
        window: file.window.unwrap_or(Window { from: Span::ZERO, until: DAY }),
        until_ms: file.until,
        start_within,
        lines,
        cohorts,
        tiers,
        steps,
        servers: Servers { count: file.servers.count, capacity: file.servers.capacity },
        budget: Budget {
            line_bytes_per_month: file.budget.line_per_month,
            servers_bit_per_s: file.budget.servers.map(Rate::bits_per_second),
            requests_per_s: file.budget.requests_per_second,
        },
    };
    let fits = fits(&plan);
    errors.in_section(top, fits).ok_or(()).map_err(|()| errors.into_error())?;
    Ok(plan)
}

fn steps(errors: &mut Errors<'_>, named: Option<&str>, files: Vec<FileStep>) -> Vec<Step> {
    if let Some(name) = named {
        let steps = preset(name)
            .ok_or_else(|| error(format!("preset: `{name}`: expected {}", PRESETS.join(", "))));
        let steps = match (steps, files.is_empty()) {
            (Ok(_), false) => Err(error("preset: a plan with a preset has no [[step]]")),
            (steps, _) => steps,
        };
        return errors.in_section(("", 0), steps).unwrap_or_default();
    }
    errors.in_section(("step", 0), count("[[step]]", files.len()));
    let mut names = BTreeSet::new();
    let read = |(index, file): (usize, FileStep)| {
        // Results are assigned to steps by name.
        let is_known = !names.insert(file.name.clone());
        errors.in_section(("step", index), step(file, is_known))
    };
    files.into_iter().enumerate().filter_map(read).collect()
}

/// Checks that a run fits into an hour, the runs of a day into the window, and a run onto a server.
fn fits(plan: &Plan) -> Result<(), PlanError> {
    let (lasts, of_day) = (plan.run_lasts(), plan.window.length());
    if lasts > RUN_LASTS_MAX {
        return Err(error("[[step]]: the steps of a run last longer than an hour together"));
    }
    if plan.runs_per_day * lasts.as_nanos() as f64 > of_day.as_nanos() as f64 {
        return Err(error("runs_per_day: the runs do not fit one after the other into the window"));
    }
    if let Some(late) = plan.cohorts.iter().find(|it| plan.is_over(it.from_ms)) {
        return Err(error(format!("cohort `{}`: from is after the plan's last day", late.name)));
    }
    for (place, tier) in plan.tiers.iter().enumerate() {
        let (up, down) = plan.peak_bit_per_s(tier);
        if up.max(down) > plan.servers.capacity.bits_per_second() {
            let tier = format!("[[tier]] {}", place + 1);
            return Err(error(format!("{tier}: a run takes more than servers.capacity")));
        }
    }
    Ok(())
}

fn lines(file: &FileLines) -> Result<Lines, PlanError> {
    within("lines.count", f64::from(file.count), 1.0, f64::from(LINES_MAX))?;
    let sample = file.sample.unwrap_or(file.count);
    within("lines.sample", f64::from(sample), 1.0, f64::from(file.count))?;
    let per_segment = file.per_segment.unwrap_or(1);
    within("lines.per_segment", f64::from(per_segment), 1.0, f64::from(file.count))?;
    let busy = within("lines.busy_percent", file.busy_percent, 0.0, 100.0)? / 100.0;
    Ok(Lines { count: file.count, sample, per_segment, busy })
}

/// Accepts lower-case letters, digits and hyphens, which are safe in URLs, file names and columns.
pub(crate) fn name(key: &str, name: &str, may_be_empty: bool) -> Result<(), PlanError> {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_empty = name.is_empty() && !may_be_empty;
    if is_empty || name.len() > NAME_MAX || !name.bytes().all(is_good) {
        let expected = "expected lower-case letters, digits and hyphens, at most 64";
        return Err(error(format!("{key}: `{name}`: {expected}")));
    }
    Ok(())
}

fn cohorts(errors: &mut Errors<'_>, files: Vec<FileCohort>) -> Vec<Cohort> {
    let too_many = files.len() > ENTRIES_MAX;
    let mut cohorts: Vec<Cohort> = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        let is_known = cohorts.iter().any(|cohort| cohort.name == file.name);
        cohorts.extend(errors.in_section(("cohort", index), cohort(file, is_known)));
    }
    let shares: Vec<f64> = cohorts.iter().filter_map(Cohort::share).collect();
    let sum: f64 = shares.iter().sum();
    let together = if too_many {
        Err(error("[[cohort]]: more than 64"))
    } else if !shares.is_empty() && shares.len() < cohorts.len() {
        Err(error("[[cohort]]: some have `where` and some `share_percent`"))
    } else if sum > 1.0 + 1e-9 {
        Err(error(format!("[[cohort]]: the shares add up to {} %", sum * 100.0)))
    } else {
        Ok(())
    };
    errors.in_section(("cohort", 0), together);
    cohorts
}

fn cohort(file: FileCohort, is_known: bool) -> Result<Cohort, PlanError> {
    name("[[cohort]] name", &file.name, false)?;
    let error = |problem: &str| error(format!("cohort `{}`: {problem}", file.name));
    if is_known {
        return Err(error("duplicate name"));
    }
    let rule = match (file.has, file.share_percent) {
        (Some(has), None) => CohortRule::Where(alternatives(has).map_err(|it| error(&it))?),
        (None, Some(percent)) => {
            let percent = within("[[cohort]] share_percent", percent, 0.0, 100.0)?;
            CohortRule::Share(percent / 100.0)
        }
        _ => return Err(error("expected either `where` or `share_percent`")),
    };
    Ok(Cohort { name: file.name, rule, from_ms: file.from.unwrap_or(0) })
}

fn alternatives(has: Alternatives) -> Result<Vec<BTreeMap<String, Vec<String>>>, String> {
    let tables = match has {
        Alternatives::One(table) => vec![table],
        Alternatives::Several(tables) => tables,
    };
    let mut read = Vec::new();
    for table in tables {
        let unknown = table.keys().find(|name| !Attributes::NAMES.contains(&name.as_str()));
        if let Some(name) = unknown {
            let known = Attributes::NAMES.join(", ");
            return Err(format!("unknown attribute `{name}`; expected {known}"));
        }
        let values = |values| match values {
            Values::One(value) => vec![value],
            Values::Several(values) => values,
        };
        read.push(table.into_iter().map(|(name, it)| (name, values(it))).collect());
    }
    Ok(read)
}

fn tiers(files: &[FileTier]) -> Result<Vec<Tier>, PlanError> {
    count("[[tier]]", files.len())?;
    let shares = files.iter().filter_map(|tier| tier.share_percent);
    if files.len() > 1 && shares.clone().count() < files.len() {
        return Err(error("[[tier]]: share_percent is missing, and there are several tiers"));
    }
    let read = |tier: &FileTier| {
        let percent = tier.share_percent.unwrap_or(100.0);
        let share = within("[[tier]] share_percent", percent, 0.0, 100.0)? / 100.0;
        Ok(Tier { share, up: tier.up, down: tier.down })
    };
    let tiers: Vec<Tier> = files.iter().map(read).collect::<Result<_, _>>()?;
    let sum: f64 = tiers.iter().map(|tier| tier.share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(error(format!("[[tier]]: the shares add up to {} %, not 100", sum * 100.0)));
    }
    Ok(tiers)
}

fn step(file: FileStep, is_known: bool) -> Result<Step, PlanError> {
    let name = file.name;
    if is_known {
        return Err(error(format!("step `{name}`: duplicate name")));
    }
    let key = |key: &str| format!("step `{name}`: {key}");
    let classes = file.classes.unwrap_or_else(|| vec![0]);
    count(&key("classes"), classes.len())?;
    if let Some(dscp) = classes.iter().find(|dscp| **dscp > 63) {
        let problem = format!("{dscp} is not a DSCP; expected 0 to 63");
        return Err(error(format!("{}: {problem}", key("classes"))));
    }
    let mut seen = BTreeSet::new();
    if let Some(dscp) = classes.iter().find(|dscp| !seen.insert(**dscp)) {
        return Err(error(format!("{}: DSCP {dscp} is given twice", key("classes"))));
    }
    let interval = file.interval.unwrap_or(Span::from_millis(20));
    if interval < INTERVAL_MIN {
        return Err(error(format!("{} is less than 1 ms", key("interval"))));
    }
    let probe_bytes = file.probe_bytes.unwrap_or(100);
    within(&key("probe_bytes"), f64::from(probe_bytes), 28.0, 1_500.0)?;
    if file.duration == Span::ZERO {
        return Err(error(format!("{} is 0", key("duration"))));
    }
    let warm_up = file.warm_up.unwrap_or(Span::ZERO);
    let (kind, duration) = (file.kind, file.duration);
    Ok(Step { name, kind, duration, warm_up, classes, interval, probe_bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::BUILT_IN;
    use super::*;

    const SMALL: &str = r#"
title = "one step"
runs_per_day = 6
[lines]
count = 1000
[[tier]]
up = "35mbit"
down = "800mbit"
[[step]]
name = "loaded"
kind = "upload"
duration = "7s"
[servers]
count = 2
capacity = "10gbit"
"#;

    #[test]
    fn omitted_keys_have_defaults() {
        let plan = Plan::parse(SMALL).expect("a plan");
        assert_eq!(plan.lines, Lines { count: 1000, sample: 1000, per_segment: 1, busy: 0.0 });
        assert_eq!((plan.window, plan.start_within), (Window::ALWAYS, Span::from_secs(3_600)));
        let step = &plan.steps[0];
        assert_eq!((step.classes.as_slice(), step.warm_up), (&[0][..], Span::ZERO));
        // 100 bytes every 20 ms.
        assert_eq!(step.probes_bit_per_s(), 40_000);
    }

    #[test]
    fn built_in_plans_are_valid() {
        for (name, text) in BUILT_IN {
            assert!(Plan::parse(text).is_ok(), "{name}: {:?}", Plan::parse(text));
        }
    }

    #[test]
    fn a_plan_ends_with_its_last_day_and_takes_steps_by_name() {
        let until = |day: &str| {
            let text = SMALL.replace("title", &format!("until = \"{day}\"\ntitle"));
            Plan::parse(&text).map(|plan| plan.until_ms)
        };
        // Computed with `date -u -d DAY +%s`.
        for (day, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2026-12-31", 1_798_675_200),
            ("2100-03-01", 4_107_542_400),
            ("9999-12-31", 253_402_214_400_u64),
        ] {
            assert_eq!(until(day), Ok(Some((seconds + 86_400) * 1_000)), "{day}");
        }
        for day in ["1969-12-31", "2026-13-01", "2026-00-01", "2026-1-01", "2100-02-29", ""] {
            assert!(until(day).is_err(), "{day}");
        }
        let named = SMALL
            .split("[[step]]")
            .next()
            .expect("it has a step")
            .replace("title", "preset = \"ull\"\ntitle");
        let plan = Plan::parse(&format!("{named}[servers]\ncount=1\ncapacity=\"1gbit\""));
        let steps = plan.expect("a plan").steps;
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["idle-dscp8", "idle-dscp45", "loaded"]);
    }

    #[test]
    fn cohorts_that_can_have_no_line_are_found() {
        let rules = [
            ("wide", "{ model = [\"XB7\", \"XB8\"] }"),
            ("narrow", "{ model = \"XB7\", region = \"north\" }"),
            ("other", "[{ model = \"XB7\" }, { region = \"north\" }]"),
            ("all", "{}"),
            ("late", "{ region = \"south\" }"),
            ("none", "[]"),
        ];
        let cohorts =
            rules.map(|(name, rule)| format!("[[cohort]]\nname = \"{name}\"\nwhere = {rule}\n"));
        let text = SMALL.replace("[[tier]]", &format!("{}[[tier]]", cohorts.concat()));
        let plan = Plan::parse(&text).expect("a plan");
        assert_eq!(plan.empty_cohorts().collect::<Vec<_>>(), ["narrow", "late", "none"]);
    }

    #[test]
    fn lines_join_cohorts_by_attributes_or_chance_and_stay() {
        use crate::device::DeviceId;
        let with = |cohorts: &str| {
            let text = SMALL.replace("[[tier]]", &format!("{cohorts}\n[[tier]]"));
            Plan::parse(&text).expect("a plan")
        };
        let plan = with(
            "[[cohort]]\nname=\"a\"\nshare_percent=25\n\
                         [[cohort]]\nname=\"b\"\nshare_percent=50",
        );
        let line = Attributes::default();
        let id = |number: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            DeviceId(id)
        };
        let of = |plan: &Plan| -> Vec<_> {
            (0..4_000)
                .map(|it| plan.cohort_of(id(it), &line).unwrap_or("none").to_owned())
                .collect()
        };
        let cohorts = of(&plan);
        let share = |name: &str| cohorts.iter().filter(|it| *it == name).count();
        // Standard deviations of 27 and 32.
        assert!(share("a").abs_diff(1_000) < 110 && share("b").abs_diff(2_000) < 130);
        assert_eq!(of(&plan), cohorts);
        let renamed = Plan { name: "another".to_owned(), ..plan };
        let same = of(&renamed).iter().zip(&cohorts).filter(|(a, b)| a == b).count();
        // By chance 1/16 + 1/4 + 1/16 of the lines.
        assert!(same.abs_diff(1_500) < 130, "{same} are where they were under another name");
        let sampled = Plan { lines: Lines { sample: 100, ..renamed.lines }, ..renamed };
        let left = of(&sampled).iter().filter(|it| *it != "none").count();
        assert!(left.abs_diff(300) < 70, "{left}");
        let plan = with(
            "[[cohort]]\nname=\"aqm\"\nwhere=[{measured=[\"PIE\",\"CoDel\"]},\
                         {measured=\"\",model=\"X\"}]\n[[cohort]]\nname=\"rest\"\nwhere={}",
        );
        let cohort = |measured: &str, model: &str| {
            let (measured, model) = (measured.to_owned(), model.to_owned());
            let line = Attributes { model, measured, ..Attributes::default() };
            plan.cohort_of(id(1), &line).map(str::to_owned)
        };
        let found = [("PIE", ""), ("CoDel", "Y"), ("", "X"), ("", "Y"), ("RED", "X")]
            .map(|(measured, model)| cohort(measured, model).expect("all are in one"));
        assert_eq!(found, ["aqm", "aqm", "aqm", "rest", "rest"]);
    }

    /// Returns the error of the small plan after `to` has replaced `from` in it.
    fn change(from: &str, to: &str) -> String {
        assert!(SMALL.contains(from), "{from}");
        Plan::parse(&SMALL.replace(from, to)).expect_err(to).to_string()
    }

    #[test]
    fn a_fault_names_its_key_or_line() {
        let cases = [
            (("up = \"35mbit\"", "up = \"35\""), "line 7: `35`: expected a rate"),
            (("up = \"35mbit\"", "up = \"0mbit\""), "line 7: `0mbit`: expected a rate"),
            (("\"7s\"", "\"7\""), "line 12: `7`: expected a time with its unit"),
            (("\"7s\"", "\"0s\""), "step `loaded`: duration is 0"),
            (("\"7s\"", "\"2h\""), "last longer than an hour"),
            (("kind = \"upload\"", "kind = \"uplaod\""), "`download`; did you mean `upload`?"),
            (("count = 1000", "count = 0"), "lines.count: 0 is not from 1 to"),
            (
                ("count = 1000", "cuont = 1000"),
                "line 5: unknown key `cuont`; did you mean `count`?",
            ),
            (("count = 1000", "count = 9\nsample = 10"), "lines.sample: 10 is not from 1 to 9"),
            (("= 6", "= nan"), "runs_per_day: NaN is not from"),
            (("= 6", "= 9999\nwindow = \"19:00-20:00\""), "do not fit one after the other"),
            (("= 6", "= 6\nwindow = \"23:00-19:00\""), "line 4: `23:00-19:00`: expected a part"),
            (("= 6", "= 6\nwindow = \"00:00-24:01\""), "expected a part of the day"),
            (("\"10gbit\"", "\"10mbit\""), "[[tier]] 1: a run takes more than servers.capacity"),
            (("[[step]]", "[[tier]]\nup=\"1mbit\"\ndown=\"1mbit\"\n[[step]]"), "share_percent"),
            (("up = \"35", "share_percent = 50\nup = \"35"), "add up to 50 %, not 100"),
            (("\"7s\"", "\"7s\"\nclasses = [64]"), "step `loaded`: classes: 64 is not a DSCP"),
            (("\"7s\"", "\"7s\"\nclasses = []"), "step `loaded`: classes: 0 is not from 1 to 64"),
            (
                ("\"7s\"", "\"7s\"\nclasses = [0, 45, 0]"),
                "line 13: step `loaded`: classes: DSCP 0 is",
            ),
            (
                (
                    "[servers]",
                    "[[step]]\nname=\"loaded\"\nkind=\"latency\"\nduration=\"1s\"\n[servers]",
                ),
                "line 14: step `loaded`: duplicate name",
            ),
            (("title =", "name = \"A b\"\ntitle ="), "line 2: name: `A b`: expected lower-case"),
            (("title =", "preset = \"ull\"\ntitle ="), "line 2: preset: a plan with a preset"),
            (("title =", "until = \"2026-02-29\"\ntitle ="), "`2026-02-29`: expected a day"),
            (("[[tier]]", "[[cohort]]\nname=\"a\"\n[[tier]]"), "line 6: cohort `a`: expected"),
            (
                ("[[tier]]", "[[cohort]]\nname=\"a\"\nwhere={modle=\"x\"}\n[[tier]]"),
                "unknown attribute `modle`",
            ),
            (
                (
                    "[lines]",
                    "until = \"2026-12-31\"\n[[cohort]]\nname = \"late\"\nshare_percent = 9\n\
                     from = \"2027-01-01\"\n[lines]",
                ),
                "cohort `late`: from is after the plan's last day",
            ),
            (
                ("[[tier]]", "[[cohort]]\nname=\"a\"\nshare_percent=101\n[[tier]]"),
                "line 8: [[cohort]] share_percent: 101 is not from 0 to 100",
            ),
            (("\"7s\"", "\"7s\"\ninterval = \"1us\""), "step `loaded`: interval is less than 1 ms"),
        ];
        for ((from, to), want) in cases {
            let told = change(from, to);
            assert!(told.contains(want), "`{to}`: {told}");
        }
    }

    #[test]
    fn all_faults_of_a_plan_are_reported_at_once() {
        let told = change(
            "count = 2\ncapacity = \"10gbit\"",
            "count = 0\ncapacity = \"10gbit\"\n[[cohort]]\nname = \"A\"\nshare_percent = 7",
        );
        let others = "line 14: servers.count: 0 is not from 1 to 100000\n\
                      line 17: [[cohort]] name: `A`: expected lower-case";
        assert!(told.starts_with(others), "{told}");
        let all = Plan::parse(MISTAKEN).expect_err("it has mistakes").to_string();
        for want in [
            "line 1: unknown key `titel`; did you mean `title`?",
            "line 2: invalid type",
            "line 3: unknown key `colour`, expected one of",
            "line 5: missing key `count`",
            "line 6: lines.busy_percent: 200 is not from 0 to 100",
            "line 8: `35`: expected a rate",
            "line 12: unknown variant `uplaod`",
            "line 13: `7`: expected a time",
            "line 14: step `loaded`: classes: 99 is not a DSCP",
            "line 15: unknown key `sevrers`; did you mean `servers`?",
            "line 16: servers.count: 0 is not",
        ] {
            assert!(all.contains(want), "{want}: {all}");
        }
        assert_eq!(all.lines().count(), 11, "{all}");
        let empty = Plan::parse("").expect_err("it has no keys").to_string();
        assert!(empty.starts_with("line 1: missing key `title`\n"), "{empty}");
        assert!(!empty.contains("invalid type"), "{empty}");
        let long = format!("{SMALL}{}", " ".repeat(BYTES_MAX));
        assert!(Plan::parse(&long).is_err_and(|error| error.problem.contains("1 MiB")));
    }

    const MISTAKEN: &str = "\
titel = \"x\"
runs_per_day = \"six\"
colour = \"red\"

[lines]
busy_percent = 200
[[tier]]
up = \"35\"
down = \"1gbit\"
[[step]]
name = \"loaded\"
kind = \"uplaod\"
duration = \"7\"
classes = [99]
[sevrers]
count = 0
capacity = \"10gbit\"
";

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(
            text in "[a-z_\\[\\]= \"0-9.\n-]{0,200}",
            place in 0..SMALL.len(),
            value in "(nan|inf|-1|1e308|9223372036854775807|\"99999999999h\"|\"1.5GB\"|\\[\\])",
        ) {
            let _ = Plan::parse(&text);
            let _ = Plan::parse(&format!("{}{value}{}", &SMALL[..place], &SMALL[place..]));
        }
    }
}
