//! The counters of queues, as `tc -s -j qdisc show` prints them.

use serde_json::Value;
use underload_aqm::qdisc::{Backlog, Count, DropReason};

/// The counters of a queue at one instant, since its creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub sent: Count,
    /// Packets by reason. Linux counts no bytes of them.
    pub drops: Vec<(DropReason, u64)>,
    pub marks: u64,
    pub backlog: Backlog,
    /// The queue's state, such as `pie.probability`, by the names of our records.
    pub gauges: Vec<(&'static str, f64)>,
}

/// Counters of packets that found the queue full.
const FULL: [&str; 7] =
    ["drop_overlimit", "overlimit", "overmemory", "pdrop", "bucketdrop", "queuedrop", "childdrop"];
/// Counters of marked packets; dualpi2 has a hyphen, and counts those of its step here, too.
const MARKS: [&str; 4] = ["ecn_mark", "ecn-mark", "ce_mark", "marked"];
/// Kind, name in the output, our name, and the factor to our unit.
const GAUGES: [(&str, &str, &str, f64); 8] = [
    ("codel", "count", "codel.count", 1.0),
    ("codel", "ldelay", "codel.sojourn_ns", 1e3),
    ("pie", "prob", "pie.probability", 1.0),
    ("pie", "delay", "pie.delay_ns", 1e3),
    ("dualpi2", "prob", "dualpi2.probability", 1.0),
    ("cake", "memory_used", "cake.memory_bytes", 1.0),
    ("sfb", "maxprob", "sfb.max_probability", 1.0),
    ("sfb", "maxqlen", "sfb.max_bin_packets", 1.0),
];

impl Reading {
    /// Finds the queue of a device by its handle; `None` if there is none.
    pub fn find(queues: &Value, device: &str, handle: &str) -> Option<Self> {
        let found = queues.as_array()?.iter().find(|queue| {
            queue["dev"].as_str() == Some(device) && queue["handle"].as_str() == Some(handle)
        })?;
        Some(Self::parse(found))
    }

    fn parse(queue: &Value) -> Self {
        let number = |key: &str| queue[key].as_u64().unwrap_or(0);
        let kind = queue["kind"].as_str().unwrap_or_default();
        let marks = |of: &Value| MARKS.iter().filter_map(|key| of[key].as_u64()).sum::<u64>();
        let tins = queue["tins"].as_array().into_iter().flatten();
        let gauge = |(of, key, name, factor): &(&str, &str, &'static str, f64)| {
            let value = queue[key].as_f64().filter(|_| *of == kind)?;
            Some((*name, value * factor))
        };
        Self {
            sent: Count { packets: number("packets"), bytes: number("bytes") },
            drops: drops(kind, number("drops"), FULL.iter().map(|key| number(key)).sum()),
            marks: marks(queue) + tins.map(marks).sum::<u64>(),
            backlog: Backlog {
                packets: number("qlen").try_into().unwrap_or(u32::MAX),
                bytes: number("backlog"),
            },
            gauges: GAUGES.iter().filter_map(gauge).collect(),
        }
    }

    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, packets)| packets).sum()
    }
}

/// Divides all drops of a queue into those for lack of room and those by its algorithm.
fn drops(kind: &str, all: u64, full: u64) -> Vec<(DropReason, u64)> {
    let algorithm = match kind {
        "pfifo" | "bfifo" => DropReason::Overlimit,
        "pfifo_head_drop" => DropReason::OverlimitHead,
        "netem" => DropReason::Loss,
        "pie" | "fq_pie" | "red" | "sfb" => DropReason::Early,
        _ => DropReason::ControlLaw,
    };
    let lack = match kind {
        "fq_codel" => DropReason::OverlimitFattest,
        _ => DropReason::Overlimit,
    };
    let full = full.min(all);
    vec![(algorithm, all - full), (lack, full)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iproute2 6.1, and 7.3 for dualpi2, printed in a guest with Linux 7.3.4, shortened.
    const PRINTED: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"bytes":0,
      "packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
      {"kind":"htb","handle":"1:","dev":"to-server","root":true,"bytes":9,"packets":9,"drops":9,
      "overlimits":9,"requeues":0,"backlog":9,"qlen":9},{"kind":"pie","handle":"10:",
      "dev":"to-server","parent":"1:1","options":{"limit":1000,"target":15000},"bytes":302800,
      "packets":200,"drops":12,"overlimits":3,"requeues":0,"backlog":4542,"qlen":3,"prob":0.25,
      "delay":1500,"pkts_in":203,"overlimit":2,"dropped":10,"maxq":40,"ecn_mark":4},
      {"kind":"netem","handle":"20:","dev":"to-client","root":true,"bytes":1000,"packets":10,
      "drops":7,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
      {"kind":"cake","handle":"10:","dev":"to-client","root":true,"bytes":1000,"packets":10,
      "drops":5,"overlimits":0,"backlog":0,"qlen":0,"memory_used":4096,
      "tins":[{"drops":2,"ecn_mark":1},{"drops":3,"ecn_mark":2}]},
      {"kind":"dualpi2","handle":"10:","dev":"to-core","root":true,"bytes":1000,"packets":10,
      "drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0,"prob":0.5,"delay-c":15000,
      "ecn-mark":7,"step-mark":5,"credit":-121120}]"#;

    #[test]
    fn counters_are_those_of_the_queue_and_not_of_the_shaper() {
        let queues: Value = serde_json::from_str(PRINTED).expect("JSON");
        let pie = Reading::find(&queues, "to-server", "10:").expect("a queue");
        assert_eq!(pie.sent, Count { packets: 200, bytes: 302_800 });
        assert_eq!(pie.backlog, Backlog { packets: 3, bytes: 4_542 });
        assert_eq!(pie.drops, [(DropReason::Early, 10), (DropReason::Overlimit, 2)]);
        assert_eq!((pie.dropped(), pie.marks), (12, 4));
        assert_eq!(pie.gauges, [("pie.probability", 0.25), ("pie.delay_ns", 1_500_000.0)]);
        let wire = Reading::find(&queues, "to-client", "20:").expect("a wire");
        assert_eq!(wire.drops[0], (DropReason::Loss, 7));
        let cake = Reading::find(&queues, "to-client", "10:").expect("a queue");
        assert_eq!((cake.dropped(), cake.marks), (5, 3));
        assert_eq!(cake.gauges, [("cake.memory_bytes", 4096.0)]);
        let dualpi2 = Reading::find(&queues, "to-core", "10:").expect("a queue");
        assert_eq!(dualpi2.marks, 7);
    }

    #[test]
    fn what_is_missing_or_malformed_counts_nothing() {
        let queues: Value = serde_json::from_str(PRINTED).expect("JSON");
        assert_eq!(Reading::find(&queues, "to-server", "20:"), None);
        assert_eq!(Reading::find(&Value::Null, "to-server", "10:"), None);
        let odd = r#"[{"dev":"d","handle":"10:","kind":7,"drops":"x","qlen":99999999999}]"#;
        let odd = Reading::find(&serde_json::from_str(odd).expect("JSON"), "d", "10:");
        assert_eq!(odd.expect("a queue").backlog.packets, u32::MAX);
    }
}
