//! `underload replay` as a user calls it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

const HEADER: &str = "time_ns,len,flow,dscp,ecn\n";

const SCRIPT: &str = "\
time_ns,len,flow,dscp,ecn
0,1500,1,0,not-ect
0,1500,1,0,ect0
100,1500,2,45,ect1
";

fn replay(input: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_underload");
    Command::new(program).arg("replay").arg(input).args(arguments).output().expect("underload")
}

fn file(directory: &Path, name: &str, content: &[u8]) -> std::path::PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).expect("a file in the temporary directory");
    path
}

/// Runs a replay that must fail as bad input, and returns what it said.
fn refused(input: &Path, arguments: &[&str]) -> String {
    let output = replay(input, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn fates_are_in_input_order_with_times() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.csv", SCRIPT.as_bytes());
    let output = replay(&input, &["--queue", "fifo:limit=2p", "--link", "12mbit"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).expect("text"),
        "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn\n\
         0,0,sent,,0,1000000,0,not-ect\n\
         1,0,sent,,1000000,2000000,1000000,ect0\n\
         2,100,sent,,2000000,3000000,1999900,ect1\n"
    );
    let summary = String::from_utf8(output.stderr).expect("text");
    assert!(summary.contains("sent        3 (100.00 %)"), "{summary}");
}

#[test]
fn drops_of_a_full_queue_have_their_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.csv", SCRIPT.as_bytes());
    let output = replay(&input, &["--queue", "fifo:limit=1p", "--link", "12mbit"]);
    let fates = String::from_utf8(output.stdout).expect("text");
    // The second arrives before the link has taken the first out of the queue.
    assert!(fates.contains("\n1,0,dropped-enqueue,overlimit,,,,ect0\n"), "{fates}");
}

#[test]
fn gzipped_input_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(SCRIPT.as_bytes()).expect("memory");
    let packed = encoder.finish().expect("memory");
    let plain = file(directory.path(), "in.csv", SCRIPT.as_bytes());
    let packed = file(directory.path(), "in.csv.gz", &packed);
    let arguments = ["--queue", "fifo", "--link", "1mbit"];
    assert_eq!(replay(&plain, &arguments).stdout, replay(&packed, &arguments).stdout);
}

#[test]
fn errors_name_the_line_and_keep_the_fates_before_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "1mbit"];
    for (row, expected) in [
        ("200,0,1,0,ect0", "line 5: `len` 0: expected 1 to 65535 bytes"),
        ("200,100,1,64,ect0", "line 5: `dscp` 64: expected 0 to 63"),
        ("200,100,1,0,ect2", "line 5: `ecn` ect2: expected not-ect, ect0, ect1 or ce"),
        ("x,100,1,0,ect0", "line 5: `time_ns`"),
    ] {
        let input = file(directory.path(), "in.csv", format!("{SCRIPT}{row}\n").as_bytes());
        let said = refused(&input, &arguments);
        assert_eq!(said.matches(expected).count(), 1, "{row}: {said}");
        let fates = replay(&input, &arguments).stdout;
        assert!(fates.starts_with(b"id,"), "{row}");
    }
}

#[test]
fn other_files_are_rejected() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "1mbit"];
    for (content, expected) in [
        (&b""[..], "the file is empty"),
        (&b"hello\nworld\n"[..], "expected the header `time_ns,len,flow,dscp,ecn`"),
        (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0][..], "the file header"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 2, 0][..], "the file header"),
    ] {
        let input = file(directory.path(), "in", content);
        let said = refused(&input, &arguments);
        assert!(said.contains(expected), "{said}");
    }
    let absent = directory.path().join("absent.csv");
    let said = refused(&absent, &arguments);
    assert!(said.contains("absent.csv: No such file"), "{said}");
    assert_eq!(replay(&absent, &arguments).stdout, b"", "no header without an input");
}

#[test]
fn packets_are_sorted_by_time_and_id_is_the_position_in_the_input() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "12mbit"];
    let row = |time: u64| format!("{time},1500,1,0,not-ect\n");
    let rows: String = [0, 3_000_000, 2_999_892, 4_000_000].map(row).concat();
    let input = file(directory.path(), "in.csv", format!("{HEADER}{rows}").as_bytes());
    let output = replay(&input, &arguments);
    assert!(output.status.success(), "{output:?}");
    let fates = String::from_utf8(output.stdout).expect("text");
    let ids: Vec<&str> = fates.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(ids, ["0", "2", "1", "3"], "{fates}");
    assert!(fates.contains("\n2,2999892,sent,,2999892,3999892,0,"), "{fates}");
}

#[test]
fn the_summary_of_a_damaged_input_says_incomplete() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "12mbit"];
    let row = |time: u64| format!("{time},1500,1,0,not-ect\n");
    // The second is more than a second late.
    let rows: String = [5_000_000_000, 6_000_000_000, 4_999_999_999].map(row).concat();
    let input = file(directory.path(), "in.csv", format!("{HEADER}{rows}").as_bytes());
    let said = refused(&input, &arguments);
    assert!(said.starts_with("INCOMPLETE: "), "{said}");
    assert!(said.contains("packet 3: it is 1ns earlier than"), "{said}");
    assert!(said.contains("packets     2 "), "{said}");
}

/// A file of a few kilobytes may have millions of packets of one instant, which all wait.
#[test]
fn the_packets_that_wait_in_all_queues_are_bounded() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(HEADER.as_bytes()).expect("memory");
    encoder.write_all("0,1500,1,0,ce\n".repeat(1 << 16).as_bytes()).expect("memory");
    let bomb = file(directory.path(), "bomb.gz", &encoder.finish().expect("memory"));
    let queues = ["--queue", "fifo:limit=10p"].repeat(17);
    let out = directory.path().join("out");
    let out = out.to_string_lossy();
    let arguments = [&queues[..], &["--link", "12mbit", "--out", &*out]].concat();
    let said = refused(&bomb, &arguments);
    assert!(said.contains("more than 1048576 packets wait for the link"), "{said}");
}

#[test]
fn endless_lines_are_rejected_before_they_fill_memory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "12mbit"];
    // Other readers of CSV take lines within quotes for one line.
    for (name, start, rest, expected) in [
        ("long", "", "1", "line 3: a line of more than 65536 bytes"),
        ("quoted", "\"", "1\n", "line 3: expected 5 fields, found 1"),
    ] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(format!("{HEADER}0,1500,1,0,ce\n{start}").as_bytes()).expect("memory");
        for _ in 0..200 {
            encoder.write_all(rest.repeat(1 << 10).as_bytes()).expect("memory");
        }
        let packed = encoder.finish().expect("memory");
        let said = refused(&file(directory.path(), name, &packed), &arguments);
        assert!(said.contains(expected), "{name}: {said}");
        assert!(said.contains("packets     1 "), "{name}: {said}");
    }
    let long = format!("{}\n", "x".repeat(1 << 20));
    let said = refused(&file(directory.path(), "header", long.as_bytes()), &arguments);
    assert!(said.contains("a line of more than 65536 bytes"), "{said}");
}

#[test]
fn a_dash_means_standard_input() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "12mbit"];
    for (name, content) in [("in.csv", SCRIPT.as_bytes().to_vec()), ("in.pcap", pcap(&[5, 6]))] {
        let input = file(directory.path(), name, &content);
        let expected = replay(&input, &arguments).stdout;
        let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
        command.args(["replay", "-"]).args(arguments);
        let output = command.stdin(fs::File::open(&input).expect("a file")).output();
        let output = output.expect("underload");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, expected, "{name}");
    }
}

#[test]
fn truncated_packets_count_with_their_original_length() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let whole = pcap(&[500, 600]);
    let mut short = whole.clone();
    // The snap length in the file header: the most bytes of a packet that are stored.
    short[16..20].copy_from_slice(&20_u32.to_le_bytes());
    let arguments = ["--queue", "fifo", "--link", "8mbit"];
    let of = |bytes: &[u8]| replay(&file(directory.path(), "in.pcap", bytes), &arguments);
    let output = of(&short);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, of(&whole).stdout);
}

#[test]
fn the_first_packet_of_a_capture_may_be_late() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.pcap", &pcap(&[600, 500]));
    let output = replay(&input, &["--queue", "fifo", "--link", "8mbit"]);
    assert!(output.status.success(), "{output:?}");
    let fates = String::from_utf8(output.stdout).expect("text");
    assert!(fates.contains("\n1,0,sent,") && fates.contains("\n0,100000,sent,"), "{fates}");
}

/// A pcap of raw IPv4 packets (link type 101), each 100 bytes on the wire and cut to 20.
fn pcap(times_us: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&65_535_u32.to_le_bytes());
    bytes.extend_from_slice(&101_u32.to_le_bytes());
    for time in times_us {
        for field in [0, *time, 20, 100] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        // IPv4, TOS 0xb5 (DSCP 45, ECT(1)), total length 100, UDP.
        bytes.extend_from_slice(&[0x45, 0xb5, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0]);
        bytes.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    }
    bytes
}

/// Writes a pcapng of raw IPv4 packets (link type 101), each with its own interface. `packets` has
/// the interface's `if_tsoffset`, s, and the packet's time without the offset, us.
fn pcapng(packets: &[(i64, u64)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).expect("a short block").to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut bytes = block(0x0a0d_0d0a, &section);
    for (offset_s, _) in packets {
        let mut body = vec![101, 0, 0, 0, 0, 0, 1, 0];
        if *offset_s != 0 {
            body.extend([&[14, 0, 8, 0][..], &offset_s.to_le_bytes(), &[0; 4]].concat());
        }
        bytes.extend(block(1, &body));
    }
    for (interface, (_, time_us)) in (0_u32..).zip(packets) {
        let (high, low) = ((time_us >> 32) as u32, (time_us & 0xffff_ffff) as u32);
        let head = [interface, high, low, 20, 100].map(u32::to_le_bytes).concat();
        // As in `pcap`.
        let packet = &pcap(&[0])[24 + 16..];
        bytes.extend(block(6, &[&head, packet].concat()));
    }
    bytes
}

#[test]
fn interface_offsets_are_added_to_packet_times() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "8mbit"];
    let of = |packets: &[(i64, u64)]| {
        let output = replay(&file(directory.path(), "in.pcapng", &pcapng(packets)), &arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let without = of(&[(0, 1_700_000_000_000_500), (0, 1_700_000_000_000_600)]);
    assert!(without.contains("\n1,100000,sent,"), "{without}");
    assert_eq!(of(&[(0, 1_700_000_000_000_500), (1_700_000_000, 600)]), without);
    assert_eq!(of(&[(0, 1_700_000_000_000_500), (-3, 1_700_000_003_000_600)]), without);
    let early = file(directory.path(), "early.pcapng", &pcapng(&[(0, 500), (-1, 600)]));
    let said = refused(&early, &arguments);
    assert!(said.contains("packet 2: with its interface's `if_tsoffset` of -1 s"), "{said}");
}

#[test]
fn captures_have_ecn_marks_and_lengths() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.pcap", &pcap(&[500, 600]));
    let output = replay(&input, &["--queue", "fifo", "--link", "8mbit:overhead=14B"]);
    assert_eq!(
        String::from_utf8(output.stdout).expect("text"),
        "id,arrival_ns,fate,reason,start_ns,end_ns,sojourn_ns,ecn\n\
         0,0,sent,,0,114000,0,ect1\n\
         1,100000,sent,,114000,228000,14000,ect1\n"
    );
}

#[test]
fn packets_before_the_damage_of_a_capture_are_replayed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut bytes = pcap(&[500, 600]);
    bytes.truncate(bytes.len() - 5);
    let input = file(directory.path(), "in.pcap", &bytes);
    let arguments = ["--queue", "fifo", "--link", "8mbit"];
    let said = refused(&input, &arguments);
    assert!(said.contains("packet 2: the file is truncated or corrupt"), "{said}");
    let output = replay(&input, &arguments);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("\n0,0,sent,,0,100000,"),
        "{output:?}"
    );
}

#[test]
fn several_queues_are_compared_in_a_table() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.csv", SCRIPT.as_bytes());
    let out = directory.path().join("fates");
    let both = ["--queue", "fifo:limit=2p", "--queue", "fifo:limit=1p", "--link", "12mbit"];
    let output = replay(&input, &[&both[..], &["--out", out.to_str().expect("text")]].concat());
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.contains("do not react"), "{table}");
    for (name, queue) in [("1-fifo.csv", "fifo:limit=2p"), ("2-fifo.csv", "fifo:limit=1p")] {
        let alone = replay(&input, &["--queue", queue, "--link", "12mbit"]);
        assert_eq!(fs::read(out.join(name)).expect("fates"), alone.stdout, "{queue}");
    }
    let json = replay(&input, &[&both[..], &["--json"]].concat()).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("one document");
    assert_eq!((&json[0]["dropped"], &json[1]["drops"]["overlimit"]), (&0.into(), &1.into()));
    let burst =
        file(directory.path(), "burst.csv", format!("{HEADER}0,1500,1,0,not-ect\n").as_bytes());
    let endless = ["--queue", "fifo", "--link", "unlimited"];
    let json = replay(&burst, &[&endless[..], &["--queue", "codel", "--json"]].concat()).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("one document");
    assert!(json[0]["throughput_bit_per_s"].is_null(), "no time passes: {json}");
}
