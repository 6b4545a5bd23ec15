//! `[[arm]]` and `[[sweep]]`: the lists whose product makes a scenario's arms.

use serde::Deserialize;
use toml::{Table, Value};

use super::document::{COMMAND_LINE, Override, check_name, overrides, take_tables, take_text};
use super::error::Fault;
use super::section::read_section;

/// Arms of a scenario, at most: each is kept resolved in memory, and takes some 40 KB with its
/// summary.
const MAX_ARMS: usize = 50_000;

/// One value of one dimension: an arm, or a point of a sweep.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    pub name: String,
    pub changes: Vec<Override>,
    /// Place of the variant in the file, for example `arm[1]`.
    pub place: String,
}

/// Takes the dimensions out of the root: the arms first, then each sweep.
pub(super) fn take_dimensions(root: &mut Table) -> Result<Vec<Vec<Variant>>, Fault> {
    let mut dimensions = Vec::new();
    let arms = take_tables(root, "arm")?;
    if !arms.is_empty() {
        let named = |(index, table)| named_variant(table, format!("arm[{index}]"));
        dimensions.push(arms.into_iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?);
    }
    for (index, table) in take_tables(root, "sweep")?.into_iter().enumerate() {
        dimensions.push(sweep(table, &format!("sweep[{index}]"))?);
    }
    for dimension in &dimensions {
        check_distinct(dimension)?;
    }
    check_size(&dimensions)?;
    Ok(dimensions)
}

fn check_size(dimensions: &[Vec<Variant>]) -> Result<(), Fault> {
    let size = dimensions.iter().try_fold(1_usize, |size, list| size.checked_mul(list.len()));
    if size.is_none_or(|size| size > MAX_ARMS) {
        let problem = format!("the product of all sweeps has more than {MAX_ARMS} arms");
        return Err(Fault::new("sweep", problem));
    }
    Ok(())
}

/// The dimensions with these links, by name and SPEC, in place of the file's own.
pub(super) fn with_links(
    mut dimensions: Vec<Vec<Variant>>,
    links: &[(String, String)],
) -> Result<Vec<Vec<Variant>>, Fault> {
    if links.is_empty() {
        return Ok(dimensions);
    }
    let mut sweeps = dimensions.iter_mut().filter_map(|dimension| {
        let key = swept_link(dimension)?;
        Some((key, dimension))
    });
    let (Some((key, dimension)), None) = (sweeps.next(), sweeps.next()) else {
        let problem = "other links need one [[sweep]] over `path.up` or `path.down` to stand in \
                       for; a single link can be given with --set";
        return Err(Fault::new("sweep", problem));
    };
    let variant = |(name, spec): &(String, String)| {
        check_name(name).map_err(|problem| Fault::new(&key, format!("`{name}`: {problem}")))?;
        let changes = vec![Override { key: key.clone(), value: Value::String(spec.clone()) }];
        Ok(Variant { name: name.clone(), changes, place: COMMAND_LINE.to_owned() })
    };
    *dimension = links.iter().map(variant).collect::<Result<_, _>>()?;
    check_distinct(dimension)?;
    check_size(&dimensions)?;
    Ok(dimensions)
}

/// `path.up`, `path.hop.NAME.up` or the same down, where that and nothing else is what the
/// dimension varies.
fn swept_link(dimension: &[Variant]) -> Option<String> {
    let [first] = dimension.first()?.changes.as_slice() else { return None };
    let same =
        |variant: &Variant| matches!(variant.changes.as_slice(), [only] if only.key == first.key);
    let is_path = first.key == "path.up" || first.key == "path.down";
    let is_hop = first
        .key
        .strip_prefix("path.hop.")
        .is_some_and(|rest| matches!(rest.rsplit_once('.'), Some((_, "up" | "down"))));
    let is_link = is_path || is_hop;
    (is_link && dimension.iter().all(same)).then(|| first.key.clone())
}

/// Every combination, the last dimension fastest; one empty combination without dimensions.
pub(super) fn combinations(dimensions: &[Vec<Variant>]) -> Vec<Vec<&Variant>> {
    let mut combinations: Vec<Vec<&Variant>> = vec![Vec::new()];
    for dimension in dimensions {
        let mut longer = Vec::with_capacity(combinations.len() * dimension.len());
        for combination in &combinations {
            longer.extend(dimension.iter().map(|variant| [combination, &[variant][..]].concat()));
        }
        combinations = longer;
    }
    combinations
}

fn named_variant(mut table: Table, place: String) -> Result<Variant, Fault> {
    let at = |fault: Fault| fault.under(&place);
    let name = take_text(&mut table, "name").map_err(at)?;
    let name = name.ok_or_else(|| at(Fault::new("name", "is missing")))?;
    check_name(&name).map_err(|problem| at(Fault::new("name", problem)))?;
    let changes = overrides(&table).map_err(at)?;
    Ok(Variant { name, changes, place })
}

/// Either a key with its values, or points that each override several keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepKeys {
    key: Option<String>,
    values: Option<Vec<Value>>,
    names: Option<Vec<String>>,
    point: Option<Vec<Table>>,
}

/// The keys of `[[sweep]]` with their forms.
pub(super) fn keys() -> serde_json::Map<String, serde_json::Value> {
    super::trace::keys::<SweepKeys>()
}

fn sweep(table: Table, place: &str) -> Result<Vec<Variant>, Fault> {
    let at = |fault: Fault| fault.under(place);
    let keys: SweepKeys = read_section(table).map_err(at)?;
    let variants = match keys {
        SweepKeys { key: Some(key), values: Some(values), names, point: None } => {
            values_of(&key, values, names, place).map_err(at)?
        }
        SweepKeys { key: None, values: None, names: None, point: Some(points) } => {
            let point = |(index, table)| named_variant(table, format!("{place}.point[{index}]"));
            points.into_iter().enumerate().map(point).collect::<Result<_, _>>()?
        }
        _ => {
            let problem = "expected `key` and `values` (and `names`), or [[sweep.point]] tables";
            return Err(at(Fault::new("", problem)));
        }
    };
    if variants.is_empty() {
        return Err(at(Fault::new("", "a sweep over nothing has no arm; expected a value")));
    }
    Ok(variants)
}

fn values_of(
    key: &str,
    values: Vec<Value>,
    names: Option<Vec<String>>,
    place: &str,
) -> Result<Vec<Variant>, Fault> {
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
        Ok(Variant { name, changes, place: format!("{place}.values") })
    };
    names.into_iter().zip(values).map(variant).collect()
}

fn value_name(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn check_distinct(dimension: &[Variant]) -> Result<(), Fault> {
    for (index, variant) in dimension.iter().enumerate() {
        if dimension[..index].iter().any(|earlier| earlier.name == variant.name) {
            let problem = format!("a second one is named `{}`; names must differ", variant.name);
            return Err(Fault::new(&variant.place, problem));
        }
    }
    Ok(())
}
