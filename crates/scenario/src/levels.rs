//! `[[variant]]` and `[[sweep]]`: the lists whose product makes a scenario's variants.

use std::collections::BTreeSet;

use toml::Value;

use super::document::COMMAND_LINE;
use super::tables::{Override, Overrides, check_name};
use crate::keys::{Fault, Faults, Tables, join, keys};

/// Maximum number of variants of a scenario: each takes about 40 KB of memory with its summary.
const MAX_VARIANTS: usize = 50_000;

/// One value of one dimension: a variant, or a value of a sweep.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub name: String,
    pub changes: Vec<Override>,
    /// Place of the variant in the file, for example `variant[1]`.
    pub place: String,
}

keys! {
    /// A variant, or a point of a sweep.
    pub(super) struct VariantKeys {
        /// The name, of which names of variants are made.
        name: String,
        overrides: Overrides [flat],
    }
}

keys! {
    /// Either a key with its values, or points that each override several keys.
    pub(super) struct SweepKeys {
        /// The key whose values differ.
        key: Option<String>,
        /// The values of the key.
        values: Option<Vec<Value>>,
        /// Names of the values; by default the values themselves.
        names: Option<Vec<String>>,
        /// Points that override several keys, in place of `key` and `values`.
        point: Option<Tables<VariantKeys>>,
    }
}

/// Returns the dimensions, the variants first, then each sweep, without the variants that are wrong;
/// and whether the names of all variants are known.
pub(super) fn dimensions(
    variants: &Tables<VariantKeys>,
    sweeps: &Tables<SweepKeys>,
    faults: &mut Faults,
) -> (Vec<Vec<Level>>, bool) {
    let mut has_all_names = !faults.concern("variant") && !faults.concern("sweep");
    let mut dimensions = Vec::new();
    if variants.len > 0 {
        let (variants, are_all) = named_variants(variants, "variant", faults);
        has_all_names &= are_all;
        dimensions.push(distinct(variants, faults));
    }
    for (place, keys) in sweeps.read("sweep", faults) {
        let made = keys.and_then(|keys| faults.under(&place, |it| sweep(keys, &place, it)));
        let Some((variants, are_all)) = made else {
            has_all_names = false;
            continue;
        };
        has_all_names &= are_all;
        dimensions.push(distinct(variants, faults));
    }
    (dimensions, has_all_names)
}

/// Rejects more than [`MAX_VARIANTS`] variants.
pub(super) fn check_size(dimensions: &[Vec<Level>]) -> Result<(), Fault> {
    let size = dimensions.iter().try_fold(1_usize, |size, list| size.checked_mul(list.len()));
    if size.is_none_or(|size| size > MAX_VARIANTS) {
        let problem = format!("the product of all sweeps has more than {MAX_VARIANTS} variants");
        return Err(Fault::new("sweep", problem));
    }
    Ok(())
}

/// Replaces the links that the file sweeps over by these, given by name and SPEC.
pub(super) fn with_links(
    mut dimensions: Vec<Vec<Level>>,
    links: &[(String, String)],
) -> Result<Vec<Vec<Level>>, Fault> {
    let mut sweeps = dimensions.iter_mut().filter_map(|it| swept_link(it).map(|key| (key, it)));
    let (Some((key, dimension)), None) = (sweeps.next(), sweeps.next()) else {
        let problem = "other links need one [[sweep]] over `path.up` or `path.down` to replace; a \
                       single link can be given with --set";
        return Err(Fault::new("sweep", problem));
    };
    let variant = |(name, spec): &(String, String)| {
        check_name(name).map_err(|problem| Fault::new(&key, format!("`{name}`: {problem}")))?;
        let changes = vec![Override { key: key.clone(), value: Value::String(spec.clone()) }];
        Ok(Level { name: name.clone(), changes, place: COMMAND_LINE.to_owned() })
    };
    let mut faults = Faults::default();
    *dimension = distinct(links.iter().map(variant).collect::<Result<_, _>>()?, &mut faults);
    faults.result(Some(dimensions))
}

/// Returns the key of the link that a dimension varies, such as `path.up` or `path.hop.NAME.down`;
/// `None` if it varies anything else.
fn swept_link(dimension: &[Level]) -> Option<String> {
    let [first] = dimension.first()?.changes.as_slice() else { return None };
    let same =
        |variant: &Level| matches!(variant.changes.as_slice(), [only] if only.key == first.key);
    let (table, key) = first.key.rsplit_once('.')?;
    let is_table = table == "path" || table.starts_with("path.hop.");
    let is_link = is_table && matches!(key, "up" | "down");
    (is_link && dimension.iter().all(same)).then(|| first.key.clone())
}

/// Returns every combination, the last dimension fastest; one empty combination without dimensions.
pub(super) fn combinations(dimensions: &[Vec<Level>]) -> Vec<Vec<&Level>> {
    let mut combinations: Vec<Vec<&Level>> = vec![Vec::new()];
    for dimension in dimensions {
        let mut longer = Vec::with_capacity(combinations.len() * dimension.len());
        for combination in &combinations {
            longer.extend(dimension.iter().map(|variant| [combination, &[variant][..]].concat()));
        }
        combinations = longer;
    }
    combinations
}

/// Returns the name of the variant with a combination of variants.
pub(super) fn name(variants: &[&Level]) -> String {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    if names.is_empty() { "default".to_owned() } else { names.join("/") }
}

pub(super) fn names(dimensions: &[Vec<Level>]) -> Vec<String> {
    combinations(dimensions).iter().map(|variants| name(variants)).collect()
}

/// Returns the variants, and whether the names of all are known.
fn named_variants(
    list: &Tables<VariantKeys>,
    name: &str,
    faults: &mut Faults,
) -> (Vec<Level>, bool) {
    let mut variants = Vec::new();
    for (place, keys) in list.read(name, faults) {
        let Some(VariantKeys { name, overrides }) = keys else { continue };
        let checked = check_name(&name).map_err(|it| Fault::new(join(&place, "name"), it));
        if faults.accept(checked).is_some() {
            variants.push(Level { name, changes: overrides.0, place });
        }
    }
    let are_all = variants.len() == list.len;
    (variants, are_all)
}

/// Returns a sweep's variants, and whether all names are known. Faults name its table's keys.
fn sweep(keys: SweepKeys, place: &str, faults: &mut Faults) -> Option<(Vec<Level>, bool)> {
    let (variants, are_all) = match keys {
        SweepKeys { key: Some(key), values: Some(values), names, point: None } => {
            (faults.accept(values_of(&key, values, names, place))?, true)
        }
        SweepKeys { key: None, values: None, names: None, point: Some(points) } => {
            let (mut variants, are_all) = named_variants(&points, "point", faults);
            for variant in &mut variants {
                variant.place = join(place, &variant.place);
            }
            (variants, are_all)
        }
        _ => {
            let problem = "expected `key` and `values` (and `names`), or [[sweep.point]] tables";
            faults.add(Fault::new("", problem));
            return None;
        }
    };
    if variants.is_empty() && are_all {
        faults.add(Fault::new("", "has no values; expected at least one"));
        return None;
    }
    Some((variants, are_all))
}

fn values_of(
    key: &str,
    values: Vec<Value>,
    names: Option<Vec<String>>,
    place: &str,
) -> Result<Vec<Level>, Fault> {
    let names = match names {
        Some(names) if names.len() != values.len() => {
            let problem =
                format!("{} names for {} values; expected as many", names.len(), values.len());
            return Err(Fault::new("names", problem));
        }
        Some(names) => names,
        None => values.iter().map(value_name).collect(),
    };
    let variant = |(name, value): (String, Value)| {
        check_name(&name).map_err(|problem| {
            Fault::new("names", format!("`{name}`: {problem}; give the values `names`"))
        })?;
        let changes = vec![Override { key: key.to_owned(), value }];
        Ok(Level { name, changes, place: format!("{place}.values") })
    };
    names.into_iter().zip(values).map(variant).collect()
}

fn value_name(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Drops variants whose names are taken.
fn distinct(variants: Vec<Level>, faults: &mut Faults) -> Vec<Level> {
    let mut names = BTreeSet::new();
    let mut is_new = |variant: &Level| {
        let is_new = names.insert(variant.name.clone());
        if !is_new {
            let problem = format!("a second one is named `{}`; names must differ", variant.name);
            faults.add(Fault::new(&variant.place, problem));
        }
        is_new
    };
    variants.into_iter().filter(&mut is_new).collect()
}
