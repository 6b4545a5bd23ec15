//! A queue of this crate in a simulator of your own: one sender that halves its window when it
//! loses a packet, a link of 10 Mbit/s and a round trip of 40 ms, for a minute of virtual time.
//!
//! `cargo run -p underload-aqm --example codel_in_my_simulator`

#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use std::collections::VecDeque;

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{Dequeue, DropReason, Observer};
use underload_aqm::rate::Rate;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// Bytes of a packet.
const BYTES: u32 = 1_500;

/// The packets that were lost, which the sender learns at once.
#[derive(Default)]
struct Lost(u32);

impl Observer<()> for Lost {
    fn dropped(&mut self, _now: Time, _packet: Packet<()>, _reason: DropReason) {
        self.0 += 1;
    }
}

/// Returns the mean sojourn in ms and the share of the link that was used, in percent.
fn simulate(spec: &str) -> (f64, f64) {
    let rate = Rate::from_megabits_per_second(10);
    let round_trip = Span::from_millis(40);
    let transmission = rate.time_for(u64::from(BYTES)).expect("the rate is not zero");
    let setup = QueueSetup::parse(spec, &LinkFacts::of_rate(rate)).expect("a queue");
    let mut queue = setup.build(&Rng::new(1));

    let (mut window, mut in_flight, mut recovered) = (10.0, 0, Time::ZERO);
    let mut acknowledgements = VecDeque::new();
    let (mut now, mut slots, mut sent, mut waited) = (Time::ZERO, 0_u32, 0_u32, Span::ZERO);
    while now < Time::from_secs(60) {
        while acknowledgements.front().is_some_and(|&back| back <= now) {
            acknowledgements.pop_front();
            in_flight -= 1;
            window += 1.0 / window;
        }
        let mut lost = Lost::default();
        while f64::from(in_flight) < window {
            in_flight += 1;
            queue.enqueue(now, Packet { meta: Meta::new(BYTES, 1), payload: () }, &mut lost);
        }
        if let Dequeue::Packet(packet) = queue.dequeue(now, &mut lost) {
            waited = waited + now.since(packet.meta.arrived);
            sent += 1;
            acknowledgements.push_back(now + transmission + round_trip);
        }
        in_flight -= lost.0;
        if lost.0 > 0 && now >= recovered {
            window = f64::max(window / 2.0, 1.0);
            recovered = now + round_trip;
        }
        now += transmission;
        slots += 1;
    }
    (waited.as_secs_f64() * 1e3 / f64::from(sent), f64::from(sent) / f64::from(slots) * 100.0)
}

fn main() {
    for spec in ["fifo:limit=256KiB", "codel", "codel:profile=rfc", "pie", "bode"] {
        let (sojourn_ms, used) = simulate(spec);
        println!("{spec:<20} {sojourn_ms:6.1} ms in the queue, {used:3.0} % used");
    }
}

#[test]
fn codel_shortens_the_queue_of_the_simulator() {
    let [(full_ms, full), (short_ms, used)] = ["fifo:limit=256KiB", "codel"].map(simulate);
    assert!(full_ms > 100.0 && full > 99.0, "the premise: {full_ms} ms, {full} %");
    assert!(short_ms < 20.0 && used > 80.0, "{short_ms} ms, {used} %");
}
