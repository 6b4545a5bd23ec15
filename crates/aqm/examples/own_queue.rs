//! A queue discipline of your own in 60 lines: BoDe from its formula. The example applies the laws
//! of all queues to it, and compares its decisions with those of the built-in BoDe on the same
//! packets.
//!
//! `cargo run -p underload-aqm --example own_queue`, and for the laws
//! `cargo test -p underload-aqm --test own_queue`; `docs/tutorials/own-queue.md` explains it.

#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use underload_aqm::aqm::{Aqm, Store};
use underload_aqm::config::LinkFacts;
use underload_aqm::packet::Packet;
use underload_aqm::qdisc::DropReason;
use underload_aqm::queue::store::{Limit, Overflow, Single};
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_laws::{Event, Polls, Subject, replay, varied};

/// Section V-C of the paper: serve the head if it has waited less than the bound, or if no more
/// than `exempt` packets are there; else drop it and look at the next.
struct MyBode {
    bound: Span,
    exempt: u32,
}

impl Aqm for MyBode {
    fn dequeue<P>(&mut self, now: Time, store: &mut impl Store<P>) -> Option<Packet<P>> {
        loop {
            let waited = now.since(store.head()?.arrived);
            let is_served = waited < self.bound || store.backlog().packets <= self.exempt;
            let packet = store.pop()?;
            if is_served {
                return Some(packet);
            }
            store.drop(packet, DropReason::Bound);
        }
    }
}

/// The rule on one queue of 1000 packets. It draws no random numbers: the seed is not used.
fn mine() -> Subject {
    let aqm = || MyBode { bound: Span::from_millis(20), exempt: 3 };
    Subject::new("my BoDe", move |_seed| {
        Box::new(Single::new(aqm(), Limit::packets(1_000), Overflow::Tail))
    })
}

/// Sends the same packets through both queues over a link of 10 Mbit/s, and prints the fates.
pub fn compared() -> String {
    let theirs = QueueSetup::parse("bode:profile=paper,bound=20ms", &LinkFacts::default());
    let theirs = theirs.expect("a queue of the registry");
    let theirs = Subject::new("the built-in one", move |seed| theirs.build(&Rng::new(seed)));
    let packets = varied(1, Time::ZERO);
    let [mine, theirs] = [mine(), theirs].map(|it| replay(&it, &packets, Polls::WhenDue));
    assert!(mine == theirs, "not the same algorithm");
    let drops = mine.iter().filter(|event| matches!(event, Event::Dropped { .. })).count();
    format!("{} packets, {drops} dropped, and each at the same instant", packets.len())
}

fn main() {
    println!("{}", compared());
}

#[cfg(test)]
mod tests {
    underload_laws::laws!(super::mine());
}
