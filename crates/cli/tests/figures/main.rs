//! Every published number of the built-in scenarios can be missed: each is judged by spoilt results,
//! and a number that all of them meet is useless. Computing the results takes minutes, so they are
//! stored in `values.json`; the pages of the docs show the same.

mod home_lines;
mod pages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use underload_record::metric_of;
use underload_record::schema::{Expectation, Shape, Verdict, World};
use underload_report::Figure;
use underload_run::Settings;
use underload_scenario::{Options, Scenario, Variant, builtin};

/// The value of each variant, by metric.
type Results = BTreeMap<String, BTreeMap<String, f64>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn values_file() -> PathBuf {
    repository().join("crates/cli/tests/figures/values.json")
}

/// Returns the stored results of each scenario.
fn stored() -> BTreeMap<String, Results> {
    let text = std::fs::read(values_file()).expect("stored values");
    serde_json::from_slice(&text).expect("JSON")
}

/// Returns the built-in scenarios with published numbers that run in virtual time.
fn scenarios() -> Vec<Scenario> {
    let scenario = |builtin: builtin::BuiltIn| {
        let (options, mut load) = (Options::default(), builtin::load_file);
        Scenario::parse_with(builtin.text, builtin.name, &options, &mut load).expect("a scenario")
    };
    let is_judged = |scenario: &Scenario| {
        !scenario.published.is_empty() && scenario.worlds().contains(&World::Sim)
    };
    builtin::scenarios().map(scenario).filter(is_judged).collect()
}

/// Returns the values of a scenario's published or plotted metrics.
fn compute(scenario: &Scenario) -> Results {
    let run = underload_run::run(scenario, &Settings::default(), &mut ()).expect("a run");
    let published = scenario.published.iter().map(|number| &number.metric);
    let metrics = published.chain(scenario.plots.iter().map(|plot| &plot.metric));
    let by_variant = |metric: &String| {
        let value =
            |it: &Variant| Some((it.name.clone(), metric_of(&run.record, &it.name, metric)?));
        (metric.clone(), scenario.variants.iter().filter_map(value).collect())
    };
    let results = metrics.map(by_variant);
    results.filter(|(_, by_variant): &(_, BTreeMap<_, _>)| !by_variant.is_empty()).collect()
}

fn judged(number: &Expectation, scenario: &Scenario, results: &Results) -> Expectation {
    let names: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let of_metric = results.get(&number.metric);
    let mut number = number.clone();
    number.judge(number.measure(&names, |variant| of_metric?.get(variant).copied()));
    number
}

/// Judges every scenario by its stored results.
fn figures() -> Vec<Figure> {
    let stored = stored();
    let figure = |scenario: &Scenario| {
        let results = stored.get(&scenario.name).unwrap_or_else(|| panic!("{}", scenario.name));
        let numbers = scenario.published.iter();
        Figure {
            scenario: scenario.name.clone(),
            figure: scenario.figure.clone(),
            expectations: numbers.map(|number| judged(number, scenario, results)).collect(),
        }
    };
    scenarios().iter().map(figure).collect()
}

#[test]
#[ignore = "computes all scenarios within ten minutes; UNDERLOAD_FIGURES=NAME,... some, and none no"]
fn write_the_values_and_pages_of_the_figures() {
    let wanted = std::env::var("UNDERLOAD_FIGURES").unwrap_or_default();
    let is_wanted =
        |scenario: &&Scenario| wanted.split(',').any(|start| scenario.name.starts_with(start));
    let mut values = stored();
    for scenario in scenarios().iter().filter(is_wanted) {
        values.insert(scenario.name.clone(), compute(scenario));
        let text = serde_json::to_string_pretty(&values).expect("JSON");
        std::fs::write(values_file(), text + "\n").expect("written");
    }
    for (name, page) in pages::of(&figures()) {
        std::fs::write(repository().join("docs/reference").join(name), page).expect("written");
    }
    home_lines::write();
}

#[test]
fn the_pages_of_the_docs_show_the_stored_values() {
    for (name, page) in pages::of(&figures()) {
        let path = repository().join("docs/reference").join(name);
        let known = std::fs::read_to_string(&path).expect("a page of the docs");
        assert_eq!(known, page, "{}: write it with the ignored test of this file", path.display());
    }
}

/// Spoils the values of variants that differ in one part of their names only, in order.
type Spoil = fn(&[f64]) -> Vec<f64>;

/// The ways to spoil results that a claim of a difference or a level must notice: flat, mirrored,
/// halved, doubled.
const SPOILT: [Spoil; 4] = [
    |values| vec![median(values); values.len()],
    |values| values.iter().rev().copied().collect(),
    |values| values.iter().map(|value| value / 2.0).collect(),
    |values| values.iter().map(|value| value * 2.0).collect(),
];

/// The ways to spoil results that a claim of likeness, which a flat result rightly meets, must
/// notice: from first to last, the values grow or shrink by a factor of four.
const SLOPING: [Spoil; 2] = [|values| sloping(values, 4.0), |values| sloping(values, 0.25)];

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn sloping(values: &[f64], factor: f64) -> Vec<f64> {
    let last = values.len().saturating_sub(1).max(1) as f64;
    let scaled = |(position, value): (usize, &f64)| value * factor.powf(position as f64 / last);
    values.iter().enumerate().map(scaled).collect()
}

/// Spoils every metric along the part `axis` of the variants' names, such as the buffer of
/// `1mbit/57ms/8KiB`.
fn spoilt(results: &Results, variants: &[&str], axis: usize, spoil: Spoil) -> Results {
    let of_metric = |(metric, values): (&String, &BTreeMap<String, f64>)| {
        let mut rows: BTreeMap<String, Vec<(&str, f64)>> = BTreeMap::new();
        for variant in variants {
            let Some(value) = values.get(*variant) else { continue };
            let parts = variant.split('/').enumerate();
            let parts = parts.map(|(position, part)| if position == axis { "*" } else { part });
            rows.entry(parts.collect::<Vec<_>>().join("/")).or_default().push((variant, *value));
        }
        let spoilt_row = |row: &Vec<(&str, f64)>| -> Vec<(String, f64)> {
            let values: Vec<f64> = row.iter().map(|(_, value)| *value).collect();
            row.iter().map(|(name, _)| (*name).to_owned()).zip(spoil(&values)).collect()
        };
        (metric.clone(), rows.values().flat_map(spoilt_row).collect())
    };
    results.iter().map(of_metric).collect()
}

/// Whether a number says that variants are alike: a result without any difference meets it, and not
/// by a hair.
fn claims_likeness(number: &Expectation) -> bool {
    let is_flat = |shape| shape == Shape::Flat;
    let is_ratio = number.relative_to.is_some()
        || number.curve.as_ref().is_some_and(|curve| is_flat(curve.shape));
    is_ratio && number.low.is_none_or(|low| low < 1.0) && number.high.is_none_or(|high| high > 1.0)
}

/// Returns whether at least one way to spoil the results makes them miss the number.
fn can_be_missed(number: &Expectation, scenario: &Scenario, results: &Results) -> bool {
    let names: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let axes = names.iter().map(|name| name.split('/').count()).max().unwrap_or_default();
    let ways: &[Spoil] = if claims_likeness(number) { &SLOPING } else { &SPOILT };
    let is_missed = |axis: usize, way: Spoil| {
        let spoilt = spoilt(results, &names, axis, way);
        matches!(judged(number, scenario, &spoilt).verdict, Verdict::Missed { .. })
    };
    (0..axes).any(|axis| ways.iter().any(|way| is_missed(axis, *way)))
}

#[test]
fn every_published_number_is_missed_by_a_spoilt_result() {
    let stored = stored();
    let mut vacuous = Vec::new();
    for scenario in scenarios() {
        let results = &stored[&scenario.name];
        for number in &scenario.published {
            if !can_be_missed(number, &scenario, results) {
                let over = number.relative_to.as_ref().map(|it| format!(" over {it}"));
                let over = over.unwrap_or_default();
                vacuous.push(format!(
                    "{}: {} of {}{over}",
                    scenario.name, number.metric, number.variant
                ));
            }
        }
    }
    let list = vacuous.join("\n");
    assert!(vacuous.is_empty(), "flat, mirrored, halved and doubled results all meet\n{list}");
}

/// Figure 2 of the buffer control guideline was judged by bounds that its flat curve met twenty
/// times over.
#[test]
fn a_bound_that_every_spoilt_result_meets_is_found() {
    let scenarios = scenarios();
    let named = |name: &str| scenarios.iter().find(|scenario| scenario.name == name);
    let scenario = named("buffer-control/figure-02-upload-rate").expect("a built-in scenario");
    let results = &stored()[&scenario.name];
    let bound = |low: f64| Expectation {
        metric: "goodput.up".to_owned(),
        variant: "10-flows/57ms/8KiB".to_owned(),
        low: Some(low),
        ..Expectation::default()
    };
    assert!(!can_be_missed(&bound(1.15), scenario, results));
    assert!(can_be_missed(&bound(20.0), scenario, results));
}
