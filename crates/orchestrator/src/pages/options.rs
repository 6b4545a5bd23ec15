//! The forms of filters, and the values that they offer.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};

use maud::{Markup, html};
use underload_fleet::device::Attributes;
use underload_fleet::store::{Archive, Dimension, Filter};
use underload_report::one_line;

use super::problem::Problem;
use super::question::{ALL_PLANS, Ask, Choice, GROUPS, LOADS, SCALES};

/// Maximum number of values of an attribute that are offered; others can be typed.
const OFFERED: usize = 200;
/// How long the offered values are cached.
const REMEMBERED_MS: u64 = 60_000;

/// The controls of each page's form, in order; those of attributes by the attribute's name.
pub(super) const OVERVIEW: &str = "plan by load dscp days cohort model firmware tier region";
pub(super) const STUDY: &str = "plan by load dscp days delays scale cohort model firmware tier \
    region segment hour configured measured";
pub(super) const DEVICES: &str =
    "model firmware tier region segment configured measured silent_days";

/// The values that a form offers, with the number of devices of each.
#[derive(Debug, Default)]
pub(super) struct OfferedValues {
    plans: Vec<String>,
    cohorts: Vec<(String, u64)>,
    dscps: Vec<u8>,
    attributes: Vec<(&'static str, Vec<(String, u64)>)>,
}

impl OfferedValues {
    pub(super) fn read(archive: &mut dyn Archive) -> Result<Self, Problem> {
        let mut plans = archive.plans()?;
        // The first one is the default of [`super::question::Question::choose_plan`].
        plans.sort_by_key(|plan| Reverse((plan.stopped_ms.is_none(), plan.applied_ms)));
        let plans = plans.into_iter().map(|plan| plan.name).collect();
        let cohorts = archive.sums(&Filter::default(), &[Dimension::Cohort])?;
        let cohorts = cohorts.into_iter().filter_map(|mut sum| Some((sum.key.pop()?, sum.devices)));
        let cohorts = cohorts.filter(|(name, _)| !name.is_empty()).collect();
        let dscps = archive.sums(&Filter::default(), &[Dimension::Dscp])?;
        let dscps = dscps.iter().filter_map(|sum| sum.key.first()?.parse().ok());
        let mut dscps: Vec<u8> = dscps.collect();
        dscps.sort_unstable();
        let mut attributes = Vec::new();
        for name in Attributes::NAMES {
            let mut values = archive.values(name, OFFERED)?;
            values.retain(|(value, _)| !value.is_empty());
            values.sort();
            attributes.push((name, values));
        }
        Ok(Self { plans, cohorts, dscps, attributes })
    }

    /// Returns the form of the page at `path`.
    pub(super) fn form(&self, ask: &Ask, path: &str, fields: &str) -> Result<Markup, Problem> {
        let mut controls = Vec::new();
        for field in fields.split(' ') {
            controls.push(self.field(ask, field)?);
        }
        Ok(html! {
            // The style sheet opens it on wide screens; on a phone it would fill the screen.
            details.choice {
                summary { "Filters" }
                form.filters method="get" action=(path) role="search" aria-label="Filters" {
                    @for control in controls { (control) }
                    div.buttons {
                        button type="submit" { "Show" }
                        a href=(path) { "Reset" }
                    }
                }
            }
        })
    }

    fn field(&self, ask: &Ask, field: &str) -> Result<Markup, Problem> {
        let question = &ask.question;
        let said = |name: &str| question.text(name).unwrap_or_default().to_owned();
        Ok(match field {
            "plan" => {
                let plans = self.plans.iter().map(|name| (name.as_str(), name.as_str()));
                let all = std::iter::once((ALL_PLANS, "all"));
                select("plan", "Plan", None, plans.chain(all), &said("plan"))
            }
            "cohort" => {
                let cohorts = visible(&self.cohorts, ask);
                select("cohort", "Group", Some("all"), cohorts, &said("cohort"))
            }
            "dscp" => {
                let dscps: Vec<String> = self.dscps.iter().map(u8::to_string).collect();
                let dscps = dscps.iter().map(|dscp| (dscp.as_str(), dscp.as_str()));
                select("dscp", "Marking (DSCP)", Some("all"), dscps, &said("dscp"))
            }
            "hour" => {
                let hours: Vec<(String, String)> =
                    (0..24).map(|hour| (hour.to_string(), format!("{hour:02}:00"))).collect();
                let hours = hours.iter().map(|(hour, words)| (hour.as_str(), words.as_str()));
                select("hour", "Hour, UTC", Some("all"), hours, &said("hour"))
            }
            "days" => html! {
                (input("from", "From", "date", &said("from")))
                (input("until", "Until", "date", &said("until")))
            },
            "delays" => html! {
                (input("low_ms", "Delays from, ms", "number", &said("low_ms")))
                (input("high_ms", "to, ms", "number", &said("high_ms")))
            },
            "silent_days" => input(field, "Silent for days", "number", &said(field)),
            "by" => choices("by", "Grouped by", &GROUPS, question.group()?.key),
            "load" => {
                let choices = LOADS.iter().map(|choice| (choice.key, choice.words));
                select("load", "Load", Some("the fullest"), choices, &said("load"))
            }
            "scale" => {
                let scale = if question.is_logarithmic()? { "log" } else { "linear" };
                choices("scale", "Scale", &SCALES, scale)
            }
            name => {
                let values = self.attributes.iter().find(|(known, _)| *known == name);
                let values = values.map_or(&[][..], |(_, values)| values);
                let title = title(name);
                if values.len() < OFFERED {
                    select(name, title, Some("all"), visible(values, ask), &said(name))
                } else {
                    typed(name, title, visible(values, ask), &said(name))
                }
            }
        })
    }
}

/// Returns the values of at least `least_devices` devices.
fn visible<'v>(values: &'v [(String, u64)], ask: &Ask) -> impl Iterator<Item = (&'v str, &'v str)> {
    let least = ask.least_devices;
    let enough = values.iter().filter(move |(_, devices)| *devices >= least);
    enough.map(|(value, _)| (value.as_str(), value.as_str()))
}

fn title(attribute: &str) -> &'static str {
    match attribute {
        "model" => "Model",
        "firmware" => "Firmware",
        "tier" => "Tier, Mbit/s",
        "segment" => "Segment",
        "region" => "Region",
        "configured" => "Configured",
        _ => "Measured",
    }
}

fn choices(name: &str, title: &str, of: &[Choice], chosen: &str) -> Markup {
    select(name, title, None, of.iter().map(|choice| (choice.key, choice.words)), chosen)
}

fn select<'v>(
    name: &str,
    title: &str,
    none: Option<&str>,
    values: impl Iterator<Item = (&'v str, &'v str)>,
    chosen: &str,
) -> Markup {
    let values: Vec<(&str, &str)> = values.collect();
    let is_offered = chosen.is_empty() || values.iter().any(|(value, _)| *value == chosen);
    html! {
        label {
            span { (title) }
            select name=(name) {
                @if let Some(none) = none { option value="" { (none) } }
                @if !is_offered { option value=(chosen) selected { (one_line(chosen)) } }
                @for (value, words) in values {
                    option value=(value) selected[value == chosen] { (one_line(words)) }
                }
            }
        }
    }
}

/// A text field, for more values than a list may have; some are offered.
fn typed<'v>(
    name: &str,
    title: &str,
    values: impl Iterator<Item = (&'v str, &'v str)>,
    said: &str,
) -> Markup {
    html! {
        label {
            span { (title) }
            input type="text" name=(name) value=(said) list={ "list-" (name) } maxlength="64";
            datalist id={ "list-" (name) } { @for (value, _) in values { option value=(value) {} } }
        }
    }
}

fn input(name: &str, title: &str, kind: &str, said: &str) -> Markup {
    let step = (kind == "number").then_some("any");
    html! {
        label {
            span { (title) }
            input type=(kind) name=(name) value=(said) min=[step.map(|_| "0")] step=[step];
        }
    }
}

#[derive(Default)]
pub(super) struct Options(Mutex<Option<(u64, Arc<OfferedValues>)>>);

impl Options {
    pub(super) fn remembered(&self, now_ms: u64) -> Option<Arc<OfferedValues>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at_ms, known) = known.as_ref()?;
        (now_ms.abs_diff(*at_ms) < REMEMBERED_MS).then(|| Arc::clone(known))
    }

    pub(super) fn remember(&self, found: Arc<OfferedValues>, now_ms: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(_, old)| !Arc::ptr_eq(old, &found)) {
            *known = Some((now_ms, found));
        }
    }
}
