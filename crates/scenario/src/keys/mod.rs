//! Keys of TOML tables, each declared once.
//!
//! `keys!` declares a struct whose fields are the keys of a table: the field's type determines the
//! accepted values, `= VALUE` the default, `=> LOW..=HIGH` the range, `as "key"` another name in
//! the file, `where default = "..."` the default of a key that may be absent, in words if it
//! depends on other keys, `[flat]` that the field's own keys are in the same table, and the
//! documentation comment is the key's description. In a struct that is declared `[lenient]`, a key
//! whose value is wrong has its default, so that the other keys can be used; the faults say which
//! keys are wrong (`Faults::concern`).
//!
//! [`read_table`] reads a table and finds every fault of it. The list of its keys
//! ([`Section::declare`]) makes the JSON schema ([`schema`]) and the list of settings ([`listed`]).

mod fault;
mod value;

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde_json::{Map, Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::closest;
use underload_aqm::registry::our_form;

pub use fault::{Fault, Faults, alternatives};
pub(crate) use fault::{MOST_FAULTS, did_you_mean, join};
pub use value::{Bytes, Refusal, Value, one_of, word, words};
pub(crate) use value::{LinkText, QueueText};

/// A table of declared keys, or a part of one.
pub trait Section: Sized {
    /// Adds the keys in the order of their declarations.
    fn declare(keys: &mut Vec<Key>);

    /// Reads all keys even if one is wrong, so that every fault is found and every key is known.
    fn take(reader: &mut Reader<'_>) -> Option<Self>;
}

/// A value that is made of several keys of a table.
pub(crate) trait Combined: Sized {
    type Keys: Section;

    /// Returns `None` and adds a fault if the keys do not fit together.
    fn combine(keys: Self::Keys, faults: &mut Faults) -> Option<Self>;
}

impl<C: Combined> Section for C {
    fn declare(keys: &mut Vec<Key>) {
        C::Keys::declare(keys);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let keys = C::Keys::take(reader)?;
        C::combine(keys, reader.faults)
    }
}

/// Two sections in one table.
impl<A: Section, B: Section> Section for (A, B) {
    fn declare(keys: &mut Vec<Key>) {
        A::declare(keys);
        B::declare(keys);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (one, other) = (A::take(reader), B::take(reader));
        Some((one?, other?))
    }
}

/// The declaration of a key.
pub struct Key {
    name: &'static str,
    /// The lines of its documentation.
    help: &'static [&'static str],
    schema: fn() -> Json,
    /// Null if the key has no default, or if its default is no value.
    default: Json,
    /// The default of a key that may be absent: a value, or words.
    implied: Option<&'static str>,
    is_required: bool,
    range: Option<[String; 2]>,
}

impl Key {
    pub fn new<T: Value>(
        name: &'static str,
        help: &'static [&'static str],
        default: fn() -> Option<T>,
        implied: Option<&'static str>,
        range: Option<[String; 2]>,
    ) -> Self {
        let default = default();
        let is_required = default.is_none();
        let default = default.as_ref().map_or(Json::Null, T::json);
        Self { name, help, schema: T::schema, default, implied, is_required, range }
    }

    /// Returns the default of an absent key, if it is a value and not words.
    fn implied_value(&self) -> Option<&'static str> {
        self.implied.filter(|text| !text.contains(' '))
    }

    fn schema(&self) -> Json {
        let mut schema = (self.schema)();
        let form = schema["description"].as_str().unwrap_or_default().to_owned();
        let help = self.help.concat().trim().trim_end_matches('.').to_owned();
        let texts = [help, form].into_iter().filter(|text| !text.is_empty());
        let mut description = texts.collect::<Vec<_>>().join(": ");
        let implied = self.implied_value();
        if let (Some(words), None) = (self.implied, implied) {
            description = format!("{description}; default: {words}");
        }
        if let Some(bounds) = &self.range {
            match bounds.each_ref().map(|text| text.parse::<u64>()) {
                [Ok(low), Ok(high)] => {
                    (schema["minimum"], schema["maximum"]) = (low.into(), high.into());
                }
                _ => description = format!("{description}; {} to {}", bounds[0], bounds[1]),
            }
        }
        if !description.is_empty() {
            schema["description"] = description.into();
        }
        let default = match (self.implied, implied) {
            (None, _) => self.default.clone(),
            (Some(_), implied) => implied.map_or(Json::Null, |text| {
                text.parse::<u64>().map_or_else(|_| text.into(), Json::from)
            }),
        };
        if !default.is_null() {
            schema["default"] = default;
        }
        schema
    }

    fn listed(&self, written: Option<&Toml>) -> Listed {
        let default = match (self.implied, &self.default) {
            (None, Json::String(text)) => Some(text.clone()),
            (None, default) if !default.is_null() => Some(default.to_string()),
            _ => self.implied_value().map(str::to_owned),
        };
        let value = written.map(|value| text_of(self.name, value)).or(default);
        Listed { key: self.name, default: self.implied.filter(|_| value.is_none()), value }
    }
}

fn declared<S: Section>() -> Vec<Key> {
    let mut keys = Vec::new();
    S::declare(&mut keys);
    keys
}

/// Returns the JSON schema of a table with these keys and no others.
pub fn schema<S: Section>() -> Json {
    let keys = declared::<S>();
    let properties: Map<String, Json> =
        keys.iter().map(|key| (key.name.to_owned(), key.schema())).collect();
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let required: Vec<_> = keys.iter().filter(|key| key.is_required).map(|key| key.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub key: &'static str,
    /// The value as written, or the default; `None` if the key is absent and has no default value.
    pub value: Option<String>,
    /// The description of the default; `None` if the default is a value, or if the key has none.
    pub default: Option<&'static str>,
}

/// Returns the keys of a table in the order of their declarations.
pub fn listed<S: Section>(table: &Table) -> Vec<Listed> {
    declared::<S>().iter().map(|key| key.listed(table.get(key.name))).collect()
}

/// Returns a value as in the file, without quotes; SPECs of queues in our form.
pub(crate) fn text_of(key: &str, value: &Toml) -> String {
    match value {
        Toml::String(spec) if key.ends_with("_queue") => our_form(spec),
        Toml::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads the keys of one table.
#[derive(Debug)]
pub struct Reader<'a> {
    table: &'a Table,
    faults: &'a mut Faults,
    known: Vec<&'static str>,
    missing: Vec<&'static str>,
}

/// Reads a table that has only declared keys. A misspelt key is read as the closest one, so that
/// this one is not reported as missing.
pub fn read_table<S: Section>(table: &Table, faults: &mut Faults) -> Option<S> {
    let mut own = Faults::default();
    let mut reader = Reader { table, faults: &mut own, known: Vec::new(), missing: Vec::new() };
    let section = S::take(&mut reader);
    let unknown = reader.unknown();
    for key in reader.missing {
        own.add(Fault::new(key, "is missing"));
    }
    if unknown.is_empty() {
        own.into_iter().for_each(|fault| faults.add(fault));
        return section;
    }
    let mut mended = table.clone();
    for (key, meant, fault) in unknown {
        faults.add(fault);
        if let (Some(value), Some(meant)) = (mended.remove(&key), meant) {
            mended.entry(meant).or_insert(value);
        }
    }
    read_table(&mended, faults)
}

impl Reader<'_> {
    /// Reads a key. `None` if its value is wrong and the section not lenient, or if it is absent
    /// and has no default.
    pub fn key<T: Value>(
        &mut self,
        name: &'static str,
        default: fn() -> Option<T>,
        is_lenient: bool,
    ) -> Option<T> {
        self.known.push(name);
        let Some(value) = self.table.get(name) else {
            let value = default();
            if value.is_none() {
                self.missing.push(name);
            }
            return value;
        };
        let value = self.faults.under(name, |faults| value::read(value, name, faults));
        value.or_else(|| if is_lenient { default() } else { None })
    }

    /// As [`Reader::key`], for a number that is wrong outside of a range.
    pub fn key_in<R: PartialOrd + Display, T: Value + Ranged<R>>(
        &mut self,
        name: &'static str,
        default: fn() -> Option<T>,
        is_lenient: bool,
        range: &RangeInclusive<R>,
    ) -> Option<T> {
        let value = self.key(name, default, is_lenient)?;
        let Some(number) = value.number().filter(|number| !range.contains(number)) else {
            return Some(value);
        };
        let (low, high) = (range.start(), range.end());
        let problem = format!("{number} is out of range; expected {low} to {high}");
        self.faults.add(Fault::new(name, problem));
        if is_lenient { default() } else { None }
    }

    /// Returns the keys that no section knows, each with the closest known key and the fault.
    fn unknown(&self) -> Vec<(String, Option<&'static str>, Fault)> {
        let fault = |key: &String| {
            let known = self.known.iter().copied();
            let question = did_you_mean(key, known.clone());
            let problem =
                format!("unknown key; expected {}{question}", alternatives(known.clone()));
            (key.clone(), closest(key, known), Fault::new(key, problem))
        };
        let keys = self.table.keys();
        keys.filter(|key| !self.known.contains(&key.as_str())).map(fault).collect()
    }
}

pub trait Ranged<R> {
    fn number(&self) -> Option<&R>;
}

impl<T> Ranged<T> for T {
    fn number(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T> Ranged<T> for Option<T> {
    fn number(&self) -> Option<&T> {
        self.as_ref()
    }
}

impl<S: Section> Value for S {
    const IS_TABLE: bool = true;

    fn expected(key: &str) -> String {
        Table::expected(key)
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        let table = value.as_table().ok_or(Refusal::Form)?;
        read_table(table, faults).ok_or(Refusal::Reported)
    }

    fn schema() -> Json {
        schema::<S>()
    }
}

/// A table that is read later, as an `S`.
#[derive(Debug, Clone)]
pub(crate) struct Raw<S> {
    pub table: Table,
    declared: PhantomData<S>,
}

impl<S> Default for Raw<S> {
    fn default() -> Self {
        Self { table: Table::new(), declared: PhantomData }
    }
}

impl<S: Value> Value for Raw<S> {
    const IS_TABLE: bool = true;

    fn expected(key: &str) -> String {
        Table::expected(key)
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        Ok(Self { table: Table::read(value, faults)?, declared: PhantomData })
    }

    fn schema() -> Json {
        // A variant may have the keys that the table lacks.
        let mut schema = S::schema();
        schema.as_object_mut().map(|schema| schema.remove("required"));
        schema
    }
}

/// A list of tables that are read later, each as an `S`. A wrong one does not hide the faults of
/// the others.
#[derive(Debug, Clone)]
pub struct Tables<S> {
    /// The tables of the list, each with its position. Other items are left out.
    pub items: Vec<(usize, Table)>,
    /// Length of the list in the file.
    pub len: usize,
    declared: PhantomData<S>,
}

impl<S> Default for Tables<S> {
    fn default() -> Self {
        Self { items: Vec::new(), len: 0, declared: PhantomData }
    }
}

impl<S: Section> Tables<S> {
    /// Reads the tables of the list `name`. Returns each with its place, such as `variant[1]`;
    /// `None` for one that is wrong.
    pub fn read(&self, name: &str, faults: &mut Faults) -> Vec<(String, Option<S>)> {
        let mut read = |(index, table): &(usize, Table)| {
            let place = format!("{name}[{index}]");
            let section = faults.under(&place, |faults| read_table(table, faults));
            (place, section)
        };
        self.items.iter().map(&mut read).collect()
    }
}

impl<S: Value> Value for Tables<S> {
    fn expected(key: &str) -> String {
        Vec::<Table>::expected(key)
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        let (list, mut items) = (value.as_array().ok_or(Refusal::Form)?, Vec::new());
        for (index, item) in list.iter().enumerate() {
            let place = format!("[{index}]");
            let table = faults.under(&place, |faults| value::read(item, "", faults));
            items.extend(table.map(|table| (index, table)));
        }
        Ok(Self { items, len: list.len(), declared: PhantomData })
    }

    fn schema() -> Json {
        Vec::<S>::schema()
    }
}

/// Reads the keys of a table from TOML.
#[cfg(test)]
pub(crate) fn from_text<S: Section>(text: &str) -> Result<S, Fault> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| Fault::new("", error.message()))?;
    let mut faults = Faults::default();
    let section = read_table(&table, &mut faults);
    faults.result(section)
}

/// Declares a table's keys; see the module.
#[macro_export]
macro_rules! keys {
    ($(#[$($meta:tt)*])* $vis:vis struct $name:ident $([$lenient:ident])? {
        $($(#[$($about:tt)*])* $own:vis $field:ident: $type:ty
            $(as $key:literal)? $([$flat:ident])?
            $(where default = $implied:tt)? $(= $default:expr)? $(=> $range:expr)?,)*
    }) => {
        $(#[$($meta)*])*
        $vis struct $name { $($(#[$($about)*])* $own $field: $type,)* }

        impl $crate::keys::Section for $name {
            fn declare(_keys: &mut Vec<$crate::keys::Key>) {
                $($crate::keys::keys!(
                    @declare _keys, $type, $crate::keys::keys!(@name $field $($key)?),
                    &[$($crate::keys::keys!(@line $($about)*)),*],
                    [$($flat)?] [$($implied)?] [$($default)?] [$($range)?]
                );)*
            }

            fn take(_reader: &mut $crate::keys::Reader<'_>) -> Option<Self> {
                const _IS_LENIENT: bool = $crate::keys::keys!(@lenient $($lenient)?);
                $(let $field: Option<$type> = $crate::keys::keys!(
                    @take _reader, _IS_LENIENT, $crate::keys::keys!(@name $field $($key)?),
                    [$($flat)?] [$($default)?] [$($range)?]
                );)*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@declare $keys:ident, $type:ty, $name:expr, $help:expr, [flat] [] [] []) => {
        <$type as $crate::keys::Section>::declare($keys)
    };
    (
        @declare $keys:ident, $type:ty, $name:expr, $help:expr,
        [] [$($implied:tt)?] [$($default:expr)?] [$($range:expr)?]
    ) => {
        $keys.push($crate::keys::Key::new::<$type>(
            $name,
            $help,
            $crate::keys::keys!(@default $($default)?),
            $crate::keys::keys!(@implied $($implied)?),
            $crate::keys::keys!(@bounds $($range)?),
        ))
    };
    (@take $reader:ident, $lenient:ident, $name:expr, [flat] [] []) => {
        $crate::keys::Section::take($reader)
    };
    (@take $reader:ident, $lenient:ident, $name:expr, [] [$($default:expr)?] []) => {
        $reader.key($name, $crate::keys::keys!(@default $($default)?), $lenient)
    };
    (@take $reader:ident, $lenient:ident, $name:expr, [] [$($default:expr)?] [$range:expr]) => {
        $reader.key_in($name, $crate::keys::keys!(@default $($default)?), $lenient, &$range)
    };
    (@default) => { $crate::keys::Value::absent };
    (@default $default:expr) => { || Some($default) };
    (@implied) => { None };
    (@implied $implied:expr) => { Some($implied) };
    (@bounds) => { None };
    (@bounds $range:expr) => {{
        let range = $range;
        Some([range.start().to_string(), range.end().to_string()])
    }};
    (@lenient) => { false };
    (@lenient lenient) => { true };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@line doc = $line:literal) => { $line };
    (@line $($other:tt)*) => { "" };
}

pub use keys;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use underload_aqm::time::Span;
    use underload_record::schema::PlotAxis;

    use super::*;

    keys! {
        #[derive(Debug, PartialEq)]
        struct Outer {
            /// How many there are.
            count: Option<u32> where default = "3" => 1..=9,
            wait_ns: Span as "wait" = Span::from_millis(5)
                => Span::ZERO..=Span::from_secs(1),
            inner: Vec<Inner>,
            free: BTreeMap<String, f64> = BTreeMap::new(),
            more: More [flat],
        }
    }

    keys! {
        #[derive(Debug, PartialEq)]
        struct Inner {
            on: bool,
            axis: PlotAxis,
        }
    }

    keys! {
        #[derive(Debug, PartialEq)]
        struct More {
            title: String = "none".to_owned(),
        }
    }

    fn faults(text: &str) -> Vec<String> {
        let mut faults = Faults::default();
        read_table::<Outer>(&text.parse().expect("TOML"), &mut faults);
        faults.into_iter().map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn keys_have_defaults_and_aliases_and_keys_of_a_flat_section_are_in_the_outer_table() {
        let outer: Outer =
            from_text("inner = [{ on = true, axis = \"x\" }]\nwait = \"7ms\"").expect("right");
        let inner = vec![Inner { on: true, axis: PlotAxis::X }];
        let more = More { title: "none".to_owned() };
        let wait_ns = Span::from_millis(7);
        assert_eq!(outer, Outer { count: None, wait_ns, inner, free: BTreeMap::new(), more });
    }

    #[test]
    fn a_fault_has_the_name_of_the_key_in_the_file() {
        assert_eq!(
            faults("inner = []\nwait = 7"),
            ["wait: `7` has no unit; expected a time such as 5ms (ns, us, ms, s, min, h)"]
        );
    }

    #[test]
    fn every_fault_of_a_table_is_found_once() {
        let text = "count = 10\nwait = \"7\"\ninner = [{ on = 1, axis = \"z\" }, { axs = \"y\" }]\n\
                    titel = 3\nfree = { a = \"b\" }";
        let expected = [
            "titel: unknown key; expected count, wait, inner, free or title; did you mean `title`?",
            "count: 10 is out of range; expected 1 to 9",
            "wait: `7` has no unit; expected a time such as 5ms (ns, us, ms, s, min, h)",
            "inner[0].on: expected true or false",
            "inner[0].axis: `z`: expected x or y",
            "inner[1].axs: unknown key; expected on or axis; did you mean `axis`?",
            "inner[1].on: is missing",
            "free.a: expected a number",
            "title: expected a text in quotes",
        ];
        assert_eq!(faults(text), expected);
        assert_eq!(faults("inner = 7"), ["inner: expected tables: [[inner]]"]);
        assert_eq!(faults(""), ["inner: is missing"]);
    }

    #[test]
    fn a_schema_says_what_each_key_means_and_accepts() {
        let schema = schema::<Outer>();
        let what = "How many there are: a whole number";
        let mut count = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
        (count["description"], count["default"]) = (what.into(), 3.into());
        assert_eq!(schema["properties"]["count"], count);
        assert_eq!(schema["properties"]["wait"]["default"], "5ms");
        let inner = &schema["properties"]["inner"]["items"];
        assert_eq!(inner["properties"]["axis"], json!({ "enum": ["x", "y"] }));
        assert_eq!(inner["required"], json!(["on", "axis"]));
        assert_eq!(schema["required"], json!(["inner"]));
        assert_eq!(schema["properties"]["title"]["default"], "none");
    }
}
