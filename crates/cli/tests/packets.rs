//! `underload run --pcap`: captures of packets agree with the run's counters,
//! and other programs can read it.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use underload_record::schema::{BottleneckSummary, Direction};
use underload_store::RunDir;

/// Nothing is under way when a phase ends, so that counters are exact. CoDel drops and marks.
const SCENARIO: &str = r#"
[path]
up = "5mbit"
up_queue = "codel:profile=linux,ecn=on"
down = "20mbit"
down_queue = "fifo:limit=200p"
rtt = "30ms"
[phases]
idle = "400ms"
ramp = "500ms"
load = "2500ms"
drain = "1s"
[[flow]]
kind = "probe"
interval = "400ms"
[[flow]]
name = "bulk"
kind = "tcp"
congestion_control = "cubic"
[[flow]]
name = "marked"
kind = "tcp"
ecn = true
congestion_control = "reno"
[[flow]]
name = "page"
kind = "web"
"#;

const QUEUE: &str = "codel:profile=linux,ecn=on";

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A packet of a capture.
struct Captured {
    data: Vec<u8>,
    original_len: usize,
    missed: u64,
    comment: String,
}

fn capture(path: &Path) -> Vec<Captured> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = PcapNgReader::new(file).expect("pcapng");
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a whole block") else { continue };
        let mut captured = Captured {
            data: packet.data.to_vec(),
            original_len: packet.original_len as usize,
            missed: 0,
            comment: String::new(),
        };
        for option in packet.options {
            match option {
                EnhancedPacketOption::DropCount(count) => captured.missed = count,
                EnhancedPacketOption::Comment(text) => captured.comment = text.into_owned(),
                _ => {}
            }
        }
        packets.push(captured);
    }
    packets
}

/// The ones' complement sum of a packet's IP header, and of what is above it (RFC 9293 section
/// 3.1): all ones where the checksums are right.
fn sums(packet: &Captured) -> [u64; 2] {
    let sum = |bytes: &[u8]| -> u64 {
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1])).sum()
    };
    let fold = |sum: u64| (sum & 0xffff) + (sum >> 16);
    let pseudo = sum(&packet.data[12..20]) + u64::from(packet.data[9]);
    let above = pseudo + packet.original_len as u64 - 20 + sum(&packet.data[20..]);
    [sum(&packet.data[..20]), above].map(|sum| fold(fold(sum)))
}

fn offered(windows: &[BottleneckSummary], up: impl Fn(&BottleneckSummary) -> u64) -> u64 {
    windows.iter().filter(|window| window.direction == Direction::Up).map(up).sum()
}

#[test]
fn packets_are_recorded_as_they_were_counted() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("case.toml"), SCENARIO).expect("writing the scenario");
    let points = "client,server,up.arrival,up.departure,up.drop,up.mark";
    let arguments = ["run", "case.toml", "--world", "auto", "--pcap", points, "--out", "out"];
    let output = underload(&arguments, folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let out = folder.path().join("out");
    let of = |point: &str| capture(&out.join(format!("captures/0000000-{point}.pcapng")));

    let record = RunDir::read(&out).expect("the record can be read").record;
    let windows = &record.trials[0].bottlenecks;
    let sent = offered(windows, |window| window.sent.packets);
    let dropped = offered(windows, BottleneckSummary::dropped_packets);
    let marked = offered(windows, |window| window.marks.values().sum());
    assert!(sent > 1_000 && dropped > 5 && marked > 5, "{sent} {dropped} {marked}");

    let departures = of("up.departure");
    assert_eq!(departures.len() as u64, sent);
    assert_eq!(departures.iter().map(|packet| packet.missed).sum::<u64>(), dropped);
    assert!(departures.iter().all(|packet| packet.comment.starts_with("sojourn ")));
    let drops = of("up.drop");
    assert_eq!(drops.len() as u64, dropped);
    assert!(drops.iter().all(|packet| packet.comment == "dropped: control-law"));
    assert_eq!(of("up.mark").len() as u64, marked);
    let ce = departures.iter().filter(|packet| packet.data[1] & 3 == 3).count();
    assert_eq!(ce as u64, marked);
    for packet in of("client").iter().chain(&of("server")).chain(&departures) {
        assert_eq!(sums(packet), [0xffff, 0xffff], "{:02x?}", packet.data);
        assert_eq!(
            u16::from_be_bytes([packet.data[2], packet.data[3]]) as usize,
            packet.original_len
        );
    }

    // The captured arrivals, replayed through the same queue and link, have the same drops and
    // departures.
    let arrivals = "out/captures/0000000-up.arrival.pcapng";
    let again =
        underload(&["replay", arrivals, "--queue", QUEUE, "--link", "5mbit"], folder.path());
    assert!(again.status.success(), "{}", stderr(&again));
    let fates = String::from_utf8_lossy(&again.stdout).into_owned();
    let count = |fate: &str| fates.lines().filter(|line| line.contains(fate)).count() as u64;
    assert_eq!((count("dropped-dequeue"), count(",marked,")), (dropped, marked));
}

#[test]
fn unknown_capture_points_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("case.toml"), SCENARIO).expect("writing the scenario");
    let cases: [(&[&str], &str); 4] = [
        (&["--pcap", "up.modem.drop"], "the up link has no name; expected none"),
        (&["--pcap", "sideways"], "for example up.departure"),
        (&["--pcap", "client", "--world", "live"], "expected the world sim"),
        (&["--pcap", "client", "--repeat", "1001"], "expected at most 1000, by --variant"),
    ];
    for (arguments, expected) in cases {
        let arguments = [&["run", "case.toml", "--out", "out"], arguments].concat();
        let output = underload(&arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert!(!folder.path().join("out").exists());
    }
}
