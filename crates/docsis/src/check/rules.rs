//! The rules, by number.

use super::Severity::{self, Error, Note, Warning};

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its number, as `D301`.
    pub id: &'static str,
    /// How bad it is not to keep it.
    pub severity: Severity,
    /// What it demands, in one line.
    pub summary: &'static str,
}

const fn rule(id: &'static str, severity: Severity, summary: &'static str) -> Rule {
    Rule { id, severity, summary }
}

/// Every rule: 1xx structure, 2xx integrity, 3xx buffers and AQM, 4xx low latency and references.
pub const RULES: &[Rule] = &[
    rule("D101", Error, "the bytes are settings: types, lengths and values that fit"),
    rule("D102", Error, "the end marker (255) is there"),
    rule("D103", Warning, "the file's length is a multiple of four, with at most three pads"),
    rule("D104", Error, "what may stand once stands once"),
    rule("D105", Error, "a value has a length that its type can have"),
    rule("D106", Error, "a value is in the range that the specification allows"),
    rule("D107", Note, "the type is known"),
    rule("D108", Warning, "a value has at most 254 bytes"),
    rule("D109", Warning, "the file has at most the 8,192 bytes that every modem accepts"),
    rule("D110", Error, "the mandatory settings are there (3, 6, 7, and a 24 and a 25)"),
    rule("D111", Error, "class of service (4) and service flows (24, 25) are not mixed"),
    rule("D112", Warning, "nothing but the CMTS MIC and the end follows the CM MIC"),
    rule("D201", Error, "the CM MIC fits the settings"),
    rule("D202", Error, "the CMTS MIC fits the settings and the secret"),
    rule("D203", Note, "the CMTS MIC is checked, which takes the secret"),
    rule("D204", Error, "aggregate service flows (70, 71, 93, 94) are covered by an extended MIC"),
    rule("D205", Warning, "every setting for the CMTS is covered by some MIC"),
    rule("D206", Warning, "the extended MIC's field holds nothing but 43.8 and 43.6"),
    rule("D207", Warning, "the extended MIC can be computed"),
    rule("D208", Error, "the explicit extended digest fits the settings and the secret"),
    rule("D301", Error, "the minimum buffer is not above the maximum"),
    rule("D302", Warning, "the target buffer lies between minimum and maximum"),
    rule("D303", Warning, "the minimum buffer is at most the guaranteed 24,576 bytes"),
    rule("D304", Note, "buffers have a target alone, unless refusal is wanted"),
    rule("D305", Note, "flows with unsolicited grants have no Buffer Control"),
    rule("D306", Warning, "AQM that is turned off has no other AQM settings"),
    rule("D307", Warning, "without AQM a full buffer drains within 100 ms"),
    rule("D308", Note, "Buffer Control is upstream, where every modem supports it"),
    rule("D309", Note, "Buffer Control says something"),
    rule("D310", Error, "histogram edges rise"),
    rule("D311", Warning, "ramp settings belong to immediate AQM"),
    rule("D312", Warning, "upstream AQM settings are not beside type 76, which turns AQM off"),
    rule("D313", Warning, "the peak rate is above the sustained rate"),
    rule("D401", Error, "references of service flows are given once"),
    rule("D402", Error, "what is referred to exists"),
    rule("D403", Error, "a low latency flow has a classifier, or no packet enters it"),
    rule("D404", Error, "a low latency flow names the aggregate that names it"),
    rule("D405", Warning, "low latency support is on (91) where low latency flows are configured"),
    rule("D406", Warning, "a classifier for ECT(1) takes CE too"),
    rule("D407", Note, "a low latency flow is fed by NQB (DSCP 45) and by ECT(1)"),
    rule("D408", Warning, "a low latency flow has immediate AQM, a classic flow has not"),
    rule("D409", Warning, "an aggregate with low latency settings has a classic flow as well"),
];

/// The rule of a number.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}
