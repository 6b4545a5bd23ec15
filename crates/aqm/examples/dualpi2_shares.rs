//! DualPI2's promise (RFC 9332): a scalable flow, which reacts to the share of marked packets, and
//! a classic one, which halves its window, get about the same rate of one link, and the scalable one
//! waits much less. Both halve their windows after a loss, which is all that a FIFO tells them.
//!
//! `cargo run -p underload-aqm --example dualpi2_shares`

#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use std::collections::VecDeque;

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Ecn, Meta, Packet};
use underload_aqm::qdisc::{Dequeue, DropReason, Observer};
use underload_aqm::rate::Rate;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

const BYTES: u32 = 1_500;
const ROUND_TRIP: Span = Span::from_millis(20);

/// A sender with a window: the classic one halves it after a loss, at most once per round trip; the
/// scalable one takes half a packet off for each mark.
struct Sender {
    ecn: Ecn,
    window: f64,
    in_flight: u32,
    recovered: Time,
    sent: u32,
    waited: Span,
}

impl Sender {
    fn new(ecn: Ecn) -> Self {
        let (window, recovered) = (10.0, Time::ZERO);
        Self { ecn, window, in_flight: 0, recovered, sent: 0, waited: Span::ZERO }
    }

    fn lose(&mut self, now: Time) {
        self.in_flight -= 1;
        if now >= self.recovered {
            self.window = f64::max(self.window / 2.0, 2.0);
            self.recovered = now + ROUND_TRIP;
        }
    }

    fn acknowledge(&mut self, is_marked: bool) {
        self.in_flight -= 1;
        let change = if is_marked { -0.5 } else { 1.0 / self.window };
        self.window = f64::max(self.window + change, 2.0);
    }
}

/// The flows of lost packets.
struct Lost(Vec<usize>);

impl Observer<usize> for Lost {
    fn dropped(&mut self, _now: Time, packet: Packet<usize>, _reason: DropReason) {
        self.0.push(packet.payload);
    }
}

/// Returns the senders, scalable and classic, after a minute of virtual time behind this queue.
fn simulate(spec: &str) -> [Sender; 2] {
    let rate = Rate::from_megabits_per_second(40);
    let transmission = rate.time_for(u64::from(BYTES)).expect("the rate is not zero");
    let setup = QueueSetup::parse(spec, &LinkFacts::of_rate(rate)).expect("a queue");
    let mut queue = setup.build(&Rng::new(1));
    let mut senders = [Sender::new(Ecn::Ect1), Sender::new(Ecn::NotEct)];
    let (mut now, mut lost) = (Time::ZERO, Lost(Vec::new()));
    let mut back: VecDeque<(Time, usize, bool)> = VecDeque::new();
    while now < Time::from_secs(60) {
        while let Some((_, flow, is_marked)) = back.pop_front_if(|&mut (at, ..)| at <= now) {
            senders[flow].acknowledge(is_marked);
        }
        for (flow, sender) in senders.iter_mut().enumerate() {
            while f64::from(sender.in_flight) < sender.window {
                sender.in_flight += 1;
                let meta = Meta { ecn: sender.ecn, ..Meta::new(BYTES, flow as u32) };
                queue.enqueue(now, Packet { meta, payload: flow }, &mut lost);
            }
        }
        if let Dequeue::Packet(packet) = queue.dequeue(now, &mut lost) {
            let sender = &mut senders[packet.payload];
            sender.sent += 1;
            sender.waited = sender.waited + now.since(packet.meta.arrived);
            back.push_back((now + ROUND_TRIP, packet.payload, packet.meta.ecn == Ecn::Ce));
        }
        lost.0.drain(..).for_each(|flow| senders[flow].lose(now));
        now += transmission;
    }
    senders
}

/// Returns the mean sojourn of a sender's packets, ms.
fn sojourn_ms(sender: &Sender) -> f64 {
    sender.waited.as_secs_f64() * 1e3 / f64::from(sender.sent)
}

fn main() {
    for spec in ["fifo:limit=256KiB", "dualpi2", "dualpi2:profile=linux"] {
        let senders = simulate(spec);
        let sent: u32 = senders.iter().map(|sender| sender.sent).sum();
        for (name, sender) in ["scalable", "classic"].iter().zip(&senders) {
            let (share, wait) = (f64::from(sender.sent) / f64::from(sent), sojourn_ms(sender));
            println!("{spec:<21} {name:<8} {:3.0} % of the packets, {wait:5.1} ms", share * 100.0);
        }
    }
}

#[test]
fn dualpi2_shares_the_link_about_equally_and_the_scalable_flow_waits_less() {
    for spec in ["dualpi2", "dualpi2:profile=linux"] {
        let [scalable, classic] = simulate(spec);
        let ratio = f64::from(scalable.sent) / f64::from(classic.sent);
        assert!((0.5..2.0).contains(&ratio), "{spec}: {ratio}");
        let [fast, slow] = [scalable, classic].map(|sender| sojourn_ms(&sender));
        assert!(fast < 2.0 && slow > 5.0, "{spec}: {fast} and {slow} ms");
    }
}
