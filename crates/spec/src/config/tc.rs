//! Queues in the syntax of `tc`: `codel target 15ms ecn` is `codel:target=15ms,ecn=on`.

use alloc::format;
use alloc::string::{String, ToString};

use crate::config::{ConfigError, Definition, Kind, Param, Spec};

/// Translates the options of a queue, called `name` in the text, to a SPEC with keys.
///
/// # Errors
/// Returns an error for an unknown option, an option without its value, and a gain, because `tc`
/// counts gains in another unit.
pub fn from_tc<'a>(
    definition: &'static Definition,
    name: &str,
    words: impl Iterator<Item = &'a str>,
) -> Result<Spec, ConfigError> {
    let mut words = words.peekable();
    let mut spec = Spec::new(definition.name);
    while let Some(word) = words.next() {
        let option = word.to_ascii_lowercase().replace('_', "-");
        let bad = |expected: &str| ConfigError::value(definition.name, word, "", expected);
        if let (Some(unit), "alpha" | "beta") = (definition.tc_gains, option.as_str()) {
            return Err(bad(&format!("{}:{option}=HZ; tc counts {unit}", definition.name)));
        }
        let alias = definition.tc_keys.iter().find(|(of_tc, _)| *of_tc == option);
        let key = alias.map_or(option.as_str(), |(_, key)| key);
        spec = match param(definition, key) {
            Some(Param { kind: Kind::Switch, key, .. }) => {
                let value = words.next_if(|next| matches!(*next, "on" | "off"));
                spec.with(key, value.unwrap_or("on"))
            }
            Some(param) => {
                let value = words.next().ok_or_else(|| bad("a value after it"))?;
                spec.with(param.key, &with_unit(param.kind, name, value))
            }
            None => flag(definition, spec, key).ok_or_else(|| definition.unknown_key(word))?,
        };
    }
    Ok(spec)
}

/// Adds an option without a value: `noecn`, or a choice such as CAKE's `besteffort`.
fn flag(definition: &'static Definition, spec: Spec, word: &str) -> Option<Spec> {
    let off = word.strip_prefix("no-").or_else(|| word.strip_prefix("no"));
    if let Some(Param { kind: Kind::Switch, key, .. }) = off.and_then(|it| param(definition, it)) {
        return Some(spec.with(key, "off"));
    }
    let has = |param: &&Param| matches!(param.kind, Kind::Choice(words) if words.contains(&word));
    let chosen = definition.all_params().find(has)?;
    Some(spec.with(chosen.key, word))
}

fn param(definition: &'static Definition, key: &str) -> Option<&'static Param> {
    definition.all_params().find(|param| param.key == key)
}

/// Returns a value with the unit that `tc` omits, and with its `k` and `mb` as KiB and MiB.
fn with_unit(kind: Kind, queue: &str, value: &str) -> String {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &value[digits.len()..];
    let is_bytes = matches!(kind, Kind::Bytes) || queue.eq_ignore_ascii_case("bfifo");
    match (kind, unit) {
        (Kind::Bytes | Kind::Limit, "" | "b") if is_bytes => format!("{digits}B"),
        (Kind::Packets | Kind::Limit, "") => format!("{digits}p"),
        (Kind::Bytes | Kind::Limit, "k" | "kb") => format!("{digits}KiB"),
        (Kind::Bytes | Kind::Limit, "m" | "mb") => format!("{digits}MiB"),
        _ => value.to_string(),
    }
}
