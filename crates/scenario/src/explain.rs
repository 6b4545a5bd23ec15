//! Every setting in force, and where it comes from.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::{Table, Value};

use super::Scenario;
use super::path::{hop_settings, path_settings};
use super::phases::Phases;
use super::tables::Base;
use super::{cohort, flow};
use crate::keys::{Listed, join, listed};

/// A key of a scenario, with its value in each variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The key, as overrides name it: `path.up`, `flow.call.dscp`.
    pub key: String,
    /// An entry for each distinct value.
    pub values: Vec<SettingValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingValue {
    /// The value with its unit, as in the file; `None` if the key is absent and has no default
    /// value.
    pub value: Option<String>,
    /// `line 7`, `--set`, or `default` and what the default is.
    pub origin: String,
    /// The variants with this value; empty if all have it.
    pub variants: Vec<String>,
}

impl Scenario {
    /// Returns every setting of its path, phases, flows and cohort, in the order in which the
    /// format declares them. Needs a scenario that was read with [`super::Options::keeps_tables`].
    pub fn settings(&self) -> Vec<Setting> {
        let mut order: Vec<String> = Vec::new();
        let mut values: BTreeMap<String, Vec<SettingValue>> = BTreeMap::new();
        let mut add = |key: String, value: Option<String>, origin: String, variant: &str| {
            let known = values.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                Vec::new()
            });
            let same = known.iter_mut().find(|it| it.value == value && it.origin == origin);
            match same {
                Some(same) => same.variants.push(variant.to_owned()),
                None => known.push(SettingValue { value, origin, variants: vec![variant.into()] }),
            }
        };
        add("seed".to_owned(), Some(self.seed.to_string()), self.origin_of_root("seed"), "");
        let repeats = Some(self.repeats.to_string());
        add("repeats".to_owned(), repeats, self.origin_of_root("repeats"), "");
        for variant in &self.variants {
            let Some(tables) = self.templates.get(&variant.name) else { continue };
            for (key, listed) in settings_of(tables) {
                let source = self.document.source_of(&key, tables.origin(&key));
                add(key, listed.value, origin(source, listed.default), &variant.name);
            }
        }
        let cohort = self.document.root.get("cohort").and_then(Value::as_table);
        for (key, name, listed) in cohort.map(cohort::settings).into_iter().flatten() {
            let source = self.document.source_of(&key, None);
            add(name, listed.value, origin(source, listed.default), "");
        }
        let variants = self.variants.len();
        let setting = |key: String| {
            let mut values = values.remove(&key).unwrap_or_default();
            for value in &mut values {
                if value.variants.len() == variants || value.variants.iter().all(String::is_empty) {
                    value.variants.clear();
                }
            }
            Setting { key, values }
        };
        order.into_iter().map(setting).collect()
    }

    /// Returns where a key at the top of the file comes from.
    fn origin_of_root(&self, key: &str) -> String {
        origin(self.document.source_of(key, None), None)
    }
}

/// Returns the origin of a value: its source, or the default, in words if these are given.
pub fn origin(source: Option<String>, default: Option<&str>) -> String {
    source.unwrap_or_else(|| match default {
        None => "default".to_owned(),
        Some(default) => format!("default: {default}"),
    })
}

/// Returns the keys of the tables of a trial, as an override names them.
fn settings_of(tables: &Base) -> Vec<(String, Listed)> {
    let under = |section: &str, listed: Vec<Listed>| -> Vec<(String, Listed)> {
        listed.into_iter().map(|it| (join(section, it.key), it)).collect()
    };
    let mut all = under("path", path_settings(&tables.path, !tables.hops.is_empty()));
    for (name, hop) in &tables.hops {
        all.extend(under(&format!("path.hop.{name}"), hop_settings(hop)));
    }
    all.extend(under("phases", listed::<Phases>(&tables.phases)));
    for (name, table) in &tables.flows {
        all.extend(under(&format!("flow.{name}"), flow_settings(table)));
    }
    all
}

fn flow_settings(table: &Table) -> Vec<Listed> {
    let mut settings = flow::settings(table);
    settings.retain(|setting| setting.key != "name");
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, builtin};

    fn settings(text: &str, set: &[&str]) -> Vec<Setting> {
        let set = set.iter().map(|set| (*set).to_owned()).collect();
        let options = Options { keeps_tables: true, set, ..Options::default() };
        let scenario = Scenario::read(text, "t", &options, &mut builtin::load_file);
        scenario.expect("a scenario").settings()
    }

    fn of<'a>(settings: &'a [Setting], key: &str) -> Vec<(Option<&'a str>, &'a str, Vec<&'a str>)> {
        let setting = settings.iter().find(|it| it.key == key).expect(key);
        let words = |it: &'a SettingValue| {
            let variants = it.variants.iter().map(String::as_str).collect();
            (it.value.as_deref(), it.origin.as_str(), variants)
        };
        setting.values.iter().map(words).collect()
    }

    const TEXT: &str = "\
[path]
up = \"20mbit\"
rtt = \"30ms\"
[[flow]]
kind = \"tcp\"
count = 2
[[variant]]
name = \"today\"
[[variant]]
name = \"sqm\"
path.up_queue = \"fq_codel\"
";

    #[test]
    fn every_setting_has_its_value_and_its_origin() {
        let all = settings(TEXT, &["path.rtt=50ms"]);
        assert_eq!(of(&all, "path.up"), [(Some("20mbit"), "line 2", vec![])]);
        assert_eq!(of(&all, "path.rtt"), [(Some("50ms"), "--set", vec![])]);
        assert_eq!(of(&all, "phases.load"), [(Some("15s"), "default", vec![])]);
        assert_eq!(of(&all, "flow.tcp.count"), [(Some("2"), "line 6", vec![])]);
        assert_eq!(of(&all, "flow.tcp.congestion_control"), [(Some("cubic"), "default", vec![])]);
        assert_eq!(of(&all, "flow.probe.interval"), [(Some("10ms"), "default", vec![])]);
        let queues = of(&all, "path.up_queue");
        assert_eq!(queues[0], (Some("fifo"), "default", vec!["today"]));
        assert_eq!(queues[1], (Some("fq-codel"), "line 11", vec!["sqm"]));
        assert_eq!(of(&all, "seed"), [(Some("1"), "default", vec![])]);
        let window = of(&all, "flow.tcp.receive_window")[0].1;
        assert!(window.starts_with("default: 2.5 MB"), "{window}");
    }

    #[test]
    fn draws_of_a_cohort_are_settings() {
        let text = format!(
            "{TEXT}[cohort]\n[[cohort.draw]]\nname = \"rtt\"\n\
                            uniform = {{ low = \"10ms\", high = \"20ms\" }}\n"
        );
        let all = settings(&text.replace("\"30ms\"", "\"{rtt}\""), &[]);
        let uniform = "uniform { low = \"10ms\", high = \"20ms\" }";
        assert_eq!(of(&all, "cohort.draw.rtt"), [(Some(uniform), "line 13", vec![])]);
        assert_eq!(of(&all, "cohort.per"), [(Some("repeat"), "default", vec![])]);
    }

    #[test]
    fn a_direction_without_a_link_is_wide() {
        let all = settings(TEXT, &[]);
        assert_eq!(of(&all, "path.down"), [(Some("1gbit"), "default", vec![])]);
        assert_eq!(of(&all, "path.down_queue"), [(Some("fifo:limit=1000p"), "default", vec![])]);
    }

    /// The keys are in the order of their declarations, and no key of the format is missing.
    #[test]
    fn settings_are_in_the_order_of_the_format() {
        let all = settings(TEXT, &[]);
        let keys: Vec<&str> = all.iter().map(|setting| setting.key.as_str()).collect();
        let start = ["seed", "repeats", "path.up", "path.down", "path.up_queue", "path.down_queue"];
        assert_eq!(keys[..6], start);
        let place = |key: &str| keys.iter().position(|it| *it == key).expect(key);
        assert!(place("path.overhead") < place("phases.idle"));
        assert!(place("phases.drain") < place("flow.tcp.direction"));
        assert!(place("flow.tcp.stop") < place("flow.probe.interval"));
        for builtin in builtin::scenarios() {
            assert!(settings(builtin.text, &[]).len() > 10, "{}", builtin.name);
        }
    }
}
