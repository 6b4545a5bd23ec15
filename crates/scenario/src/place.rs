//! Positions of the keys of a file.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::keys::join;

/// The bytes of a key and of its value in the text.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub key: Range<usize>,
    pub value: Range<usize>,
}

/// Returns the place of each key. A flow's key is listed as `flow.bulk.count` and as
/// `flow[0].count`.
pub(super) fn place_of_keys(root: &DeTable<'_>) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    note(root, "", &mut places);
    places
}

fn note(table: &DeTable<'_>, prefix: &str, places: &mut BTreeMap<String, Place>) {
    for (name, value) in table {
        let key = join(prefix, name.get_ref());
        let is_table = matches!(value.get_ref(), DeValue::Table(_));
        let value_span = if is_table { name.span() } else { value.span() };
        places.entry(key.clone()).or_insert(Place { key: name.span(), value: value_span });
        match value.get_ref() {
            DeValue::Table(inner) => note(inner, &key, places),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    note_item(&key, index, item, places);
                }
            }
            _ => {}
        }
    }
}

/// Adds the places of a list's item: by its position, and those of a flow or hop by its name too.
fn note_item(
    list: &str,
    index: usize,
    item: &Spanned<DeValue<'_>>,
    places: &mut BTreeMap<String, Place>,
) {
    let place = Place { key: item.span(), value: item.span() };
    let key = format!("{list}[{index}]");
    places.insert(key.clone(), place.clone());
    let DeValue::Table(inner) = item.get_ref() else { return };
    note(inner, &key, places);
    let named = inner.get("name").or_else(|| inner.get("kind"));
    let is_named = matches!(list, "flow" | "path.hop");
    if let (true, Some(DeValue::String(name))) = (is_named, named.map(Spanned::get_ref)) {
        let key = join(list, name);
        places.entry(key.clone()).or_insert(place);
        note(inner, &key, places);
    }
}
