//! Laws of every trial: determinism, conservation, independence of threads, clear errors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use underload_aqm::packet::Ecn;
use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{BottleneckSummary, Direction, Phase};
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule, UdpConfig};
use underload_sim::net::{Event, ExtraDelay, HopConfig, Sighting, Watcher};
use underload_sim::runner::spread;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{
    Attendance, Phases, SimConfig, SimError, TrialLabel, TrialOutcome, run, run_attended,
};

fn tcp(name: &str, algorithm: Algorithm) -> FlowConfig {
    FlowConfig::new(name, FlowKind::Tcp(TcpConfig::of(algorithm)))
}

fn probe(name: &str) -> FlowConfig {
    FlowConfig::new(name, FlowKind::Probe(ProbeConfig::default()))
}

fn config(flows: Vec<FlowConfig>, queue: &str, seed: u64) -> SimConfig {
    SimConfig {
        up: vec![HopConfig::parse(queue, "20mbit:delay=20ms").unwrap()],
        down: vec![HopConfig::parse("fifo:limit=1000p", "100mbit:delay=20ms").unwrap()],
        flows,
        phases: Phases {
            idle: Span::from_secs(1),
            ramp: Span::from_secs(3),
            load: Span::from_secs(6),
            drain: Span::from_secs(2),
        },
        seed,
        sample_interval: Some(Span::from_millis(100)),
        label: TrialLabel::default(),
    }
}

fn mixed(seed: u64) -> SimConfig {
    let rate = Rate::from_megabits_per_second(1);
    let udp = UdpConfig { rate, payload_bytes: 500, ecn: Ecn::NotEct };
    let flows = vec![
        probe("probe"),
        tcp("cubic", Algorithm::Cubic),
        tcp("reno", Algorithm::Reno),
        tcp("bbr", Algorithm::Bbr),
        FlowConfig::new("sprout", FlowKind::Sprout),
        FlowConfig { direction: Direction::Down, ..tcp("down", Algorithm::Cubic) },
        FlowConfig {
            extra: ExtraDelay { up: Span::from_millis(7), down: Span::from_millis(3) },
            ..tcp("far", Algorithm::Cubic)
        },
        FlowConfig::new("udp", FlowKind::Udp(udp)),
    ];
    config(flows, "codel:profile=linux", seed)
}

fn fingerprint(outcome: &TrialOutcome) -> String {
    format!("{:?} {:?} {:?}", outcome.record, outcome.samples, outcome.series)
}

#[test]
fn the_same_seed_gives_the_same_record_on_any_number_of_threads() {
    let alone: Vec<_> = (0..4).map(|seed| fingerprint(&run(mixed(seed)).unwrap())).collect();
    assert_ne!(alone[0], alone[1], "the seed must matter");
    for threads in [1, 3] {
        let mut together = vec![String::new(); alone.len()];
        spread(
            alone.len(),
            NonZeroUsize::new(threads),
            |index| run(mixed(index as u64)),
            |index, outcome| together[index] = fingerprint(&outcome.unwrap()),
        );
        assert_eq!(alone, together, "{threads} threads");
    }
}

/// Counts sightings, and checks the order of each packet's events.
#[derive(Default)]
struct Counting {
    /// Per direction: sent, arrived, marked, dropped, departed, delivered, received.
    counts: [[u64; 7]; 2],
    /// The last instant, per direction and point of the path.
    last: BTreeMap<(u8, Option<usize>), Time>,
    /// The stage that a packet in flight has reached, by its number.
    stages: BTreeMap<u32, usize>,
    /// Sojourns of all departures.
    sojourn: Span,
}

impl Watcher for Counting {
    fn see(&mut self, sighting: &Sighting<'_>) {
        let Sighting { time, direction, hop, event, packet, len } = *sighting;
        let stage = match event {
            Event::Sent => 0,
            Event::Arrival => 1,
            Event::Mark(_) => 2,
            Event::Drop(_) => 3,
            Event::Departure { end } => {
                assert!(end > time);
                self.sojourn = self.sojourn + time.since(packet.meta.arrived);
                4
            }
            Event::Delivery => 5,
            Event::Received => 6,
        };
        self.counts[direction as usize][stage] += 1;
        let last = self.last.insert((direction as u8, hop), time);
        assert!(last.is_none_or(|last| last <= time), "{sighting:?} after {last:?}");
        let id = packet.meta.id;
        // Later links come after earlier ones, the far endpoint after all.
        let place = hop.unwrap_or(if stage == 0 { 0 } else { 8 });
        // A packet that the link loses has departed before.
        let (kind, stage) = (stage, 10 * place + if stage == 3 { 9 } else { stage });
        match kind {
            0 => assert_eq!(self.stages.insert(id, stage), None, "a number for each packet"),
            3 | 6 => assert!(self.stages.remove(&id).is_some_and(|before| before < stage)),
            _ => assert!(self.stages.insert(id, stage).is_some_and(|before| before < stage)),
        }
        assert!((40..=1500).contains(&len), "{sighting:?}");
    }
}

#[test]
fn a_watcher_sees_every_packet_at_every_place_and_changes_nothing() {
    let mut config = mixed(3);
    config.up = vec![
        HopConfig::parse("fifo:limit=300p", "40mbit:delay=5ms,overhead=14B").unwrap(),
        HopConfig::parse("codel:profile=linux", "20mbit:delay=15ms,loss=0.1%").unwrap(),
    ];
    let watcher = Rc::new(RefCell::new(Counting::default()));
    let attendance = Attendance { watcher: Some(watcher.clone()), ..Attendance::default() };
    let watched = run_attended(config.clone(), &attendance).unwrap();
    let unwatched = run(config).unwrap();
    assert_eq!(fingerprint(&watched), fingerprint(&unwatched));
    let seen = watcher.borrow();
    let departures = seen.counts[0][4] + seen.counts[1][4];
    assert_eq!(departures, watched.cost.packets, "every packet that the links sent");
    assert!(seen.counts[0][3] > 10, "the premise: packets were dropped");
    let dropped: u64 =
        watched.record.bottlenecks.iter().map(BottleneckSummary::dropped_packets).sum();
    assert_eq!(seen.counts[0][3] + seen.counts[1][3], dropped);
    for [sent, arrived, _, dropped, _, delivered, received] in seen.counts {
        assert_eq!(sent, received + dropped, "nothing disappears");
        assert!(arrived >= delivered && delivered >= received);
    }
    assert!(seen.stages.is_empty(), "{} packets never arrived", seen.stages.len());
    assert!(seen.sojourn > Span::from_secs(10), "{:?}", seen.sojourn);
}

#[test]
fn a_trial_stops_on_request() {
    let stop = AtomicBool::new(true);
    let attendance = Attendance { stop: Some(&stop), ..Attendance::default() };
    assert_eq!(run_attended(mixed(1), &attendance).unwrap_err(), SimError::Stopped);
}

#[test]
fn queues_report_every_lost_packet() {
    let outcome = run(mixed(7)).unwrap();
    for direction in [Direction::Up, Direction::Down] {
        let windows: Vec<_> =
            outcome.record.bottlenecks.iter().filter(|b| b.direction == direction).collect();
        let offered: u64 = windows.iter().map(|b| b.offered.packets).sum();
        let sent: u64 = windows.iter().map(|b| b.sent.packets).sum();
        let dropped: u64 = windows.iter().map(|b| b.dropped_packets()).sum();
        assert!(sent > 1_000, "{direction}: the premise: traffic flowed");
        assert_eq!(offered, sent + dropped, "{direction}: the queue drained in two seconds");
    }
}

#[test]
fn an_idle_round_trip_is_both_delays_and_both_transmission_times() {
    let outcome = run(config(vec![probe("probe")], "fifo:limit=100p", 1)).unwrap();
    // An 80-byte packet takes 32 us at 20 Mbit/s and 6.4 us at 100 Mbit/s.
    assert_eq!(outcome.samples.len(), 600);
    for sample in &outcome.samples {
        assert_eq!(sample.rtt_ns, Some(40_000_000 + 32_000 + 6_400));
        assert_eq!(sample.one_way_up_ns, Some(20_032_000));
        assert_eq!(sample.scheduled_ns, sample.sequence * 20_000_000);
    }
    let phases: Vec<_> = outcome.record.latencies.iter().map(|l| l.window.phase).collect();
    assert!(phases.contains(&Phase::Idle) && phases.contains(&Phase::Load));
}

#[test]
fn a_busy_fifo_shows_its_depth_to_the_open_loop_probe_and_fills_the_link() {
    let flows = vec![probe("probe"), tcp("bulk", Algorithm::Cubic)];
    let outcome = run(config(flows, "fifo:limit=150000B", 1)).unwrap();
    let load = outcome
        .record
        .latencies
        .iter()
        .find(|latency| latency.window.phase == Phase::Load)
        .and_then(|latency| latency.distribution)
        .unwrap();
    // At 20 Mbit/s, 150 kB take 60 ms.
    assert!((99_000_000..=101_500_000).contains(&load.max_ns), "{load:?}");
    let goodput = outcome.record.flows[1].goodput_up_bit_per_s.unwrap();
    assert!((19_000_000..=19_400_000).contains(&goodput), "{goodput}");
}

#[test]
fn a_closed_loop_probe_sends_on_answers_and_survives_loss() {
    let schedule = ProbeSchedule::Closed { timeout: Span::from_secs(1) };
    let closed = ProbeConfig { schedule, ..ProbeConfig::default() };
    let flows = vec![FlowConfig::new("closed", FlowKind::Probe(closed))];
    let mut config = config(flows, "fifo:limit=100p", 1);
    config.up = vec![HopConfig::parse("fifo:limit=100p", "20mbit:delay=20ms,loss=5%").unwrap()];
    let outcome = run(config).unwrap();
    let lost = outcome.samples.iter().filter(|sample| sample.rtt_ns.is_none()).count();
    let answered = outcome.samples.len() - lost;
    assert!(lost > 0, "the premise: something was lost");
    // The 12 s consist of `answered` round trips of 40.04 ms and `lost` timeouts of a second.
    let spent = answered as f64 * 0.040_044 + lost as f64;
    assert!((spent - 12.0).abs() < 1.1, "{answered} answered, {lost} lost");
    assert!(outcome.samples.iter().all(|sample| sample.closed_loop));
}

#[test]
fn a_transfer_of_known_size_arrives_whole_despite_loss() {
    for algorithm in Algorithm::ALL {
        let transfer =
            TcpConfig { algorithm, transfer_bytes: Some(1_000_001), ..TcpConfig::default() };
        let flows = vec![FlowConfig {
            start: Some(Time::ZERO),
            stop: Some(Time::from_secs(100)),
            ..FlowConfig::new("transfer", FlowKind::Tcp(transfer))
        }];
        let mut config = config(flows, "fifo:limit=100p", 3);
        config.up = vec![HopConfig::parse("fifo:limit=100p", "20mbit:delay=20ms,loss=3%").unwrap()];
        config.phases.drain = Span::from_secs(80);
        let outcome = run(config).unwrap();
        let stats = outcome.tcp[0].unwrap();
        assert!(stats.retransmits > 5, "the premise: losses happened");
        assert!(stats.finished.is_some(), "{} never finished: {stats:?}", algorithm.name());
    }
}

#[test]
fn invalid_trials_are_rejected() {
    let none = config(Vec::new(), "fifo:limit=100p", 1);
    assert_eq!(run(none).unwrap_err(), SimError::NoFlow);
    let twice = config(vec![probe("a"), probe("a")], "fifo:limit=100p", 1);
    assert!(run(twice).unwrap_err().to_string().contains("'a'"));
    let mut endless = config(vec![probe("a")], "fifo:limit=100p", 1);
    endless.phases.load = Span::from_secs(1_000_000);
    assert!(run(endless).unwrap_err().to_string().contains("3600 s"));
    let mut empty = config(vec![probe("a")], "fifo:limit=100p", 1);
    empty.phases = Phases::default();
    assert_eq!(run(empty).unwrap_err(), SimError::Length { seconds: 0 });
}
