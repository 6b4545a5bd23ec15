//! Both papers' plans from end to end with simulated lines, through the real rules of an
//! orchestrator and SQLite: `papers_fleet DIR [comcast-study|low-latency-trial] [LINES] [DAYS]`.
//!
//! A few hundred lines are simulated, packet by packet. Each device gets one of them, drawn at
//! random, and reports the results of that line's runs. The download is not simulated, and its step
//! stays empty. Afterwards DIR contains the collected results, for `underload fleet study`.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]

mod fleet;
mod lines;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use ring::signature::KeyPair as _;
use underload_aqm::rng::Rng;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::plan::{Cohort, CohortRule, Plan};
use underload_orchestrator::store::SqlStore;

use fleet::{Fleet, Member, key};
use lines::{SimulatedLine, Steps, simulate};

/// The study's two modems. A line's modem determines whether its upstream has AQM.
const COHORTS: &str = r#"
[[cohort]]
name = "aqm"
where = { model = "CGM4140COM" }

[[cohort]]
name = "control"
where = { model = "TG3482G" }
"#;

/// Simulated lines of each modem.
const LINES_OF_STUDY: usize = 1_000;
/// Simulated lines of the trial.
const LINES_OF_TRIAL: usize = 120;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().context("a folder for the store")?);
    let name = arguments.next().unwrap_or_else(|| "comcast-study".to_owned());
    let number = |text: Option<String>| text.map(|text| text.parse::<u64>()).transpose();
    let (count, days) = (number(arguments.next())?, number(arguments.next())?);
    let mut text = Plan::built_in(&name).context("a plan that is built in")?.to_owned();
    if name == "comcast-study" && Plan::parse(&text)?.cohorts.is_empty() {
        text += COHORTS;
    }
    let plan = Plan::parse(&text)?;
    let began = Instant::now();
    let simulated = match name.as_str() {
        "comcast-study" => study_lines()?,
        _ => trial_lines()?,
    };
    eprintln!("{} lines simulated in {:.0?}", simulated.len(), began.elapsed());
    let began = Instant::now();
    let count = count.unwrap_or(u64::from(plan.lines.sample)) as usize;
    let members = members(&plan, &simulated, count)?;
    let mut store = SqlStore::sqlite(&directory)?;
    let mut fleet = Fleet::enrol(&mut store, &text, members, 1)?;
    eprintln!("{count} devices enrolled in {:.0?}", began.elapsed());
    let began = Instant::now();
    fleet.pass(days.unwrap_or(31))?;
    let fleet::Count { asked, given, handed_in, refused } = fleet.count;
    eprintln!(
        "{:.0?}: {asked} asked, {refused} were refused, {given} ran, {handed_in} kept",
        began.elapsed()
    );
    ensure!(given > 0 && handed_in + 64 >= given, "results are missing");
    Ok(())
}

fn study_lines() -> anyhow::Result<Vec<SimulatedLine>> {
    let changes = [
        ("repeats = 13000", format!("repeats = {LINES_OF_STUDY}")),
        ("idle = \"0s\"", "idle = \"5s\"".to_owned()),
    ];
    simulate("comcast/study", &changes, &Steps { idle: "idle", loaded: "up" })
}

fn trial_lines() -> anyhow::Result<Vec<SimulatedLine>> {
    let changes = [
        ("count = 40\n", format!("count = {LINES_OF_TRIAL}\n")),
        ("days = 2\n", "days = 1\n".to_owned()),
    ];
    simulate("low-latency/ull", &changes, &Steps { idle: "idle", loaded: "loaded" })
}

/// Returns the seeds of devices that the plan measures: tries keys until `count` are in its sample.
fn members<'a>(
    plan: &Plan,
    simulated: &'a [SimulatedLine],
    count: usize,
) -> anyhow::Result<Vec<Member<'a>>> {
    let mut rng = Rng::new(1).child("members");
    let mut members = Vec::new();
    let mut tried = 0_u64;
    while members.len() < count {
        ensure!(tried < 1 << 24, "the plan measures almost no lines");
        tried += 1;
        let seed: [u8; 32] = std::array::from_fn(|_| rng.below(256) as u8);
        let public = key(&seed)?;
        let public = public.public_key().as_ref().try_into().context("32 bytes")?;
        let id = DeviceId::of_key(&public);
        let line = &simulated[rng.below(simulated.len() as u32) as usize];
        let segments = plan.lines.count.div_ceil(plan.lines.per_segment).max(1);
        let attributes = attributes(plan, line, rng.below(segments));
        if plan.cohort_of(id, &attributes).is_some() {
            members.push(Member { id, seed, attributes, runs: &line.runs });
        }
    }
    Ok(members)
}

/// Returns the model by which the plan selects its first or last cohort.
fn model_of(cohort: Option<&Cohort>) -> String {
    let Some(CohortRule::Where(alternatives)) = cohort.map(|cohort| &cohort.rule) else {
        return String::new();
    };
    let models = alternatives.iter().filter_map(|alternative| alternative.get("model"));
    models.flatten().next().cloned().unwrap_or_default()
}

fn attributes(plan: &Plan, line: &SimulatedLine, segment: u32) -> Attributes {
    let of = |name: &str| line.conditions.get(name).cloned().unwrap_or_default();
    let model = match line.variant.as_str() {
        "docsis-pie" => model_of(plan.cohorts.first()),
        "buffer-control" => model_of(plan.cohorts.last()),
        _ => of("model"),
    };
    let tier: f64 = of("tier").strip_suffix("mbit").and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let home = of("home");
    let configured = match home.as_str() {
        "" | "unlimited" => line.variant.clone(),
        _ => format!("{}, home remarks", line.variant),
    };
    Attributes {
        model,
        firmware: of("firmware"),
        tier_up_bit_per_s: (tier * 1e6) as u64,
        tier_down_bit_per_s: 800_000_000,
        segment: format!("segment {segment}"),
        region: format!("region {}", segment % 4),
        configured,
        measured: line.variant.clone(),
    }
}
