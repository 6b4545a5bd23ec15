//! Documents with other tables than their text says, whose keys still have their places in it.

use toml::{Table, Value};

use super::document::Document;
use super::place::{Place, Step};

impl Document {
    /// Names each flow that has no name by its kind, so that it keeps that name whatever becomes
    /// of its kind.
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

    /// The document with a change of one table, which is made where it is missing; `None` where
    /// there is no such table, or `change` changes nothing.
    pub(super) fn changed(
        &self,
        steps: &[Step],
        change: impl FnOnce(&mut Table) -> bool,
    ) -> Option<Self> {
        let mut document = self.clone();
        let is_changed = table_at(&mut document.root, steps).is_some_and(change);
        is_changed.then_some(document)
    }

    /// The document with another name for a key; its place stays.
    pub(super) fn renamed(&self, steps: &[Step], name: &str) -> Option<Self> {
        let Some((Step::Key(old), above)) = steps.split_last() else { return None };
        let mut document = self.changed(above, |table| {
            let is_free = !table.contains_key(name);
            let value = if is_free { table.remove(old) } else { None };
            value.is_some_and(|value| table.insert(name.to_owned(), value).is_none())
        })?;
        let of = |place: &Place| place.steps.starts_with(steps);
        let prefixes = self.keys_of(steps);
        for (key, place) in self.places.iter().filter(|(_, place)| of(place)) {
            let Some((prefix, rest)) = split(key, &prefixes) else { continue };
            let parent = &prefix[..prefix.len() - old.len()];
            let mut place = place.clone();
            place.steps[steps.len() - 1] = Step::Key(name.to_owned());
            document.places.insert(format!("{parent}{name}{rest}"), place);
        }
        Some(document)
    }

    /// The document without an item of a list; those after it keep their places in the text.
    pub(super) fn without_item(&self, steps: &[Step]) -> Option<Self> {
        let Some((Step::Item(index), list)) = steps.split_last() else { return None };
        let Some((Step::Key(key), above)) = list.split_last() else { return None };
        let mut document = self.changed(above, |table| {
            let items = table.get_mut(key).and_then(Value::as_array_mut);
            items.filter(|items| *index < items.len()).map(|items| items.remove(*index)).is_some()
        })?;
        let prefixes = self.keys_of(list);
        document.places.clear();
        for (key, place) in &self.places {
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
            document.places.insert(key, place);
        }
        Some(document)
    }

    /// The keys by which a place is known.
    fn keys_of(&self, steps: &[Step]) -> Vec<&str> {
        let of_place = self.places.iter().filter(|(_, place)| place.steps == steps);
        of_place.map(|(key, _)| key.as_str()).collect()
    }
}

/// A key as that of something around it, and the rest.
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
