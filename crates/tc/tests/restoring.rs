//! Queues that were recorded from a real kernel (7.3.4, `tc` of iproute2 6.1), and the arguments
//! that bring them back.

use underload_tc::printed::{Reading, parse_filters, parse_readings};
use underload_tc::restore::words;

/// Pairs of lines: the arguments after `tc qdisc replace dev v0 root`, and what
/// `tc -j -s -d qdisc show dev v0` prints then.
const RECORDED: &str = include_str!("data/qdiscs.txt");

fn recorded() -> Vec<(String, Reading)> {
    let lines: Vec<&str> = RECORDED.lines().collect();
    let pairs = lines.chunks(2).map(|pair| {
        let readings = parse_readings(pair[1]).expect("what tc printed");
        (pair[0].trim_start_matches("# ").to_owned(), readings[0].clone())
    });
    pairs.collect()
}

#[test]
fn recorded_options_become_the_arguments_that_made_them() {
    let expected = [
        "pfifo limit 55",
        "bfifo limit 55000",
        "pfifo_fast",
        // The kernel stores 7777 us in units of 1024 ns and prints 7776.
        "fq_codel limit 1000 flows 512 quantum 300 target 7777us interval 123456us ce_threshold \
         2000us memory_limit 4194304 noecn drop_batch 12",
        "codel limit 1000 target 128us interval 100000us ecn",
        "pie limit 1000 target 15003us tupdate 32000us alpha 3 beta 21 ecn bytemode",
        "fq_pie limit 10240 flows 64 target 15000us tupdate 16000us alpha 2 beta 20 quantum 1514 \
         memory_limit 33554432 ecn_prob 20 ecn nobytemode",
        "fq limit 100 flow_limit 10 buckets 1024 orphan_mask 1023 quantum 3028 initial_quantum \
         15140 low_rate_threshold 550000bit refill_delay 40000us timer_slack 10000ns horizon \
         10000000us horizon_cap",
        "cake unlimited diffserv3 triple-isolate nowash egress no-ack-filter split-gso rtt \
         100000us raw fwmark 0",
        "cake bandwidth 20000000bit besteffort triple-isolate nowash egress no-ack-filter \
         split-gso rtt 100000us overhead 34 ptm fwmark 0",
        "cake bandwidth 1234560bit diffserv8 dual-srchost nowash egress ack-filter-aggressive \
         no-split-gso rtt 100000us raw fwmark 0xff00",
        "cake bandwidth 20000000bit autorate-ingress diffserv3 triple-isolate wash ingress \
         no-ack-filter split-gso rtt 50000us overhead 20 atm mpu 84 memlimit 4194304 fwmark 0",
    ];
    for ((made, reading), expected) in recorded().iter().zip(expected) {
        let words = words(&reading.qdisc).map(|words| words.join(" "));
        assert_eq!(words.as_deref(), Ok(expected), "{made}");
    }
}

#[test]
fn queues_that_could_not_be_restored_are_never_replaced() {
    for kind in ["sfq", "tbf", "htb", "dualpi2", "netem"] {
        let all = recorded();
        let (_, reading) = all.iter().find(|(_, it)| it.qdisc.kind == kind).expect(kind);
        let error = words(&reading.qdisc).expect_err(kind).to_string();
        assert!(error.contains(kind), "{error}");
    }
    let (_, mut newer) = recorded().remove(3);
    newer.qdisc.options.insert("new_in_linux_9".to_owned(), 1.into());
    let error = words(&newer.qdisc).expect_err("an unknown option").to_string();
    assert!(error.contains("`new_in_linux_9`"), "{error}");
}

#[test]
fn options_that_tc_cannot_print_do_not_hide_the_queue() {
    let all = recorded();
    let (_, dualpi2) = all.iter().find(|(_, it)| it.qdisc.kind == "dualpi2").expect("dualpi2");
    assert!(dualpi2.qdisc.is_unknown && dualpi2.qdisc.options.is_empty(), "{dualpi2:?}");
}

#[test]
fn classes_of_cake_have_names_and_rates() {
    let all = recorded();
    let (_, cake) = all.iter().find(|(made, _)| made.ends_with("memlimit 4mb")).expect("cake");
    let names: Vec<&str> = cake.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["bulk", "best effort", "voice"]);
    assert_eq!(cake.classes[0].threshold_bit_per_s, 1_250_000);
    assert_eq!(cake.counts.marked, Some(0));
}

#[test]
fn invalid_output_of_tc_is_an_error() {
    for text in ["{", "[1]", "[{\"kind\":\"fq\"}]", "{[Unknown qdisc", "Error: no"] {
        assert!(parse_readings(text).is_err(), "{text}");
    }
    assert!(parse_readings(&" ".repeat(5 << 20)).is_err());
    assert_eq!(parse_readings("").expect("no queues").len(), 0);
}

#[test]
fn a_redirection_names_its_device() {
    let text = r#"[{"protocol":"all","pref":10,"kind":"u32","chain":0},
        {"protocol":"all","pref":10,"kind":"u32","chain":0,"options":{"fh":"800:"}},
        {"protocol":"all","pref":10,"kind":"u32","chain":0,"options":{"fh":"800::800","actions":
        [{"order":1,"kind":"mirred","mirred_action":"redirect","to_dev":"ifb4v0"}]}}]"#;
    let filters = parse_filters(text).expect("filters");
    assert_eq!(filters.len(), 1);
    assert_eq!(filters[0].redirects_to.as_deref(), Some("ifb4v0"));
}
