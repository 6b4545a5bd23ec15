//! `underload replay` as a user calls it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

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
fn fates_come_in_input_order_with_times() {
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
fn a_full_queue_drops_and_says_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = file(directory.path(), "in.csv", SCRIPT.as_bytes());
    let output = replay(&input, &["--queue", "fifo:limit=1p", "--link", "12mbit"]);
    let fates = String::from_utf8(output.stdout).expect("text");
    // The second arrives before the link has taken the first out of the queue.
    assert!(fates.contains("\n1,0,dropped-enqueue,overlimit,,,,ect0\n"), "{fates}");
}

#[test]
fn gzip_is_read_as_it_is() {
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
fn bad_rows_are_named_by_line_and_the_fates_before_them_are_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["--queue", "fifo", "--link", "1mbit"];
    for (row, expected) in [
        ("200,0,1,0,ect0", "line 5: `len` 0: expected 1 to 65535 bytes"),
        ("200,100,1,64,ect0", "line 5: `dscp` 64: expected 0 to 63"),
        ("200,100,1,0,ect2", "line 5: `ecn` ect2: expected not-ect, ect0, ect1 or ce"),
        ("x,100,1,0,ect0", "line 5: `time_ns`"),
        ("99,100,1,0,ect0", "packet 3: its time 99 ns is before its predecessor's 100 ns"),
    ] {
        let input = file(directory.path(), "in.csv", format!("{SCRIPT}{row}\n").as_bytes());
        let said = refused(&input, &arguments);
        assert!(said.contains(expected), "{row}: {said}");
        let fates = replay(&input, &arguments).stdout;
        assert!(fates.starts_with(b"id,"), "{row}");
    }
}

#[test]
fn a_file_that_is_no_packet_file_is_refused() {
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
    let said = refused(&directory.path().join("absent.csv"), &arguments);
    assert!(said.contains("absent.csv: No such file"), "{said}");
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

#[test]
fn captures_are_read_with_marks_and_lengths() {
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
fn a_truncated_capture_is_named_and_the_packets_before_the_cut_are_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut bytes = pcap(&[500, 600]);
    bytes.truncate(bytes.len() - 5);
    let input = file(directory.path(), "in.pcap", &bytes);
    let arguments = ["--queue", "fifo", "--link", "8mbit"];
    let said = refused(&input, &arguments);
    assert!(said.contains("packet 2: the file is truncated or corrupt there"), "{said}");
    let output = replay(&input, &arguments);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("\n0,0,sent,,0,100000,"),
        "{output:?}"
    );
}
