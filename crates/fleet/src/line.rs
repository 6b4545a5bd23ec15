//! Access lines as the operator records them: name, identifier and attributes over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::{Attributes, DeviceId, is_within};

/// Maximum number of characters of an external identifier and of a name.
const TEXT_MAX: usize = 64;
/// Maximum number of recorded values of a line's attributes.
pub const CHANGES_MAX: usize = 64;

/// An access line as the operator recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The operator's identifier of the line, such as an account or a MAC address; unique.
    pub external_id: String,
    /// A name for people.
    pub name: String,
    /// The device that measures the line.
    pub device: Option<DeviceId>,
    /// Recorded values of attributes, earliest first.
    pub changes: Vec<AttributeChange>,
}

/// The value of an attribute from an instant until the next value of this attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttributeChange {
    /// Milliseconds since 1970; 0 for a value that was always valid.
    pub from_ms: u64,
    /// One of [`Attributes::RECORDED`].
    pub attribute: String,
    /// Empty if the value is unknown.
    pub value: String,
}

/// What to record of a line. Missing fields and attributes do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct LineUpdate {
    /// The operator's identifier of the line: 1 to 64 characters.
    pub external_id: String,
    pub name: Option<String>,
    /// The device that measures the line from now on.
    pub device: Option<DeviceId>,
    /// Whether the line is in no plan and not counted.
    pub is_retired: Option<bool>,
    /// Values of model, firmware, segment, region, configured, tier_up_bit_per_s and
    /// tier_down_bit_per_s, as text.
    pub attributes: BTreeMap<String, String>,
}

/// Why a line cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{column}: expected {expected}")]
pub struct LineError {
    pub column: String,
    pub expected: &'static str,
}

pub(crate) fn error<T>(column: &str, expected: &'static str) -> Result<T, LineError> {
    Err(LineError { column: column.to_owned(), expected })
}

impl LineUpdate {
    /// Sets the field or the attribute of a column: `external_id`, `name`, `device`, or one of
    /// [`Attributes::RECORDED`].
    pub fn set(&mut self, column: &str, value: &str) -> Result<(), LineError> {
        // The log quotes identifiers in backticks.
        let is_plain = is_within(value, TEXT_MAX) && !value.contains(|c: char| c.is_control());
        let text = || value.to_owned();
        match column {
            "external_id" if !is_plain || value.is_empty() || value.contains('`') => {
                return error(column, "1 to 64 characters without control characters and `");
            }
            "external_id" => self.external_id = text(),
            "name" if !is_plain => {
                return error(column, "64 characters without control characters");
            }
            "name" => self.name = Some(text()),
            "device" => match value.parse() {
                Ok(device) => self.device = Some(device),
                Err(_) => return error(column, "32 hexadecimal digits"),
            },
            _ => {
                Attributes::default().set(column, value)?;
                self.attributes.insert(column.to_owned(), text());
            }
        }
        Ok(())
    }

    /// Checks the identifier and all values.
    pub fn check(&self) -> Result<(), LineError> {
        let mut checked = Self::default();
        checked.set("external_id", &self.external_id)?;
        self.name.iter().try_for_each(|name| checked.set("name", name))?;
        self.attributes().map(drop)
    }

    /// Returns the attributes of a line of which nothing else is recorded.
    pub fn attributes(&self) -> Result<Attributes, LineError> {
        let mut attributes = Attributes::default();
        self.attributes.iter().try_for_each(|(name, value)| attributes.set(name, value))?;
        Ok(attributes)
    }
}

impl Line {
    /// Records an update that was [checked](LineUpdate::check). Values are valid from `from_ms`; if
    /// that is `None`, the first value of an attribute was always valid, and others are valid from
    /// `now_ms`. A value that is equal to the recorded one changes nothing.
    ///
    /// # Errors
    /// Returns an error if more than [`CHANGES_MAX`] values would be recorded.
    pub fn update(
        &mut self,
        update: &LineUpdate,
        from_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), LineError> {
        if let Some(name) = &update.name {
            name.clone_into(&mut self.name);
        }
        for (attribute, value) in &update.attributes {
            let is_known = self.changes.iter().any(|it| it.attribute == *attribute);
            let from_ms = from_ms.unwrap_or(if is_known { now_ms } else { 0 });
            if self.value_at(attribute, from_ms) == *value {
                continue;
            }
            self.changes.retain(|it| it.attribute != *attribute || it.from_ms != from_ms);
            let (attribute, value) = (attribute.clone(), value.clone());
            self.changes.push(AttributeChange { from_ms, attribute, value });
            self.changes.sort();
        }
        match self.changes.len() {
            0..=CHANGES_MAX => Ok(()),
            _ => error("attributes", "at most 64 recorded values of a line"),
        }
    }

    /// Records the known ones of `attributes` as always valid, unless others are recorded.
    pub(crate) fn fill(&mut self, attributes: &Attributes) {
        for name in Attributes::RECORDED {
            let value = attributes.recorded(name);
            if !value.is_empty() && value != "0" && !self.has_recorded(name) {
                self.changes.push(AttributeChange {
                    from_ms: 0,
                    attribute: name.to_owned(),
                    value,
                });
            }
        }
        self.changes.sort();
    }

    /// Returns the recorded value of an attribute at an instant; empty if none is valid.
    fn value_at(&self, attribute: &str, at_ms: u64) -> &str {
        let mut valid = self.changes.iter().rev().filter(|it| it.from_ms <= at_ms);
        valid.find(|it| it.attribute == attribute).map_or("", |it| &it.value)
    }

    /// Whether the operator ever recorded a value of an attribute.
    pub(crate) fn has_recorded(&self, attribute: &str) -> bool {
        self.changes.iter().any(|it| it.attribute == attribute)
    }

    /// Returns the attributes of the line at an instant. An attribute that the operator ever
    /// recorded is the operator's at all times; others are those of `device`.
    pub fn attributes_at(&self, at_ms: u64, device: &Attributes) -> Attributes {
        let mut attributes = device.clone();
        for AttributeChange { attribute, .. } in &self.changes {
            // A recorded value was checked.
            let _ = attributes.set(attribute, self.value_at(attribute, at_ms));
        }
        attributes
    }

    /// Returns when the value of an attribute changed, milliseconds since 1970. The value that was
    /// always valid is no change.
    pub fn changes_of(&self, attribute: &str) -> Vec<u64> {
        let own = self.changes.iter().filter(|it| it.attribute == attribute);
        let mut before = "";
        let changed = own.filter(|it| std::mem::replace(&mut before, &it.value) != it.value);
        changed.map(|it| it.from_ms).filter(|from_ms| *from_ms > 0).collect()
    }
}
