//! Values with units, and SPECs, as a scenario's TOML writes them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
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

/// The SPEC of a queue: `"codel:profile=linux"`, or the same keys as a table with `name`.
#[derive(Debug, Clone)]
pub(super) struct QueueText(pub Spec);

/// The SPEC of a link: `"20mbit:delay=5ms"`, or the same keys as a table with `name`.
#[derive(Debug, Clone)]
pub(super) struct LinkText(pub Spec);

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
        self.0.read(text).ok_or_else(|| E::custom(self.0.refusal(text)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Err(E::custom(self.0.refusal(&number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Err(E::custom(self.0.refusal(&number.to_string())))
    }
}

impl<'de> Deserialize<'de> for QueueText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor { is_link: false }).map(Self)
    }
}

impl<'de> Deserialize<'de> for LinkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor { is_link: true }).map(Self)
    }
}

struct SpecVisitor {
    is_link: bool,
}

impl SpecVisitor {
    const fn expectation(&self) -> &'static str {
        if self.is_link {
            "a link in quotes, such as \"20mbit\", or a table with `name`"
        } else {
            "a queue in quotes, such as \"codel:profile=linux\", or a table with `name`"
        }
    }

    fn refusal<E: Error>(&self, number: &str) -> E {
        if self.is_link {
            return E::custom(Kind::Rate.refusal(number));
        }
        E::custom(format!("`{number}`: expected {}", self.expectation()))
    }
}

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = Spec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expectation())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Spec, E> {
        Spec::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Spec, E> {
        Err(self.refusal(&number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Spec, E> {
        Err(self.refusal(&number.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spec, A::Error> {
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
        Spec::parse(&spec.to_string()).map_err(A::Error::custom)
    }
}
