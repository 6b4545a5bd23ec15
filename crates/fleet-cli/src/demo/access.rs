//! The access network of the demo: a line for each home, and the network of the servers. Every
//! packet of a home passes its line's queues in real time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use underload_agent::measure::{Carried, Carrier};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::time::Span;
use underload_emu::gateway::{Gateway, GatewayConfig, LaneConfig};
use underload_emu::machine::{Clock, Namespace, Tun};
use underload_fleet::device::Attributes;
use underload_record::schema::Direction;

/// The upstream of every line: a modem that requests grants and waits for them, as in the scenario
/// `low-latency/trial`, at a rate that a small machine can forward for many lines at once.
const UP: &str = "docsis:rate=5mbit,burst=16KiB,peak=6mbit,map=2ms,grant=4ms,delay=6ms";
const DOWN: &str = "25mbit:delay=6ms";
const DOWN_QUEUE: &str = "fifo:limit=1000p";
/// Up and down, bit/s; leases allow as much.
pub(super) const TIER_BIT_PER_S: (u64, u64) = (6_000_000, 25_000_000);
/// Interval at which counters are published; threads sleep in between.
const SAMPLE_INTERVAL: Span = Span::from_millis(200);
/// Lines that share a segment, as in the plans.
const PER_SEGMENT: usize = 2;
/// The home's network device, to which the default route leads: the agent watches that one.
const DEVICE: &str = "ul0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A buffer of 250 ms.
    Buffer,
    Aqm,
    /// The two queues of Low Latency DOCSIS.
    LowLatency,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Buffer, Self::Aqm, Self::LowLatency];

    /// Queue, attribute `configured`, by which the plans' cohorts select lines, and model.
    fn facts(self) -> [&'static str; 3] {
        match self {
            Self::Buffer => ["buffer-control:target=250ms", "drop-tail", "modem-a"],
            Self::Aqm => ["docsis-pie", "docsis-pie", "modem-b"],
            Self::LowLatency => ["docsis-lld", "low-latency", "modem-c"],
        }
    }
}

/// The network of the servers, the only one that lines lead to.
pub(super) struct Internet {
    namespace: Namespace,
}

impl Internet {
    pub(super) fn create() -> anyhow::Result<Self> {
        let namespace = Namespace::create("internet")?;
        for host in [host_address(ORCHESTRATOR), host_address(SINK)] {
            namespace.configure(&format!("addr add {host}/32 dev lo\n"))?;
        }
        namespace.set_parameter("net/ipv4/tcp_no_metrics_save", "1")?;
        Ok(Self { namespace })
    }

    pub(super) fn add_host(&self, host: u8) -> anyhow::Result<String> {
        let address = host_address(host);
        self.namespace.configure(&format!("addr add {address}/32 dev lo\n"))?;
        Ok(address)
    }

    /// Runs `action` in this network; threads that it starts stay in it.
    pub(super) fn inside<T: Send>(&self, action: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(self.namespace.enter(action)?)
    }
}

/// Hosts of the internet, by the last byte of their address.
pub(super) const ORCHESTRATOR: u8 = 1;
/// Receives the traffic that people in homes send.
pub(super) const SINK: u8 = 2;
pub(super) const FIRST_SERVER: u8 = 11;

pub(super) fn host_address(host: u8) -> String {
    format!("10.202.0.{host}")
}

pub(super) struct Line {
    pub number: usize,
    pub kind: Kind,
    home: Namespace,
    internet: Arc<Internet>,
    far_device: String,
    ends: (Tun, Tun),
    config: GatewayConfig,
    wire: Mutex<Wire>,
}

struct Wire {
    /// `None` while the line is cut.
    gateway: Option<Gateway>,
    /// Counts of earlier gateways.
    before: Carried,
}

impl Line {
    /// Builds line number `number`, from 0, of at most 200.
    pub(super) fn build(internet: &Arc<Internet>, number: usize) -> anyhow::Result<Self> {
        let kind = Kind::ALL[number % Kind::ALL.len()];
        let home = Namespace::create(&format!("home-{number}"))?;
        let far_device = format!("line{number}");
        let ends = (Tun::create(&home, DEVICE)?, Tun::create(&internet.namespace, &far_device)?);
        // TCP must not reuse what it learned of the path in an earlier run.
        home.set_parameter("net/ipv4/tcp_no_metrics_save", "1")?;
        let (near, far) = (format!("10.201.{number}.1"), format!("10.201.{number}.2"));
        home.configure(&format!(
            "link set {DEVICE} mtu 1500 txqueuelen 10000 addrgenmode none\n\
             link set {DEVICE} up\n\
             addr add {near}/24 dev {DEVICE}\n\
             route add default via {far} dev {DEVICE}\n"
        ))?;
        internet.namespace.configure(&format!(
            "link set {far_device} mtu 1500 txqueuelen 10000 addrgenmode none\n\
             link set {far_device} up\n\
             addr add {far}/24 dev {far_device}\n"
        ))?;
        let config = config(kind, number as u64)?;
        let gateway = Gateway::start(config.clone(), (&ends.0, &ends.1), Clock::start())?;
        let wire = Mutex::new(Wire { gateway: Some(gateway), before: Carried::default() });
        let internet = Arc::clone(internet);
        Ok(Self { number, kind, home, internet, far_device, ends, config, wire })
    }

    /// The attributes that an operator enters for the line.
    pub(super) fn attributes(&self) -> Attributes {
        let (up, down) = TIER_BIT_PER_S;
        let [_, configured, model] = self.kind.facts();
        Attributes {
            model: model.to_owned(),
            firmware: "demo".to_owned(),
            tier_up_bit_per_s: up,
            tier_down_bit_per_s: down,
            segment: format!("segment-{:02}", self.number / PER_SEGMENT + 1),
            region: if (self.number / PER_SEGMENT).is_multiple_of(2) { "north" } else { "south" }
                .to_owned(),
            configured: configured.to_owned(),
            measured: String::new(),
        }
    }

    pub(super) fn at_home<T: Send>(&self, action: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(self.home.enter(action)?)
    }

    /// Bytes that the home has sent since the line was built or mended.
    pub(super) fn sent_bytes(&self) -> u64 {
        let wire = self.wire();
        wire.gateway.as_ref().map_or(0, |gateway| gateway.read(Direction::Up).sent_bytes)
    }

    pub(super) fn cut(&self) {
        let mut wire = self.wire();
        if let Some(gateway) = wire.gateway.take() {
            wire.before = sum(wire.before, counts(&gateway));
            // The packets in the queues. Any loss by the line makes a run invalid.
            wire.before.lost += 1;
        }
    }

    pub(super) fn mend(&self) -> anyhow::Result<()> {
        let mut wire = self.wire();
        if wire.gateway.is_none() {
            let ends = (&self.ends.0, &self.ends.1);
            wire.gateway = Some(Gateway::start(self.config.clone(), ends, Clock::start())?);
        }
        Ok(())
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        // No code panics while it holds the lock and has changed only a part of the state.
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier for Line {
    fn carried(&self) -> Carried {
        let carried = {
            let wire = self.wire();
            sum(wire.before, wire.gateway.as_ref().map(counts).unwrap_or_default())
        };
        let near = self.home.kernel_drops(DEVICE);
        let far = self.internet.namespace.kernel_drops(&self.far_device);
        let lost = [near, far].into_iter().filter_map(|drops| drops.ok().flatten());
        Carried { lost: carried.lost + lost.sum::<u64>(), ..carried }
    }
}

fn counts(gateway: &Gateway) -> Carried {
    let both = [Direction::Up, Direction::Down].map(|direction| gateway.read(direction));
    Carried {
        packets: both.iter().map(|it| it.delivered).sum(),
        late: both.iter().map(|it| it.late).sum(),
        lost: 0,
    }
}

fn sum(one: Carried, other: Carried) -> Carried {
    Carried {
        packets: one.packets + other.packets,
        late: one.late + other.late,
        lost: one.lost + other.lost,
    }
}

fn config(kind: Kind, seed: u64) -> anyhow::Result<GatewayConfig> {
    let lane = |link: &str, queue: &str| -> anyhow::Result<LaneConfig> {
        let link = LinkSetup::parse(link).context("the line's link")?;
        let queue = QueueSetup::parse(queue, &link.facts()).context("the line's queue")?;
        Ok(LaneConfig { link, queue })
    };
    Ok(GatewayConfig {
        seed,
        // Many threads that spin before their deadlines would delay each other.
        spin: Span::ZERO,
        sample_interval: SAMPLE_INTERVAL,
        buffer_limit_bytes: 16 << 20,
        ..GatewayConfig::new(lane(UP, kind.facts()[0])?, lane(DOWN, DOWN_QUEUE)?)
    })
}

#[cfg(test)]
mod tests {
    use underload_fleet::plan::Plan;

    use super::*;

    #[test]
    fn every_kind_of_line_is_in_the_compared_cohorts() {
        let [study, trial] = super::super::PLANS.map(|text| Plan::parse(text).expect("a plan"));
        let cohort = |plan: &Plan, kind: Kind| {
            let configured = kind.facts()[1].to_owned();
            let attributes = Attributes { configured, ..Attributes::default() };
            let device = underload_fleet::device::DeviceId([0; 16]);
            let place = plan.cohort_of(device, &attributes)?;
            Some(place.to_owned())
        };
        let cohorts = Kind::ALL.map(|kind| [cohort(&study, kind), cohort(&trial, kind)]);
        let [buffer, aqm, low_latency] = cohorts;
        assert_ne!(buffer[0], aqm[0]);
        assert!(buffer[0].is_some() && aqm[0].is_some() && low_latency[0].is_none());
        assert_eq!(buffer[1], aqm[1]);
        assert_ne!(buffer[1], low_latency[1]);
        for kind in Kind::ALL {
            config(kind, 1).expect("its queue and link can be built");
        }
    }
}
