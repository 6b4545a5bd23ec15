//! The format of scenario files as a JSON schema, for editors: made of the types that read them.

use serde_json::{Map, Value, json};

use super::trace::closed;
use super::{cohort, flow, headline, path, phases, plots, published, variants};

/// The schema of scenario files. It knows every key; which of them need or exclude each other only
/// the reader knows.
pub fn json_schema() -> Value {
    let text = || json!({ "type": "string" });
    let whole = |least: u64| json!({ "type": "integer", "minimum": least });
    let table = |value: Value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let (path, phases) = (path::schema(), closed(phases::keys()));
    // What an arm, a point of a sweep or the short form overrides.
    let overrides = json!({
        "path": path,
        "phases": phases,
        "flow": { "type": "object", "additionalProperties": { "type": "object" } },
    });
    let with = |more: Value| {
        let mut properties = table(more);
        properties.extend(table(overrides.clone()));
        closed(properties)
    };
    let variant = || {
        let mut variant = with(json!({ "name": text() }));
        variant["required"] = json!(["name"]);
        variant
    };
    let list = |items: Value| json!({ "type": "array", "items": items });
    let mut sweep = variants::keys();
    sweep.insert("point".to_owned(), list(variant()));
    let properties = json!({
        "title": text(),
        "description": text(),
        "figure": text(),
        "seed": whole(0),
        "repeats": whole(1),
        "path": path,
        "phases": phases,
        "flow": list(json!({ "anyOf": flow::schemas() })),
        "cohort": cohort::schema(),
        "arm": list(variant()),
        "sweep": list(closed(sweep)),
        "headline": closed(headline::keys()),
        "plot": list(closed(plots::keys())),
        "published": list(closed(published::keys())),
        "short": with(json!({ "repeats": whole(1), "arms": list(text()) })),
    });
    let mut schema = closed(table(properties));
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("underload scenario");
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{KNOWN, builtin};

    /// Whether a value fits, as far as our schemas go.
    fn fits(schema: &Value, value: &Value) -> Result<(), String> {
        if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            let kind = |choice: &Value| choice["properties"]["kind"]["const"].clone();
            let chosen = choices.iter().find(|choice| kind(choice) == value["kind"]);
            return fits(chosen.ok_or_else(|| format!("no kind of {value}"))?, value);
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return words
                .contains(value)
                .then_some(())
                .ok_or_else(|| format!("{value}: {words:?}"));
        }
        let is_fit = match schema.get("type").and_then(Value::as_str) {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            _ => true,
        };
        // A cohort's values stand in place of others: `count = "{flows}"`.
        let is_drawn = value.as_str().is_some_and(|text| text.contains('{'));
        if !is_fit && !is_drawn {
            return Err(format!("{value} is not of {}", schema["type"]));
        }
        for item in value.as_array().into_iter().flatten() {
            fits(schema.get("items").unwrap_or(&Value::Null), item)?;
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let own = schema.get("properties").and_then(|known| known.get(key));
            match (own, schema.get("additionalProperties")) {
                (Some(own), _) => fits(own, value).map_err(|error| format!("{key}: {error}"))?,
                (None, Some(Value::Bool(false))) => return Err(format!("{key} is unknown")),
                (None, _) => {}
            }
        }
        Ok(())
    }

    #[test]
    fn every_key_of_the_reader_is_in_the_schema() {
        let schema = json_schema();
        let properties = schema["properties"].as_object().expect("a table");
        let mut known: Vec<&str> = KNOWN.to_vec();
        known.sort_unstable();
        let mut told: Vec<&str> = properties.keys().map(String::as_str).collect();
        told.sort_unstable();
        assert_eq!(told, known);
    }

    #[test]
    fn every_built_in_scenario_fits_and_a_misspelt_key_does_not() {
        let schema = json_schema();
        for builtin in builtin::scenarios() {
            let table: toml::Table = builtin.text.parse().expect("TOML");
            let value = serde_json::to_value(&table).expect("JSON has words for it");
            assert_eq!(fits(&schema, &value), Ok(()), "{}", builtin.name);
        }
        let wrong = json!({ "phases": { "laod": "7s" } });
        assert_eq!(fits(&schema, &wrong), Err("phases: laod is unknown".to_owned()));
        let wrong = json!({ "flow": [{ "kind": "tcp", "count": "many" }] });
        assert!(fits(&schema, &wrong).is_err());
    }
}
