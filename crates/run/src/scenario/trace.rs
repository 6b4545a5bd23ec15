//! Which keys a table knows and of what form their values are, asked of the very code that reads
//! it: what a type asks its deserializer for is noted, and no value is ever given.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess,
    SeqAccess, Visitor,
};
use serde_json::{Map, Value, json};

/// The keys of `T` with the form of their values, as the properties of a JSON schema.
pub(crate) fn keys<T: DeserializeOwned>() -> Map<String, Value> {
    match form::<T>(&[]) {
        Form::Table(fields) => {
            let property = |field: &&'static str| ((*field).to_owned(), schema::<T>(&[field]));
            fields.iter().map(property).collect()
        }
        _ => Map::new(),
    }
}

/// The schema of what stands at a path of keys.
fn schema<T: DeserializeOwned>(path: &[&'static str]) -> Value {
    described::<T>(path, form::<T>(path))
}

fn described<T: DeserializeOwned>(path: &[&'static str], form: Form) -> Value {
    match form {
        Form::Table(fields) => {
            let property = |field: &&'static str| {
                ((*field).to_owned(), schema::<T>(&[path, &[field]].concat()))
            };
            let properties: Map<String, Value> = fields.iter().map(property).collect();
            closed(properties)
        }
        Form::Free => json!({ "type": "object" }),
        Form::List(item) => json!({ "type": "array", "items": described::<T>(path, *item) }),
        Form::Word(words) => json!({ "enum": words }),
        Form::Plain(kind) => json!({ "type": kind }),
        Form::Text(expected) => json!({ "type": "string", "description": expected }),
        Form::Any(expected) => json!({ "description": expected }),
    }
}

/// A table of these keys and no others.
pub(crate) fn closed(properties: Map<String, Value>) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(schema)
}

/// What a type asks for.
#[derive(Debug, Clone)]
enum Form {
    Table(&'static [&'static str]),
    /// A table of any keys.
    Free,
    List(Box<Form>),
    Word(&'static [&'static str]),
    Plain(&'static str),
    /// A text, and which.
    Text(String),
    /// Several forms, in words.
    Any(String),
}

/// The form of what stands at a path of keys in `T`.
fn form<T: DeserializeOwned>(path: &[&'static str]) -> Form {
    match T::deserialize(Asked { path }) {
        Err(Answer(Some(form))) => form,
        _ => Form::Any(String::new()),
    }
}

/// The error that ends each question, with its answer.
#[derive(Debug)]
struct Answer(Option<Form>);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only asked")
    }
}

impl std::error::Error for Answer {}

impl de::Error for Answer {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(None)
    }
}

/// Follows the path through tables and lists, and answers at its end.
#[derive(Clone, Copy)]
struct Asked<'p> {
    path: &'p [&'static str],
}

impl Asked<'_> {
    fn answer<T>(form: Form) -> Result<T, Answer> {
        Err(Answer(Some(form)))
    }
}

macro_rules! plain {
    ($($method:ident: $kind:expr,)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
            Self::answer(Form::Plain($kind))
        }
    )*};
}

macro_rules! text {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Answer> {
            Self::answer(Form::Text((&visitor as &dyn Expected).to_string()))
        }
    )*};
}

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Answer;

    plain! {
        deserialize_bool: "boolean",
        deserialize_i8: "integer",
        deserialize_i16: "integer",
        deserialize_i32: "integer",
        deserialize_i64: "integer",
        deserialize_u8: "integer",
        deserialize_u16: "integer",
        deserialize_u32: "integer",
        deserialize_u64: "integer",
        deserialize_f32: "number",
        deserialize_f64: "number",
    }

    text! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Answer> {
        Self::answer(Form::Any((&visitor as &dyn Expected).to_string()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Answer> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Answer> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Answer> {
        let item = visitor.visit_seq(Next { asked: self, key: None });
        item.map_err(|Answer(form)| {
            // The end of the path lies in the items: their answer is the list's.
            if self.path.is_empty() {
                Answer(form.map(|it| Form::List(Box::new(it))))
            } else {
                Answer(form)
            }
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Answer> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Answer> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Self::answer(Form::Free)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Answer> {
        match self.path.split_first() {
            None => Self::answer(Form::Table(fields)),
            Some((key, path)) => visitor.visit_map(Next { asked: Asked { path }, key: Some(key) }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Self::answer(Form::Word(variants))
    }

    serde::forward_to_deserialize_any! {
        i128 u128 bytes byte_buf unit unit_struct ignored_any
    }
}

/// The one key or item on the path.
struct Next<'p> {
    asked: Asked<'p>,
    key: Option<&'static str>,
}

impl<'de> MapAccess<'de> for Next<'_> {
    type Error = Answer;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Answer> {
        let key = self.key.ok_or_else(|| Answer::custom("asked twice"))?;
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Answer> {
        seed.deserialize(self.asked)
    }
}

impl<'de> SeqAccess<'de> for Next<'_> {
    type Error = Answer;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Answer> {
        seed.deserialize(self.asked).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its form is looked at")]
    struct Outer {
        count: Option<u32>,
        inner: Vec<Inner>,
        pairs: Option<Vec<(String, String)>>,
        free: BTreeMap<String, f64>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its form is looked at")]
    struct Inner {
        on: bool,
        way: Way,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Way {
        UpHill,
        Down,
    }

    #[test]
    fn a_type_tells_its_keys_and_their_forms() {
        let inner = json!({ "on": { "type": "boolean" }, "way": { "enum": ["up-hill", "down"] } });
        let Value::Object(inner) = inner else { panic!("a table") };
        let text = json!({ "type": "string", "description": "a string" });
        let expected = json!({
            "count": { "type": "integer" },
            "inner": { "type": "array", "items": closed(inner) },
            "pairs": { "type": "array", "items": { "type": "array", "items": text } },
            "free": { "type": "object" },
        });
        assert_eq!(Value::Object(keys::<Outer>()), expected);
    }
}
