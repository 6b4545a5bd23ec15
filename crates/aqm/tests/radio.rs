//! Several users of one radio: how the schedulers share the air, and what they do not solve.

use std::collections::BTreeMap;

use underload_aqm::link::Link;
use underload_aqm::packet::{Meta, Packet};
use underload_aqm::qdisc::{Backlog, DropReason, Observer};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_laws::Subject;

fn setup(spec: &str) -> LinkSetup {
    LinkSetup::parse(spec).expect(spec)
}

fn link(spec: &str, queue: &str, seed: u64) -> Link<usize> {
    let setup = setup(spec);
    let queue = QueueSetup::parse(queue, &setup.facts()).expect(queue);
    setup.build_behind(&queue, &Rng::new(seed))
}

fn packet(host: u32, len: u32) -> Packet<usize> {
    let mut meta = Meta::new(len, host);
    meta.dst = host;
    Packet { meta, payload: 0 }
}

/// The packets that were sent to a host.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    packets: u64,
    bytes: u64,
    longest_sojourn: Span,
    dropped: u64,
}

#[derive(Default)]
struct Log {
    sent: BTreeMap<u32, Sent>,
    /// The transmissions in order: host, start and end.
    air: Vec<(u32, Time, Time)>,
}

impl Log {
    fn of(&self, host: u32) -> Sent {
        self.sent.get(&host).copied().unwrap_or_default()
    }

    fn kbit_per_s(&self, host: u32, seconds: u64) -> u64 {
        self.of(host).bytes * 8 / 1_000 / seconds
    }
}

impl Observer<usize> for Log {
    fn dropped(&mut self, _now: Time, packet: Packet<usize>, _reason: DropReason) {
        self.sent.entry(packet.meta.dst).or_default().dropped += 1;
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<usize>) {
        let sent = self.sent.entry(packet.meta.dst).or_default();
        sent.packets += 1;
        sent.bytes += u64::from(packet.meta.len);
        sent.longest_sojourn = sent.longest_sojourn.max(start.since(packet.meta.arrived));
        self.air.push((packet.meta.dst, start, end));
    }
}

/// Offers a packet of 1500 bytes to each host at its interval, for `seconds`.
fn offer(link: &mut Link<usize>, hosts: &[(u32, Span)], seconds: u64) -> Log {
    let mut log = Log::default();
    let mut next: Vec<Time> = hosts.iter().map(|_| Time::ZERO).collect();
    let end = Time::from_secs(seconds);
    loop {
        let (number, &now) = next.iter().enumerate().min_by_key(|(_, time)| **time).expect("hosts");
        if now >= end {
            break;
        }
        link.send(now, packet(hosts[number].0, 1_500), &mut log);
        while link.poll(now, &mut log).is_some() {}
        next[number] = now + hosts[number].1;
    }
    link.advance_before(end, &mut log);
    log
}

const fn every_us(micros: u64) -> Span {
    Span::from_micros(micros)
}

/// Users 1 and 2 always have packets.
const GREEDY: [(u32, Span); 2] = [(1, every_us(149)), (2, every_us(151))];

#[test]
fn equal_packets_slow_a_fast_station_to_the_slow_one_and_equal_airtime_does_not() {
    let of = |options: &str| {
        let log =
            offer(&mut link(&format!("radio:1=60mbit,2=6mbit{options}"), "fifo", 1), &GREEDY, 10);
        [1, 2].map(|host| log.kbit_per_s(host, 10))
    };
    let near = |measured: [u64; 2], expected: [u64; 2], tolerance: u64| {
        let is_near = |(one, other): (&u64, &u64)| one.abs_diff(*other) <= tolerance;
        assert!(measured.iter().zip(&expected).all(is_near), "{measured:?}, not {expected:?}");
    };
    // A packet of each takes 0.2 and 2 ms: 12 kbit in 2.2 ms.
    near(of(",scheduler=packets"), [5_455, 5_455], 1);
    near(of(",scheduler=packets,aggregate=32p"), [5_455, 5_455], 40);
    near(of(""), [30_000, 3_000], 2);
    // With one queue for all users, the queue stores equally many packets of each.
    near(of(",scheduler=none"), [5_455, 5_455], 300);
}

/// A turn of 1 ms costs 0.25 ms besides its packets.
#[test]
fn each_turn_costs_its_access_time() {
    let spec = "radio:1=60mbit,2=6mbit,slot=1ms,access=250us";
    let log = offer(&mut link(spec, "fifo", 1), &GREEDY, 10);
    assert!(log.kbit_per_s(1, 10).abs_diff(22_500) < 20, "{:?}", log.of(1));
    assert!(log.kbit_per_s(2, 10).abs_diff(2_250) < 10, "{:?}", log.of(2));
    let spec = "radio:1=60mbit,scheduler=packets,access=200us";
    let log = offer(&mut link(spec, "fifo", 1), &GREEDY[..1], 10);
    assert_eq!(log.kbit_per_s(1, 10), 30_000);
    let spec = "radio:1=60mbit,scheduler=packets,access=200us,aggregate=10p";
    let log = offer(&mut link(spec, "fifo", 1), &GREEDY[..1], 10);
    assert!(log.kbit_per_s(1, 10).abs_diff(54_545) < 20, "{:?}", log.of(1));
}

#[test]
fn a_user_that_sends_nothing_leaves_its_air_to_the_others() {
    let spec = "radio:1-3=12mbit";
    let log = offer(&mut link(spec, "fifo", 1), &[(2, every_us(500))], 10);
    assert_eq!(log.kbit_per_s(2, 10), 12_000);
}

/// Each user has its high rate for half of the time, independently of the other. For a quarter of
/// the time it alone has it and sends; of the quarters with equal states it has half. So it has 3/8
/// of the time at the high rate and 1/8 at the low one, whatever the rates are: 32.5 and 3.25 Mbit/s.
/// A scheduler that does not look has 1/4 at each: 25 and 2.5 Mbit/s.
#[test]
fn proportional_fairness_gives_equal_time_and_more_throughput() {
    let users = "radio:1=[steps:0s=80mbit,50ms=20mbit,repeat=100ms],\
                 2=[steps:0s=8mbit,35ms=2mbit,repeat=70ms]";
    for (scheduler, expected) in
        [("proportional-fair", [32_500, 3_250]), ("airtime", [25_000, 2_500])]
    {
        let spec = format!("{users},scheduler={scheduler}");
        let log =
            offer(&mut link(&spec, "fifo", 5), &[(1, every_us(140)), (2, every_us(1_400))], 70);
        for (host, expected) in [1, 2].into_iter().zip(expected) {
            let measured = log.kbit_per_s(host, 70);
            assert!(measured.abs_diff(expected) * 50 < expected, "{scheduler}: {measured}");
        }
    }
}

/// Eight users drive, each on its own road.
#[test]
fn the_better_moments_of_many_users_add_up() {
    let users =
        "radio:1-8=[cellular:preset=lte-driving,reversion=200ms,volatility=10mbit,outage-gap=0s]";
    let hosts: Vec<_> = (1..=8).map(|host| (host, every_us(4_000))).collect();
    let [fair, blind] = ["proportional-fair", "airtime"].map(|scheduler| {
        let spec = format!("{users},scheduler={scheduler}");
        let log = offer(&mut link(&spec, "fifo", 5), &hosts, 100);
        (1..=8).map(|host| log.kbit_per_s(host, 100)).collect::<Vec<_>>()
    });
    let [of_fair, of_blind] = [&fair, &blind].map(|rates| rates.iter().sum::<u64>());
    assert!(of_fair > of_blind * 15 / 10, "{of_fair} {of_blind}");
    let (least, most) = (fair.iter().min().expect("users"), fair.iter().max().expect("users"));
    assert!(*most < least * 11 / 10, "{fair:?}");
}

/// The paper of BoDe, section VII-B: a scheduler decides who sends, not how long packets wait.
#[test]
fn a_scheduler_does_not_bound_a_users_own_queue() {
    let spec = "radio:1-2=[steps:0s=8mbit,1s=800kbit,repeat=2s],scheduler=proportional-fair";
    // Each sends 3 Mbit/s, and has 2.2 Mbit/s on average.
    let hosts = [(1, every_us(4_000)), (2, every_us(4_000))];
    let longest = |queue: &str| {
        let log = offer(&mut link(spec, queue, 1), &hosts, 30);
        [1, 2].map(|host| log.of(host).longest_sojourn)
    };
    for sojourn in longest("fifo") {
        assert!(sojourn > Span::from_secs(4), "{sojourn}");
    }
    for sojourn in longest("bode:bound=50ms,exempt=0p") {
        assert!(sojourn < Span::from_millis(50), "{sojourn}");
    }
}

/// User 1 sends five times its rate, user 2 a tenth of its rate in bursts of 3 packets.
fn shared_memory(queue: &str) -> (Sent, Sent) {
    let mut link = link("radio:1-2=12mbit,memory=150kB", queue, 1);
    let mut log = Log::default();
    for ms in 0..10_000_u64 {
        let now = Time::from_millis(ms);
        for _ in 0..5 {
            link.send(now, packet(1, 1_500), &mut log);
        }
        if ms % 30 == 29 {
            for _ in 0..3 {
                link.send(now, packet(2, 1_500), &mut log);
            }
        }
        while link.poll(now, &mut log).is_some() {}
    }
    while link.poll(Time::from_secs(20), &mut log).is_some() {}
    (log.of(1), log.of(2))
}

#[test]
fn a_greedy_users_fifo_takes_the_memory_of_others_and_bode_does_not() {
    let (_, victim) = shared_memory("fifo");
    assert!(victim.dropped > 800, "{victim:?}");
    // The memory holds what arrives within the bound of 8 ms: 7.5 kB, and 4.5 kB of the other user.
    let (greedy, victim) = shared_memory("bode:bound=8ms");
    assert_eq!((victim.dropped, victim.packets), (0, 999), "{greedy:?}");
}

/// 100 packets of 1500 bytes a second at 6 Mbit/s occupy 100 x 2 ms of each second.
#[test]
fn multicast_costs_its_airtime_at_the_lowest_rate() {
    let unicast = |multicast: bool, options: &str| {
        let hosts = [(1, every_us(150)), (9_999, every_us(10_000))];
        let hosts = if multicast { &hosts[..] } else { &hosts[..1] };
        let spec = format!("radio:1=60mbit,2=6mbit,scheduler=packets{options}");
        let log = offer(&mut link(&spec, "fifo", 1), hosts, 10);
        (log.kbit_per_s(1, 10), log.of(9_999).packets)
    };
    assert_eq!(unicast(false, ""), (60_000, 0));
    let (rest, sent) = unicast(true, "");
    assert!(rest.abs_diff(48_000) < 60 && sent >= 999, "{rest} {sent}");
    let (rest, _) = unicast(true, ",multicast=1500kbit");
    assert!(rest.abs_diff(12_000) < 100, "{rest}");
}

/// Sleeping stations wake up for a beacon: all stored multicast packets leave at once.
#[test]
fn multicast_waits_for_a_beacon_and_leaves_in_one_burst() {
    let spec = "radio:1=60mbit,2=6mbit,dtim=300ms";
    let log = offer(&mut link(spec, "fifo", 1), &[(1, every_us(150)), (7, every_us(10_000))], 3);
    let bursts: Vec<Time> =
        log.air.iter().filter(|(host, ..)| *host == 7).map(|(_, start, _)| *start).collect();
    assert!(bursts.len() > 200);
    for start in bursts {
        let offset = start.since(Time::ZERO).as_nanos() % 300_000_000;
        assert!(offset < 90_000_000, "36 packets of 2 ms after the beacon: {start:?}");
    }
    assert_eq!(log.of(7).longest_sojourn, Span::from_millis(290));
    // Without other traffic the wait is the same.
    let log = offer(&mut link(spec, "fifo", 1), &[(7, Span::from_millis(400))], 1);
    let starts: Vec<_> = log.air.iter().map(|(_, start, _)| start.as_millis()).collect();
    assert_eq!(starts, [0, 600, 900]);
}

/// With every scheduler transmissions do not overlap, and every packet is sent or dropped.
#[test]
fn the_air_carries_one_packet_at_a_time_and_every_packet_has_a_fate() {
    for options in
        ["scheduler=packets", "scheduler=none,access=100us", "scheduler=none,aggregate=4p"]
    {
        let spec = format!(
            "radio:1=[cellular:preset=lte-driving],2=[steps:0s=3mbit,9ms=0bit,20ms=7mbit,repeat=50ms],3=5mbit,memory=60kB,{options}"
        );
        let mut link = link(&spec, "codel:target=1ms,interval=10ms", 3);
        let mut log = Log::default();
        let mut rng = Rng::new(2);
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now += Span::from_nanos(u64::from(rng.below(1_500_000)));
            link.send(now, packet(rng.below(5), 40 + rng.below(1_460)), &mut log);
        }
        while link.poll(now + Span::from_secs(600), &mut log).is_some() {}
        let ends = log.air.windows(2).all(|pair| pair[0].2 <= pair[1].2);
        assert!(ends, "{spec}");
        let fates: u64 = log.sent.values().map(|sent| sent.packets + sent.dropped).sum();
        let stats = link.queue().stats();
        assert_eq!((fates, stats.offered.packets), (20_000, 20_000), "{spec}");
        let drops = stats.dropped_enqueue.packets + stats.dropped_dequeue.packets;
        assert_eq!(stats.sent.packets + drops, 20_000, "{spec}");
        assert!(log.sent.values().all(|sent| sent.packets > 100), "{spec}: {:?}", log.sent);
    }
}

/// The laws of every discipline, for a radio as a queue.
#[test]
fn a_radio_obeys_the_laws_of_a_queue() {
    for (options, queue) in [
        ("scheduler=airtime", "fifo"),
        ("scheduler=packets,aggregate=3p,access=50us", "codel"),
        ("scheduler=proportional-fair", "fifo"),
        ("scheduler=none", "fq-codel"),
        ("dtim=20ms,access=100us", "pie"),
    ] {
        let spec = format!("radio:0-1=20mbit,2=30mbit,memory=30kB,{options}");
        let subject = Subject::new(&format!("{queue} in {spec}"), move |seed| {
            let setup = setup(&spec);
            let queue = QueueSetup::parse(queue, &setup.facts()).expect(queue);
            setup.queue(&queue, &Rng::new(seed))
        });
        let subject = subject.limited_to(Backlog { packets: u32::MAX, bytes: 30_000 });
        underload_laws::keeps_its_books(&subject);
        underload_laws::repeats_itself(&subject);
        underload_laws::does_not_feel_polls(&subject);
        underload_laws::forgets_in_a_minute(&subject);
        underload_laws::survives_the_wrap_of_a_clock(&subject);
        underload_laws::survives_a_giant(&subject);
        underload_laws::serves_every_flow(&subject);
    }
}

#[test]
fn impossible_users_and_options_are_refused_by_name() {
    for (spec, expected) in [
        ("radio", "`radio` needs `HOST=`: a user with its rate, such as 1=60mbit"),
        ("radio:1=60mbit,1=6mbit", "`1` is given twice"),
        ("radio:1-3=60mbit,3=6mbit", "`3` is given twice"),
        ("radio:0-256=60mbit", "in `0-256`: more users than 256"),
        ("radio:3-1=60mbit", "no parameter `3-1`"),
        ("radio:1=60", "in `1`: `60` has no unit"),
        ("radio:1=[trace:x]", "in `1`: `trace`"),
        ("radio:1=[docsis:rate=1mbit,peak=2mbit]", "has no rate at each instant"),
        ("radio:1=[radio:2=1mbit]", "has no rate at each instant"),
        ("radio:1=[20mbit:delay=5ms]", "`delay` belongs to the whole link"),
        ("radio:1=20mbit,access=1ms", "`access=1ms`: expected less than `slot`"),
        ("radio:1=20mbit,scheduler=none,dtim=100ms", "`none` has no queue of multicast packets"),
        ("radio:1=20mbit,scheduler=fair", "expected airtime, packets, proportional-fair, none"),
    ] {
        let error = LinkSetup::parse(spec).expect_err(spec).to_string();
        assert!(error.contains(expected), "{spec}: {error}");
    }
    // The long-term rates of these links round to zero.
    for spec in ["radio:1=[steps:0s=1bit,1s=0bit,repeat=1000s]", "radio:1-2=1bit"] {
        assert_eq!(setup(spec).facts().rate, Some(Rate::from_bits_per_second(1)), "{spec}");
    }
}
