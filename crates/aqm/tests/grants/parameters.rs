//! The parameters in which generations of DOCSIS differ, and upstreams that other modems use, too.

use proptest::prelude::*;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::{Log, drain, gauge, limited, link, outcome, packet, total, us};

/// Megabits per second from a source that is faster than the link, in packets of `len` bytes.
fn carried(spec: &str, queue: &str, len: u32) -> f64 {
    let (mut link, mut log) = (link(spec, queue), Log::default());
    let gap_ns = u64::from(len) * 20;
    for step in 0..2_000_000_000 / gap_ns {
        let now = Time::from_nanos(step * gap_ns);
        link.send(now, packet(0, len, false), &mut log);
        while link.poll(now, &mut log).is_some() {}
    }
    let steady = log.sent.iter().filter(|(start, ..)| *start >= Time::from_millis(200));
    steady.map(|(.., len, _)| f64::from(*len)).sum::<f64>() * 8.0 / 1.8e6
}

fn is_near(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() <= tolerance
}

/// One request outstanding: F bytes per cycle of two MAP intervals, whatever the buffer.
#[test]
fn one_outstanding_request_carries_a_burst_per_cycle() {
    let spec = "docsis:generation=2.0,rate=100mbit,peak=100mbit";
    for queue in ["fifo:limit=64KiB", "fifo:limit=1MiB", "docsis-lld:target=1s,classic-limit=1MB"] {
        for (more, len, expected) in [
            ("", 1_522, 3.04),
            // One packet per burst, whatever the room that is left.
            ("", 1_200, 2.4),
            // Small packets share a burst.
            ("", 100, 3.0),
            (",max-burst=8kB", 1_000, 15.9),
            // 5 packets.
            (",max-burst=8KiB", 1_522, 15.22),
            // A packet larger than the burst leaves alone.
            (",overhead=28B", 1_500, 3.056),
            // The header of a grant has no request, so the cycle is three intervals.
            (",request=contention-only", 1_522, 2.03),
            (",grant=3500us", 1_522, 3.04),
            (",map=1ms,grant=3ms", 1_522, 4.06),
        ] {
            let spec = format!("{spec}{more}");
            let found = carried(&spec, queue, len);
            assert!(is_near(found, expected, 0.01), "{queue} behind {spec}, {len}: {found}");
        }
    }
    let many = carried(&format!("{spec},outstanding=many"), "fifo:limit=1MiB", 1_522);
    assert!(is_near(many, 100.0, 0.01), "{many}");
}

/// The table of docs/links.md.
#[test]
fn each_generation_carries_what_its_cycle_allows() {
    for (generation, expected) in
        [("1.1", 3.0), ("2.0", 3.0), ("3.0", 10.0), ("3.1", 15.0), ("lld", 30.0)]
    {
        let spec = format!("docsis:generation={generation},rate=100mbit,peak=100mbit");
        for queue in ["fifo:limit=8KiB", "docsis-lld:target=1s,classic-limit=8KiB"] {
            let found = carried(&spec, queue, 1_500);
            assert!(is_near(found, expected, 0.01), "{queue} behind {spec}: {found}");
        }
    }
}

/// With requests in grants a full buffer leaves every T = 6 ms. Without them it takes the grants of three
/// intervals, and requests at the boundary behind them: 10 ms. CableLabs' model for ns-2 carries 84.9
/// and 53.6 Mbit/s; its buffer does not count the packet that is being sent.
#[test]
fn a_modem_that_requests_by_contention_only_carries_less() {
    let spec = "docsis:generation=3.0,rate=100mbit,peak=100mbit";
    for (request, t_ms, ns2) in [("contention-start", 6.0, 84.9), ("contention-only", 10.0, 53.6)] {
        let spec = format!("{spec},request={request}");
        let found = carried(&spec, "fifo:limit=64KiB", 1_500);
        assert!(is_near(found, 43.0 * 1.5 * 8.0 / t_ms, 0.005), "{request}: {found}");
        assert!(is_near(found, ns2, 0.04), "{request}: {found}");
    }
}

/// A request at a random time counts at the next boundary: T is two MAP intervals and `grant`.
#[test]
fn a_random_time_for_requests_adds_a_map_interval_to_a_small_buffer() {
    for (generation, t_ms) in [("3.0", 8.0), ("3.1", 6.0)] {
        let spec = format!(
            "docsis:generation={generation},rate=100mbit,peak=100mbit,request=contention-random"
        );
        let found = carried(&spec, "fifo:limit=8KiB", 1_000);
        assert!(is_near(found, 8.0 * 8.0 / t_ms, 0.01), "{spec}: {found}");
        let endless = carried(&spec, "fifo:limit=1MiB", 1_000);
        assert!(is_near(endless, 100.0, 0.01), "requests in grants fill the rate: {endless}");
    }
}

#[test]
fn a_generation_is_a_set_of_values_and_given_values_override_it() {
    let script: Vec<_> = (0..400).map(|id| (id * 37 % 900, 100 + id as u32 * 3, false)).collect();
    let rates = "rate=9mbit,peak=20mbit";
    for (generation, same) in [
        ("none,map=2ms", "map=2ms,grant=4ms"),
        ("1.1", "map=2ms,grant=4ms,outstanding=one"),
        ("2.0", "map=2ms,grant=4ms,outstanding=one,max-burst=1522B"),
        ("3.0", "map=2ms,grant=4ms,outstanding=many"),
        ("3.1", "map=2ms,grant=2ms"),
        ("lld", "map=1ms,grant=1500us"),
        ("lld,map=3ms", "map=3ms,grant=1500us"),
        ("2.0,outstanding=many,grant=1ms", "map=2ms,grant=1ms"),
    ] {
        let [preset, explicit] = [format!("generation={generation}"), same.to_owned()]
            .map(|items| format!("docsis:{rates},{items}"));
        let of = |spec: &str| outcome((spec, "fifo:limit=20kB"), &script, None).0;
        assert_eq!(of(&preset), of(&explicit), "{preset}");
        let setups = [&preset, &explicit].map(|spec| LinkSetup::parse(spec).expect(spec));
        assert_eq!(setups[0].facts(), setups[1].facts());
        let again = LinkSetup::parse(&setups[0].label.to_string()).expect("its own label");
        assert_eq!((&again.label, again.meaning()), (&setups[0].label, setups[0].meaning()));
        let has_preset = !generation.starts_with("none");
        assert_eq!(again.label.to_string().starts_with("docsis:generation="), has_preset);
    }
}

#[test]
fn contradictions_are_refused_by_name() {
    for (items, expected) in [
        ("busy=30%", "`map=0s`: expected 100us or more with"),
        ("generation=3.0,map=0s,request=contention-only", "`map=0s`: expected 100us or more"),
        ("generation=3.0,max-burst=9kB", "`max-burst=9000B`: expected `outstanding=one` with it"),
        ("generation=2.0,max-burst=1000B", "`max-burst=1000B`: expected 1522B to 1MiB"),
        ("generation=3.0,grant=134us,freed=preparation", "`grant=134us`: expected 135us or more"),
        ("generation=3.0,busy=30%,busy-variation=31%", "`busy-variation=0.31`: expected at most"),
        ("generation=3.0,busy=90%,busy-variation=11%", "expected at most `busy`"),
        ("generation=4.0", "`generation=4.0`: expected none, 1.1, 2.0, 3.0, 3.1, lld"),
        ("map=2ms,request=piggyback-only", "expected contention-start, contention-random"),
    ] {
        let error = LinkSetup::parse(&format!("docsis:rate=9mbit,peak=9mbit,{items}"));
        let error = error.expect_err(items).to_string();
        assert!(error.contains(expected), "{items}: {error}");
    }
}

/// MAC frames: 1500 bytes of IP are 1528 in the buffer's limit, in the request and in the grant.
#[test]
fn overhead_counts_in_the_buffer_and_in_the_request() {
    let spec = "docsis:generation=3.0,rate=20mbit,peak=40mbit,overhead=28B";
    let (mut link, mut log) = (link(spec, "fifo:limit=4583B"), Log::default());
    for id in 0..3 {
        link.send(us(0), packet(id, 1_500, false), &mut log);
    }
    assert_eq!(log.dropped, 1, "4583 bytes are one less than three frames");
    drain(&mut link, &mut log, us(50_000));
    assert_eq!((log.sent.len(), total(&link, "requested")), (2, 2 * 1_528));
    assert_eq!(total(&link, "unused"), 0);
}

/// The buffer is free earlier, and the packet arrives at the same time.
#[test]
fn a_prepared_packet_leaves_the_queue_one_frame_before_its_grant() {
    let at = |freed: &str| {
        let spec = format!("docsis:generation=3.0,rate=20mbit,peak=40mbit,freed={freed}");
        let (mut link, mut log) = (link(&spec, "fifo"), Log::default());
        link.send(us(300), packet(0, 1_000, false), &mut log);
        let mut event = link.next_event();
        loop {
            if let Some((arrival, _)) = link.poll(event.expect("it arrives"), &mut log) {
                return (log.sent[0].0, arrival);
            }
            event = link.next_event();
        }
    };
    assert_eq!(at("grant"), (us(6_000), us(6_200)));
    assert_eq!(at("preparation"), (us(5_865), us(6_200)));
    // Under load a byte still occupies the buffer for T.
    for generation in ["3.0", "3.1", "lld"] {
        let of = |freed: &str| {
            let rates = "rate=100mbit,peak=100mbit";
            let spec = format!("docsis:generation={generation},{rates},freed={freed}");
            carried(&spec, "fifo:limit=8KiB", 1_000)
        };
        let (grant, preparation) = (of("grant"), of("preparation"));
        assert!(is_near(preparation, grant, 0.01), "{generation}: {grant} and {preparation}");
    }
}

/// A burst that is prepared just before a MAP boundary and begins just behind it: the CMTS hears the
/// request in its header at the next boundary only.
#[test]
fn a_request_counts_when_its_burst_begins_and_not_when_it_is_prepared() {
    for (grant_us, t1_us) in [(2_000, 2_000), (2_001, 4_000), (2_134, 4_000), (2_135, 4_000)] {
        for freed in ["grant", "preparation"] {
            let spec = format!(
                "docsis:rate=100mbit,peak=100mbit,map=2ms,grant={grant_us}us,outstanding=one,\
                 max-burst=8kB,freed={freed}"
            );
            let found = carried(&spec, "fifo:limit=64KiB", 1_000);
            assert!(is_near(found, 64_000.0 / f64::from(t1_us), 0.01), "{spec}: {found}");
        }
    }
}

const BUSY: &str = "docsis:generation=3.0,rate=20mbit,peak=20mbit,busy=30%,busy-variation=25%";

/// Bytes that leave in each MAP interval of 2 ms of a source that never pauses from `from_ms` on.
fn bytes_by_map(spec: &str, queue: &str, seed: u64, from_ms: u64) -> Vec<u64> {
    let setup = LinkSetup::parse(spec).expect(spec);
    let rng = Rng::new(seed);
    let queue = QueueSetup::parse(queue, &setup.facts()).expect(queue).build(&rng);
    let (mut link, mut log) = (setup.build(queue, &rng), Log::default());
    for step in from_ms * 40..80_000 {
        link.send(us(step * 25), packet(0, 100, false), &mut log);
        while link.poll(us(step * 25), &mut log).is_some() {}
    }
    let mut bytes = vec![0; 1_000];
    for (start, _, len, _) in &log.sent {
        bytes[(start.as_nanos() / 2_000_000) as usize] += u64::from(*len);
    }
    bytes
}

/// Other modems use 5 to 55 % of each interval of 5000 bytes, 30 % on average.
#[test]
fn other_modems_take_their_share_of_each_map_interval() {
    let bytes = bytes_by_map(BUSY, "fifo:limit=1MiB", 11, 0);
    let steady = &bytes[100..];
    let share = steady.iter().sum::<u64>() as f64 / (steady.len() as f64 * 5_000.0);
    // Nine hundred draws of a deviation of 14 % have a mean within 1.5 %.
    assert!((share - 0.7).abs() < 0.015, "{share}");
    let (least, most) = (steady.iter().min().expect("some"), steady.iter().max().expect("some"));
    assert!((2_100..2_500).contains(least) && (4_600..4_900).contains(most), "{least} to {most}");
    let fixed = bytes_by_map(
        "docsis:generation=3.0,rate=20mbit,peak=20mbit,busy=30%",
        "fifo:limit=1MiB",
        11,
        0,
    );
    assert!(fixed[100..].iter().all(|bytes| bytes.abs_diff(3_500) <= 100));
    let total: u64 = fixed[100..].iter().sum();
    assert!(total.abs_diff(900 * 3_500) <= 200, "fractions of bytes are not lost: {total}");
    // A tier that leaves room on the channel loses nothing.
    let spare = "docsis:generation=3.0,rate=20mbit,peak=40mbit,busy=30%";
    let total: u64 = bytes_by_map(spare, "fifo:limit=1MiB", 11, 0)[100..].iter().sum();
    assert!(total.abs_diff(900 * 5_000) <= 400, "{total}");
}

/// A MAP interval has the same share in each run of a seed, so that queues are compared on one line.
#[test]
fn the_share_of_a_map_interval_follows_from_the_seed_alone() {
    let all = bytes_by_map(BUSY, "fifo:limit=1MiB", 11, 0);
    assert_eq!(all, bytes_by_map(BUSY, "fifo:limit=1MiB", 11, 0));
    let near = |other: &[u64]| {
        // Packets that begin with the last bytes of an interval shift by one.
        let pairs = all[300..].iter().zip(&other[300..]);
        pairs.filter(|(one, other)| one.abs_diff(**other) <= 200).count()
    };
    assert_eq!(near(&bytes_by_map(BUSY, "fifo:limit=1MiB", 11, 500)), 700, "a later source");
    let other_queue = "docsis-lld:target=1s,classic-limit=1MB";
    assert_eq!(near(&bytes_by_map(BUSY, other_queue, 11, 0)), 700, "another queue");
    assert!(near(&bytes_by_map(BUSY, "fifo:limit=1MiB", 12, 0)) < 300, "another seed");
}

/// A modem with any parameters.
#[derive(Clone, Debug)]
struct Modem {
    map_us: u64,
    grant_us: u64,
    request: &'static str,
    /// `None` if several requests may be outstanding.
    max_burst: Option<u64>,
    freed: &'static str,
    busy_percent: u64,
    variation_percent: u64,
}

const RATE_KBIT: u64 = 30_000;

impl Modem {
    fn spec(&self) -> String {
        let Self { map_us, grant_us, request, freed, busy_percent, variation_percent, .. } = self;
        let outstanding = match self.max_burst {
            Some(bytes) => format!("outstanding=one,max-burst={bytes}B"),
            None => "outstanding=many".to_owned(),
        };
        format!(
            "docsis:rate={RATE_KBIT}kbit,peak={RATE_KBIT}kbit,map={map_us}us,grant={grant_us}us,\
             request={request},{outstanding},freed={freed},busy={busy_percent}%,\
             busy-variation={variation_percent}%"
        )
    }

    fn is_random(&self) -> bool {
        self.request == "contention-random"
    }
}

fn modem() -> impl Strategy<Value = Modem> {
    (
        (300_u64..4_000, 135_u64..9_000),
        prop::sample::select(vec!["contention-start", "contention-random", "contention-only"]),
        prop::option::of(1_522_u64..20_000),
        prop::sample::select(vec!["grant", "preparation"]),
        (0_u64..=60, 0_u64..=40),
    )
        .prop_map(|((map_us, grant_us), request, max_burst, freed, (busy, variation))| Modem {
            map_us,
            grant_us,
            request,
            max_burst,
            freed,
            busy_percent: busy,
            variation_percent: variation.min(busy),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Each term of the law: 8 B / T, 8 F / T1, and the free capacity.
    #[test]
    fn no_modem_carries_more_than_the_law(
        modem in modem(),
        (bytes, len, gap_us) in (2_000_u64..40_000, 200_u32..1_500, 50_u64..1_000),
    ) {
        let spec = modem.spec();
        let Modem { map_us, grant_us, .. } = modem;
        for queue in limited(bytes, len) {
            let (mut link, mut log) = (link(&spec, &queue), Log::default());
            for step in 0..200_000 / gap_us {
                link.send(us(step * gap_us), packet(0, len, false), &mut log);
            }
            drain(&mut link, &mut log, us(200_000));
            let len = u64::from(len);
            let carried = log.sent.len() as u64 * len;
            let started = u64::from(queue.starts_with("fq"));
            let whole = ((bytes / len).max(1) + started) * len;
            let most = whole * 200_000 / (map_us * (grant_us / map_us + 1)) + whole;
            prop_assert!(carried <= most, "{} behind {}: {} > {}", queue, spec, carried, most);
            if let Some(burst) = modem.max_burst {
                let most = burst * (200_000 / (map_us * grant_us.div_ceil(map_us)) + 1);
                prop_assert!(carried <= most, "{} behind {}: {} > {}", queue, spec, carried, most);
            }
            let free_percent = 100 - modem.busy_percent + modem.variation_percent;
            let most = (200_000 + map_us) * RATE_KBIT / 8_000 * free_percent / 100 + whole;
            prop_assert!(carried <= most, "{} behind {}: {} > {}", queue, spec, carried, most);
        }
    }

    #[test]
    fn requests_are_granted_or_outstanding_and_grants_are_used_or_counted(
        modem in modem(),
        script in prop::collection::vec((0_u64..1_000, 40_u32..1_500, any::<bool>()), 1..200),
        bytes in 3_000_u64..40_000,
    ) {
        let spec = modem.spec();
        for queue in limited(bytes, 700) {
            let (mut link, mut log) = (link(&spec, &queue), Log::default());
            let mut now = Time::ZERO;
            for (id, &(gap_us, len, low_latency)) in script.iter().enumerate() {
                now += Span::from_micros(gap_us);
                link.send(now, packet(id, len, low_latency), &mut log);
                let [requested, outstanding, granted, unused] =
                    ["requested", "outstanding", "granted", "unused"].map(|name| total(&link, name));
                let sent: u64 = log.sent.iter().map(|(_, _, len, _)| u64::from(*len)).sum();
                prop_assert_eq!(requested, granted + outstanding, "{}", queue);
                prop_assert!(sent + unused <= granted, "{}", queue);
                // No byte is requested twice.
                prop_assert!(requested <= link.queue().stats().offered.bytes, "{}", queue);
                if queue.starts_with("fifo") {
                    prop_assert!(requested <= sent + link.queue().backlog().bytes);
                }
                if let Some(burst) = modem.max_burst {
                    // One burst for each of the two flows.
                    prop_assert!(outstanding <= 2 * burst, "{}: {}", queue, outstanding);
                }
            }
            drain(&mut link, &mut log, now + Span::from_secs(60));
            prop_assert_eq!(link.next_event(), None, "an empty upstream rests");
            let sent: u64 = log.sent.iter().map(|(_, _, len, _)| u64::from(*len)).sum();
            prop_assert_eq!(total(&link, "granted"), sent + total(&link, "unused"), "{}", queue);
            prop_assert_eq!(total(&link, "outstanding"), 0, "{}", queue);
        }
    }

    #[test]
    fn a_packet_of_an_idle_modem_waits_for_its_request_and_grant(
        modem in modem(),
        (at_us, len, low_latency) in (0_u64..100_000, 40_u32..1_500, any::<bool>()),
    ) {
        // A channel that others use may grant the packet in parts.
        let modem = Modem { busy_percent: 0, variation_percent: 0, ..modem };
        let maps = if modem.is_random() { 2 } else { 1 };
        let least = modem.grant_us - if modem.freed == "grant" { 0 } else { 135 };
        // A MAP interval shorter than the packet's own transmission grants it in parts, too.
        let parts = u64::from(len) * 8_000 / RATE_KBIT + modem.map_us;
        for queue in limited(9_000, 700) {
            let (mut link, mut log) = (link(&modem.spec(), &queue), Log::default());
            link.send(us(at_us), packet(0, len, low_latency), &mut log);
            drain(&mut link, &mut log, Time::MAX);
            let sojourn_us = log.sent[0].0.since(us(at_us)).as_nanos() / 1_000;
            let most = least + maps * modem.map_us + if parts >= 2 * modem.map_us { parts } else { 0 };
            prop_assert!((least..=most).contains(&sojourn_us), "{}: {}", queue, sojourn_us);
            prop_assert_eq!(total(&link, "requested"), u64::from(len));
        }
    }

    #[test]
    fn polling_changes_nothing_and_equal_seeds_give_equal_results(
        modem in modem(),
        script in prop::collection::vec((0_u64..3_000, 40_u32..1_500, any::<bool>()), 1..200),
    ) {
        let spec = modem.spec();
        for queue in limited(20_000, 700) {
            let case = (spec.as_str(), queue.as_str());
            let (once, log) = outcome(case, &script, None);
            for every in [None, Some(Span::from_micros(1_000)), Some(Span::from_nanos(77_777))] {
                let (polled, polled_log) = outcome(case, &script, every);
                prop_assert_eq!(&polled, &once, "{:?}", case);
                prop_assert_eq!(&polled_log.sent, &log.sent, "{:?}", case);
            }
            prop_assert_eq!(once.len() + log.dropped, script.len(), "{:?}", case);
        }
    }

    /// With an unlimited buffer, delivery times do not depend on where the wait is counted, except
    /// for the interval in which a request counts. Other modems take different shares of different
    /// intervals.
    #[test]
    fn an_endless_buffer_delivers_prepared_packets_as_others(
        modem in modem(),
        script in prop::collection::vec((0_u64..2_000, 40_u32..1_500), 1..200),
    ) {
        let modem = Modem { max_burst: None, request: "contention-start", ..modem };
        let modem = Modem { busy_percent: 0, variation_percent: 0, ..modem };
        let script: Vec<_> = script.iter().map(|(gap, len)| (*gap, *len, false)).collect();
        let of = |freed| {
            let spec = Modem { freed, ..modem.clone() }.spec();
            outcome((&spec, "fifo:limit=9999p"), &script, None).0
        };
        let map = Span::from_micros(modem.map_us);
        for ((_, grant), (_, preparation)) in of("grant").iter().zip(of("preparation")) {
            prop_assert!(*grant <= preparation + map && preparation <= *grant + map + map);
        }
    }
}

#[test]
fn grants_for_dropped_packets_are_unused_behind_every_generation() {
    for generation in ["1.1", "2.0", "3.0", "3.1", "lld"] {
        for queue in ["codel:target=1ms,interval=2ms", "bode:bound=8ms", "head-drop:limit=9kB"] {
            let rates = "rate=20mbit,peak=40mbit,busy=20%,busy-variation=20%";
            let spec = format!("docsis:generation={generation},{rates}");
            let (mut link, mut log) = (link(&spec, queue), Log::default());
            for step in 0..20_000 {
                // Half a second of twice the rate, half a second of silence.
                let now = us(step / 2_000 * 1_000_000 + step % 2_000 * 250);
                link.send(now, packet(0, 1_250, false), &mut log);
                while link.poll(now, &mut log).is_some() {}
            }
            drain(&mut link, &mut log, Time::from_secs(60));
            let sent: u64 = log.sent.iter().map(|(_, _, len, _)| u64::from(*len)).sum();
            assert_eq!(total(&link, "granted"), sent + total(&link, "unused"), "{spec}, {queue}");
            assert_eq!(gauge(&link, "grants.outstanding_bytes"), 0, "{spec}, {queue}");
            assert!(log.dropped > 1_000, "{spec}, {queue}");
        }
    }
}
