//! What a gateway is told: a link and a queue for each direction, and how to carry packets.

use underload_aqm::link::hop_stream;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_record::schema::Direction;

/// One direction: a queue and the link behind it.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Rate, delay, loss, overhead.
    pub link: LinkSetup,
    /// The queue in front of the link.
    pub queue: QueueSetup,
}

/// Whether the kernel may hand over super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Where the link's peak rate is above [`Offload::AUTO_RATE`]. Below it, segmentation is left
    /// to the kernel, so that senders behave as on a wire without offload.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Offload {
    /// Where `Auto` switches over: at 200 Mbit/s a super-packet of 64 KiB takes 2.6 ms.
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

/// Number of threads that carry the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One thread for both directions.
    #[default]
    One,
    /// One thread for each direction.
    Two,
}

/// Links, threads and limits of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The link from the client to the server.
    pub up: LaneConfig,
    /// The link from the server to the client.
    pub down: LaneConfig,
    /// Seed of everything random, and key of the flow hash.
    pub seed: u64,
    /// Whether the kernel may hand over super-packets.
    pub offload: Offload,
    /// Number of threads.
    pub threads: Threads,
    /// Whether to ask for real-time priority and resident memory.
    pub realtime: bool,
    /// How long before a deadline a thread stops sleeping.
    pub spin: Span,
    /// Interval of the time series.
    pub sample_interval: Span,
    /// Bytes of buffers for each direction, at most.
    pub buffer_limit_bytes: usize,
}

impl GatewayConfig {
    /// The defaults for two directions.
    pub fn new(up: LaneConfig, down: LaneConfig) -> Self {
        Self {
            up,
            down,
            seed: 1,
            offload: Offload::Auto,
            threads: Threads::One,
            realtime: true,
            spin: Span::from_micros(150),
            sample_interval: Span::from_millis(10),
            buffer_limit_bytes: 256 << 20,
        }
    }

    /// Where one direction's link and queue draw their random numbers from.
    pub(crate) fn stream(&self, direction: Direction) -> Rng {
        hop_stream(&Rng::new(self.seed), direction.name(), 0)
    }
}
