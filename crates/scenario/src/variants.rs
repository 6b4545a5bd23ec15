//! The variants of a scenario: its tables with every combination of its levels.

use std::collections::{BTreeMap, BTreeSet};

use underload_aqm::registry::LoadFile;

use super::cohort::Cohort;
use super::flow::DEFAULT_CONTROL;
use super::levels::{Level, combinations, name};
use super::path::DEFAULT_QUEUE;
use super::phases::DEFAULT_LOAD;
use super::tables::Base;
use super::variant::{Variant, read_variant};
use crate::keys::{Fault, Faults};

/// The variants (of a cohort with typical conditions), and the tables of those that are drawn or varied
/// later.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub variants: Vec<Variant>,
    pub templates: BTreeMap<String, Base>,
}

/// Resolves each combination of the levels in `dimensions`, laid over `base`, to a variant.
pub(super) fn read_variants(
    base: &Base,
    dimensions: &[Vec<Level>],
    (cohort, keeps_tables): (Option<&Cohort>, bool),
    load: &mut LoadFile<'_>,
    faults: &mut Faults,
) -> Variants {
    let (mut variants, mut templates) = (Vec::new(), Vec::new());
    let (mut settings, mut places) = (Vec::new(), Vec::new());
    for levels in combinations(dimensions) {
        if faults.is_full() {
            break;
        }
        let name = name(&levels);
        let mut tables = base.clone();
        let mut own = Faults::default();
        apply(&mut tables, &levels, &mut own);
        let variant = match cohort {
            Some(cohort) => cohort.typical_variant(&name, &tables, load, &mut own),
            None => read_variant(&name, &tables, load, &mut own),
        };
        for fault in own {
            let origin = fault.origin.clone();
            let origin = origin.as_deref().or_else(|| tables.origin(&fault.key)).map(str::to_owned);
            faults.add(fault.of_origin(origin.as_deref()));
        }
        let Some(variant) = variant else { continue };
        settings.push(tables.settings());
        places.push(levels.first().map_or("variant", |level| level.place.as_str()));
        variants.push(variant);
        if keeps_tables {
            templates.push(tables);
        }
    }
    if faults.is_empty() {
        let used = cohort.map_or(Ok(()), |cohort| cohort.check_used(&templates));
        faults.accept(used.and_then(|()| check_different(&variants, &places)));
    }
    for (variant, factors) in variants.iter_mut().zip(factors(settings)) {
        variant.factors = factors;
    }
    let names = variants.iter().map(|variant| variant.name.clone());
    let templates = names.zip(templates).collect();
    Variants { variants, templates }
}

/// Returns the settings of each variant that differ between the variants.
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

/// Adds the values of keys that variants often override and the file leaves out, so that a difference
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

/// Applies the overrides of the levels to the tables.
fn apply(tables: &mut Base, levels: &[&Level], faults: &mut Faults) {
    for (index, level) in levels.iter().enumerate() {
        for change in &level.changes {
            let mut earlier = levels[..index].iter();
            let is_twice =
                |earlier: &&&Level| earlier.changes.iter().any(|other| other.key == change.key);
            if let Some(earlier) = earlier.find(is_twice) {
                let problem = format!("`{}` and `{}` both override it", earlier.name, level.name);
                faults.add(Fault::new(&change.key, problem).of_origin(Some(&level.place)));
            } else {
                faults.accept(tables.set(change, &level.place));
            }
        }
    }
}

/// Rejects two equal variants, between which there is nothing to compare.
fn check_different(variants: &[Variant], places: &[&str]) -> Result<(), Fault> {
    let mut seen: BTreeMap<&str, &Variant> = BTreeMap::new();
    for (variant, place) in variants.iter().zip(places) {
        if let Some(twin) = seen.insert(variant.identity.as_str(), variant) {
            let problem = format!("`{}` and `{}` are the same", twin.name, variant.name);
            return Err(Fault::new(*place, problem));
        }
    }
    Ok(())
}
