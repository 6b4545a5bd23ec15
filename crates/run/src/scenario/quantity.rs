//! Values with units, and SPECs, as a scenario's TOML writes them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use toml::Value as Toml;
use underload_aqm::config::{Kind, Spec, Value};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

/// A length of time with its unit: `"5ms"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanText(pub Span);

/// A rate with its unit: `"20mbit"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateText(pub Rate);

/// A size with its unit: `"14B"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BytesText(pub u64);

/// A SPEC: `"codel:profile=linux"`, or the same keys as a table with `name`.
#[derive(Debug, Clone)]
pub(super) struct SpecText(pub Spec);

macro_rules! quantity {
    ($text:ident, $kind:ident) => {
        impl<'de> Deserialize<'de> for $text {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match deserializer.deserialize_str(Quantity(Kind::$kind))? {
                    Value::$kind(value) => Ok(Self(value)),
                    other => Err(D::Error::custom(format!("{other} is of another kind"))),
                }
            }
        }
    };
}

quantity!(SpanText, Span);
quantity!(RateText, Rate);
quantity!(BytesText, Bytes);

/// Reads a text as a value of a kind.
struct Quantity(Kind);

impl Visitor<'_> for Quantity {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, in quotes", self.0.expectation())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.0.read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for SpecText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = SpecText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a SPEC in quotes, such as \"codel:profile=linux\", or a table with `name`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SpecText, E> {
        Spec::parse(text).map(SpecText).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SpecText, A::Error> {
        let mut name = None;
        let mut items = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Toml>()? {
            let text = match value {
                Toml::String(text) => text,
                Toml::Integer(number) => number.to_string(),
                Toml::Float(number) => number.to_string(),
                Toml::Boolean(on) => (if on { "on" } else { "off" }).to_owned(),
                _ => return Err(A::Error::custom(format!("`{key}` must be a single value"))),
            };
            if key == "name" {
                name = Some(text);
            } else {
                items.push((key, text));
            }
        }
        let name =
            name.ok_or_else(|| A::Error::custom("a SPEC written as a table needs `name`"))?;
        // Through the text form, so that both forms are checked by one grammar.
        let spec = items.iter().fold(Spec::new(&name), |spec, (key, text)| spec.with(key, text));
        Spec::parse(&spec.to_string()).map(SpecText).map_err(A::Error::custom)
    }
}
