//! Checks that the orchestrator behaves as its OpenAPI description says.

use std::collections::BTreeSet;

use serde_json::Value;
use underload_orchestrator::http::Limits;

use super::client::Fleet;

#[test]
fn every_described_path_exists_and_every_reference_resolves() {
    let fleet = Fleet::new(Limits::default());
    let answer = fleet.send(&super::client::request("GET", "/v1/openapi.json", &[], ""));
    let document: Value = answer.good();
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 14, "{:?}", paths.keys());
    for path in paths.keys() {
        let (status, code) = fleet.post(path, &[], "{").problem();
        assert!(status == 400 || status == 401, "{path}: {status} {code}");
    }
    let text = document.to_string();
    let named: BTreeSet<&str> = text
        .split("#/components/schemas/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let known = document["components"]["schemas"].as_object().expect("schemas");
    let missing: Vec<_> = named.iter().filter(|name| !known.contains_key(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(named.len() > 20, "the premise: {named:?}");
}

#[test]
fn each_field_that_is_described_has_a_type() {
    let fleet = Fleet::new(Limits::default());
    let answer = fleet.send(&super::client::request("GET", "/v1/openapi.json", &[], ""));
    let document: Value = answer.good();
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut fields = 0;
    for (name, schema) in schemas {
        for (field, said) in schema["properties"].as_object().into_iter().flatten() {
            // A limit for a field that does not exist would have no type beside it.
            let has_type = ["type", "$ref", "oneOf", "anyOf", "allOf"]
                .iter()
                .any(|kind| said.get(kind).is_some());
            assert!(has_type, "{name}.{field}: {said}");
            let is_whole = said["type"] == "integer";
            assert!(!is_whole || said.get("maximum").is_some(), "{name}.{field}: {said}");
            fields += 1;
        }
    }
    assert!(fields > 60, "the premise: {fields}");
    let results = &schemas["Results"]["properties"]["results"];
    assert_eq!(results["maxItems"], 256, "the limits are read: {results}");
}
