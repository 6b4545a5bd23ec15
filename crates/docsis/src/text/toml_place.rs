//! The line of a key path in a TOML text.

use toml::de::{DeTable, DeValue};

/// Returns the line, counted from 1, of a key path such as `UpstreamServiceFlow[2].BufferControl`,
/// or of the longest part of the path that the text has.
pub(super) fn line_of(text: &str, place: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = Some(document.get_ref());
    let mut found = None;
    for step in place.split('.') {
        let (name, ordinal) = match step.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let inside = table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name));
        let Some((key, value)) = inside else { break };
        found = Some(key.span().start);
        let mut value = value.get_ref();
        if let (DeValue::Array(values), Some(ordinal)) = (value, ordinal) {
            let Some(element) = values.get(ordinal.saturating_sub(1)) else { break };
            found = Some(element.span().start);
            value = element.get_ref();
        }
        table = value.as_table();
    }
    Some(text.get(..found?)?.matches('\n').count() + 1)
}
