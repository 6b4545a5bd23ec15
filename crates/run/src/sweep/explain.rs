//! Every setting of a sweep in force, and where it comes from.

use toml::Table;

use super::{Sweep, SweepFile};
use crate::keys::listed;
use crate::scenario::document::Document;
use crate::scenario::explain::origin;
use crate::scenario::{Setting, SettingValue};

impl Sweep {
    /// Returns every setting of the file but its pictures, each axis, and the settings of the
    /// scenario, of which those that an axis varies have its values.
    pub fn settings(&self) -> Vec<Setting> {
        let document = Document::parse(&self.text, &self.name);
        let document = document.unwrap_or_else(|_| Document::new(&self.name, Table::new()));
        let setting = |key: String, value: Option<String>, origin: String| {
            let values = vec![SettingValue { value, origin, variants: Vec::new() }];
            Setting { key, values }
        };
        let mut own = listed::<SweepFile>(&document.root);
        own.retain(|it| !matches!(it.key, "title" | "axis" | "plot"));
        let own = own.into_iter().map(|it| {
            let source = document.source_of(it.key, None);
            setting(format!("sweep.{}", it.key), it.value, origin(source, it.default))
        });
        let axes = self.axes.iter().enumerate().map(|(index, axis)| {
            let source = document.source_of(&format!("axis[{index}]"), None);
            let origin = origin(source, None);
            setting(format!("sweep.axis.{}", axis.name), Some(axis.words()), origin)
        });
        let varied = self.scenario.settings().into_iter().map(|own| match self.axis_of(&own.key) {
            None => own,
            Some(index) => {
                let axis = &self.axes[index];
                setting(own.key, Some(axis.words()), format!("axis {}", axis.name))
            }
        });
        own.chain(axes).chain(varied).collect()
    }
}
