//! The counters of Linux's queues, in the terms of `underload-record`.

use underload_aqm::qdisc::{Backlog, Count, DropReason};
use underload_tc::printed::Reading;

/// QueueCounters of packets that found the queue full.
const FULL: [&str; 7] =
    ["drop_overlimit", "overlimit", "overmemory", "pdrop", "bucketdrop", "queuedrop", "childdrop"];
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

/// The counters of a queue at one instant, since its creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueCounters {
    pub sent: Count,
    /// Packets by reason. Linux counts no bytes of them.
    pub drops: Vec<(DropReason, u64)>,
    pub marks: u64,
    pub backlog: Backlog,
    /// The queue's state, such as `pie.probability`, by the names of our records.
    pub gauges: Vec<(&'static str, f64)>,
}

impl QueueCounters {
    /// Finds the queue of a device by its handle; `None` if it has none.
    pub fn find(queues: &[Reading], device: &str, handle: &str) -> Option<Self> {
        let is_it = |it: &&Reading| it.device == device && it.qdisc.handle == handle;
        queues.iter().find(is_it).map(Self::new)
    }

    fn new(reading: &Reading) -> Self {
        let (kind, counts) = (reading.qdisc.kind.as_str(), &reading.counts);
        let gauge = |(of, key, name, factor): &(&str, &str, &'static str, f64)| {
            let value = reading.number(key).filter(|_| *of == kind)?;
            Some((*name, value * factor))
        };
        let full = FULL.iter().map(|key| reading.count(key)).sum();
        Self {
            sent: Count { packets: counts.sent_packets, bytes: counts.sent_bytes },
            drops: drops(kind, counts.dropped, full),
            marks: counts.marked.unwrap_or(0),
            backlog: Backlog {
                packets: counts.backlog_packets.try_into().unwrap_or(u32::MAX),
                bytes: counts.backlog_bytes,
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
    use underload_tc::printed::parse_readings;

    use super::*;

    /// The shortened output of iproute2 6.1 (of 7.3 for dualpi2) in a guest with Linux 7.3.4.
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
        let queues = parse_readings(PRINTED).expect("JSON");
        let pie = QueueCounters::find(&queues, "to-server", "10:").expect("a queue");
        assert_eq!(pie.sent, Count { packets: 200, bytes: 302_800 });
        assert_eq!(pie.backlog, Backlog { packets: 3, bytes: 4_542 });
        assert_eq!(pie.drops, [(DropReason::Early, 10), (DropReason::Overlimit, 2)]);
        assert_eq!((pie.dropped(), pie.marks), (12, 4));
        assert_eq!(pie.gauges, [("pie.probability", 0.25), ("pie.delay_ns", 1_500_000.0)]);
        let wire = QueueCounters::find(&queues, "to-client", "20:").expect("a wire");
        assert_eq!(wire.drops[0], (DropReason::Loss, 7));
        let cake = QueueCounters::find(&queues, "to-client", "10:").expect("a queue");
        assert_eq!((cake.dropped(), cake.marks), (5, 3));
        assert_eq!(cake.gauges, [("cake.memory_bytes", 4096.0)]);
        let dualpi2 = QueueCounters::find(&queues, "to-core", "10:").expect("a queue");
        assert_eq!(dualpi2.marks, 7);
    }

    #[test]
    fn missing_queues_and_malformed_counters_count_as_zero() {
        let queues = parse_readings(PRINTED).expect("JSON");
        assert_eq!(QueueCounters::find(&queues, "to-server", "20:"), None);
        let odd = r#"[{"dev":"d","handle":"10:","kind":"x","drops":"x","qlen":99999999999}]"#;
        let odd = QueueCounters::find(&parse_readings(odd).expect("JSON"), "d", "10:");
        assert_eq!(odd.expect("a queue").backlog.packets, u32::MAX);
    }
}
