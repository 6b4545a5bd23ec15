//! Types of values: how each is read from TOML, and how a JSON schema describes it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::{Kind, Spec, Value as Quantity};
use underload_aqm::packet::Ecn;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_record::schema::{Extreme, FlowDirection, PlotAxis, PlotKind, Shape};
use underload_sim::application::interactive_video::RateControl;
use underload_sim::application::video::Player;
use underload_sim::application::web::Browser;

use super::fault::{Fault, Faults, alternatives, did_you_mean};
use crate::study::Quantity as Amount;

pub trait Value: Sized {
    /// The type in a JSON schema; empty if several are accepted.
    const TYPE: &str = "string";
    /// Whether lists of the type are written `[[key]]`.
    const IS_TABLE: bool = false;

    /// Describes the accepted values of `key`, for error messages and the JSON schema.
    fn expected(key: &str) -> String;

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal>;

    fn schema() -> Json {
        let mut schema = json!({ "description": Self::expected("") });
        if !Self::TYPE.is_empty() {
            schema["type"] = Self::TYPE.into();
        }
        schema
    }

    /// Returns the value of an absent key without a default; `None` if the key is required.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns a default value for a schema; null for none.
    fn json(&self) -> Json {
        Json::Null
    }
}

#[derive(Debug)]
pub enum Refusal {
    /// The value has another form than [`Value::expected`] describes.
    Form,
    Problem(String),
    /// The faults are already reported.
    Reported,
}

pub(super) fn read<T: Value>(value: &Toml, key: &str, faults: &mut Faults) -> Option<T> {
    match T::read(value, faults) {
        Ok(value) => return Some(value),
        Err(Refusal::Reported) => {}
        Err(Refusal::Problem(problem)) => faults.add(Fault::new("", problem)),
        Err(Refusal::Form) => {
            faults.add(Fault::new("", format!("expected {}", T::expected(key))));
        }
    }
    None
}

/// Implements [`Value`] for types of TOML: the type in a schema, the description of accepted
/// values, and the conversion.
macro_rules! values {
    ($($type:ty, $json:literal, $expected:expr, $value:pat => $read:expr;)*) => {$(
        impl Value for $type {
            const TYPE: &str = $json;

            fn expected(_: &str) -> String {
                $expected.to_string()
            }

            fn read($value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
                $read
            }

            fn json(&self) -> Json {
                json!(self)
            }
        }
    )*};
}

values! {
    bool, "boolean", "true or false", value => value.as_bool().ok_or(Refusal::Form);
    String, "string", "a text in quotes",
        value => value.as_str().map(str::to_owned).ok_or(Refusal::Form);
    u8, "integer", "a whole number", value => whole(value, Self::MAX.into());
    u32, "integer", "a whole number", value => whole(value, Self::MAX.into());
    u64, "integer", "a whole number", value => whole(value, Self::MAX);
    f64, "number", "a number", value => match value {
        Toml::Float(number) => Ok(*number),
        Toml::Integer(number) => Ok(*number as f64),
        _ => Err(Refusal::Form),
    };
}

fn whole<T: TryFrom<i64>>(value: &Toml, most: u64) -> Result<T, Refusal> {
    let number = value.as_integer().ok_or(Refusal::Form)?;
    let problem = || format!("{number}: expected a whole number from 0 to {most}");
    T::try_from(number).map_err(|_| Refusal::Problem(problem()))
}

/// A size with its unit: `"14B"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quantity::Bytes(self.0).fmt(f)
    }
}

macro_rules! quantity {
    ($($type:ty: $kind:ident($value:ident) => $read:expr;)*) => {$(
        impl Value for $type {
            fn expected(_: &str) -> String {
                format!("{}, in quotes", Kind::$kind.expectation())
            }

            fn read(value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
                let text = scalar(value).ok_or(Refusal::Form)?;
                match Kind::$kind.read(&text) {
                    Some(Quantity::$kind($value)) => Ok($read),
                    _ => Err(Refusal::Problem(Kind::$kind.refusal(&text))),
                }
            }

            fn json(&self) -> Json {
                json!(self.to_string())
            }
        }
    )*};
}

quantity! {
    Span: Span(span) => span;
    Rate: Rate(rate) => rate;
    Bytes: Bytes(bytes) => Self(bytes);
}

/// Returns a string or number as text; `None` for any other type. Booleans are `None`, too: only
/// [`spec_of_table`] accepts them, as `on` or `off`.
fn scalar(value: &Toml) -> Option<String> {
    match value {
        Toml::String(text) => Some(text.clone()),
        Toml::Integer(number) => Some(number.to_string()),
        Toml::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

impl Value for Amount {
    fn expected(_: &str) -> String {
        "a time, rate, size or number, such as \"17ms\"".to_owned()
    }

    fn read(value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        let text = value.as_str().ok_or(Refusal::Form)?;
        let problem = || Refusal::Problem(format!("`{text}`: expected {}", Self::expected("")));
        Self::read(text).ok_or_else(problem)
    }
}

/// A SPEC as a text, `"codel:profile=linux"`, or the same keys as a table with `name`.
#[derive(Debug, Clone)]
pub(crate) struct SpecText<const IS_LINK: bool>(pub Spec);

pub(crate) type QueueText = SpecText<false>;
pub(crate) type LinkText = SpecText<true>;

impl<const IS_LINK: bool> Value for SpecText<IS_LINK> {
    const TYPE: &str = "";

    fn expected(_: &str) -> String {
        let (what, example) =
            if IS_LINK { ("link", "20mbit") } else { ("queue", "codel:profile=linux") };
        format!("a {what} in quotes, such as \"{example}\", or a table with `name`")
    }

    fn read(value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        let spec = match value {
            Toml::String(text) => Spec::parse(text).map_err(|error| error.to_string()),
            Toml::Table(table) => spec_of_table(table),
            value => {
                let number = scalar(value).ok_or(Refusal::Form)?;
                let expected = format!("`{number}`: expected {}", Self::expected(""));
                Err(if IS_LINK { Kind::Rate.refusal(&number) } else { expected })
            }
        };
        spec.map(Self).map_err(Refusal::Problem)
    }
}

/// Converts a table to a SPEC through its text form, so that one grammar checks both forms.
fn spec_of_table(table: &Table) -> Result<Spec, String> {
    let text = |key: &str, value: &Toml| match value {
        Toml::Boolean(on) => Ok((if *on { "on" } else { "off" }).to_owned()),
        value => scalar(value).ok_or_else(|| format!("`{key}` must be a single value")),
    };
    let name = table.get("name").ok_or("a SPEC written as a table needs `name`")?;
    let mut spec = Spec::new(&text("name", name)?);
    for (key, value) in table.iter().filter(|(key, _)| *key != "name") {
        spec = spec.with(key, &text(key, value)?);
    }
    Spec::parse(&spec.to_string()).map_err(|error| error.to_string())
}

/// Parses the word of one of `all`.
pub fn one_of<T: Copy>(value: &Toml, all: &[T], word: impl Fn(&T) -> String) -> Result<T, Refusal> {
    let Toml::String(text) = value else { return Err(Refusal::Form) };
    let words: Vec<String> = all.iter().map(word).collect();
    let index = words.iter().position(|word| word == text).ok_or_else(|| {
        let known = || words.iter().map(String::as_str);
        let (listed, question) = (alternatives(known()), did_you_mean(text, known()));
        Refusal::Problem(format!("`{text}`: expected {listed}{question}"))
    })?;
    Ok(all[index])
}

/// Returns the word that serde writes for a variant.
pub fn word(variant: &impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(Json::String(word)) => word,
        _ => String::new(),
    }
}

/// Implements [`Value`] for types whose values are the words of their variants. [`word`] returns
/// the word that serde writes.
#[macro_export]
macro_rules! words {
    ($($type:ty, $word:path: $($variant:ident)*;)*) => {$(
        impl $crate::keys::Value for $type {
            fn expected(_: &str) -> String {
                let words = [$($word(&<$type>::$variant)),*];
                $crate::keys::alternatives(words.iter().map(|word| &**word))
            }

            fn read(
                value: &toml::Value,
                _: &mut $crate::keys::Faults,
            ) -> Result<Self, $crate::keys::Refusal> {
                $crate::keys::one_of(value, &[$(<$type>::$variant),*], |it| $word(it).to_string())
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word(&<$type>::$variant)),*] })
            }

            fn json(&self) -> serde_json::Value {
                serde_json::json!($word(self))
            }
        }
    )*};
}

pub use words;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as other words' functions")]
fn name_of_ecn(ecn: &Ecn) -> &'static str {
    ecn.name()
}

words! {
    Ecn, name_of_ecn: NotEct Ect0 Ect1 Ce;
    FlowDirection, word: Up Down Both;
    Browser, word: InternetExplorer Chrome Firefox;
    Player, word: Bb Festive Bola RobustMpc;
    RateControl, word: Gcc Loss;
    PlotKind, word: Sweep Bars Scatter Box Cdf Histogram Heat Time;
    PlotAxis, word: X Y;
    Extreme, word: Largest Smallest;
    Shape, word: Peak Trough Rising Flat;
}

impl<T: Value> Value for Option<T> {
    const IS_TABLE: bool = T::IS_TABLE;

    fn expected(key: &str) -> String {
        T::expected(key)
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        T::read(value, faults).map(Some)
    }

    fn schema() -> Json {
        T::schema()
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Value> Value for Vec<T> {
    fn expected(key: &str) -> String {
        if T::IS_TABLE {
            format!("tables: [[{key}]]")
        } else {
            format!("a list, each item {}", T::expected(""))
        }
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        let items = value.as_array().ok_or(Refusal::Form)?;
        let mut item = |(index, item): (usize, &Toml)| {
            faults.under(&format!("[{index}]"), |faults| read(item, "", faults))
        };
        let items: Vec<Option<T>> = items.iter().enumerate().map(&mut item).collect();
        items.into_iter().collect::<Option<_>>().ok_or(Refusal::Reported)
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    fn expected(key: &str) -> String {
        Table::expected(key)
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        let table = value.as_table().ok_or(Refusal::Form)?;
        let mut entry = |(key, value): (&String, &Toml)| {
            let value = faults.under(key, |faults| read(value, key, faults));
            value.map(|value| (key.clone(), value))
        };
        let entries: Vec<_> = table.iter().map(&mut entry).collect();
        entries.into_iter().collect::<Option<_>>().ok_or(Refusal::Reported)
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": T::schema() })
    }
}

impl Value for Table {
    const IS_TABLE: bool = true;

    fn expected(key: &str) -> String {
        match key {
            "" => "a table".to_owned(),
            key => format!("a table: [{key}]"),
        }
    }

    fn read(value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        value.as_table().cloned().ok_or(Refusal::Form)
    }

    fn schema() -> Json {
        json!({ "type": "object" })
    }
}

impl Value for Toml {
    fn expected(_: &str) -> String {
        "any value".to_owned()
    }

    fn read(value: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        Ok(value.clone())
    }

    fn schema() -> Json {
        json!({})
    }
}
