//! Random places and sizes of bloat in virtual time.
//!
//! ```text
//! this machine ── Wi-Fi ── router ── access line ── beyond ── far end
//! ```
//!
//! Each link has a queue in each direction, and one of them is the bottleneck of a TCP load. Wi-Fi
//! sends in bunches, as stations aggregate frames, and each bunch waits a random time for the air.
//! Small packets pass the chain every 2 ms, so that the delay of each queue is known over time. A
//! probe of a hop is a walk through these delays, up to the hop, through its control plane, and
//! back. Control planes are prompt, slow, limited in rate, or silent.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use underload_aqm::qdisc::DropReason;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_record::schema::Direction;
use underload_sim::congestion::Algorithm;
use underload_sim::flow::{FlowConfig, FlowKind, ProbeConfig, ProbeSchedule};
use underload_sim::net::{Event, HopConfig, SharedWatcher, Sighting, Watcher};
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::{Attendance, Phases, SimConfig, TrialLabel, TrialOutcome, run_attended};

use super::*;

const LINKS: usize = 4;
const MS: u64 = 1_000_000;
const PHASES: Phases = Phases {
    idle: Span::from_millis(2_000),
    ramp: Span::from_millis(2_000),
    load: Span::from_millis(5_000),
    drain: Span::ZERO,
};

/// The link whose queue is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bloated {
    Wifi,
    Router,
    Access,
    Beyond,
}

impl Bloated {
    const ALL: [Self; LINKS] = [Self::Wifi, Self::Router, Self::Access, Self::Beyond];

    fn segment(self) -> PathSegment {
        match self {
            Self::Wifi => PathSegment::Local,
            Self::Router | Self::Access => PathSegment::Access,
            Self::Beyond => PathSegment::Beyond,
        }
    }
}

/// How a hop answers echoes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Control {
    Prompt,
    /// A share of the answers, in percent, waits for up to twice a mean time.
    Slow {
        percent: u32,
        mean_ms: u32,
        only_under_load: bool,
    },
    /// The hop answers at most this number of probes per second.
    Limited {
        per_second: u32,
    },
    Silent,
}

impl Control {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(10) {
            0..5 => Self::Prompt,
            5 | 6 => Self::Slow {
                percent: 10 + rng.below(90),
                mean_ms: 10 + rng.below(150),
                only_under_load: rng.below(2) == 0,
            },
            7 | 8 => Self::Limited { per_second: 4 + rng.below(20) },
            _ => Self::Silent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Slow { .. } => "slow",
            Self::Limited { .. } => "limited",
            Self::Silent => "silent",
        }
    }
}

#[derive(Clone, Debug)]
struct Place {
    bloated: Bloated,
    bloat_ms: u64,
    direction: Direction,
    rate_kbit: u64,
    flows: usize,
    router: Control,
    provider: Control,
    seed: u64,
}

impl Place {
    fn draw(number: u64) -> Self {
        let mut rng = Rng::new(number).child("place of bloat");
        // Sizes of 20 to 400 ms, whose logarithms are about equally frequent.
        let bloat_ms = 20 << rng.below(5);
        Self {
            bloated: Bloated::ALL[rng.below(4) as usize],
            bloat_ms: bloat_ms + u64::from(rng.below(bloat_ms as u32 / 4 + 1)),
            direction: if rng.below(2) == 0 { Direction::Up } else { Direction::Down },
            rate_kbit: 3_000 + u64::from(rng.below(17_000)),
            flows: 1 + 3 * rng.below(2) as usize,
            router: Control::draw(&mut rng),
            provider: Control::draw(&mut rng),
            seed: number,
        }
    }

    /// Returns a chain of links in the order of the way up.
    fn chain(&self, direction: Direction, rng: &mut Rng) -> Vec<HopConfig> {
        Bloated::ALL
            .map(|link| {
                let is_bloated = link == self.bloated && direction == self.direction;
                let faster = if is_bloated { 10 } else { 25 + u64::from(rng.below(40)) };
                let kbit = self.rate_kbit * faster / 10;
                let buffer_ms = if is_bloated { self.bloat_ms } else { 40 };
                let limit = (kbit * buffer_ms / 8).max(9_000);
                let delay_us = 100 + rng.below(8_000);
                let rate = match link {
                    Bloated::Wifi => {
                        let (map_ms, jitter_ms) = (1 + rng.below(3), 1 + rng.below(5));
                        format!(
                            "docsis:rate={kbit}kbit,peak={}kbit,burst=12000B,map={map_ms}ms,\
                             grant=1ms,jitter={jitter_ms}ms,jitter-law=exponential",
                            kbit * 3
                        )
                    }
                    _ => format!("{kbit}kbit:"),
                };
                let comma = if rate.ends_with(':') { "" } else { "," };
                let link = format!("{rate}{comma}delay={delay_us}us");
                HopConfig::parse(&format!("fifo:limit={limit}B"), &link).expect("a link")
            })
            .into()
    }

    /// Returns the rate of the load on the local network alone, to a peer behind the Wi-Fi, bit/s.
    fn local_rate(&self) -> f64 {
        let mut config = self.config();
        config.up.truncate(1);
        config.down.drain(..LINKS - 1);
        carried(&run_attended(config, &Attendance::default()).expect("a trial"))
    }

    fn config(&self) -> SimConfig {
        let mut rng = Rng::new(self.seed).child("links");
        let up = self.chain(Direction::Up, &mut rng);
        let mut down = self.chain(Direction::Down, &mut rng);
        down.reverse();
        let schedule = ProbeSchedule::Open { interval: Span::from_millis(2) };
        let probe = ProbeConfig { schedule, payload_bytes: 20, ..ProbeConfig::default() };
        let mut flows = vec![FlowConfig::new("probe", FlowKind::Probe(probe))];
        flows.extend((0..self.flows).map(|index| FlowConfig {
            direction: self.direction,
            ..FlowConfig::new(
                format!("bulk-{index}"),
                FlowKind::Tcp(TcpConfig::of(Algorithm::from_name("cubic").expect("cubic"))),
            )
        }));
        SimConfig {
            up,
            down,
            flows,
            phases: PHASES,
            seed: self.seed,
            sample_interval: None,
            label: TrialLabel::default(),
        }
    }
}

/// When the small packets reached a link and its far end.
#[derive(Debug, Default)]
struct Passages {
    /// Number, time of arrival, and time of delivery; `None` for a dropped packet.
    of_packets: Vec<(u32, u64, Option<u64>)>,
    /// Packets before this one are delivered or dropped.
    settled: usize,
}

impl Passages {
    fn settle(&mut self, id: u32, delivered_ns: Option<u64>) {
        let open = self.of_packets[self.settled..].iter_mut().find(|it| it.0 == id);
        if let Some(passage) = open {
            passage.2 = delivered_ns;
        }
        if delivered_ns.is_some() {
            self.settled = self.of_packets.partition_point(|it| {
                // Packets keep their order.
                it.1 < delivered_ns.unwrap_or(0).saturating_sub(4_000 * MS)
            });
        }
    }

    /// Returns when a packet that reaches the link at `at_ns` leaves it; `None` if it is dropped.
    fn leave_ns(&self, at_ns: u64) -> Option<u64> {
        let next = self.of_packets.partition_point(|it| it.1 < at_ns);
        let (_, arrived_ns, delivered_ns) = self.of_packets.get(next)?;
        Some(at_ns + (delivered_ns.as_ref()? - arrived_ns))
    }
}

#[derive(Debug, Default)]
struct Log {
    /// Passages of each link: the first index is the direction, the second the link's position.
    passages: [[Passages; LINKS]; 2],
}

impl Watcher for Log {
    fn see(&mut self, sighting: &Sighting<'_>) {
        let (0, Some(hop)) = (sighting.packet.payload.flow, sighting.hop) else { return };
        let passages = &mut self.passages[sighting.direction as usize][hop];
        let (id, now_ns) = (sighting.packet.meta.id, sighting.time.as_nanos());
        match sighting.event {
            Event::Arrival => passages.of_packets.push((id, now_ns, None)),
            Event::Delivery => passages.settle(id, Some(now_ns)),
            Event::Drop(DropReason::Loss | _) => passages.settle(id, None),
            _ => {}
        }
    }
}

/// The delays that a probe met, ms: one for each link on the way up, then on the way down.
type Walk = [f64; 2 * LINKS];

impl Log {
    /// Walks to the hop behind the first `links` links and back; returns the time of the answer.
    fn walk(&self, sent_ns: u64, links: usize, control_ns: u64) -> Option<(u64, Walk)> {
        let mut walk = Walk::default();
        let mut now_ns = sent_ns;
        for (link, way) in self.passages[Direction::Up as usize].iter().enumerate().take(links) {
            let left_ns = way.leave_ns(now_ns)?;
            walk[link] = (left_ns - now_ns) as f64 / 1e6;
            now_ns = left_ns;
        }
        now_ns += control_ns;
        for link in (0..links).rev() {
            let way = &self.passages[Direction::Down as usize][LINKS - 1 - link];
            let left_ns = way.leave_ns(now_ns)?;
            walk[LINKS + link] = (left_ns - now_ns) as f64 / 1e6;
            now_ns = left_ns;
        }
        Some((now_ns, walk))
    }

    fn probes(&self, links: usize, control: Control, rng: &mut Rng) -> Vec<PathProbe> {
        let mut tokens = 5.0;
        let load_start_ns = PHASES.idle.as_nanos();
        let end_ns = load_start_ns + PHASES.ramp.as_nanos() + PHASES.load.as_nanos();
        let mut probe = |sent_ns: u64| {
            let wait_ms = match control {
                Control::Prompt => Some(0),
                Control::Silent => None,
                Control::Slow { percent, mean_ms, only_under_load } => {
                    let is_slow = rng.below(100) < percent;
                    let applies = !only_under_load || sent_ns >= load_start_ns;
                    Some(if is_slow && applies { rng.below(2 * mean_ms) } else { 0 })
                }
                Control::Limited { per_second } => {
                    tokens = f64::min(5.0, tokens + 0.02 * f64::from(per_second));
                    (tokens >= 1.0).then(|| tokens -= 1.0).map(|()| 0)
                }
            };
            let own_ns = u64::from(rng.below(300_000));
            let control_ns = wait_ms.map(|ms| u64::from(ms) * MS + own_ns);
            let answered = control_ns.and_then(|ns| self.walk(sent_ns, links, ns));
            PathProbe { sent_ns, round_trip_ns: answered.map(|(at_ns, _)| at_ns - sent_ns) }
        };
        (0..end_ns / (20 * MS)).map(|slot| probe(slot * 20 * MS)).collect()
    }
}

/// Returns the goodput of the load, bit/s.
fn carried(outcome: &TrialOutcome) -> f64 {
    let rates = outcome.record.flows.iter().map(|flow| {
        flow.goodput_up_bit_per_s.unwrap_or(0) + flow.goodput_down_bit_per_s.unwrap_or(0)
    });
    rates.sum::<u64>() as f64
}

/// The verdict on a simulated place, and the true segment of the delay.
struct Judged {
    place: Place,
    location: Location,
    /// p90 of the added delay of the local network, the access line and what is beyond, ms.
    truth_p90_ms: [f64; 3],
}

/// Judges a place, without a peer and with one, which lets the local network be loaded alone.
fn judged(place: Place) -> [Judged; 2] {
    let log = Rc::new(RefCell::new(Log::default()));
    let watcher: SharedWatcher = Rc::<RefCell<Log>>::clone(&log);
    let attendance = Attendance { watcher: Some(watcher), ..Attendance::default() };
    let rate = carried(&run_attended(place.config(), &attendance).expect("a trial"));
    drop(attendance);
    let log = log.borrow();
    let windows = PHASES.windows();
    let mut rng = Rng::new(place.seed).child("control planes");
    let mut hop = |hop, links, control| {
        let probes = log.probes(links, control, &mut rng);
        HopProbes { hop, address: String::new(), distance: None, probes }
    };
    let near = [hop(PathHop::Router, 1, place.router), hop(PathHop::Provider, 3, place.provider)];
    let far = hop(PathHop::FarEnd, LINKS, Control::Prompt);
    let (idle, load) = (windows[0], windows[2]);
    let far_echoes = &far.probes;
    let mut probes =
        PathProbes { near: &near, far: &far, far_echoes, idle, load, local_share: None };
    let location = locate(&probes);
    let mut with_peer = location.clone();
    // The rule about the local network applies to nothing else.
    let is_open = location.segments.first().is_some_and(|row| row.covers.len() > 1);
    if is_open || location.verdict == Some(PathSegment::Local) {
        probes.local_share = Some(rate / place.local_rate());
        with_peer = locate(&probes);
    }
    let truth_p90_ms = truth(&log, idle, load);
    let without = Judged { place: place.clone(), location, truth_p90_ms };
    [without, Judged { place, location: with_peer, truth_p90_ms }]
}

fn truth(log: &Log, idle: PhaseWindow, load: PhaseWindow) -> [f64; 3] {
    let walks = |window: PhaseWindow| -> Vec<Walk> {
        let slots = window.start_ns / (10 * MS)..window.end_ns / (10 * MS);
        slots.filter_map(|slot| Some(log.walk(slot * 10 * MS, LINKS, 0)?.1)).collect()
    };
    let (idle, load) = (walks(idle), walks(load));
    [0..1, 1..3, 3..4].map(|links: std::ops::Range<usize>| {
        let delay = |walk: &Walk| -> f64 {
            links.clone().map(|link| walk[link] + walk[LINKS + link]).sum()
        };
        let of = |walks: &[Walk]| walks.iter().map(delay).collect::<Vec<f64>>();
        quantile(&of(&load), 0.9) - quantile(&of(&idle), 0.5)
    })
}

impl Judged {
    fn is_right(&self) -> bool {
        self.location.verdict == Some(self.place.bloated.segment())
    }

    fn is_wrong(&self) -> bool {
        self.location.verdict.is_some() && !self.is_right()
    }

    /// Whether a hop at an end of the bloated segment is silent, or answers too seldom.
    fn is_undecidable(&self) -> bool {
        let unused = |hop| {
            let found = self.location.hops.iter().find(|it| it.hop == hop);
            found.is_some_and(|it| it.unused_because.is_some())
        };
        match self.place.bloated {
            Bloated::Wifi => unused(PathHop::Router),
            Bloated::Router | Bloated::Access => {
                unused(PathHop::Router) || unused(PathHop::Provider)
            }
            Bloated::Beyond => unused(PathHop::Provider),
        }
    }

    /// Returns the error of the p90 of each row that has one segment, ms.
    fn errors_ms(&self) -> Vec<f64> {
        let index = |segment| match segment {
            PathSegment::Local | PathSegment::Router => 0,
            PathSegment::Access => 1,
            PathSegment::Beyond => 2,
        };
        let told = self.location.segments.iter().filter(|row| row.covers.len() == 1);
        told.map(|row| row.added.p90_ns as f64 / 1e6 - self.truth_p90_ms[index(row.covers[0])])
            .collect()
    }
}

/// Counts of the judged places of one kind.
#[derive(Default)]
struct Tally {
    places: usize,
    right: usize,
    wrong: usize,
    undecidable: usize,
    errors_ms: Vec<f64>,
}

impl Tally {
    fn add(&mut self, judged: &Judged) {
        self.places += 1;
        self.right += usize::from(judged.is_right());
        self.wrong += usize::from(judged.is_wrong());
        self.undecidable += usize::from(judged.is_undecidable() && !judged.is_right());
        self.errors_ms.extend(judged.errors_ms().iter().map(|ms| ms.abs()));
    }

    /// Share of the decidable places with the right segment, percent.
    fn right_percent(&self) -> f64 {
        self.right as f64 * 100.0 / (self.places - self.undecidable).max(1) as f64
    }

    fn row(&self, name: &str) -> String {
        let Self { places, right, wrong, undecidable, .. } = self;
        let unknown = places - right - wrong - undecidable;
        let within = self.errors_ms.iter().filter(|ms| **ms <= 5.0).count();
        let within_percent = within as f64 * 100.0 / self.errors_ms.len().max(1) as f64;
        format!(
            "| {name} | {places} | {undecidable} | {right} | {:.1} % | {unknown} | {wrong} | {:.1} \
             | {within_percent:.1} % |\n",
            self.right_percent(),
            quantile(&self.errors_ms, 0.95),
        )
    }
}

fn table(judged: &[Judged]) -> String {
    let mut text = String::from(
        "| bloat | places | hop not usable | right | of the usable | not known | wrong | p95 of \
         the error of p90, ms | within 5 ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let tally = |kept: &dyn Fn(&Judged) -> bool| {
        let mut tally = Tally::default();
        judged.iter().filter(|it| kept(it)).for_each(|it| tally.add(it));
        tally
    };
    for bloated in Bloated::ALL {
        let name = format!("{bloated:?}").to_lowercase();
        text += &tally(&|it| it.place.bloated == bloated).row(&name);
    }
    for name in ["prompt", "slow", "limited", "silent"] {
        let has = |it: &Judged| [it.place.router, it.place.provider].map(Control::name);
        text += &tally(&|it| has(it).contains(&name)).row(&format!("a {name} router"));
    }
    text += &tally(&|_| true).row("all");
    for it in judged.iter().filter(|it| !it.is_right() && !it.is_undecidable()) {
        let because = it.location.not_known_because.as_deref().unwrap_or("wrong");
        let _ = writeln!(text, "{:?}: {because}", it.place);
    }
    text
}

fn check(judged: &[Judged]) {
    let mut all = Tally::default();
    for it in judged {
        all.add(it);
    }
    let table = table(judged);
    assert_eq!(all.wrong, 0, "{table}");
    assert!(all.right_percent() >= 97.0, "{table}");
    assert!(all.undecidable * 2 < all.places, "most places are decidable: {table}");
    let within = all.errors_ms.iter().filter(|ms| **ms <= 5.0).count();
    assert!(within as f64 >= 0.95 * all.errors_ms.len() as f64, "{table}");
}

/// Judges places without a peer and with one.
fn both(numbers: std::ops::Range<u64>) -> (Vec<Judged>, Vec<Judged>) {
    numbers.map(|number| judged(Place::draw(number)).into()).unzip()
}

#[test]
fn bloat_is_located_in_the_right_segment() {
    let (without, with) = both(0..40);
    check(&without);
    check(&with);
    let undecidable = |judged: &[Judged]| judged.iter().filter(|it| !it.is_right()).count();
    assert!(undecidable(&with) < undecidable(&without), "a peer decides more places");
}

/// `cargo xtask bench where` prints the table of `docs/contributing/measure.md`.
#[test]
#[ignore = "half a minute: `cargo xtask bench where`"]
fn five_hundred_places() {
    let (without, with) = both(0..500);
    {
        println!("{}\nwith a peer that was loaded alone:\n{}", table(&without), table(&with));
    }
    check(&without);
    check(&with);
}
