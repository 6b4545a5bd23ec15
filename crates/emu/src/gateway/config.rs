//! The configuration of a gateway.

use underload_aqm::link::hop_stream;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_record::schema::Direction;

/// One direction: a queue and its link.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Rate, delay, loss and overhead.
    pub link: LinkSetup,
    pub queue: QueueSetup,
}

/// Whether the kernel may deliver super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// If the link's peak rate is above [`Offload::AUTO_RATE`]. At lower rates the kernel segments,
    /// so that senders behave as on a wire without offload.
    #[default]
    Auto,
    On,
    Off,
}

impl Offload {
    /// The limit of `Auto`: at 200 Mbit/s a super-packet of 64 KiB takes 2.6 ms.
    pub const AUTO_RATE: Rate = Rate::from_megabits_per_second(200);

    pub(super) fn is_on(self, link: &LinkSetup) -> bool {
        let facts = link.facts();
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => facts
                .peak
                .max(facts.rate)
                .is_none_or(|rate| rate.bits_per_second() > Self::AUTO_RATE.bits_per_second()),
        }
    }
}

/// Links and limits of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Link from the client to the server.
    pub up: LaneConfig,
    /// Link from the server to the client.
    pub down: LaneConfig,
    /// Seed of all random numbers, and key of the flow hash.
    pub seed: u64,
    pub offload: Offload,
    /// Whether to request real-time priority and resident memory.
    pub realtime: bool,
    /// Time before a deadline at which the thread stops sleeping and spins.
    pub spin: Span,
    /// Whether time passes only while every thread waits, as in a guest kernel, which also takes
    /// longer for a system call than for a packet: the thread does not spin then, reads the clock
    /// once per wake-up, and only devices that have a frame.
    pub time_is_virtual: bool,
    /// Interval of the time series, and of the counters that [`super::Gateway::read`] returns.
    pub sample_interval: Span,
    /// Limit of the buffers of each direction.
    pub buffer_limit_bytes: usize,
}

impl GatewayConfig {
    /// A configuration with defaults for everything but the links.
    pub fn new(up: LaneConfig, down: LaneConfig) -> Self {
        Self {
            up,
            down,
            seed: 1,
            offload: Offload::Auto,
            realtime: true,
            spin: Span::from_micros(150),
            time_is_virtual: false,
            sample_interval: Span::from_millis(10),
            buffer_limit_bytes: 256 << 20,
        }
    }

    /// Returns the random stream of a direction's link and queue.
    pub(crate) fn stream(&self, direction: Direction) -> Rng {
        hop_stream(&Rng::new(self.seed), direction.name(), 0)
    }
}
