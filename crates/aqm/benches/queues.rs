//! Nanoseconds per packet (one enqueue and one dequeue) of every queue discipline at a standing
//! queue, beside a plain ring buffer, in one run: `cargo bench -p underload-aqm --bench queues`.
//!
//! The table interleaves short rounds of all subjects, so that whatever else the machine does
//! meets all of them, and shows the median round. Criterion's own measurements follow, to compare
//! with an earlier commit (`-- --baseline NAME`); `-- --table` prints the table alone.
//!
//! There are two ring buffers. The bare one is inlined into the loop that uses it; the other one
//! is called through the trait, as every discipline is, and shows what that call costs. Packets
//! are made beforehand: only their passing is timed.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use criterion::Criterion;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{Admit, Backlog, Dequeue, Observer, Qdisc, Stats};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkFacts, QUEUES, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

fn main() {
    let table_only = std::env::args().any(|argument| argument == "--table");
    print_table();
    if !table_only {
        let mut criterion = Criterion::default().configure_from_args();
        let mut group = criterion.benchmark_group("queues");
        group.throughput(criterion::Throughput::Elements(PACKETS_PER_ROUND));
        for mut subject in subjects() {
            let name = subject.name.clone();
            group.bench_function(&name, |bencher| bencher.iter(|| subject.round()));
        }
        group.finish();
        criterion.final_summary();
    }
}

/// Packets of one round; long enough to drown the reading of the clock.
const PACKETS_PER_ROUND: u64 = 20_000;
const ROUNDS: usize = 51;

/// Something that packets pass through, with its traffic.
struct Subject {
    name: String,
    queue: Queue,
    standing: u32,
    now: Time,
    traffic: Traffic,
}

enum Queue {
    Ring(VecDeque<Packet<u64>>),
    Discipline(Box<dyn Qdisc<u64>>),
}

/// The ring buffer behind the trait, without limit or counters: what any queue costs at least
/// whose caller does not know it.
struct PlainRing(VecDeque<Packet<u64>>);

impl Qdisc<u64> for PlainRing {
    fn enqueue(&mut self, _: Time, packet: Packet<u64>, _: &mut dyn Observer<u64>) -> Admit {
        self.0.push_back(packet);
        Admit::Queued
    }

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
    /// One packet leaves every 10 us (1.2 Gbit/s of 1500 bytes); one arrives for it, and a second
    /// while the queue is shorter than its standing length. The delay stays below every target:
    /// senders that do not react would otherwise measure drops alone.
    fn round(&mut self) {
        let traffic = &mut self.traffic;
        for _ in 0..PACKETS_PER_ROUND {
            self.now += Span::from_micros(10);
            match &mut self.queue {
                Queue::Ring(ring) => {
                    ring.push_back(traffic.next());
                    if ring.len() < self.standing as usize {
                        ring.push_back(traffic.next());
                    }
                    black_box(&ring.pop_front());
                }
                Queue::Discipline(queue) => {
                    let _ = queue.enqueue(self.now, traffic.next(), &mut ());
                    if queue.backlog().packets < self.standing {
                        let _ = queue.enqueue(self.now, traffic.next(), &mut ());
                    }
                    black_box(&queue.dequeue(self.now, &mut ()));
                }
            }
        }
    }

    fn nanos_per_packet(&mut self) -> f64 {
        let start = Instant::now();
        self.round();
        start.elapsed().as_nanos() as f64 / PACKETS_PER_ROUND as f64
    }
}

/// Packets made in advance, over and over again.
struct Traffic {
    packets: Vec<Packet<u64>>,
    next: usize,
}

impl Traffic {
    fn new(flows: u32) -> Self {
        let packet = |number: u32| {
            // A stride prime to the number of flows visits all of them, no two in a row.
            let mut meta = Meta::new(1_500, number.wrapping_mul(7_919) % flows);
            meta.ecn = Ecn::Ect0;
            meta.dscp = Dscp::DEFAULT;
            Packet { meta, payload: u64::from(number) }
        };
        Self { packets: (0..MANY_FLOWS).map(packet).collect(), next: 0 }
    }

    fn next(&mut self) -> Packet<u64> {
        let packet = self.packets[self.next];
        self.next = if self.next + 1 == self.packets.len() { 0 } else { self.next + 1 };
        packet
    }
}

fn subjects() -> Vec<Subject> {
    let subject = |name: &str, queue, standing, flows| Subject {
        name: name.to_string(),
        queue,
        standing,
        now: Time::ZERO,
        traffic: Traffic::new(flows),
    };
    let mut subjects = vec![
        subject("ring buffer", Queue::Ring(VecDeque::new()), STANDING, 1),
        subject("ring buffer, long", Queue::Ring(VecDeque::new()), 2 * MANY_FLOWS, MANY_FLOWS),
        subject("ring buffer, trait", plain_ring(), STANDING, 1),
        subject("ring buffer, trait, long", plain_ring(), 2 * MANY_FLOWS, MANY_FLOWS),
    ];
    let facts =
        LinkFacts { rate: Some(Rate::from_megabits_per_second(1_200)), ..LinkFacts::default() };
    let build = |spec: &str| {
        let setup = QueueSetup::parse(spec, &facts).expect("a spec of the registry");
        (setup.label.to_string(), setup.build(&Rng::new(1)))
    };
    for entry in QUEUES {
        let name = entry.definition.name;
        let profiles = entry.definition.profiles;
        let specs = match profiles {
            // Its default thresholds are far below the standing queue: it would drop half.
            _ if name == "red" => vec!["red:min=150p,max=450p".to_string()],
            [] => vec![name.to_string()],
            some => some.iter().map(|p| format!("{name}:profile={}", p.name)).collect(),
        };
        for spec in specs {
            let (label, queue) = build(&spec);
            subjects.push(subject(&label, Queue::Discipline(queue), STANDING, 1));
        }
    }
    let (label, queue) = build("fq-codel");
    let label = format!("{label}, {MANY_FLOWS} flows");
    subjects.push(subject(&label, Queue::Discipline(queue), 2 * MANY_FLOWS, MANY_FLOWS));
    subjects
}

fn plain_ring() -> Queue {
    Queue::Discipline(Box::new(PlainRing(VecDeque::new())))
}

/// 1.28 ms of packets.
const STANDING: u32 = 128;
const MANY_FLOWS: u32 = 1_000;
/// Where the ring buffer stands among the subjects, short and long; behind the trait two later.
const RING: usize = 0;

fn print_table() {
    let mut subjects = subjects();
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for round in 0..=ROUNDS {
        for (subject, times) in subjects.iter_mut().zip(&mut rounds) {
            let nanos = subject.nanos_per_packet();
            // The first round warms up.
            if round > 0 {
                times.push(nanos);
            }
        }
    }
    let medians: Vec<f64> = rounds.iter_mut().map(|times| median(times)).collect();
    println!(
        "{:<36} {:>9} {:>9} {:>12} {:>5}  met",
        "discipline", "ns/packet", "bare ring", "behind trait", "goal"
    );
    for (subject, median) in subjects.iter().zip(&medians) {
        let ring = RING + usize::from(subject.standing > STANDING);
        let (bare, behind_trait) = (median / medians[ring], median / medians[ring + 2]);
        let (goal, met) = match goal(&subject.name) {
            Some(goal) if bare <= goal => (format!("{goal:.0}x"), "yes"),
            Some(goal) if behind_trait <= goal => (format!("{goal:.0}x"), "behind the trait only"),
            Some(goal) => (format!("{goal:.0}x"), "no"),
            None => (String::new(), ""),
        };
        let row = format!(
            "{:<36} {median:>9.1} {bare:>8.2}x {behind_trait:>11.2}x {goal:>5}  {met}",
            subject.name
        );
        println!("{}", row.trim_end());
    }
    println!("median of {ROUNDS} rounds of {PACKETS_PER_ROUND} packets, interleaved");
}

/// How many times the ring buffer's time a discipline may take.
fn goal(name: &str) -> Option<f64> {
    let within_two = ["codel", "pie", "docsis-pie", "bode"];
    let discipline = name.split([':', ',']).next().unwrap_or(name);
    match discipline {
        "fq-codel" => Some(6.0),
        _ if within_two.contains(&discipline) => Some(2.0),
        _ => None,
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
