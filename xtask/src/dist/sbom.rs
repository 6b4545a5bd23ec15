//! Software bill of materials of the programs in CycloneDX format: each library with its version,
//! its licence and its checksum from `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Program, TARGETS, source, time};
use crate::process::output;

/// The used part of Cargo's metadata.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    id: String,
    license: Option<String>,
    source: Option<String>,
    repository: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    /// `None` for a normal dependency, which is linked into the program.
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Programs with a bill of materials, each with its package.
const PROGRAMS: [(Program, &str); 2] =
    [(Program::Whole, "underload"), (Program::Fleet, "underload-fleet-cli")];

/// Writes `NAME-VERSION.cdx.json` of each program, with its libraries on Linux.
pub fn write(folder: &Path, epoch: u64) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform"]);
    let metadata = output(command.arg(TARGETS[0].triple))?;
    let metadata = serde_json::from_str(&metadata).context("what cargo metadata says")?;
    let lock = toml::from_slice(&source("Cargo.lock")?).context("Cargo.lock")?;
    let mut paths = Vec::new();
    for (program, package) in PROGRAMS {
        let document = document(&metadata, package, &lock, &time(epoch)?)?;
        let name = format!("{}-{}.cdx.json", program.name(), env!("CARGO_PKG_VERSION"));
        let path = folder.join(name);
        fs::write(&path, serde_json::to_vec_pretty(&document)?)
            .with_context(|| path.display().to_string())?;
        paths.push(path);
    }
    Ok(paths)
}

fn document(metadata: &Metadata, package: &str, lock: &Lock, time: &str) -> anyhow::Result<Value> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|it| (it.id.as_str(), it)).collect();
    let root = metadata.packages.iter().find(|it| it.name == package).context("no such package")?;
    let parts = parts(&metadata.resolve, &root.id);
    let sums: BTreeMap<(&str, &str), &str> = lock.package.iter().filter_map(summed).collect();
    let part = |id: &&str| -> anyhow::Result<Value> {
        let package = packages.get(*id).with_context(|| (*id).to_owned())?;
        Ok(component(package, &sums))
    };
    let others = parts.keys().filter(|id| **id != root.id);
    let components = others.map(part).collect::<anyhow::Result<Vec<Value>>>()?;
    let mut dependencies = Vec::new();
    for (id, needs) in &parts {
        let reference = |id: &str| packages.get(id).map(|it| purl(it));
        let needs: BTreeSet<String> = needs.iter().filter_map(|id| reference(id)).collect();
        dependencies.push(json!({ "ref": reference(id), "dependsOn": needs }));
    }
    let mut program = component(root, &sums);
    program["type"] = "application".into();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": time, "component": program },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the packages in a program, each with its own dependencies.
fn parts<'a>(resolve: &'a Resolve, root: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let nodes: BTreeMap<&str, &Node> =
        resolve.nodes.iter().map(|it| (it.id.as_str(), it)).collect();
    let (mut parts, mut open) = (BTreeMap::new(), vec![root]);
    while let Some(id) = open.pop() {
        if parts.contains_key(id) {
            continue;
        }
        let node = nodes.get(id);
        let is_linked = |it: &&Dependency| it.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let needs = node.map(|node| node.deps.iter().filter(is_linked));
        let needs: Vec<&str> = needs.into_iter().flatten().map(|it| it.pkg.as_str()).collect();
        open.extend(&needs);
        parts.insert(id, needs);
    }
    parts
}

fn summed(locked: &Locked) -> Option<((&str, &str), &str)> {
    let sum = locked.checksum.as_deref()?;
    Some(((locked.name.as_str(), locked.version.as_str()), sum))
}

fn component(package: &Package, sums: &BTreeMap<(&str, &str), &str>) -> Value {
    let Package { name, version, .. } = package;
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": name,
        "version": version,
        "purl": purl(package),
    });
    if let Some(licence) = &package.license {
        // Older packages separate alternative licences by a slash.
        let expression = licence.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if package.source.is_some()
        && let Some(sum) = sums.get(&(name.as_str(), version.as_str()))
    {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let dependency =
            |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let package = |name: &str, source: Value| {
            json!({ "name": name, "version": "1.0.0+x", "id": name, "license": "MIT/Apache-2.0",
                "source": source, "repository": null })
        };
        serde_json::from_value(json!({
            "packages": [
                package("underload", Value::Null),
                package("linked", "registry".into()),
                package("below", "registry".into()),
                package("builder", "registry".into()),
                package("tester", "registry".into()),
            ],
            "resolve": { "nodes": [
                { "id": "underload", "deps": [
                    dependency("linked", Value::Null),
                    dependency("builder", "build".into()),
                    dependency("tester", "dev".into()),
                ] },
                { "id": "linked", "deps": [dependency("below", Value::Null)] },
                { "id": "below", "deps": [dependency("linked", "dev".into())] },
                { "id": "builder", "deps": [] },
                { "id": "tester", "deps": [] },
            ] },
        }))
        .expect("metadata")
    }

    #[test]
    fn what_only_builds_or_tests_is_no_part() {
        let locked = |name: &str, checksum: Option<String>| Locked {
            name: name.to_owned(),
            version: "1.0.0+x".to_owned(),
            checksum,
        };
        let lock =
            Lock { package: vec![locked("linked", Some("ab".repeat(32))), locked("below", None)] };
        let document =
            document(&metadata(), "underload", &lock, "2026-01-01T00:00:00Z").expect("a document");
        let names: Vec<&str> = document["components"]
            .as_array()
            .expect("parts")
            .iter()
            .map(|part| part["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(names, ["below", "linked"]);
        let linked = &document["components"][1];
        assert_eq!(linked["hashes"][0]["content"], "ab".repeat(32));
        assert_eq!(linked["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(linked["purl"], "pkg:cargo/linked@1.0.0%2Bx");
        assert_eq!(document["metadata"]["component"]["type"], "application");
        let needs = &document["dependencies"].as_array().expect("needs")[2];
        assert_eq!(needs["ref"], "pkg:cargo/underload@1.0.0%2Bx");
        assert_eq!(needs["dependsOn"], json!(["pkg:cargo/linked@1.0.0%2Bx"]));
    }
}
