//! FQ-CoDel (RFC 8290): [`Fair`] with a CoDel per flow, in two profiles.
//!
//! # Principle
//! See [`Fair`](crate::queue::fair) for the scheduler and [`codel`] for the
//! law. Victims of an overflow count as signals in their flow's CoDel.
//!
//! # Parameters
//! | key | unit | default | meaning (RFC 8290 section 5) |
//! |---|---|---|---|
//! | `flows` | count | 1024 | queues that 5-tuples are hashed into |
//! | `limit` | packets | 10240 | stored at most, over all flows |
//! | `memory` | bytes | 32 MiB | stored at most, over all flows |
//! | `quantum` | bytes | 1514 | credit per turn |
//! | `target`, `interval`, `mtu`, `ce-threshold` | | 5 ms, 100 ms, 1514 B, none | as CoDel's |
//! | `ecn` | on/off | on | mark instead of drop |
//! | `drop-batch` | packets | 64 | taken from the fattest flow per overflow, at most |
//!
//! # Where the profiles differ
//! | point | `linux` (6.12) | `rfc` |
//! |---|---|---|
//! | CoDel in the flows | [`codel::Linux`] | [`codel::Rfc`] |
//! | guard of the law | backlog of all flows | backlog of the flow |
//! | a turn ends | at a credit of zero | below zero (section 4.2) |
//!
//! The RFC's text says "negative" where Linux and ns-3 test for zero or less, and its guard is
//! RFC 8289's, of one queue.
//!
//! # How it is validated
//! Facts of ns-3's suite on credits and overflow; the CoDel inside by the vectors of `codel`; the
//! law suite. See `docs/queues/fq-codel.md`.

use alloc::boxed::Box;

use crate::aqm::Aqm;
use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Profile, Values};
use crate::qdisc::Qdisc;
use crate::queue::codel::{self, Linux, Rfc};
use crate::queue::fair::{Fair, FairConfig};
use crate::registry::{QueueConfig, QueueEntry};

/// FQ-CoDel, ready to build.
#[derive(Clone, Debug)]
pub struct FqCodelConfig {
    /// The scheduler.
    pub fair: FairConfig,
    /// CoDel as every flow starts with it.
    pub codel: FlowCodel,
}

/// The CoDel of each flow.
#[derive(Clone, Debug)]
pub enum FlowCodel {
    /// As Linux 6.12.
    Linux(Linux),
    /// As RFC 8289.
    Rfc(Rfc),
}

impl FqCodelConfig {
    pub(crate) fn build<P: 'static>(&self) -> Box<dyn Qdisc<P>> {
        fn fair<A: Aqm + Clone + 'static, P: 'static>(
            config: FairConfig,
            aqm: &A,
        ) -> Box<dyn Qdisc<P>> {
            Box::new(Fair::new(config, |_| aqm.clone()))
        }
        match &self.codel {
            FlowCodel::Linux(codel) => fair(self.fair, codel),
            FlowCodel::Rfc(codel) => fair(self.fair, codel),
        }
    }
}

pub(crate) const ENTRY: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "fq-codel",
        summary: "FQ-CoDel: a queue and a CoDel per flow, new flows first",
        source: "RFC 8290, defaults of Linux sch_fq_codel",
        profiles: &[
            Profile { name: "linux", doc: "Linux 6.12: its CoDel, guard over all flows" },
            Profile { name: "rfc", doc: "RFC 8290 with RFC 8289's exact CoDel" },
        ],
        params: &[
            codel::TARGET,
            codel::INTERVAL,
            codel::MTU,
            Param { fallback: Fallback::Value("on"), ..codel::ECN },
            codel::CE_THRESHOLD,
            Param {
                key: "limit",
                kind: Kind::Packets,
                fallback: Fallback::Value("10240p"),
                range: Some(("1p", "16777216p")),
                doc: "packets stored at most, over all flows",
            },
        ],
        shared: SCHEDULER,
        positional: None,
        free_key: None,
    },
    configure: |values, _| configure(values),
};

/// Parameters of the scheduler alone.
const SCHEDULER: &[Param] = &[
    Param {
        key: "flows",
        kind: Kind::Count,
        fallback: Fallback::Value("1024"),
        range: Some(("1", "65536")),
        doc: "queues that 5-tuples are hashed into",
    },
    Param {
        key: "memory",
        kind: Kind::Bytes,
        fallback: Fallback::Value("32MiB"),
        range: Some(("64B", "4096MiB")),
        doc: "bytes stored at most, over all flows",
    },
    Param {
        key: "quantum",
        kind: Kind::Bytes,
        fallback: Fallback::Value("1514B"),
        range: Some(("64B", "1MiB")),
        doc: "bytes that a flow may send per turn",
    },
    Param {
        key: "drop-batch",
        kind: Kind::Packets,
        fallback: Fallback::Value("64p"),
        range: Some(("1p", "65536p")),
        doc: "packets taken from the fattest flow per overflow, at most",
    },
];

fn configure(values: &Values) -> Result<QueueConfig, ConfigError> {
    let codel = codel::config(values);
    let threshold = codel::ce_threshold(values)?;
    let is_linux = values.profile() == "linux";
    let fair = FairConfig {
        flows: values.number("flows").unwrap_or_default() as u32,
        limit_packets: values.packets("limit").unwrap_or_default(),
        memory_bytes: values.bytes("memory").unwrap_or_default(),
        quantum_bytes: values.bytes("quantum").unwrap_or_default() as u32,
        drop_batch: values.packets("drop-batch").unwrap_or_default(),
        turn_ends_at_zero: is_linux,
    };
    let codel = if is_linux {
        FlowCodel::Linux(Linux::new(codel).with_ce_threshold(threshold))
    } else {
        FlowCodel::Rfc(Rfc::new(codel))
    };
    Ok(QueueConfig::FqCodel(FqCodelConfig { fair, codel }))
}
