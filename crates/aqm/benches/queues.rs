//! Nanoseconds per packet (one enqueue and one dequeue) of every queue discipline at a standing
//! queue, beside a plain ring buffer, in one run: `cargo bench -p underload-aqm --bench queues`.
//!
//! The table interleaves short rounds of all subjects, so that other work of the machine disturbs
//! all of them alike, and shows the median round.
//!
//! Disciplines and ring buffer are compared in the same way of calling. *Known type*: the loop
//! knows the discipline, so the compiler may inline it, as it does the ring buffer. *Behind the
//! trait*: discipline and ring buffer are called through `dyn Qdisc`, and each packet is passed in
//! memory, as links do.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{Admit, Backlog, Dequeue, Observer, Qdisc, Stats};
use underload_aqm::queue::avq::Avq;
use underload_aqm::queue::blue::Blue;
use underload_aqm::queue::cake::Cake;
use underload_aqm::queue::codel::CodelProfile;
use underload_aqm::queue::docsis_pie::DocsisPie;
use underload_aqm::queue::fq_codel::FlowCodel;
use underload_aqm::queue::pi::Pi;
use underload_aqm::queue::pie::{PieLinux, PieMahimahi, PieProfile, PieRfc};
use underload_aqm::queue::policer::Policer;
use underload_aqm::queue::red::Red;
use underload_aqm::queue::rem::Rem;
use underload_aqm::queue::sfb::Sfb;
use underload_aqm::queue::sred::Sred;
use underload_aqm::queue::store::fair::Fair;
use underload_aqm::queue::store::{Limit, NoAqm, Overflow, Single};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QUEUES, QueueConfig, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// Packets of one round; enough that the time to read the clock is negligible.
const PACKETS_PER_ROUND: u64 = 20_000;
const ROUNDS: usize = 51;
/// The standing queue: 1.28 ms of packets.
const STANDING: u32 = 128;
const MANY_FLOWS: u32 = 1_000;

/// A discipline, to be measured in both ways.
struct Row {
    name: String,
    behind_trait: Subject,
    known_type: Option<Subject>,
}

/// A queue with its traffic.
struct Subject {
    queue: Box<dyn Passage>,
    traffic: Traffic,
}

/// A discipline in a round: one virtual call per round.
trait Passage {
    fn round(&mut self, traffic: &mut Traffic);
}

/// The type of the queue is known.
struct KnownType<Q>(Q);

/// A discipline behind one virtual call per operation.
struct BehindTrait(Box<dyn Qdisc<u64>>);

impl<Q: Qdisc<u64>> Passage for KnownType<Q> {
    fn round(&mut self, traffic: &mut Traffic) {
        pass(&mut self.0, traffic);
    }
}

impl Passage for BehindTrait {
    fn round(&mut self, traffic: &mut Traffic) {
        pass(self.0.as_mut(), traffic);
    }
}

/// A packet leaves every 10 us (1.2 Gbit/s of 1500 bytes); one arrives for it, and a second while
/// the queue is shorter than its standing length. The delay stays below every target: senders that
/// do not react would otherwise measure drops alone.
#[inline]
fn pass<Q: Qdisc<u64> + ?Sized>(queue: &mut Q, traffic: &mut Traffic) {
    for _ in 0..PACKETS_PER_ROUND {
        traffic.now += Span::from_micros(10);
        let missing = traffic.standing.saturating_sub(queue.backlog().packets);
        for _ in 0..missing.clamp(1, 2) {
            let _ = queue.enqueue(traffic.now, traffic.packet(), &mut ());
        }
        black_box(&queue.dequeue(traffic.now, &mut ()));
    }
}

/// The source of packets, which is as cheap as possible, because the time to create them is
/// measured, too.
struct Traffic {
    standing: u32,
    flows: u32,
    now: Time,
    flow: u32,
    stride: u32,
    made: u64,
    /// The markings of packets, in turn.
    ecn: [Ecn; 2],
}

impl Traffic {
    const fn new(standing: u32, flows: u32) -> Self {
        let ecn = [Ecn::Ect0; 2];
        Self { standing, flows, now: Time::ZERO, flow: 0, stride: 7 % flows, made: 0, ecn }
    }

    /// Every second packet belongs to a second flow, which is L4S, so that both halves of a dual
    /// queue work.
    const fn half_l4s() -> Self {
        Self { ecn: [Ecn::Ect0, Ecn::Ect1], stride: 1, ..Self::new(STANDING, 2) }
    }

    #[inline]
    fn packet(&mut self) -> Packet<u64> {
        // A stride that is prime to the number of flows visits all flows, with no two consecutive
        // packets of one flow.
        self.flow += self.stride;
        if self.flow >= self.flows {
            self.flow -= self.flows;
        }
        self.made += 1;
        let mut meta = Meta::new(1_500, self.flow);
        meta.ecn = self.ecn[(self.made & 1) as usize];
        meta.dscp = Dscp::DEFAULT;
        Packet { meta, payload: self.made }
    }
}

/// The ring buffer that disciplines are compared with, without limit or counters.
struct PlainRing(VecDeque<Packet<u64>>);

impl Qdisc<u64> for PlainRing {
    #[inline]
    fn enqueue(&mut self, _: Time, packet: Packet<u64>, _: &mut dyn Observer<u64>) -> Admit {
        self.0.push_back(packet);
        Admit::Queued
    }

    #[inline]
    fn dequeue(&mut self, _: Time, _: &mut dyn Observer<u64>) -> Dequeue<u64> {
        self.0.pop_front().map_or(Dequeue::Empty, Dequeue::Packet)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.0.len() as u32, bytes: 0 }
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

impl Subject {
    fn round(&mut self) {
        self.queue.round(&mut self.traffic);
    }

    fn nanos_per_packet(&mut self) -> f64 {
        let start = Instant::now();
        self.round();
        start.elapsed().as_nanos() as f64 / PACKETS_PER_ROUND as f64
    }
}

/// The two ring buffers, then every discipline, then some with more than one flow.
fn rows() -> Vec<Row> {
    let ring = |name: &str, standing, flows| Row {
        name: name.to_string(),
        behind_trait: Subject {
            queue: Box::new(BehindTrait(Box::new(PlainRing(VecDeque::new())))),
            traffic: Traffic::new(standing, flows),
        },
        known_type: Some(Subject {
            queue: Box::new(KnownType(PlainRing(VecDeque::new()))),
            traffic: Traffic::new(standing, flows),
        }),
    };
    let mut rows = vec![
        ring("ring buffer", STANDING, 1),
        ring("ring buffer, 2000 packets", 2 * MANY_FLOWS, MANY_FLOWS),
    ];
    for entry in QUEUES {
        let name = entry.definition.name;
        let specs = match entry.definition.profiles {
            _ if raised(name).is_some() => raised(name).map(String::from).into_iter().collect(),
            [] => vec![name.to_string()],
            some => some.iter().map(|p| format!("{name}:profile={}", p.name)).collect(),
        };
        rows.extend(specs.iter().map(|spec| row(spec, STANDING, 1)));
    }
    let many = row("fq-codel", 2 * MANY_FLOWS, MANY_FLOWS);
    rows.push(Row { name: format!("{}, {MANY_FLOWS} flows", many.name), ..many });
    rows.extend(DUAL_QUEUES.map(|spec| {
        let mut row = row(spec, STANDING, 2);
        row.name.push_str(", half L4S");
        row.behind_trait.traffic = Traffic::half_l4s();
        row
    }));
    rows
}

/// Disciplines with two queues, measured with both in use, and what protection and a virtual queue
/// add to the last.
const DUAL_QUEUES: [&str; 5] = [
    "dualpi2", "dualpi2:profile=linux", "docsis-lld:protection=off", "docsis-lld",
    "docsis-lld:delay=virtual",
];

/// Disciplines whose default thresholds are below the standing queue or the offered rate, and would
/// drop a part of it, with thresholds above.
fn raised(name: &str) -> Option<&'static str> {
    match name {
        "red" => Some("red:min=150p,max=450p"),
        "sfb" => Some("sfb:max=1000p,target=500p"),
        "rem" => Some("rem:target=1000p"),
        "avq" => Some("avq:gamma=100%"),
        _ => None,
    }
}

fn row(spec: &str, standing: u32, flows: u32) -> Row {
    let facts =
        LinkFacts { rate: Some(Rate::from_megabits_per_second(1_200)), ..LinkFacts::default() };
    let setup = QueueSetup::parse(spec, &facts).expect("a spec of the registry");
    let subject = |queue| Subject { queue, traffic: Traffic::new(standing, flows) };
    Row {
        name: setup.label.to_string(),
        behind_trait: subject(Box::new(BehindTrait(setup.build(&Rng::new(1))))),
        known_type: known_type(&setup.config).map(subject),
    }
}

/// Returns the discipline by its own type; `None` for one that consists of others behind the trait.
fn known_type(config: &QueueConfig) -> Option<Box<dyn Passage>> {
    fn boxed<Q: Qdisc<u64> + 'static>(queue: Q) -> Box<dyn Passage> {
        Box::new(KnownType(queue))
    }
    fn tail<A: underload_aqm::aqm::Aqm>(aqm: A, limit: Limit) -> Single<A, u64> {
        Single::new(aqm, limit, Overflow::Tail)
    }
    let rng = Rng::new(1);
    Some(match config {
        QueueConfig::Fifo(fifo) => boxed(Single::new(NoAqm, fifo.limit, fifo.overflow)),
        QueueConfig::Codel(queue) => match &queue.config {
            CodelProfile::Rfc(codel) => boxed(tail(codel.clone(), queue.limit)),
            CodelProfile::Linux(codel) => boxed(tail(codel.clone(), queue.limit)),
            CodelProfile::Mahimahi(codel) => boxed(tail(codel.clone(), queue.limit)),
        },
        QueueConfig::FqCodel(queue) => match &queue.codel {
            FlowCodel::Linux(codel) => boxed(Fair::new(queue.fair, |_| codel.clone())),
            FlowCodel::Rfc(codel) => boxed(Fair::new(queue.fair, |_| codel.clone())),
        },
        QueueConfig::FqPie(queue) => {
            boxed(Fair::new(queue.fair, |_| PieLinux::new(queue.pie.clone(), rng.clone())))
        }
        QueueConfig::Bode(queue) => boxed(tail(queue.config, queue.limit)),
        QueueConfig::Pie(queue) => match &queue.config {
            PieProfile::Rfc(config) => boxed(tail(PieRfc::new(config.clone(), rng), queue.limit)),
            PieProfile::Linux(config) => {
                boxed(tail(PieLinux::new(config.clone(), rng), queue.limit))
            }
            PieProfile::Mahimahi(config) => boxed(tail(PieMahimahi::new(config, rng), queue.limit)),
        },
        QueueConfig::DocsisPie(queue) => {
            let limit = Limit::bytes(queue.0.buffer_bytes);
            boxed(tail(DocsisPie::new(queue.0.clone(), rng), limit))
        }
        QueueConfig::Red(queue) => boxed(tail(Red::new(queue.config, rng), queue.limit)),
        QueueConfig::Cake(queue) => boxed(Cake::new(queue.clone(), &rng)),
        QueueConfig::Blue(queue) => boxed(tail(Blue::new(queue.config, rng), queue.limit)),
        QueueConfig::Pi(queue) => boxed(tail(Pi::new(queue.config, rng), queue.limit)),
        QueueConfig::Sred(queue) => {
            boxed(tail(Sred::new(queue.config, queue.limit, rng), queue.limit))
        }
        QueueConfig::Policer(queue) => boxed(tail(Policer::new(queue.config), queue.limit)),
        QueueConfig::Rem(queue) => boxed(tail(Rem::new(queue.config, rng), queue.limit)),
        QueueConfig::Avq(queue) => boxed(tail(Avq::new(queue.config), queue.limit)),
        QueueConfig::Sfb(queue) => boxed(tail(Sfb::new(queue.config, &rng), queue.limit)),
        QueueConfig::DiffServ(_)
        | QueueConfig::DualPi2(_)
        | QueueConfig::DocsisLld(_)
        | QueueConfig::Own(_) => return None,
    })
}

fn main() {
    let mut rows = rows();
    let mut times = vec![(Vec::new(), Vec::new()); rows.len()];
    for round in 0..=ROUNDS {
        for (row, (behind_trait, known_type)) in rows.iter_mut().zip(&mut times) {
            let called = row.behind_trait.nanos_per_packet();
            let known = row.known_type.as_mut().map(Subject::nanos_per_packet);
            // The first round is not measured: it warms up.
            if round > 0 {
                behind_trait.push(called);
                known_type.extend(known);
            }
        }
    }
    let medians: Vec<(f64, Option<f64>)> =
        times.iter_mut().map(|(called, known)| (median(called), known_median(known))).collect();
    println!("{:<36} {:^17}   {:^17}", "", "known type", "behind the trait");
    println!(
        "{:<36} {:>9} {:>7}   {:>9} {:>7}  {:>4}  met",
        "discipline", "ns/packet", "x ring", "ns/packet", "x ring", "goal"
    );
    for (row, (called, known)) in rows.iter().zip(&medians) {
        let ring = medians[usize::from(row.behind_trait.traffic.standing > STANDING)];
        let called_ratio = called / ring.0;
        let known_ratio = known.zip(ring.1).map(|(known, ring)| known / ring);
        let (goal, met) = verdict(&row.name, called_ratio, known_ratio);
        let known = match known.zip(known_ratio) {
            Some((nanos, ratio)) => format!("{nanos:>9.1} {ratio:>6.2}x"),
            None => format!("{:>9} {:>7}", "-", "-"),
        };
        let name = &row.name;
        let line =
            format!("{name:<36} {known}   {called:>9.1} {called_ratio:>6.2}x  {goal:>4}  {met}");
        println!("{}", line.trim_end());
    }
    println!("median of {ROUNDS} rounds of {PACKETS_PER_ROUND} packets, interleaved");
}

/// Returns the goal of a discipline, and which ways of calling it meet the goal.
fn verdict(name: &str, called: f64, known: Option<f64>) -> (String, &'static str) {
    let Some(goal) = goal(name) else { return (String::new(), "") };
    let met = match (known.map(|known| known <= goal), called <= goal) {
        (Some(true), true) => "both",
        (Some(true), false) => "known type only",
        (Some(false), true) => "behind the trait only",
        (None, true) => "behind the trait",
        (_, false) => "no",
    };
    (format!("{goal:.0}x"), met)
}

/// The maximum time of a discipline, as a multiple of the ring buffer's.
fn goal(name: &str) -> Option<f64> {
    let within_two = ["codel", "pie", "docsis-pie", "bode", "dualpi2", "docsis-lld"];
    let discipline = name.split([':', ',']).next().unwrap_or(name);
    match discipline {
        "fq-codel" => Some(6.0),
        _ if within_two.contains(&discipline) => Some(2.0),
        _ => None,
    }
}

fn known_median(times: &mut [f64]) -> Option<f64> {
    if times.is_empty() { None } else { Some(median(times)) }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
