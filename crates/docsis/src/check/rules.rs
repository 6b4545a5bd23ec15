//! The rules, by number: 1xx structure, 2xx integrity, 3xx buffers and AQM, 4xx low latency and
//! references.

use std::fmt;

use serde::Serialize;

use super::Severity;

/// Defines the enumeration from a table with number, severity and text of each rule.
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
            /// Every rule, by number.
            pub const ALL: &[Self] = &[$(Self::$id),+];

            const TABLE: &[(&str, Severity, &str)] =
                &[$((stringify!($id), Severity::$severity, $summary)),+];

            /// The number, such as `D301`.
            pub const fn id(self) -> &'static str {
                Self::TABLE[self as usize].0
            }

            pub const fn severity(self) -> Severity {
                Self::TABLE[self as usize].1
            }

            /// The rule in one line.
            pub const fn summary(self) -> &'static str {
                Self::TABLE[self as usize].2
            }
        }
    };
}

rules! {
    D101, Error, "the file is a list of settings with valid types and lengths";
    D102, Error, "the file has an end marker (255)";
    D103, Warning, "the file's length is a multiple of four, with at most three pads";
    D104, Error, "a setting that must not repeat is present once";
    D105, Error, "the length of a value is one that its type allows";
    D106, Error, "a value is in the range that the specification allows";
    D107, Note, "the type is known";
    D108, Warning, "a value has at most 254 bytes";
    D109, Warning, "the file has at most the 8,192 bytes that every modem accepts";
    D110, Error, "the mandatory settings are present (3, 6, 7, a 24 and a 25, and 1 in these)";
    D111, Error, "class of service (4) and service flows (24, 25) are not mixed";
    D112, Warning, "only the CMTS MIC and the end follow the CM MIC";
    D113, Warning, "a vendor's field is a list of settings";
    D201, Error, "the CM MIC matches the settings";
    D202, Error, "the CMTS MIC matches the settings and the secret";
    D203, Note, "the CMTS MIC is checked, which needs the secret";
    D204, Error, "an extended MIC covers aggregate service flows (70, 71, 93, 94)";
    D205, Warning, "a MIC covers every setting for the CMTS";
    D206, Warning, "the extended MIC's field contains only 43.8 and 43.6";
    D207, Warning, "the extended MIC can be computed";
    D208, Error, "the explicit extended digest matches the settings and the secret";
    D301, Error, "the minimum buffer is not above the maximum";
    D302, Warning, "the target buffer is between minimum and maximum";
    D303, Warning, "the minimum buffer is at most the guaranteed 24,576 bytes";
    D304, Note, "buffers have only a target, unless modems shall refuse other sizes";
    D305, Note, "flows with unsolicited grants have no Buffer Control";
    D306, Warning, "AQM that is turned off has no other AQM settings";
    D307, Warning, "without AQM a full buffer drains within 100 ms";
    D308, Note, "Buffer Control is upstream, where every modem supports it";
    D309, Note, "Buffer Control has a minimum, target or maximum";
    D310, Error, "histogram edges rise";
    D311, Warning, "only immediate AQM has ramp settings";
    D312, Warning, "upstream AQM settings do not occur together with type 76, which turns AQM off";
    D313, Warning, "the peak rate is not below the sustained rate";
    D314, Warning, "the maximum traffic burst covers the bytes of a MAP interval, 2 ms, at the sustained rate";
    D401, Error, "references of service flows are unique";
    D402, Error, "a reference leads to an existing flow or aggregate";
    D403, Error, "a low latency flow has a classifier; without one it gets no packets";
    D404, Error, "a low latency flow belongs to the aggregate that refers to it";
    D405, Warning, "low latency support is on (91) if low latency flows are configured";
    D406, Warning, "a classifier for ECT(1) also matches CE";
    D407, Note, "classifiers lead NQB (DSCP 45) and ECT(1) into a low latency flow";
    D408, Warning, "low latency flows have immediate AQM, classic flows have another algorithm";
    D409, Warning, "an aggregate with low latency settings has a classic flow as well";
    D410, Warning, "the coupling factor (42.5) is absent, 20 or 255: its unit is in doubt";
    D411, Warning, "the file of service classes has the class that a flow names";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
