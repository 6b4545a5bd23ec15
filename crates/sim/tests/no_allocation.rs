//! Once warm, a trial allocates nothing per packet, and its peak memory is small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::InteractiveVideoConfig;
use underload_sim::application::voip::VoipConfig;
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Phases, SimConfig, TrialLabel, run};

struct Counting;

/// The counts are global, so the tests run one at a time.
static TURN: Mutex<()> = Mutex::new(());

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes allocated and not freed, and their maximum since a trial began.
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        let size = layout.size() as u64;
        let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and packets of a trial of that length.
fn cost(queue: &str, seconds: u64) -> (u64, u64) {
    let flow =
        |index| FlowConfig::new(format!("bulk-{index}"), FlowKind::Tcp(TcpConfig::default()));
    let config = SimConfig {
        up: vec![HopConfig::parse(queue, "50mbit:delay=20ms").unwrap()],
        down: vec![HopConfig::parse("fifo:limit=1000p", "50mbit:delay=20ms").unwrap()],
        flows: (0..5).map(flow).collect(),
        phases: Phases { load: Span::from_secs(seconds), ..Phases::default() },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    };
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    let outcome = run(config).unwrap();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let bytes = PEAK.load(Ordering::Relaxed) - live;
    assert!(bytes < 2 << 20, "{bytes} bytes for five flows");
    (allocations, outcome.cost.packets)
}

#[test]
fn a_longer_trial_allocates_no_more() {
    let _turn = TURN.lock();
    for queue in ["fifo:limit=300p", "codel:profile=linux", "pie:profile=linux", "fq-codel"] {
        let (short, packets_short) = cost(queue, 20);
        let (long, packets_long) = cost(queue, 60);
        assert!(packets_long > packets_short + 200_000, "the premise: more packets flowed");
        // A ring that grows late in the run may double once or twice.
        assert!(long <= short + 4, "{queue}: {short} allocations in 20 s, {long} in 60 s");
    }
}

/// Allocations of applications over datagrams in a trial of that length.
fn application_cost(seconds: u64) -> u64 {
    let kinds = [
        ApplicationConfig::Voip(VoipConfig::default()),
        ApplicationConfig::Game(GameConfig),
        ApplicationConfig::CloudGame(CloudGameConfig::default()),
        ApplicationConfig::CloudGame(CloudGameConfig {
            least_rate: Some(Rate::from_megabits_per_second(1)),
            ..CloudGameConfig::default()
        }),
        ApplicationConfig::InteractiveVideo(InteractiveVideoConfig::default()),
    ];
    let flow = |(index, kind): (usize, ApplicationConfig)| {
        FlowConfig::new(format!("{}-{index}", kind.name()), FlowKind::Application(kind))
    };
    let config = SimConfig {
        up: vec![HopConfig::parse("fifo:limit=100p", "10mbit:delay=20ms").unwrap()],
        down: vec![HopConfig::parse("fifo:limit=100p", "16mbit:delay=20ms").unwrap()],
        flows: kinds.into_iter().enumerate().map(flow).collect(),
        phases: Phases { load: Span::from_secs(seconds), ..Phases::default() },
        seed: 1,
        sample_interval: None,
        label: TrialLabel::default(),
    };
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(config).unwrap();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn applications_over_datagrams_allocate_nothing_per_packet() {
    let _turn = TURN.lock();
    let (short, long) = (application_cost(20), application_cost(60));
    assert!(long <= short + 8, "{short} allocations in 20 s, {long} in 60 s");
}
