//! The parameters of CAKE, and the construction of the queue from them.

use alloc::boxed::Box;

use super::Cake;
use super::config::Isolation;
use super::shaper::{Framing, Overhead};
use super::tins::Tins;
use crate::config::{Bytes, ConfigError, Profile, Values, choices, from_values, params};
use crate::qdisc::BoxedQdisc;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::Span;

impl CakeConfig {
    pub(crate) fn build<P: Send + 'static>(&self, rng: &Rng) -> BoxedQdisc<P> {
        Box::new(Cake::new(self.clone(), rng))
    }
}

choices!(Isolation {
    "triple-isolate" => Triple,
    "dual-srchost" => DualSource,
    "dual-dsthost" => DualDestination,
    "flows" => Flows,
    "hosts" => Hosts,
    "srchost" => Source,
    "dsthost" => Destination,
    "flowblind" => None,
});

choices!(Tins {
    "diffserv3" => Three,
    "diffserv4" => Four,
    "diffserv8" => Eight,
    "precedence" => Precedence,
    "besteffort" => BestEffort,
});

choices!(Framing {
    "none" => None,
    "atm" => Atm,
    "ptm" => Ptm,
});

/// The round trip of a kind of path.
enum PathRtt {}

choices!(PathRtt => Span {
    "datacentre" => Span::from_micros(100),
    "lan" => Span::from_millis(1),
    "metro" => Span::from_millis(10),
    "regional" => Span::from_millis(30),
    "internet" => Span::from_millis(100),
    "oceanic" => Span::from_millis(300),
    "satellite" => Span::from_secs(1),
    "interplanetary" => Span::from_secs(3_600),
});

params! {
    define DEFINITION: "cake",
        "CAKE: COBALT per flow, fair by host, tins by codepoint, a shaper of its own",
        source: "arXiv 1804.07617, Linux sch_cake",
        profiles: &[Profile { name: "linux", doc: "Linux 6.12: sch_cake as tc sets it up" }],
        tc_keys: &[("bandwidth", "rate"), ("memlimit", "memory"), ("memory-limit", "memory")];
    RATE: Option<Rate> = "rate",
        ("nothing is shaped, the link behind sets the pace") in "1kbit".."400gbit",
        "rate of its own shaper";
    TINS: Tins = "tins", "diffserv3", "how packets are sorted by codepoint, each class its share";
    ISOLATION: Isolation = "isolation", "triple-isolate",
        "what a flow is, and among whom the link is shared";
    PATH: PathRtt = "path", "internet",
        "round trip by name: 100us, 1ms, 10ms, 30ms, 100ms, 300ms, 1s, 3600s";
    RTT: Option<Span> = "rtt", ("that of `path`") in "1us".."3600s",
        "round trip that senders are expected to have; the target is a 20th of it";
    OVERHEAD: Bytes = "overhead", "0B" in "0B".."256B", "bytes charged on top of each packet";
    MPU: Bytes = "mpu", "0B" in "0B".."256B",
        "bytes charged at least per packet, overhead included";
    FRAMING: Framing = "framing", "none",
        "how the line cuts packets: cells of ATM, or PTM's 64/65 coding";
    MEMORY: Option<Bytes> = "memory",
        ("four times rate times rtt, 4 MiB to 10240 packets of `mtu`; without a rate the latter")
        in "64B".."4095MiB",
        "bytes stored at most";
    INGRESS: bool = "ingress", "off", "charge what is dropped, for a bottleneck before this queue";
    MTU: Bytes = "mtu", "1514B" in "64B".."64KiB",
        "largest packet; one and a half of them may always wait";
}

from_values! {
    /// The parameters of [`Cake`](super::Cake).
    #[derive(Clone, Debug)]
    pub struct CakeConfig(values, rtt: Span) {
        /// The rate of CAKE's own shaper; `None` if the link behind the queue sets the pace.
        pub rate: Option<Rate> = values.get(RATE),
        /// The line's overhead, charged on top of each packet's length.
        pub overhead: Overhead = overhead(values),
        /// How packets are sorted by codepoint.
        pub tins: Tins = values.get(TINS),
        /// How packets are grouped into flows, and which hosts get equal shares.
        pub isolation: Isolation = values.get(ISOLATION),
        /// Expected round trip of the senders.
        pub rtt: Span = rtt,
        /// Maximum number of stored bytes.
        pub memory_bytes: u64 =
            values.get(MEMORY).unwrap_or_else(|| default_memory_bytes(values, rtt)),
        /// Whether the protected link is in front of this queue: drops are charged too.
        pub ingress: bool = values.get(INGRESS),
        /// Size of the largest packet. A delay of one and a half of it is always acceptable.
        pub mtu_bytes: u32 = values.get(MTU) as u32,
    }
}

impl CakeConfig {
    /// Returns the acceptable standing delay, longer at low rates, in whole microseconds.
    pub(super) fn target(&self) -> Span {
        Span::from_micros((self.rtt.as_nanos() / 20_000).max(1))
    }
}

pub(crate) fn configure(values: &Values) -> Result<CakeConfig, ConfigError> {
    CakeConfig::read(values, values.get(RTT).unwrap_or(values.get(PATH)))
}

fn overhead(values: &Values) -> Overhead {
    let (bytes, minimum_bytes) = (values.get(OVERHEAD) as u32, values.get(MPU) as u32);
    Overhead { bytes, minimum_bytes, framing: values.get(FRAMING) }
}

/// Returns four bandwidth-delay products, at least 4 MiB and at most 10,240 packets of the MTU,
/// Linux's default limit of a queue.
fn default_memory_bytes(values: &Values, rtt: Span) -> u64 {
    let most = 10_240 * values.get(MTU);
    let wanted = |rate: Rate| rate.bytes_in(rtt).saturating_mul(4).max(4 << 20);
    values.get(RATE).map_or(most, |rate| wanted(rate).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkFacts;
    use crate::registry::{QueueConfig, QueueSetup};

    fn config(spec: &str) -> CakeConfig {
        let setup = QueueSetup::parse(spec, &LinkFacts::UNKNOWN).expect(spec);
        let QueueConfig::Cake(config) = setup.config else { panic!("{spec} is not CAKE") };
        config
    }

    #[test]
    fn memory_follows_the_rate_between_its_bounds() {
        let memory = |spec| config(spec).memory_bytes;
        assert_eq!(memory("cake"), 10_240 * 1_514);
        assert_eq!(memory("cake:rate=20mbit"), 4 << 20);
        assert_eq!(memory("cake:rate=100mbit"), 5_000_000);
        assert_eq!(memory("cake:rate=100mbit,path=lan"), 4 << 20);
        assert_eq!(memory("cake:rate=10gbit"), 10_240 * 1_514);
        assert_eq!(memory("cake:rate=20mbit,mtu=100B"), 1_024_000);
        assert_eq!(memory("cake:rate=10gbit,memory=1MiB"), 1 << 20);
    }

    #[test]
    fn a_named_path_sets_the_round_trip_and_a_target_of_a_twentieth() {
        let times = |spec| {
            let config = config(spec);
            (config.rtt, config.target())
        };
        let (millis, micros) = (Span::from_millis, Span::from_micros);
        assert_eq!(times("cake"), (millis(100), millis(5)));
        assert_eq!(times("cake:path=datacentre"), (micros(100), micros(5)));
        assert_eq!(times("cake:path=metro,rtt=42ms"), (millis(42), micros(2_100)));
        assert_eq!(times("cake:rtt=19us"), (micros(19), micros(1)));
        assert_eq!(times("cake:path=interplanetary").1, Span::from_secs(180));
    }
}
