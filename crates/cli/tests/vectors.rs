//! Compares the fates of packets in `underload replay` with those that independent implementations
//! recorded for the same packets.
//!
//! `cargo test -p underload --test vectors -- --show-output` prints the table.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;

/// Packet script and the link that it was sent over.
type Drive = (&'static str, &'static str);

const FOUR: [Drive; 4] =
    [("cbr_1", "12mbit"), ("mix_7", "10mbit"), ("bursts_3", "10mbit"), ("trickle_4", "1mbit")];
const OUTAGE: [Drive; 1] = [("outage_1", "steps:0s=10mbit,1s=0bit,2s=10mbit")];
const LOW_LATENCY: [Drive; 3] =
    [("pie_5", "10mbit"), ("mixlow_21", "10mbit"), ("burstslong_3", "10mbit")];

/// Implementation (prefix of the file names), the discipline that claims to equal it, and the
/// scripts that it was given.
const QUEUES: [(&str, &str, &[Drive]); 10] = [
    ("linux_codel", "codel:profile=linux,target=5ms,interval=100ms,ecn=on,limit=1000p", &FOUR),
    ("linux_dualpi2", "dualpi2:profile=linux", &FOUR),
    ("linux_dualpi2", "dualpi2:profile=linux", &OUTAGE),
    ("docsisns3_lld", "docsis-lld", &LOW_LATENCY),
    ("linux_fq_pie", "fq-pie:profile=linux,ecn=on,ecn-prob=50%,limit=300p", &FOUR),
    (
        "linux_sfb",
        "sfb:profile=linux,limit=60p,max=25p,target=10p,increment=1%,decrement=0.1%,\
         penalty-rate=20,penalty-burst=20p,rehash=700ms,warmup=300ms",
        &FOUR,
    ),
    ("mahimahi_bode", "bode:profile=patch,bound=20ms,limit=1000p", &FOUR),
    ("mahimahi_codel", "codel:profile=mahimahi,target=10ms,interval=50ms,limit=1000p", &FOUR),
    ("mahimahi_tail", "fifo:limit=64KiB", &FOUR),
    ("mahimahi_head", "head-drop:limit=50p", &FOUR),
];

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../aqm/tests/vectors")
}

/// Returns the comparable fields of a packet: id, sent or dropped, start, end, ECN. Implementations
/// do not record how they dropped a packet, and the codepoint of a dropped packet has no meaning.
fn comparable(row: &str) -> Option<[&str; 5]> {
    let fields: Vec<&str> = row.split(',').collect();
    let [id, _, fate, _, start, end, _, ecn] = fields.try_into().ok()?;
    match fate {
        "sent" | "marked" => Some([id, "sent", start, end, ecn]),
        "dropped" | "dropped-enqueue" | "dropped-dequeue" => Some([id, "dropped", "", "", ""]),
        _ => None,
    }
}

fn differences(expected: &str, got: &str) -> (usize, usize) {
    assert_eq!(expected.lines().count(), got.lines().count(), "one row per packet");
    let rows = expected.lines().skip(1).zip(got.lines().skip(1));
    let differing = rows.clone().filter(|(expected, got)| {
        let expected = comparable(expected).expect("a row of the vector");
        comparable(got).is_none_or(|got| got != expected)
    });
    (rows.clone().count(), differing.count())
}

#[test]
fn every_vector_is_matched_packet_by_packet() {
    let mut total = 0;
    for (implementation, queue, drives) in QUEUES {
        for (script, link) in drives {
            let input = vectors().join(format!("packets_{script}.csv.gz"));
            let program = env!("CARGO_BIN_EXE_underload");
            let output = Command::new(program)
                .arg("replay")
                .arg(input)
                .args(["--seed", "1", "--queue", queue, "--link", link])
                .output()
                .expect("underload");
            assert!(output.status.success(), "{output:?}");
            let got = String::from_utf8(output.stdout).expect("text");
            let path = vectors().join(format!("{implementation}_{script}.csv.gz"));
            let mut expected = String::new();
            GzDecoder::new(File::open(path).expect("vector"))
                .read_to_string(&mut expected)
                .expect("gzip");
            let (packets, differing) = differences(&expected, &got);
            println!("{implementation}_{script}: {packets} packets, {differing} differences");
            total += differing;
        }
    }
    assert_eq!(total, 0, "differences over all vectors");
}
