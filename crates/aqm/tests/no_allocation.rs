//! No queue discipline allocates once warm.

#![expect(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::Qdisc;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QUEUES, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

struct Counting;

thread_local! {
    /// Per thread, so that the test harness's own threads do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: both calls go to the system allocator unchanged; counting touches a thread-local cell
// that needs neither allocation nor destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 1000 flows at twice a link of one packet per millisecond, then half its rate.
fn work(queue: &mut dyn Qdisc<u32>, start: Time, rng: &mut Rng) {
    for half_ms in 0..6_000_u64 {
        let now = start + Span::from_micros(500) * half_ms;
        if half_ms < 3_000 || half_ms % 4 == 0 {
            let mut meta = Meta::new(1_000 + rng.below(500), rng.below(1_000));
            meta.ecn = Ecn::from_bits(rng.below(4) as u8);
            meta.dscp = Dscp::from_tos(rng.below(256) as u8);
            queue.enqueue(now, Packet { meta, payload: 0 }, &mut ());
        }
        if half_ms % 2 == 0 {
            let _ = queue.dequeue(now, &mut ());
        }
    }
}

/// Fills every class and flow to its limit, then drains: the high-water mark.
fn warm_up(queue: &mut dyn Qdisc<u32>, rng: &mut Rng) {
    for number in 0..100_000 {
        let mut meta = Meta::new(1_500, rng.below(1_000));
        meta.dscp = Dscp::from_tos((number % 256) as u8);
        meta.ecn = Ecn::Ect0;
        queue.enqueue(Time::ZERO, Packet { meta, payload: 0 }, &mut ());
    }
    while !queue.backlog().is_empty() {
        let _ = queue.dequeue(Time::ZERO, &mut ());
    }
}

#[test]
fn no_discipline_allocates_once_warm() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1, "the allocator counts");

    let facts =
        LinkFacts { rate: Some(Rate::from_megabits_per_second(12)), ..LinkFacts::default() };
    for entry in QUEUES {
        let name = entry.definition.name;
        let profiles = entry.definition.profiles;
        let specs: Vec<String> = match profiles {
            [] => vec![name.to_string()],
            _ => {
                profiles.iter().map(|profile| format!("{name}:profile={}", profile.name)).collect()
            }
        };
        for spec in specs {
            let setup = QueueSetup::parse(&spec, &facts).expect("defaults are accepted");
            let mut queue = setup.build::<u32>(&Rng::new(1));
            let mut rng = Rng::new(2);
            warm_up(queue.as_mut(), &mut rng);
            work(queue.as_mut(), Time::from_secs(1), &mut rng);
            let warm = ALLOCATIONS.get();
            work(queue.as_mut(), Time::from_secs(5), &mut rng);
            assert_eq!(ALLOCATIONS.get() - warm, 0, "{spec}: allocations once warm");
        }
    }
}
