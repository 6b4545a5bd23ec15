//! FQ-CoDel (RFC 8290): [`Fair`] with a CoDel per flow, in two profiles.
//!
//! # Principle
//! See [`Fair`](crate::queue::store::fair) for the scheduler and [`codel`] for the
//! law. Victims of an overflow count as signals in their flow's CoDel.
//!
//! # Parameters
//! The parameters are those of RFC 8290 section 5, and of CoDel.
//!
//! # Where the profiles differ
//! | point | `linux` (6.12) | `rfc` |
//! |---|---|---|
//! | CoDel in the flows | [`codel::Linux`] | [`codel::Rfc`] |
//! | guard of the law | backlog of all flows | backlog of the flow |
//! | a turn ends | at a credit of zero | below zero (section 4.2) |
//!
//! The RFC's text says "negative" where Linux and ns-3 test for zero or less. The RFC refers to the
//! guard of RFC 8289, which counts the bytes of one queue.
//!
//! # How it is validated
//! Tests check the facts of ns-3's suite on credits and overflow, and apply the law suite; the
//! vectors of `codel` check the CoDel of each flow. See `docs/queues/fq-codel.md`.

use alloc::boxed::Box;

use crate::aqm::Aqm;
use crate::config::{Bytes, ConfigError, Count, Key, Packets, Values, params, profiles};
use crate::qdisc::BoxedQdisc;
use crate::queue::codel::{self, Linux, Rfc};
use crate::queue::store::fair::{Fair, FairConfig, FairOverflow};
use crate::rng::Rng;

/// FQ-CoDel, ready to build.
#[derive(Clone, Debug)]
pub struct FqCodelConfig {
    /// The parameters of the scheduler.
    pub fair: FairConfig,
    /// The initial CoDel of every flow.
    pub codel: FlowCodel,
}

/// The CoDel of a flow.
#[derive(Clone, Debug)]
pub enum FlowCodel {
    /// As in `sch_fq_codel.c`.
    Linux(Linux),
    /// As in RFC 8290.
    Rfc(Rfc),
}

impl FqCodelConfig {
    pub(crate) fn build<P: Send + 'static>(&self, _: &Rng) -> BoxedQdisc<P> {
        fn fair<A: Aqm + Clone + Send + 'static, P: Send + 'static>(
            config: FairConfig,
            aqm: &A,
        ) -> BoxedQdisc<P> {
            Box::new(Fair::new(config, |_| aqm.clone()))
        }
        match &self.codel {
            FlowCodel::Linux(codel) => fair(self.fair, codel),
            FlowCodel::Rfc(codel) => fair(self.fair, codel),
        }
    }
}

// A flow with Linux's CoDel is exactly one cache line.
const _: () = assert!(Fair::<Linux, ()>::BYTES_PER_FLOW == 64);

const ECN: Key<bool> = codel::ECN.or("on");

params! {
    define DEFINITION: "fq-codel", "FQ-CoDel: a queue and a CoDel per flow, new flows first",
        source: "RFC 8290, defaults of Linux sch_fq_codel", aliases: &["fqcodel"],
        profiles: Published::PROFILES, tc_keys: &[("memory-limit", "memory")];
    use codel::TARGET, codel::INTERVAL, codel::MTU, ECN, codel::CE_THRESHOLD;
    pub(in crate::queue) LIMIT: Packets = "limit", "10240p" in "1p".."16777216p",
        "packets stored at most, over all flows";
    pub(in crate::queue) FLOWS: Count = "flows", "1024" in "1".."65536",
        "queues that 5-tuples are hashed into";
    pub(in crate::queue) MEMORY: Bytes = "memory", "32MiB" in "64B".."4096MiB",
        "bytes stored at most, over all flows";
    pub(in crate::queue) QUANTUM: Bytes = "quantum", "1514B" in "64B".."1MiB",
        "bytes that a flow may send per turn";
    DROP_BATCH: Packets = "drop-batch", "64p" in "1p".."65536p",
        "packets taken from the fattest flow per overflow, at most";
}

profiles! {
    enum Published {
        Linux = "linux": "Linux 6.12: its CoDel, guard over all flows",
        Rfc = "rfc": "RFC 8290 with RFC 8289's exact CoDel",
    }
}

pub(crate) fn configure(values: &Values) -> Result<FqCodelConfig, ConfigError> {
    let codel = codel::CodelConfig::read(values)?;
    let profile = Published::of(values);
    let threshold = codel::ce_threshold(values, profile == Published::Linux)?;
    let fair = FairConfig {
        flows: values.get(FLOWS) as u32,
        limit_packets: values.get(LIMIT),
        memory_bytes: values.get(MEMORY),
        quantum_bytes: values.get(QUANTUM) as u32,
        overflow: FairOverflow::Fattest { drop_batch: values.get(DROP_BATCH) },
        turn_ends_at_zero: profile == Published::Linux,
    };
    let codel = match profile {
        Published::Linux => FlowCodel::Linux(Linux::new(codel).with_ce_threshold(threshold)),
        Published::Rfc => FlowCodel::Rfc(Rfc::new(codel)),
    };
    Ok(FqCodelConfig { fair, codel })
}
