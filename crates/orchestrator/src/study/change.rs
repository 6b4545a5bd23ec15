//! The same lines before and after a change that the operator recorded.
//!
//! A line that changed is split at its own change. Each other line is split at the change of one of
//! these, drawn by its pseudonym, so that both kinds are compared over the same days.

use std::collections::HashMap;

use underload_fleet::device::DeviceId;
use underload_fleet::store::{Archive, StoredResult};
use underload_record::schema::ChangeStudy;

use super::StudyError;

/// The change before and after which lines are compared.
#[derive(Debug, Clone)]
pub struct ChangeQuestion {
    /// One of [`underload_fleet::device::Attributes::RECORDED`].
    pub attribute: String,
    /// The end of the time before and the start of the time after, milliseconds since 1970; `None`
    /// for each line's own change.
    pub between_ms: Option<(u64, u64)>,
}

pub(super) struct Changes {
    question: ChangeQuestion,
    /// When lines changed; `None` for those that are excluded.
    devices: HashMap<DeviceId, Option<u64>>,
    /// When lines changed, in ascending order.
    changed_ms: Vec<u64>,
    excluded: u64,
}

/// The cohorts of a study of a change: each pair before and after.
pub(super) const SIDES: [&str; 4] =
    ["changed, before", "changed, after", "unchanged, before", "unchanged, after"];

/// Lines that are read at once.
const PAGE: usize = 10_000;

impl Changes {
    /// Reads the changes of all lines.
    pub(super) fn read(
        archive: &mut dyn Archive,
        question: &ChangeQuestion,
    ) -> Result<Self, StudyError> {
        let (question, devices, changed_ms) = (question.clone(), HashMap::new(), Vec::new());
        let mut found = Self { question, devices, changed_ms, excluded: 0 };
        let mut after = String::new();
        loop {
            let lines = archive.lines_after(&after, PAGE)?;
            let Some(last) = lines.last() else { break };
            last.external_id.clone_into(&mut after);
            for line in &lines {
                let changes = line.changes_of(&found.question.attribute);
                if let (Some(device), false) = (line.device, changes.is_empty()) {
                    found.add(device, &changes);
                }
            }
        }
        found.changed_ms.sort_unstable();
        if found.changed_ms.is_empty() {
            let when = if found.question.between_ms.is_some() { " between these days" } else { "" };
            let attribute = found.question.attribute.clone();
            return Err(StudyError::NoChange { attribute, when, excluded: found.excluded });
        }
        Ok(found)
    }

    fn add(&mut self, device: DeviceId, changes: &[u64]) {
        let is_within = |at_ms: u64| {
            let within = self.question.between_ms;
            within.is_none_or(|(before_ms, after_ms)| (before_ms..=after_ms).contains(&at_ms))
        };
        let only = changes.first().copied().filter(|at_ms| changes.len() == 1 && is_within(*at_ms));
        self.changed_ms.extend(only);
        self.excluded += u64::from(only.is_none());
        self.devices.insert(device, only);
    }

    /// Returns which of [`SIDES`] a result belongs to; `None` if it is excluded.
    pub(super) fn side(&self, kept: &StoredResult) -> Option<String> {
        let (side, changed_ms) = match self.devices.get(&kept.device) {
            Some(changed_ms) => (0, (*changed_ms)?),
            None => (2, self.drawn(u64::from_le_bytes(*kept.pseudonym.0.last_chunk()?))),
        };
        let (before_ms, after_ms) = self.question.between_ms.unwrap_or((changed_ms, changed_ms));
        let is_after = match kept.result.at_ms {
            at_ms if at_ms < before_ms => 0,
            at_ms if at_ms >= after_ms => 1,
            _ => return None,
        };
        Some(SIDES[side + is_after].to_owned())
    }

    fn drawn(&self, lot: u64) -> u64 {
        let place = (u128::from(lot) * self.changed_ms.len() as u128) >> 64;
        self.changed_ms[place as usize]
    }

    pub(super) fn study(self) -> ChangeStudy {
        let (attribute, excluded) = (self.question.attribute, self.excluded);
        ChangeStudy { attribute, excluded, series: Vec::new() }
    }
}
