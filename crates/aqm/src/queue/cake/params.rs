//! The parameters of CAKE, and the queue out of them.

use alloc::boxed::Box;

use super::Cake;
use super::shaper::{Framing, Overhead};
use super::tins::Tins;
use crate::config::{Bytes, Definition, Key, Kind, Profile, Quantity, Value, Values};
use crate::packet::Meta;
use crate::qdisc::Qdisc;
use crate::rate::Rate;
use crate::rng::Rng;
use crate::time::Span;

/// Parameters of [`Cake`].
#[derive(Clone, Debug)]
pub struct CakeConfig {
    /// What its own shaper lets pass; `None`: the link behind sets the pace.
    pub rate: Option<Rate>,
    /// What a packet is charged.
    pub overhead: Overhead,
    /// How packets are sorted by codepoint.
    pub tins: Tins,
    /// Who shares with whom.
    pub isolation: Isolation,
    /// Round trip that senders are expected to have.
    pub rtt: Span,
    /// Bytes stored at most.
    pub memory_bytes: u64,
    /// Whether the link to protect lies before this queue: drops are charged too.
    pub ingress: bool,
    /// Largest packet in bytes, of which one and a half may always wait.
    pub mtu_bytes: u32,
}

impl CakeConfig {
    pub(crate) fn build<P: 'static>(&self, rng: &Rng) -> Box<dyn Qdisc<P>> {
        Box::new(Cake::new(self.clone(), rng))
    }

    /// Delay that may stand, where the rate is not too low for it; in whole microseconds, like
    /// the kernel's.
    pub(super) fn target(&self) -> Span {
        Span::from_micros((self.rtt.as_nanos() / 20_000).max(1))
    }
}

/// What makes a flow, and among whom the link is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All is one flow.
    None,
    /// A flow is all that comes from one host.
    Source,
    /// A flow is all that goes to one host.
    Destination,
    /// A flow is all that goes from one host to another.
    Hosts,
    /// A flow is a 5-tuple.
    Flows,
    /// 5-tuples, shared by their sources first.
    DualSource,
    /// 5-tuples, shared by their destinations first.
    DualDestination,
    /// 5-tuples, shared by whichever of their hosts has more of them.
    Triple,
}

impl Isolation {
    /// Whether sources are given equal shares.
    #[inline]
    pub const fn shares_by_source(self) -> bool {
        matches!(self, Self::DualSource | Self::Triple)
    }

    /// Whether destinations are given equal shares.
    #[inline]
    pub const fn shares_by_destination(self) -> bool {
        matches!(self, Self::DualDestination | Self::Triple)
    }

    /// What the packets of one flow have in common.
    #[inline]
    pub(super) const fn hash(self, meta: &Meta) -> u32 {
        match self {
            Self::None => 0,
            Self::Source => meta.src,
            Self::Destination => meta.dst,
            Self::Hosts => meta.src ^ meta.dst,
            Self::Flows | Self::DualSource | Self::DualDestination | Self::Triple => meta.flow,
        }
    }
}

/// Gives a type the words that stand for its values.
macro_rules! choices {
    ($Type:ty { $($word:literal => $value:expr,)* }) => {
        impl Quantity for $Type {
            type Value = Self;

            const KIND: Kind = Kind::Choice(&[$($word),*]);

            fn of(value: Option<Value>) -> Option<Self> {
                match value? {
                    $(Value::Choice($word) => Some($value),)*
                    _ => None,
                }
            }
        }
    };
}

choices!(Isolation {
    "triple-isolate" => Self::Triple,
    "dual-srchost" => Self::DualSource,
    "dual-dsthost" => Self::DualDestination,
    "flows" => Self::Flows,
    "hosts" => Self::Hosts,
    "srchost" => Self::Source,
    "dsthost" => Self::Destination,
    "flowblind" => Self::None,
});

choices!(Tins {
    "diffserv3" => Self::Three,
    "diffserv4" => Self::Four,
    "diffserv8" => Self::Eight,
    "precedence" => Self::Precedence,
    "besteffort" => Self::BestEffort,
});

choices!(Framing {
    "none" => Self::None,
    "atm" => Self::Atm,
    "ptm" => Self::Ptm,
});

/// The round trip of a kind of path.
#[derive(Debug)]
enum PathRtt {}

impl Quantity for PathRtt {
    type Value = Span;

    const KIND: Kind = Kind::Choice(&[
        "datacentre",
        "lan",
        "metro",
        "regional",
        "internet",
        "oceanic",
        "satellite",
        "interplanetary",
    ]);

    fn of(value: Option<Value>) -> Option<Span> {
        let Value::Choice(word) = value? else { return None };
        Some(match word {
            "datacentre" => Span::from_micros(100),
            "lan" => Span::from_millis(1),
            "metro" => Span::from_millis(10),
            "regional" => Span::from_millis(30),
            "internet" => Span::from_millis(100),
            "oceanic" => Span::from_millis(300),
            "satellite" => Span::from_secs(1),
            "interplanetary" => Span::from_secs(3_600),
            _ => return None,
        })
    }
}

const RATE: Key<Option<Rate>> = Key::optional(
    "rate",
    "nothing is shaped, the link behind sets the pace",
    "rate of its own shaper",
)
.within("1kbit", "400gbit");

const TINS: Key<Tins> =
    Key::new("tins", "diffserv3", "how packets are sorted by codepoint, each class its share");

const ISOLATION: Key<Isolation> =
    Key::new("isolation", "triple-isolate", "what a flow is, and among whom the link is shared");

const PATH: Key<PathRtt> = Key::new(
    "path",
    "internet",
    "round trip by name: 100us, 1ms, 10ms, 30ms, 100ms, 300ms, 1s, 3600s",
);

const RTT: Key<Option<Span>> = Key::optional(
    "rtt",
    "that of `path`",
    "round trip that senders are expected to have; the target is a 20th of it",
)
.within("1us", "3600s");

const OVERHEAD: Key<Bytes> =
    Key::new("overhead", "0B", "bytes charged on top of each packet").within("0B", "256B");

const MPU: Key<Bytes> =
    Key::new("mpu", "0B", "bytes charged at least per packet, overhead included")
        .within("0B", "256B");

const FRAMING: Key<Framing> =
    Key::new("framing", "none", "how the line cuts packets: cells of ATM, or PTM's 64/65 coding");

const MEMORY: Key<Option<Bytes>> = Key::optional(
    "memory",
    "four times rate times rtt, 4 MiB to 10240 packets of `mtu`; without a rate the latter",
    "bytes stored at most",
)
.within("64B", "4095MiB");

const INGRESS: Key<bool> =
    Key::new("ingress", "off", "charge what is dropped, for a bottleneck before this queue");

const MTU: Key<Bytes> =
    Key::new("mtu", "1514B", "largest packet; one and a half of them may always wait")
        .within("64B", "64KiB");

pub(crate) const DEFINITION: Definition = Definition {
    name: "cake",
    summary: "CAKE: COBALT per flow, fair by host, tins by codepoint, a shaper of its own",
    source: "arXiv 1804.07617, Linux sch_cake",
    profiles: &[Profile { name: "linux", doc: "Linux 6.12: sch_cake as tc sets it up" }],
    params: &[
        RATE.param(),
        TINS.param(),
        ISOLATION.param(),
        PATH.param(),
        RTT.param(),
        OVERHEAD.param(),
        MPU.param(),
        FRAMING.param(),
        MEMORY.param(),
        INGRESS.param(),
        MTU.param(),
    ],
    ..Definition::BARE
};

pub(crate) fn configure(values: &Values) -> CakeConfig {
    let rate = values.get(RATE);
    let rtt = values.get(RTT).unwrap_or(values.get(PATH));
    let mtu_bytes = values.get(MTU) as u32;
    let memory_bytes =
        values.get(MEMORY).unwrap_or_else(|| default_memory_bytes(rate, rtt, mtu_bytes));
    CakeConfig {
        rate,
        overhead: Overhead {
            bytes: values.get(OVERHEAD) as u32,
            minimum_bytes: values.get(MPU) as u32,
            framing: values.get(FRAMING),
        },
        tins: values.get(TINS),
        isolation: values.get(ISOLATION),
        rtt,
        memory_bytes,
        ingress: values.get(INGRESS),
        mtu_bytes,
    }
}

/// Four times what the rate brings in a round trip, at least 4 MiB, at most as many largest
/// packets as a queue has by default in Linux.
fn default_memory_bytes(rate: Option<Rate>, rtt: Span, mtu_bytes: u32) -> u64 {
    let most = 10_240 * u64::from(mtu_bytes);
    let wanted = |rate: Rate| rate.bytes_in(rtt).saturating_mul(4).max(4 << 20);
    rate.map_or(most, |rate| wanted(rate).min(most))
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
    fn a_path_by_name_is_a_round_trip_and_the_target_its_twentieth() {
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
