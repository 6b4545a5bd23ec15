//! No queue discipline allocates once warm, and no link that changes packets does.

#![expect(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::Qdisc;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QUEUES, QueueSetup};
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

/// 1000 flows send at twice the rate of a link of one packet per millisecond, then at half its
/// rate.
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

/// Fills every class and flow to its limit and drains them, to reach the maximum memory.
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

/// One or both service flows behind a link with grants, alternately busy and idle.
#[test]
fn a_link_with_grants_does_not_allocate_once_warm() {
    let lld = "docsis-lld:grant-rate=1mbit,low-latency-histogram=1ms+2ms,sanctioned-dscp=0";
    let plain = "map=2ms,grant=4ms";
    let other = "generation=2.0,max-burst=9kB,request=contention-random,freed=preparation,busy=20%";
    for (queue, items) in [(lld, plain), ("fifo", plain), ("codel", plain), (lld, other)] {
        let spec = format!("docsis:rate=10mbit,peak=12mbit,{items}");
        let setup = LinkSetup::parse(&spec).expect("a link");
        let rng = Rng::new(1);
        let queue = QueueSetup::parse(queue, &setup.facts()).expect("a queue").build::<u32>(&rng);
        let mut link = setup.build(queue, &rng);
        let mut run = |from: u64, to: u64, gap_us: u64| {
            let before = ALLOCATIONS.get();
            for step in from..to {
                let now = Time::from_micros(step * gap_us);
                let mut meta = Meta::new(1_000, (step % 2) as u32);
                meta.dscp = if step % 2 == 0 { Dscp::NON_QUEUE_BUILDING } else { Dscp::DEFAULT };
                link.send(now, Packet { meta, payload: 0 }, &mut ());
                while link.poll(now, &mut ()).is_some() {}
            }
            ALLOCATIONS.get() - before
        };
        // 16 times the link's rate, then a fiftieth of it.
        run(0, 20_000, 50);
        run(1_000, 1_100, 40_000);
        assert_eq!(run(1_000_000, 1_020_000, 50), 0);
        assert_eq!(run(2_000, 2_100, 40_000), 0);
    }
}

#[test]
fn a_radio_does_not_allocate_once_warm() {
    for options in ["scheduler=proportional-fair", "scheduler=packets,dtim=20ms", "scheduler=none"]
    {
        let spec = format!("radio:0-2=[cellular:preset=lte-driving],3=5mbit,memory=60kB,{options}");
        let setup = LinkSetup::parse(&spec).expect("a link");
        let queue = QueueSetup::parse("codel", &setup.facts()).expect("a queue");
        let mut link = setup.build_behind::<u32>(&queue, &Rng::new(1));
        let mut send = |now: Time, host: u64| {
            let mut meta = Meta::new(200, host as u32);
            meta.dst = host as u32;
            link.send(now, Packet { meta, payload: 0 }, &mut ());
            while link.poll(now, &mut ()).is_some() {}
        };
        // Fills the queue of each user to the limit of the memory.
        for host in 0..5 {
            (0..400).for_each(|_| send(Time::from_secs(100 * host), host));
        }
        let before = ALLOCATIONS.get();
        for step in 0..50_000 {
            send(Time::from_secs(1_000) + Span::from_micros(50) * step, step % 5);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{spec}");
    }
}

#[test]
fn a_link_that_changes_packets_does_not_allocate_once_warm() {
    let spec = "100mbit:delay=1ms,loss=1%,mark=5%,\
                remark=comcast-edge+dscp:45>0@0%..50%+ecn:ce>ect1@50%..60%+tos>0@90%..100%";
    let setup = LinkSetup::parse(spec).expect("a link");
    let queue = QueueSetup::parse("fifo", &setup.facts()).expect("a queue");
    let rng = Rng::new(3);
    let mut link = setup.build::<u32>(queue.build(&rng), &rng);
    let mut pass = |start: Time| {
        let mut changed = 0;
        for number in 0..20_000_u64 {
            let now = start + Span::from_micros(200) * number;
            let mut meta = Meta::new(1_000, 0);
            meta.dscp = Dscp::from_tos(number as u8);
            meta.ecn = Ecn::from_bits(number as u8);
            meta.id = number as u32;
            link.send(now, Packet { meta, payload: 0 }, &mut ());
            while let Some((_, packet)) = link.poll(now, &mut ()) {
                changed += u32::from(packet.meta.tos() != packet.meta.id as u8);
            }
        }
        changed
    };
    pass(Time::from_secs(1));
    let warm = ALLOCATIONS.get();
    assert!(pass(Time::from_secs(10)) > 2_000, "the premise: packets are changed");
    assert_eq!(ALLOCATIONS.get() - warm, 0, "allocations once warm");
}
