//! The rules, by number: 1xx structure, 2xx integrity, 3xx buffers and AQM, 4xx low latency and
//! references.

use std::fmt;

use serde::Serialize;

use super::Severity;

/// Makes the enumeration from its table, so that a rule has its number, its severity and its text
/// in one line, and that only a number of this table compiles.
macro_rules! rules {
    ($($id:ident, $severity:ident, $summary:literal;)+) => {
        /// A rule, named by its number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Rule {
            $(
                #[doc = $summary]
                $id,
            )+
        }

        impl Rule {
            /// Every rule, in order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$id),+];

            /// The rule's identifier, for example `D301`.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$id => stringify!($id),)+
                }
            }

            /// Severity of breaking the rule.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$id => Severity::$severity,)+
                }
            }

            /// What the rule demands, in one line.
            pub const fn summary(self) -> &'static str {
                match self {
                    $(Self::$id => $summary,)+
                }
            }
        }
    };
}

rules! {
    D101, Error, "the bytes are settings: types, lengths and values that fit";
    D102, Error, "the end marker (255) is there";
    D103, Warning, "the file's length is a multiple of four, with at most three pads";
    D104, Error, "what may stand once stands once";
    D105, Error, "a value has a length that its type can have";
    D106, Error, "a value is in the range that the specification allows";
    D107, Note, "the type is known";
    D108, Warning, "a value has at most 254 bytes";
    D109, Warning, "the file has at most the 8,192 bytes that every modem accepts";
    D110, Error, "the mandatory settings are there (3, 6, 7, a 24 and a 25, and 1 in these)";
    D111, Error, "class of service (4) and service flows (24, 25) are not mixed";
    D112, Warning, "nothing but the CMTS MIC and the end follows the CM MIC";
    D201, Error, "the CM MIC fits the settings";
    D202, Error, "the CMTS MIC fits the settings and the secret";
    D203, Note, "the CMTS MIC is checked, which takes the secret";
    D204, Error, "aggregate service flows (70, 71, 93, 94) are covered by an extended MIC";
    D205, Warning, "every setting for the CMTS is covered by some MIC";
    D206, Warning, "the extended MIC's field holds nothing but 43.8 and 43.6";
    D207, Warning, "the extended MIC can be computed";
    D208, Error, "the explicit extended digest fits the settings and the secret";
    D301, Error, "the minimum buffer is not above the maximum";
    D302, Warning, "the target buffer lies between minimum and maximum";
    D303, Warning, "the minimum buffer is at most the guaranteed 24,576 bytes";
    D304, Note, "buffers have a target alone, unless refusal is wanted";
    D305, Note, "flows with unsolicited grants have no Buffer Control";
    D306, Warning, "AQM that is turned off has no other AQM settings";
    D307, Warning, "without AQM a full buffer drains within 100 ms";
    D308, Note, "Buffer Control is upstream, where every modem supports it";
    D309, Note, "Buffer Control says something";
    D310, Error, "histogram edges rise";
    D311, Warning, "ramp settings belong to immediate AQM";
    D312, Warning, "upstream AQM settings are not beside type 76, which turns AQM off";
    D313, Warning, "the peak rate is above the sustained rate";
    D401, Error, "references of service flows are given once";
    D402, Error, "what is referred to exists";
    D403, Error, "a low latency flow has a classifier, or no packet enters it";
    D404, Error, "a low latency flow names the aggregate that names it";
    D405, Warning, "low latency support is on (91) where low latency flows are configured";
    D406, Warning, "a classifier for ECT(1) takes CE too";
    D407, Note, "a low latency flow is fed by NQB (DSCP 45) and by ECT(1)";
    D408, Warning, "a low latency flow has immediate AQM, a classic flow has not";
    D409, Warning, "an aggregate with low latency settings has a classic flow as well";
    D410, Warning, "the coupling factor (42.5) is left out, 20 or 255: its unit is in doubt";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
