//! The grammar of SPEC strings; TOML tables become the same [`Spec`].

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::config::ConfigError;
use crate::config::number::shorten;

/// A parsed name with its items, without their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// A discipline or link; for a link also a bare rate.
    pub name: String,
    /// The parameters, in the order in which they are written.
    pub items: Vec<Item>,
}

/// A parameter as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The word before `=`; `None` for a value without a key.
    pub key: Option<String>,
    /// The value as written; a nested SPEC includes its brackets.
    pub value: String,
}

/// The deepest nesting of brackets, which bounds the parser's work on a hostile file.
const MAX_DEPTH: usize = 4;
/// The longest SPEC, in bytes; schedules may be long.
const MAX_LEN: usize = 1 << 16;

impl Spec {
    /// Returns a SPEC without items.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_string(), items: Vec::new() }
    }

    /// Appends the parameter `key=value`, unchecked.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.items.push(Item { key: Some(key.to_string()), value: value.to_string() });
        self
    }

    /// Parses a SPEC string. Brackets must match, no name or value may be empty, and length and
    /// nesting are limited.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let syntax = |problem| syntax(text, problem);
        if text.len() > MAX_LEN {
            return Err(syntax("longer than 64 KiB"));
        }
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        if name.is_empty() {
            return Err(syntax("expected NAME or NAME:key=value,..."));
        }
        if name.contains(['=', ',', '[', ']']) {
            return Err(syntax("expected `:` between the name and its first key"));
        }
        let mut items = Vec::new();
        if let Some(rest) = rest {
            for part in split_outside_brackets(rest).map_err(syntax)? {
                items.push(item(part).ok_or_else(|| syntax("an item is empty"))?);
            }
        }
        Ok(Self { name: name.to_string(), items })
    }

    /// Parses the SPEC inside a bracketed value.
    pub fn parse_nested(value: &str) -> Result<Self, ConfigError> {
        let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let problem = "expected a queue in brackets, such as [codel:target=5ms]";
        Self::parse(inner.ok_or_else(|| syntax(value, problem))?)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let mut separator = ":";
        for item in &self.items {
            f.write_str(separator)?;
            if let Some(key) = &item.key {
                write!(f, "{key}=")?;
            }
            f.write_str(&item.value)?;
            separator = ",";
        }
        Ok(())
    }
}

fn syntax(text: &str, problem: &str) -> ConfigError {
    ConfigError::Refused(format!("`{}`: {problem}", shorten(text)))
}

fn item(part: &str) -> Option<Item> {
    let part = part.trim();
    let (key, value) = match part.split_once('=') {
        Some((key, value)) if !key.contains('[') => (Some(key.trim()), value.trim()),
        _ => (None, part),
    };
    if value.is_empty() || key == Some("") {
        return None;
    }
    Some(Item { key: key.map(ToString::to_string), value: value.to_string() })
}

fn split_outside_brackets(text: &str) -> Result<Vec<&str>, &'static str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 0 => return Err("a `]` without its `[`"),
            b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err("brackets nested too deep");
        }
    }
    if depth > 0 {
        return Err("a `[` without its `]`");
    }
    parts.push(&text[start..]);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_spec_parses_to_itself() {
        for text in [
            "fq-codel",
            "codel:profile=linux,target=5ms",
            "trace:some/file.up,profile=mahimahi",
            "diffserv:high=[bode:bound=50ms,exempt=3p],low=[fifo:limit=1000p]",
        ] {
            assert_eq!(Spec::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn text_other_than_a_spec_is_refused() {
        for text in ["", ":", "codel:", "codel:=5ms", "codel:a=", "codel:a=[", "codel:a=]", "a=b"] {
            assert!(Spec::parse(text).is_err(), "{text}");
        }
        assert!(Spec::parse("a:b=[[[[[x]]]]]").is_err());
    }
}
