//! What is mutated, and which tests must notice.

/// A part of the workspace whose every branch, sign and constant a test has to hold.
pub struct Area {
    pub name: &'static str,
    pub package: &'static str,
    /// Its files, as patterns of cargo-mutants.
    pub files: &'static [&'static str],
    /// Arguments of `cargo test`: the tests that answer for it, without those that take minutes.
    pub tests: &'static [&'static str],
}

pub static AREAS: [Area; 7] = [
    Area {
        name: "queues",
        package: "underload-aqm",
        files: &["crates/aqm/src/queue/**/*.rs"],
        // Not the laws: they hold what all disciplines share, in minutes; a discipline's own
        // numbers are for its own tests.
        tests: &["--lib", "--test", "vectors", "--test", "codel_times", "--test", "grants"],
    },
    Area {
        name: "links",
        package: "underload-aqm",
        files: &["crates/aqm/src/link/**/*.rs"],
        tests: &["--lib", "--test", "link_polling"],
    },
    Area {
        name: "tcp",
        package: "underload-sim",
        files: &["crates/sim/src/tcp/**/*.rs"],
        tests: &["--lib", "--test", "trial_laws"],
    },
    Area {
        name: "congestion",
        package: "underload-sim",
        files: &["crates/sim/src/congestion/**/*.rs"],
        tests: &["--lib", "--test", "algorithms"],
    },
    Area {
        name: "statistics",
        package: "underload-record",
        files: &[
            "crates/record/src/stats/*.rs",
            "crates/record/src/arms.rs",
            "crates/record/src/link.rs",
            "crates/record/src/summarise.rs",
        ],
        tests: &["--lib"],
    },
    Area {
        name: "server",
        package: "underload-service",
        files: &[
            "crates/service/src/admission/**/*.rs",
            "crates/service/src/front/conversation.rs",
            "crates/service/src/front/openings.rs",
            "crates/service/src/tokens/*.rs",
        ],
        tests: &["--lib"],
    },
    Area {
        name: "docsis",
        package: "underload-docsis",
        files: &["crates/docsis/src/**/*.rs"],
        tests: &["--tests"],
    },
];

/// The area of that name.
pub fn find(name: &str) -> Option<&'static Area> {
    AREAS.iter().find(|area| area.name == name)
}
