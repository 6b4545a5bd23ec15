//! The arms of a scenario: its tables with every combination of its variants.

use std::collections::{BTreeMap, BTreeSet};

use underload_aqm::registry::LoadFile;

use super::arm::{Arm, read_arm};
use super::cohort::Cohort;
use super::flow::DEFAULT_CONTROL;
use super::path::DEFAULT_QUEUE;
use super::phases::DEFAULT_LOAD;
use super::tables::Base;
use super::variants::{Variant, combinations, name};
use crate::keys::{Fault, Faults};

/// The arms (of a cohort with typical conditions), and the tables of those that are drawn or varied
/// later.
#[derive(Debug, Default)]
pub(super) struct Arms {
    pub arms: Vec<Arm>,
    pub templates: BTreeMap<String, Base>,
}

/// Resolves each combination of the variants in `dimensions`, laid over `base`, to an arm.
pub(super) fn read_arms(
    base: &Base,
    dimensions: &[Vec<Variant>],
    (cohort, keeps_tables): (Option<&Cohort>, bool),
    load: &mut LoadFile<'_>,
    faults: &mut Faults,
) -> Arms {
    let (mut arms, mut templates) = (Vec::new(), Vec::new());
    let (mut settings, mut places) = (Vec::new(), Vec::new());
    for variants in combinations(dimensions) {
        if faults.is_full() {
            break;
        }
        let name = name(&variants);
        let mut tables = base.clone();
        let mut own = Faults::default();
        apply(&mut tables, &variants, &mut own);
        let arm = match cohort {
            Some(cohort) => cohort.typical_arm(&name, &tables, load, &mut own),
            None => read_arm(&name, &tables, load, &mut own),
        };
        for fault in own {
            let origin = fault.origin.clone();
            let origin = origin.as_deref().or_else(|| tables.origin(&fault.key)).map(str::to_owned);
            faults.add(fault.of_origin(origin.as_deref()));
        }
        let Some(arm) = arm else { continue };
        settings.push(tables.settings());
        places.push(variants.first().map_or("variant", |variant| variant.place.as_str()));
        arms.push(arm);
        if keeps_tables {
            templates.push(tables);
        }
    }
    if faults.is_empty() {
        let used = cohort.map_or(Ok(()), |cohort| cohort.check_used(&templates));
        faults.accept(used.and_then(|()| check_different(&arms, &places)));
    }
    for (arm, factors) in arms.iter_mut().zip(factors(settings)) {
        arm.factors = factors;
    }
    let names = arms.iter().map(|arm| arm.name.clone());
    let templates = names.zip(templates).collect();
    Arms { arms, templates }
}

/// Returns the settings of each arm that differ between the arms.
fn factors(mut settings: Vec<BTreeMap<String, String>>) -> Vec<BTreeMap<String, String>> {
    settings.iter_mut().for_each(add_defaults);
    let keys: BTreeSet<String> = settings.iter().flat_map(BTreeMap::keys).cloned().collect();
    for key in keys {
        let first = settings.first().and_then(|own| own.get(&key));
        if settings.iter().all(|own| own.get(&key) == first) {
            for own in &mut settings {
                own.remove(&key);
            }
        }
    }
    settings
}

/// Adds the values of keys that arms often override and the file leaves out, so that a difference
/// from the default is reported with both values.
fn add_defaults(settings: &mut BTreeMap<String, String>) {
    let mut defaults = vec![
        ("phases.load".to_owned(), DEFAULT_LOAD.to_string()),
        ("path.overhead".to_owned(), "0B".to_owned()),
    ];
    for (key, value) in settings.iter() {
        let last = key.rsplit('.').next();
        let is_link = key.starts_with("path.") && matches!(last, Some("up" | "down"));
        if is_link {
            defaults.push((format!("{key}_queue"), DEFAULT_QUEUE.to_owned()));
        }
        if let (Some(flow), "tcp") = (key.strip_suffix(".kind"), value.as_str()) {
            defaults.push((format!("{flow}.congestion_control"), DEFAULT_CONTROL.to_owned()));
            defaults.push((format!("{flow}.count"), "1".to_owned()));
            defaults.push((format!("{flow}.ecn"), "false".to_owned()));
        }
    }
    for (key, value) in defaults {
        settings.entry(key).or_insert(value);
    }
}

/// Applies the overrides of the variants to the tables.
fn apply(tables: &mut Base, variants: &[&Variant], faults: &mut Faults) {
    for (index, variant) in variants.iter().enumerate() {
        for change in &variant.changes {
            let mut earlier = variants[..index].iter();
            let is_twice =
                |earlier: &&&Variant| earlier.changes.iter().any(|other| other.key == change.key);
            if let Some(earlier) = earlier.find(is_twice) {
                let problem = format!("`{}` and `{}` both override it", earlier.name, variant.name);
                faults.add(Fault::new(&change.key, problem).of_origin(Some(&variant.place)));
            } else {
                faults.accept(tables.set(change, &variant.place));
            }
        }
    }
}

/// Rejects two equal arms, between which there is nothing to compare.
fn check_different(arms: &[Arm], places: &[&str]) -> Result<(), Fault> {
    let mut seen: BTreeMap<&str, &Arm> = BTreeMap::new();
    for (arm, place) in arms.iter().zip(places) {
        if let Some(twin) = seen.insert(arm.identity.as_str(), arm) {
            let problem = format!("`{}` and `{}` are the same", twin.name, arm.name);
            return Err(Fault::new(*place, problem));
        }
    }
    Ok(())
}
