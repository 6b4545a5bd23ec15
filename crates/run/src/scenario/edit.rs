//! Copies of a document with one change in its tables. Keys keep their places in the text.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::{Table, Value};

use super::document::Document;
use super::place::{Place, Step};

impl Document {
    /// Gives each unnamed flow its kind as name, so that the name survives a change of the kind.
    pub(super) fn name_flows(&mut self) {
        let flows = self.root.get_mut("flow").and_then(Value::as_array_mut);
        for flow in flows.into_iter().flatten().filter_map(Value::as_table_mut) {
            if let (None, Some(Value::String(kind))) = (flow.get("name"), flow.get("kind")) {
                let kind = Value::String(kind.clone());
                flow.insert("name".to_owned(), kind);
            }
        }
    }

    pub(super) fn value(&self, steps: &[Step]) -> Option<&Value> {
        let (first, rest) = steps.split_first()?;
        let Step::Key(first) = first else { return None };
        rest.iter().try_fold(self.root.get(first)?, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Item(index) => value.get(*index),
        })
    }

    /// Returns a copy in which `change` was applied to one table, which is created if it is
    /// missing. `None` if `steps` lead to something else than a table, or if `change` returns
    /// false.
    pub(super) fn changed(
        &self,
        steps: &[Step],
        change: impl FnOnce(&mut Table) -> bool,
    ) -> Option<Self> {
        let mut document = self.clone();
        let is_changed = table_at(&mut document.root, steps).is_some_and(change);
        is_changed.then_some(document)
    }

    /// Returns a copy in which a key has another name, at the same place of the text.
    pub(super) fn renamed(&self, steps: &[Step], name: &str) -> Option<Self> {
        let Some((Step::Key(old), above)) = steps.split_last() else { return None };
        let mut document = self.changed(above, |table| {
            let is_free = !table.contains_key(name);
            let value = if is_free { table.remove(old) } else { None };
            value.is_some_and(|value| table.insert(name.to_owned(), value).is_none())
        })?;
        let of = |place: &Place| place.steps.starts_with(steps);
        let prefixes = self.keys_of(steps);
        let places = Arc::make_mut(&mut document.places);
        for (key, place) in self.places.iter().filter(|(_, place)| of(place)) {
            let Some((prefix, rest)) = split(key, &prefixes) else { continue };
            let parent = &prefix[..prefix.len() - old.len()];
            let mut place = place.clone();
            place.steps[steps.len() - 1] = Step::Key(name.to_owned());
            places.insert(format!("{parent}{name}{rest}"), place);
        }
        Some(document)
    }

    /// Returns a copy without one item of a list.
    pub(super) fn without_item(&self, steps: &[Step]) -> Option<Self> {
        let Some((Step::Item(index), list)) = steps.split_last() else { return None };
        let Some((Step::Key(key), above)) = list.split_last() else { return None };
        let mut document = self.changed(above, |table| {
            let items = table.get_mut(key).and_then(Value::as_array_mut);
            items.filter(|items| *index < items.len()).map(|items| items.remove(*index)).is_some()
        })?;
        let prefixes = self.keys_of(list);
        let mut places = BTreeMap::new();
        for (key, place) in &*self.places {
            let (mut key, mut place) = (key.clone(), place.clone());
            if let Some(Step::Item(own)) = place.steps.get(list.len()).cloned()
                && place.steps.starts_with(list)
                && own >= *index
            {
                if own == *index {
                    continue;
                }
                place.steps[list.len()] = Step::Item(own - 1);
                if let Some((prefix, rest)) = split(&key, &prefixes)
                    && let Some(rest) = rest.strip_prefix(&format!("[{own}]"))
                {
                    key = format!("{prefix}[{}]{rest}", own - 1);
                }
            }
            places.insert(key, place);
        }
        document.places = Arc::new(places);
        Some(document)
    }

    /// The keys that lead to a place: `flow.bulk` and `flow[0]` alike.
    fn keys_of(&self, steps: &[Step]) -> Vec<&str> {
        let of_place = self.places.iter().filter(|(_, place)| place.steps == steps);
        of_place.map(|(key, _)| key.as_str()).collect()
    }
}

/// Splits a key behind the first of `prefixes` that encloses it.
fn split<'a>(key: &'a str, prefixes: &[&str]) -> Option<(&'a str, &'a str)> {
    let prefix = prefixes.iter().find(|prefix| {
        let rest = key.strip_prefix(**prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })?;
    Some(key.split_at(prefix.len()))
}

fn table_at<'a>(root: &'a mut Table, steps: &[Step]) -> Option<&'a mut Table> {
    let Some((first, rest)) = steps.split_first() else { return Some(root) };
    let Step::Key(first) = first else { return None };
    let mut value = root.entry(first.as_str()).or_insert_with(|| Value::Table(Table::new()));
    for step in rest {
        value = match step {
            Step::Key(key) => {
                let table = value.as_table_mut()?;
                table.entry(key.as_str()).or_insert_with(|| Value::Table(Table::new()))
            }
            Step::Item(index) => value.get_mut(*index)?,
        };
    }
    value.as_table_mut()
}
