//! Compares the fates of packets with those in independent implementations.
//!
//! `tests/vectors` holds packet scripts and, per script, what the unmodified Linux 6.12 CoDel,
//! CAKE, FQ-CoDel, PIE, FQ-PIE and SFB, Linux 7.2 DualPI2, CableLabs' own dual queue with its queue protection
//! (their module of ns-3), Mahimahi's CoDel, tail-drop and head-drop, and the BoDe authors' queue
//! did with them over a link. Whether and when a packet was sent, and its ECN field then, must be
//! equal for every packet.
//!
//! Code that draws random numbers drew them from the streams of our queues. For CAKE a packet's
//! memory was its length, at least 64 bytes, and its hosts followed from its flow as in
//! [`packets`].

mod scripts;

use scripts::{number, packets, rows};
use underload_aqm::packet::{Ecn, Meta, Packet};
use underload_aqm::qdisc::{DropReason, Observer};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

/// A packet's transmission: start and end in nanoseconds, ECN field. `None`: never sent.
type Transmission = Option<(u64, u64, Ecn)>;

struct Fates(Vec<Transmission>);

impl Observer<usize> for Fates {
    fn dropped(&mut self, _now: Time, _packet: Packet<usize>, _reason: DropReason) {}

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<usize>) {
        let fate = &mut self.0[packet.payload];
        assert!(fate.is_none(), "packet {} was sent twice", packet.payload);
        *fate = Some((start.as_nanos(), end.as_nanos(), packet.meta.ecn));
    }
}

fn expected(implementation: &str, script: &str) -> Vec<Transmission> {
    let header = "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn";
    let rows = rows(&format!("{implementation}_{script}.csv.gz"), header);
    let fate = |row: &Vec<String>| match row[2].as_str() {
        "sent" | "marked" => {
            let ecn = Ecn::from_name(&row[7]).expect("an ECN name");
            Some((number(&row[4]), number(&row[5]), ecn))
        }
        "dropped" | "dropped-enqueue" | "dropped-dequeue" => None,
        other => panic!("{implementation}_{script}: unknown fate `{other}`"),
    };
    rows.iter().map(fate).collect()
}

/// The seed of the random numbers of the implementation's run.
fn seed(implementation: &str, script: &str) -> u64 {
    match script {
        "manyflows_51" => 51,
        "greedy_52" => 52,
        _ => u64::from(!implementation.starts_with("linux_cake")),
    }
}

fn replayed(queue: &str, link: &str, seed: u64, packets: &[(Time, Meta)]) -> Vec<Transmission> {
    let link = LinkSetup::parse(link).expect("a link");
    let queue = QueueSetup::parse(queue, &link.facts()).expect("a queue");
    let rng = Rng::new(seed);
    let mut link = link.build(queue.build(&rng), &rng);
    let mut fates = Fates(vec![None; packets.len()]);
    for (id, &(arrival, meta)) in packets.iter().enumerate() {
        link.send(arrival, Packet { meta, payload: id }, &mut fates);
    }
    while let Some(next) = link.next_event() {
        while link.poll(next, &mut fates).is_some() {}
    }
    fates.0
}

/// A packet script and the link that it was sent over.
type Drive = (&'static str, &'static str);

const FOUR: [Drive; 4] =
    [("cbr_1", "12mbit"), ("mix_7", "10mbit"), ("bursts_3", "10mbit"), ("trickle_4", "1mbit")];
/// The link stops for a second, and the kernel's 32-bit step wraps.
const OUTAGE: Drive = ("outage_1", "steps:0s=10mbit,1s=0bit,2s=10mbit");

/// Replays the four scripts that every implementation ran.
fn check(implementation: &str, queue: &str) {
    for (script, link) in FOUR {
        check_script(implementation, script, queue, link);
    }
}

/// Replays one script through `queue` and compares every packet.
fn check_script(implementation: &str, script: &str, queue: &str, link: &str) {
    let packets = packets(script);
    let expected = expected(implementation, script);
    assert_eq!(packets.len(), expected.len(), "{implementation}_{script}: rows");
    let sent = expected.iter().flatten().count();
    let is_marked = |id: usize| expected[id].is_some_and(|(_, _, ecn)| ecn != packets[id].1.ecn);
    let signalled = sent < packets.len() || (0..packets.len()).any(is_marked);
    assert!(sent > 0 && signalled, "{script} exercises neither sending nor signalling");

    let actual = replayed(queue, link, seed(implementation, script), &packets);
    let differs = |id: &usize| actual[*id] != expected[*id];
    let differences = (0..packets.len()).filter(differs).count();
    if let Some(first) = (0..packets.len()).find(differs) {
        panic!(
            "{implementation}_{script}: {differences} of {} packets differ, first packet {first}: \
             {:?}, expected {:?}",
            packets.len(),
            actual[first],
            expected[first]
        );
    }
}

/// Hundreds of flows, and one flow that exceeds the link, with the defaults of `tc`.
#[test]
fn linux_with_its_defaults() {
    let queues = ["fq-codel", "pie", "fq-pie", "sfb", "cake"];
    for queue in queues.map(|name| format!("{name}:profile=linux")) {
        let name = queue.split(':').next().unwrap_or_default().replace('-', "_");
        for (script, link) in [("manyflows_51", "20mbit"), ("greedy_52", "10mbit")] {
            check_script(&format!("linux_{name}"), script, &queue, link);
        }
    }
}

#[test]
fn codel_linux() {
    check("linux_codel", "codel:profile=linux,target=5ms,interval=100ms,ecn=on,limit=1000p");
}

/// Early drops, marks, and arrivals that exceed the limit.
#[test]
fn fq_pie_linux() {
    check("linux_fq_pie", "fq-pie:profile=linux,ecn=on,ecn-prob=50%,limit=300p");
}

/// All four kinds of drops, marks, and hashes that change.
#[test]
fn sfb_linux() {
    check(
        "linux_sfb",
        "sfb:profile=linux,limit=60p,max=25p,target=10p,increment=1%,decrement=0.1%,\
         penalty-rate=20,penalty-burst=20p,rehash=700ms,warmup=300ms",
    );
}

#[test]
fn codel_mahimahi() {
    check("mahimahi_codel", "codel:profile=mahimahi,target=10ms,interval=50ms,limit=1000p");
}

#[test]
fn bode_patch() {
    check("mahimahi_bode", "bode:profile=patch,bound=20ms,limit=1000p");
}

#[test]
fn tail_drop() {
    check("mahimahi_tail", "fifo:limit=64KiB");
}

#[test]
fn head_drop() {
    check("mahimahi_head", "head-drop:limit=50p");
}

#[test]
fn cake_flows() {
    let queue = "cake:tins=besteffort,isolation=flows";
    check("linux_cake", queue);
    check_script("linux_cake", "hosts_9", queue, "10mbit");
}

#[test]
fn cake_with_its_defaults() {
    check_script("linux_cake_default", "hosts_9", "cake", "10mbit");
}

#[test]
fn cake_with_its_own_shaper() {
    check_script("linux_cake_shaped", "hosts_9", "cake:rate=9.5mbit", "1gbit");
}

#[test]
fn cake_out_of_memory() {
    let queue = "cake:memory=40000B,tins=diffserv4,isolation=dual-srchost";
    check_script("linux_cake_memory", "hosts_9", queue, "10mbit");
}

#[test]
fn cake_for_ingress_over_atm() {
    let queue = "cake:rate=10mbit,tins=diffserv8,isolation=dual-dsthost,overhead=44B,mpu=84B,\
                 framing=atm,ingress=on,memory=100000B,path=regional";
    check_script("linux_cake_ingress", "hosts_9", queue, "1gbit");
}

#[test]
fn cake_for_a_slow_line_with_ptm() {
    let queue = "cake:rate=2mbit,tins=precedence,isolation=hosts,overhead=30B,framing=ptm,\
                 memory=60000B,path=oceanic";
    check_script("linux_cake_slow", "hosts_9", queue, "1gbit");
}

#[test]
fn dualpi2_linux() {
    for (script, link) in FOUR.into_iter().chain([OUTAGE]) {
        check_script("linux_dualpi2", script, "dualpi2:profile=linux", link);
    }
}

#[test]
fn docsis_lld() {
    for script in ["pie_5", "mixlow_21", "burstslong_3"] {
        check_script("docsisns3_lld", script, "docsis-lld", "10mbit");
    }
}
