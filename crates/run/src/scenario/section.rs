//! A TOML table into typed keys, with the exact key in every error.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::error::{Fault, did_you_mean};

/// Reads a table that knows its keys.
pub(crate) fn read_section<T: DeserializeOwned>(table: Table) -> Result<T, Fault> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.inner().message().trim().replace('\n', ", ");
        let key = if path == "." { String::new() } else { path };
        name_the_key(key, problem)
    })
}

/// serde reports an unknown or missing key at the table around it; the key itself is the place.
fn name_the_key(table: String, problem: String) -> Fault {
    let named = ["unknown field `", "missing field `"]
        .into_iter()
        .find_map(|start| problem.strip_prefix(start)?.split_once('`'));
    let Some((name, rest)) = named else {
        return Fault::new(table, problem);
    };
    let rest = rest.trim_start_matches([',', ' ']);
    let text = if problem.starts_with("unknown") {
        // Every second part lies between backticks.
        let known = rest.split('`').skip(1).step_by(2);
        format!("unknown key; {rest}{}", did_you_mean(name, known))
    } else {
        "is missing".to_owned()
    };
    // The path may already end in the unknown key.
    let table = table.strip_suffix(name).map_or(table.as_str(), |rest| rest.trim_end_matches('.'));
    Fault::new(name, text).under(table)
}
