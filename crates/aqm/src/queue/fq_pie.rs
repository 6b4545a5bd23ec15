//! FQ-PIE: [`Fair`] with a PIE per flow, in profile `linux`: `sch_fq_pie.c` of Linux 6.12.
//!
//! # Principle
//! See [`Fair`](crate::queue::store::fair) for the scheduler and [`pie`] for the controller. Each
//! flow has a separate PIE, which sees only the delay and the backlog of its flow, so a sparse flow
//! is never dropped because of a bulk flow. If the limit of all flows is reached, the arrival is
//! dropped, whichever flow filled the queue, and its flow's PIE resets its accumulated probability.
//!
//! # Parameters
//! `tc-fq_pie(8)`; `alpha` and `beta` are whole sixteenths up to 2, `ecn-prob` whole percents.
//!
//! # Time
//! The kernel updates all flows in one timer, every `tupdate`. Here each flow replays its own
//! updates when it is next touched: an update reads nothing but its flow, and nothing but a touch
//! changes that between two updates, so the probabilities are the same.
//!
//! # Divergences from the kernel
//! * The kernel's `memory_limit` drops nothing: it only counts arrivals that pass it. Here it is a
//!   hard limit, as every queue needs one; full-size packets reach the packet limit first.
//! * Memory is counted in packet lengths, not in kernel buffers (`truesize`).
//! * From 2049 flows on the kernel updates 2048 per jiffy; here all in one instant.
//! * Each flow draws from its own stream of random numbers: none shifts another's.
//! * The flow is `meta.flow` modulo the number of flows, as in [`Fair`].
//! * `bytemode` and `dq_rate_estimator`, both off by default, are not built, as in [`pie`].
//!
//! # Validation
//! `tests/vectors.rs`: every packet has the same fate as in the kernel's own code in user space.
//! See `docs/queues/fq-pie.md`.

use alloc::boxed::Box;

use crate::config::{Bytes, ConfigError, Millionths, Probability, Profile, Values, params};
use crate::qdisc::BoxedQdisc;
use crate::queue::fq_codel::{FLOWS, LIMIT, MEMORY, QUANTUM};
use crate::queue::pie::{self, PieLinux, PieLinuxConfig};
use crate::queue::store::fair::{Fair, FairConfig, FairOverflow};
use crate::rng::Rng;
use crate::time::Span;

/// FQ-PIE, ready to build.
#[derive(Clone, Debug)]
pub struct FqPieConfig {
    /// The parameters of the scheduler.
    pub fair: FairConfig,
    /// The parameters of the PIE of each flow.
    pub pie: PieLinuxConfig,
}

impl FqPieConfig {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        let mut seeds = rng.child("fq-pie");
        let pie = |_| PieLinux::new(self.pie.clone(), Rng::new(seeds.next_u64()));
        Box::new(Fair::new(self.fair, pie))
    }
}

params! {
    define DEFINITION: "fq-pie", "FQ-PIE: a queue and a PIE per flow, new flows first",
        source: "Linux sch_fq_pie, tc-fq_pie(8), RFC 8033", aliases: &["fqpie"],
        profiles: &[Profile { name: "linux", doc: "Linux 6.12 sch_fq_pie.c, bit for bit" }],
        tc_keys: &[("memory-limit", "memory")], tc_gains: Some("sixteenths of a hertz");
    use pie::TARGET;
    TUPDATE: Span = "tupdate", "15ms" in "100us".."10s", "time between updates";
    ALPHA: Millionths = "alpha", "0.125" in "0".."2", "weight of the distance from the target, Hz";
    BETA: Millionths = "beta", "1.25" in "0".."2", "weight of the delay's change, Hz";
    MTU: Bytes = "mtu", "1514B" in "0B".."64KiB",
        "nothing is dropped while a flow stores less than two such packets";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    ECN_PROB: Probability = "ecn-prob", "10%",
        "drop even ECN-capable packets above this probability";
    use LIMIT, FLOWS, MEMORY, QUANTUM;
}

pub(crate) fn configure(values: &Values) -> Result<FqPieConfig, ConfigError> {
    let fair = FairConfig {
        flows: values.get(FLOWS) as u32,
        limit_packets: values.get(LIMIT),
        memory_bytes: values.get(MEMORY),
        quantum_bytes: values.get(QUANTUM) as u32,
        overflow: FairOverflow::Tail,
        turn_ends_at_zero: true,
    };
    let percent = whole_percents(values.get(ECN_PROB))
        .ok_or_else(|| values.refuse(ECN_PROB, "whole percents, such as 10%"))?;
    let ecn_up_to_q56 = PieLinuxConfig::percent_q56(percent);
    let pie = PieLinuxConfig { ecn_up_to_q56, ..PieLinuxConfig::read(values)? };
    Ok(FqPieConfig { fair, pie })
}

/// Returns a probability in whole percents, as `tc` accepts it.
fn whole_percents(probability_q32: u64) -> Option<u64> {
    (0..=100_u64).find(|percent| ((percent << 32) / 100).abs_diff(probability_q32) <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::packet::{Ecn, Meta, Packet};
    use crate::qdisc::{Admit, Dequeue};
    use crate::registry::{QueueConfig, QueueSetup};
    use crate::time::Time;
    use alloc::string::ToString;

    fn config(spec: &str) -> Result<FqPieConfig, ConfigError> {
        match QueueSetup::parse(spec, &LinkFacts::default())?.config {
            QueueConfig::FqPie(config) => Ok(config),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_kernels() {
        let FqPieConfig { fair, pie } = config("fq-pie").unwrap();
        let expected = FairConfig {
            flows: 1_024,
            limit_packets: 10_240,
            memory_bytes: 32 << 20,
            quantum_bytes: 1_514,
            overflow: FairOverflow::Tail,
            turn_ends_at_zero: true,
        };
        assert_eq!(fair, expected);
        assert_eq!((pie.alpha_sixteenths, pie.beta_sixteenths, pie.mtu_bytes), (2, 20, 1_514));
        assert_eq!((pie.target, pie.update_interval), (Span::from_millis(15), pie.target));
        assert!(!pie.ecn);
        // (2^56 - 1) / 100 * 10
        assert_eq!(pie.ecn_up_to_q56, 7_205_759_403_792_790);
    }

    #[test]
    fn only_whole_percents_are_accepted() {
        for percent in 0..=100 {
            let spec = alloc::format!("fq-pie:ecn-prob={percent}%");
            let expected = PieLinuxConfig::percent_q56(percent);
            assert_eq!(config(&spec).unwrap().pie.ecn_up_to_q56, expected, "{spec}");
        }
        let error = config("fq-pie:ecn-prob=12.5%").unwrap_err().to_string();
        assert!(error.contains("expected whole percents"), "{error}");
        let error = config("fq-pie:alpha=0.13").unwrap_err().to_string();
        assert!(error.contains("whole sixteenths"), "{error}");
    }

    /// A bulk flow overloads the link for 10 s. A second flow sends one packet every 20 ms: it
    /// loses none and waits at most for the bulk flow's turn, two packets.
    #[test]
    fn a_sparse_flow_is_neither_dropped_nor_delayed() {
        let mut queue = config("fq-pie:ecn=on").unwrap().build::<()>(&Rng::new(2));
        let packet = |len, flow| {
            let meta = Meta { ecn: Ecn::Ect0, ..Meta::new(len, flow) };
            Packet { meta, payload: () }
        };
        let mut sparse = 0;
        for ms in 0..10_000 {
            let now = Time::from_millis(ms);
            for _ in 0..2 {
                queue.enqueue(now, packet(1_500, 7), &mut ());
            }
            if ms % 20 == 0 {
                assert_eq!(queue.enqueue(now, packet(200, 8), &mut ()), Admit::Queued);
            }
            let Dequeue::Packet(sent) = queue.dequeue(now, &mut ()) else { panic!("{ms}: empty") };
            if sent.meta.flow == 8 {
                sparse += 1;
                assert!(now.since(sent.meta.arrived) <= Span::from_millis(2), "{ms}");
            }
        }
        let stats = queue.stats();
        assert_eq!(sparse, 500);
        assert!(stats.dropped_enqueue.packets > 5_000 && stats.marked > 0, "{stats:?}");
    }

    #[test]
    fn each_flow_has_its_random_stream() {
        let mut queue = config("fq-pie:flows=2").unwrap().build::<u32>(&Rng::new(2));
        let mut losses = [alloc::vec::Vec::new(), alloc::vec::Vec::new()];
        for ms in 0..5_000_u32 {
            let now = Time::from_millis(u64::from(ms));
            for flow in 0..2 {
                let packet = Packet { meta: Meta::new(1_500, flow), payload: ms };
                if queue.enqueue(now, packet, &mut ()) == Admit::Refused {
                    losses[flow as usize].push(ms);
                }
            }
            let _ = queue.dequeue(now, &mut ());
        }
        assert!(losses[0].len() > 500 && losses[0] != losses[1]);
    }
}
