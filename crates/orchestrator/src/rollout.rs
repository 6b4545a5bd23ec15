//! Rollouts in words.

use underload_fleet::rollout::{Decision, Event, Look, Measure, Phase, RolloutPlan, State};
use underload_record::text::one_line;
use underload_report::{significant, thousands};

use crate::pages::date_text;

/// Describes an event in a sentence without its subject.
pub fn event_words(event: &Event) -> String {
    match event {
        Event::Started { is_dry_run: true } => "started as a dry run, which changes no line".into(),
        Event::Started { is_dry_run: false } => "started".into(),
        Event::Sent { is_former, devices, failed, .. } => {
            let what = if *is_former { "the former configuration" } else { "the new file" };
            let failed = match failed.len() {
                0 => String::new(),
                count => format!(", of which {count} were not confirmed"),
            };
            format!("sent {what} to {} lines{failed}", thousands(devices.len() as u64))
        }
        Event::Looked { day, looks, decision } => {
            let all = looks.iter().filter(|look| look.group.is_empty());
            let looks: Vec<String> = all.map(look_words).collect();
            let seen = if looks.is_empty() { "too few lines".to_owned() } else { looks.join(", ") };
            let day = date_text(*day);
            format!("judged {day}: {seen}: {}", decision_words(decision))
        }
        Event::Confirmed => "confirmed".into(),
        Event::Stopped => "ordered the former configuration".into(),
    }
}

/// Describes an effect with its interval: `p99 0.61 times (0.55 to 0.68)`.
pub fn look_words(look: &Look) -> String {
    let effect = &look.effect;
    let of = |value: f64| match look.measure {
        Measure::P99 => significant(value.exp()),
        Measure::Harmed => significant(value * 100.0),
    };
    let (value, low, high) = (of(effect.value), of(effect.low), of(effect.high));
    let group = if look.group.is_empty() { "" } else { " of " };
    let group = format!("{group}{}", one_line(&look.group));
    match look.measure {
        Measure::P99 => format!("p99{group} {value} times ({low} to {high})"),
        Measure::Harmed => format!("harmed lines{group} {value} % more ({low} to {high} %)"),
    }
}

fn decision_words(decision: &Decision) -> String {
    match decision {
        Decision::Wait => "wait".into(),
        Decision::Forward => "the next stage begins".into(),
        Decision::Pause(pause) => format!("pause, {pause}"),
        Decision::Back { group, measure } => {
            let group = if group.is_empty() { "all lines" } else { group };
            format!("back, because {} was harmed ({measure})", one_line(group))
        }
        Decision::Done => "done".into(),
    }
}

/// Describes a rollout in a sentence.
pub fn state_words(plan: &RolloutPlan, state: &State) -> String {
    let percent = plan.stages_percent[state.stage];
    let number = state.stage + 1;
    let stage = format!("stage {number} of {} ({percent} %)", plan.stages_percent.len());
    let phase = match state.phase {
        Phase::New => return format!("{} has not started.", plan.name),
        Phase::Sending => format!("sends the new file to the lines of {stage}"),
        Phase::Watching => {
            let days = state.next_day - state.since_day;
            format!("watches {stage}: {days} days were judged, of at least {}", plan.least_days)
        }
        Phase::Paused(pause) => format!("is paused in {stage}: {pause}"),
        Phase::Returning => format!("returns the lines of {stage} to their former configuration"),
        Phase::Returned => format!("was taken back in {stage}"),
        Phase::Done => format!("is done, after {stage}"),
    };
    let dry = if state.is_dry_run { " (dry run: no line is changed)" } else { "" };
    format!("{} {phase}{dry}.", plan.name)
}
