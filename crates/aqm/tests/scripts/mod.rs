//! Packet scripts and tables of `tests/vectors`, also for other crates' tests.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use underload_aqm::packet::{Dscp, Ecn, Meta};
use underload_aqm::time::Time;

/// Reads the rows of a compressed CSV file, whose header is checked and left out.
pub fn rows(name: &str, header: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../aqm/tests/vectors").join(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some(header), "{name}");
    lines.map(|line| line.split(',').map(String::from).collect()).collect()
}

pub fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// Reads the arrivals of a script, in their order.
pub fn packets(script: &str) -> Vec<(Time, Meta)> {
    let rows = rows(&format!("packets_{script}.csv.gz"), "time_ns,len,flow,dscp,ecn");
    let packet = |row: &Vec<String>| {
        let mut meta = Meta::new(number(&row[1]) as u32, number(&row[2]) as u32);
        if !["manyflows_51", "greedy_52"].contains(&script) {
            // Hosts whose hashes fall into the same sets of CAKE's tables; `hosts_9` has flows from
            // sixteen hosts to sixteen others.
            meta.src = (meta.flow >> 28) * 1_024 + 8;
            meta.dst = (meta.flow >> 24 & 15) * 1_024 + 16;
        }
        meta.dscp = Dscp::new(number(&row[3]) as u8).expect("a codepoint");
        meta.ecn = Ecn::from_name(&row[4]).expect("an ECN name");
        (Time::from_nanos(number(&row[0])), meta)
    };
    rows.iter().map(packet).collect()
}
