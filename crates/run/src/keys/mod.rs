//! Keys of TOML tables, each declared once.
//!
//! `keys!` declares a struct whose fields are the keys of a table: the field's type determines the
//! accepted values, `= VALUE` the default, `=> LOW..=HIGH` the range, `as "key"` another name in
//! the file, `or "old"` the name that older files have for it, `where default = "..."` the default
//! of a key that may be absent, in words if it depends on other keys, `[flat]` that the field's own
//! keys are in the same table, and the documentation comment is the key's description. The reader,
//! its faults, the JSON schema and the reference page follow from that: [`read_table`] finds every
//! fault of a table, [`schema`] describes its keys.

mod fault;
mod value;

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde_json::{Map, Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::closest;
use underload_aqm::registry::our_form;

pub(crate) use fault::{Fault, Faults, MOST_FAULTS, alternatives, did_you_mean, join};
pub use value::Bytes;
pub(crate) use value::{LinkText, Maybe, QueueText, Refusal, Try, Value, one_of, word, words};

/// A table of declared keys, or a part of one.
pub(crate) trait Section: Sized {
    /// Reads all keys even if one is wrong, so that every fault is found and every key is known.
    fn take(reader: &mut Reader<'_>) -> Option<Self>;
}

/// Reads the keys of one table, or describes them.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    table: &'a Table,
    pub faults: &'a mut Faults,
    known: Vec<&'static str>,
    /// The default of the next key, a value or words, if that key may be absent.
    implied: Option<&'static str>,
    missing: Vec<&'static str>,
    described: Option<Map<String, Json>>,
    listed: Option<Vec<Listed>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub key: &'static str,
    /// As written, or the default; `None` if the key is absent and its default is no value.
    pub value: Option<String>,
    /// The default in words; `None` if the default is a value, or if there is none.
    pub default: Option<&'static str>,
}

/// Returns the keys of a table in the order of their declarations.
pub(crate) fn listed<S: Section>(table: &Table) -> Vec<Listed> {
    let mut faults = Faults::default();
    let mut reader = Reader::new(table, &mut faults);
    reader.listed = Some(Vec::new());
    S::take(&mut reader);
    reader.listed.unwrap_or_default()
}

/// Returns a value as in the file, without quotes; SPECs of queues in our form.
pub(crate) fn text_of(key: &str, value: &Toml) -> String {
    match value {
        Toml::String(spec) if key.ends_with("_queue") => our_form(spec),
        Toml::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Listed {
    fn new(
        key: &'static str,
        written: Option<&Toml>,
        default: Option<Json>,
        implied: Option<&'static str>,
    ) -> Self {
        let default = || match (implied, default.filter(|it| !it.is_null())?) {
            (Some(_), _) => None,
            (None, Json::String(text)) => Some(text),
            (None, other) => Some(other.to_string()),
        };
        let implied_value = implied.filter(|text| is_value(text)).map(str::to_owned);
        let value = written.map(|value| text_of(key, value)).or(implied_value).or_else(default);
        Self { key, default: implied.filter(|_| value.is_none()), value }
    }
}

/// Whether the default of a key that may be absent is a value, not words.
fn is_value(implied: &str) -> bool {
    !implied.contains(' ')
}

/// Reads a table that has only declared keys. A misspelt key is read as the closest one, so that
/// this one is not reported as missing.
pub(crate) fn read_table<S: Section>(table: &Table, faults: &mut Faults) -> Option<S> {
    let mut own = Faults::default();
    let mut reader = Reader::new(table, &mut own);
    let section = S::take(&mut reader);
    let unknown = reader.unknown();
    reader.report_missing();
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

/// Returns the JSON schema of a table with these keys and no others.
pub(crate) fn schema<S: Section>() -> Json {
    let (table, mut faults) = (Table::new(), Faults::default());
    let mut reader = Reader::new(&table, &mut faults);
    reader.described = Some(Map::new());
    S::take(&mut reader);
    let mut schema = json!({
        "type": "object",
        "properties": reader.described.unwrap_or_default(),
        "additionalProperties": false,
    });
    if !reader.missing.is_empty() {
        schema["required"] = json!(reader.missing);
    }
    schema
}

/// The lines of a key's documentation.
type Help<'h> = &'h [&'h str];

impl<'a> Reader<'a> {
    fn new(table: &'a Table, faults: &'a mut Faults) -> Self {
        Self {
            table,
            faults,
            known: Vec::new(),
            implied: None,
            missing: Vec::new(),
            described: None,
            listed: None,
        }
    }

    /// Declares the default of the next key, which may be absent.
    pub(crate) fn implied(&mut self, default: &'static str) {
        self.implied = Some(default);
    }

    /// Reads a key. `None` if its value is wrong, or if it is absent and has no default.
    pub(crate) fn key<T: Value>(
        &mut self,
        name: &'static str,
        help: Help<'_>,
        default: Option<T>,
    ) -> Option<T> {
        let implied = self.implied.take();
        self.describe(name, help, default.as_ref(), implied);
        if let Some(listed) = &mut self.listed {
            let default = default.as_ref().map(T::json);
            listed.push(Listed::new(name, self.table.get(name), default, implied));
        }
        self.known.push(name);
        let Some(value) = self.table.get(name) else {
            let value = default.or_else(T::absent);
            if value.is_none() {
                self.missing.push(name);
            }
            return value;
        };
        self.faults.under(name, |faults| value::read(value, name, faults))
    }

    pub(crate) fn key_in<R: PartialOrd + Display, T: Value + Ranged<R>>(
        &mut self,
        name: &'static str,
        help: Help<'_>,
        default: Option<T>,
        range: RangeInclusive<R>,
    ) -> Option<T> {
        let (low, high) = (range.start(), range.end());
        let value = self.key(name, help, default);
        self.describe_range(name, low, high);
        let value = value?;
        match value.number().filter(|number| !range.contains(number)) {
            None => Some(value),
            Some(number) => {
                let problem = format!("{number} is out of range; expected {low} to {high}");
                self.faults.add(Fault::new(name, problem));
                T::wrong()
            }
        }
    }

    fn describe<T: Value>(
        &mut self,
        name: &str,
        help: Help<'_>,
        default: Option<&T>,
        implied: Option<&str>,
    ) {
        let Some(described) = &mut self.described else { return };
        let mut schema = T::schema();
        let form = schema["description"].as_str().unwrap_or_default().to_owned();
        let help = help.concat().trim().trim_end_matches('.').to_owned();
        let texts = [help, form].into_iter().filter(|text| !text.is_empty());
        let mut description = texts.collect::<Vec<_>>().join(": ");
        if let Some(words) = implied.filter(|text| !is_value(text)) {
            description = format!("{description}; default: {words}");
        }
        if !description.is_empty() {
            schema["description"] = description.into();
        }
        let implied = implied.map(|text| {
            is_value(text).then(|| text.parse::<u64>().map_or(text.into(), Json::from))
        });
        let default = implied.unwrap_or_else(|| default.map(T::json).filter(|it| !it.is_null()));
        if let Some(default) = default {
            schema["default"] = default;
        }
        described.insert(name.to_owned(), schema);
    }

    fn describe_range(&mut self, name: &str, low: &impl Display, high: &impl Display) {
        let Some(schema) = self.described.as_mut().and_then(|keys| keys.get_mut(name)) else {
            return;
        };
        let bounds = [low.to_string(), high.to_string()].map(|text| text.parse::<u64>().ok());
        if let [Some(low), Some(high)] = bounds {
            (schema["minimum"], schema["maximum"]) = (low.into(), high.into());
        } else {
            let words = schema["description"].as_str().unwrap_or_default();
            schema["description"] = format!("{words}; {low} to {high}").into();
        }
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

    fn report_missing(self) {
        for key in self.missing {
            self.faults.add(Fault::new(key, "is missing"));
        }
    }
}

pub(crate) trait Ranged<R> {
    fn number(&self) -> Option<&R>;
}

impl<T> Ranged<T> for T {
    fn number(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T> Ranged<T> for Maybe<T> {
    fn number(&self) -> Option<&T> {
        self.0.as_ref()?.as_ref()
    }
}

impl<T> Ranged<T> for Option<T> {
    fn number(&self) -> Option<&T> {
        self.as_ref()
    }
}

/// Two sections in one table.
impl<A: Section, B: Section> Section for (A, B) {
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let (one, other) = (A::take(reader), B::take(reader));
        Some((one?, other?))
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

/// A table that is read later, by what is declared as `S`.
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

#[cfg(test)]
pub(crate) fn from_text<S: Section>(text: &str) -> Result<S, Fault> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| Fault::new("", error.message()))?;
    let mut faults = Faults::default();
    let section = read_table(&table, &mut faults);
    faults.result(section)
}

/// Declares a table's keys; see the module.
macro_rules! keys {
    ($(#[$($meta:tt)*])* $vis:vis struct $name:ident {
        $($(#[$($about:tt)*])* $own:vis $field:ident: $type:ty
            $(as $key:literal)? $([$flat:ident])?
            $(where default = $implied:tt)? $(= $default:expr)? $(=> $range:expr)?,)*
    }) => {
        $(#[$($meta)*])*
        $vis struct $name { $($(#[$($about)*])* $own $field: $type,)* }

        impl $crate::keys::Section for $name {
            fn take(_reader: &mut $crate::keys::Reader<'_>) -> Option<Self> {
                $($(_reader.implied($implied);)?
                let $field: Option<$type> = $crate::keys::keys!(
                    @take _reader, $crate::keys::keys!(@name $field $($key)?),
                    &[$($crate::keys::keys!(@line $($about)*)),*],
                    [$($flat)?] [$($default)?] [$($range)?]
                );)*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@take $reader:ident, $name:expr, $help:expr, [flat] [] []) => {
        $crate::keys::Section::take($reader)
    };
    (@take $reader:ident, $name:expr, $help:expr, [] [] []) => {
        $reader.key($name, $help, None)
    };
    (@take $reader:ident, $name:expr, $help:expr, [] [$default:expr] []) => {
        $reader.key($name, $help, Some($default))
    };
    (@take $reader:ident, $name:expr, $help:expr, [] [] [$range:expr]) => {
        $reader.key_in($name, $help, None, $range)
    };
    (@take $reader:ident, $name:expr, $help:expr, [] [$default:expr] [$range:expr]) => {
        $reader.key_in($name, $help, Some($default), $range)
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@line doc = $line:literal) => { $line };
    (@line $($other:tt)*) => { "" };
}

pub(crate) use keys;

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
    fn keys_have_defaults_and_other_names_and_those_of_a_flat_section_are_beside_them() {
        let outer: Outer =
            from_text("inner = [{ on = true, axis = \"x\" }]\nwait = \"7ms\"").expect("right");
        let inner = vec![Inner { on: true, axis: PlotAxis::X }];
        let more = More { title: "none".to_owned() };
        let wait_ns = Span::from_millis(7);
        assert_eq!(outer, Outer { count: None, wait_ns, inner, free: BTreeMap::new(), more });
    }

    #[test]
    fn a_fault_has_the_name_that_the_file_has() {
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
