//! Applications over simulated paths: what their users get, and how it moves with the queue.

use underload_record::schema::{FlowRecord, TrialRecord};
use underload_scenario::Scenario;
use underload_scenario::simulation::configure;
use underload_sim::trial::{TrialLabel, run};

/// The record of a scenario of one variant.
fn record(text: &str) -> TrialRecord {
    let scenario = Scenario::parse(text, "test").expect("a valid scenario");
    let config = configure(&scenario.variants[0], 1, TrialLabel::default()).expect("simulated");
    run(config).expect("a trial").record
}

/// A path, its phases and flows.
fn scenario(path: &str, load: &str, flows: &str) -> String {
    format!(
        "[path]\n{path}\ndown_queue = \"fifo:limit=1000p\"\n\n\
         [phases]\nidle = \"0s\"\nramp = \"5s\"\nload = \"{load}\"\n\
         drain = \"1s\"\n\n{flows}"
    )
}

fn flow<'a>(record: &'a TrialRecord, name: &str) -> &'a FlowRecord {
    record.flows.iter().find(|flow| flow.name == name).expect("a flow of that name")
}

/// A metric that must be known.
fn value(record: &TrialRecord, name: &str, metric: &str) -> f64 {
    let found = flow(record, name).metrics.iter().find(|found| found.name == metric);
    let found = found.unwrap_or_else(|| panic!("{name} reports no {metric}"));
    found.value.unwrap_or_else(|| panic!("{name}'s {metric} is unknown"))
}

const UPLOAD: &str = "[[flow]]\nname = \"upload\"\nkind = \"tcp\"\ndirection = \"up\"\n\
                      congestion_control = \"cubic\"\n";

const BUFFER_16_KIB: &str = "up = \"2mbit\"\ndown = \"50mbit\"\nrtt = \"57ms\"\n\
                             up_queue = \"fifo:limit=16KiB\"";
const BUFFER_256_KIB: &str = "up = \"2mbit\"\ndown = \"50mbit\"\nrtt = \"57ms\"\n\
                              up_queue = \"fifo:limit=256KiB\"";

mod voip {
    use super::*;

    #[test]
    fn an_idle_path_carries_a_call_of_the_best_quality() {
        let flows = "[[flow]]\nname = \"call\"\nkind = \"voip\"\n";
        let record = record(&scenario(BUFFER_16_KIB, "30s", flows));
        // 28.5 ms of path, 40 ms of buffer, 20 ms of speech, 0.8 ms to send 200 bytes at 2 Mbit/s.
        let delay = value(&record, "call", "mouth_to_ear_up");
        assert!((delay - 89.3).abs() < 0.1, "{delay}");
        assert!((value(&record, "call", "mos") - 4.41).abs() < 0.005);
        assert!(value(&record, "call", "frames_lost_up").abs() < f64::EPSILON);
        assert!(value(&record, "call", "frames_late_down").abs() < f64::EPSILON);
        assert_eq!(flow(&record, "call").kind, "voip");
    }

    #[test]
    fn a_bloated_upload_ruins_a_call_and_a_small_buffer_saves_it() {
        let flows = format!(
            "{UPLOAD}\n[[flow]]\nname = \"call\"\nkind = \"voip\"\n\
             jitter_buffer = \"adaptive\"\n"
        );
        let bloated = record(&scenario(BUFFER_256_KIB, "60s", &flows));
        let small = record(&scenario(BUFFER_16_KIB, "60s", &flows));
        // 256 KiB at 2 Mbit/s delay speech by a second.
        let worst = value(&bloated, "call", "mos_up");
        assert!(worst < 2.0, "{worst}");
        let better = value(&small, "call", "mos_up");
        assert!(better > 3.5, "{better}");
        // The other direction is idle, so speech downstream stays good.
        assert!(value(&bloated, "call", "mos_down") > 4.3);
    }

    #[test]
    fn unknown_keys_and_ranges_are_refused_by_place() {
        for (key, wrong) in [
            ("flow.call.codec", "codec = \"opus\""),
            ("flow.call.delay", "delay = \"2s\""),
            ("flow.call.max_delay", "max_delay = \"100ms\""),
            ("flow.call.stop", "start = \"3s\"\nstop = \"2s\""),
            ("flow.call.dscp", "dscp = 64"),
        ] {
            let flows = format!("[[flow]]\nname = \"call\"\nkind = \"voip\"\n{wrong}\n");
            let error = Scenario::parse(&scenario(BUFFER_16_KIB, "5s", &flows), "test");
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

mod web {
    use super::*;

    fn page(path: &str, browser: &str, uploads: u32) -> TrialRecord {
        let flows = format!(
            "{UPLOAD}count = {uploads}\n\n[[flow]]\nname = \"page\"\nkind = \"web\"\n\
             browser = \"{browser}\"\nloads = 10\n"
        );
        record(&scenario(path, "600s", &flows))
    }

    #[test]
    fn round_trips_make_up_the_time_of_an_unloaded_page() {
        let slow = "up = \"1gbit\"\ndown = \"1gbit\"\nrtt = \"100ms\"\n\
                    up_queue = \"fifo:limit=1000p\"";
        // Chrome: DNS, handshake, HTML in two windows, then 17 rounds of six resources with a
        // handshake and an exchange each: 4 + 34 round trips.
        let chrome = value(&page(slow, "chrome", 0), "page", "page_load");
        assert!((chrome - 3.8).abs() < 0.03, "{chrome}");
        // Internet Explorer: 4, then the first connection asks at once and again every round trip
        // while nine shake hands: 100 = n + 9 (n - 1), so n = 11 at the latest.
        let explorer = value(&page(slow, "internet-explorer", 0), "page", "page_load");
        assert!((explorer - 1.5).abs() < 0.03, "{explorer}");
        // Firefox: 100 = n + 5 (n - 1), so n = 18.
        let firefox = value(&page(slow, "firefox", 0), "page", "page_load");
        assert!((firefox - 2.2).abs() < 0.03, "{firefox}");
    }

    #[test]
    fn uploads_before_a_big_buffer_multiply_the_load_time() {
        let idle = value(&page(BUFFER_256_KIB, "chrome", 0), "page", "page_load");
        let loaded = page(BUFFER_256_KIB, "chrome", 10);
        let bloated = value(&loaded, "page", "page_load");
        assert!(bloated > 10.0 * idle, "{bloated} s against {idle} s");
        let small = value(&page(BUFFER_16_KIB, "chrome", 10), "page", "page_load");
        assert!(small < bloated / 2.0, "{small} s against {bloated} s");
    }
}

mod games {
    use super::*;

    fn play(kind: &str, queue: &str, uploads: u32) -> TrialRecord {
        let path =
            format!("up = \"5mbit\"\ndown = \"50mbit\"\nrtt = \"30ms\"\nup_queue = \"{queue}\"");
        let flows =
            format!("{UPLOAD}count = {uploads}\n\n[[flow]]\nname = \"play\"\nkind = \"{kind}\"\n");
        record(&scenario(&path, "60s", &flows))
    }

    #[test]
    fn a_game_without_other_traffic_has_the_delay_of_the_path() {
        let record = play("game", "fifo:limit=256KiB", 0);
        let median = value(&record, "play", "round_trip_p50");
        // 30 ms of path, 0.25 ms to send 156 bytes up and 0.08 ms to send 478 down.
        assert!((median - 30.33).abs() < 0.05, "{median}");
        assert!(value(&record, "play", "round_trip_p99") < 30.6);
        assert!(value(&record, "play", "updates_lost_up").abs() < f64::EPSILON);
    }

    #[test]
    fn an_upload_ruins_a_game_unless_the_queue_isolates_it() {
        let fifo = value(&play("game", "fifo:limit=256KiB", 1), "play", "round_trip_p99");
        let pie = value(&play("game", "docsis-pie", 1), "play", "round_trip_p99");
        let fair = value(&play("game", "fq-codel", 1), "play", "round_trip_p99");
        assert!(fifo > 300.0, "{fifo}");
        assert!(pie < 120.0, "{pie}");
        assert!(fair < 40.0, "{fair}");
    }

    #[test]
    fn cloud_input_waits_half_a_frame_on_a_free_path() {
        let record = play("cloud-game", "fifo:limit=256KiB", 0);
        let median = value(&record, "play", "input_to_photon_p50");
        // 30 ms of path, 0.25 ms up, 5 ms to send 31,250 bytes in 27 packets down, 30 ms at both
        // ends, and half of 16.7 ms of waiting for a frame.
        assert!((median - 73.8).abs() < 3.0, "{median}");
        assert!(value(&record, "play", "frames_late").abs() < f64::EPSILON);
        let loaded = play("cloud-game", "fifo:limit=256KiB", 1);
        assert!(value(&loaded, "play", "input_to_photon_p50") > median + 150.0);
        // The frames travel down, where nothing else is sent.
        assert!(value(&loaded, "play", "frames_lost").abs() < f64::EPSILON);
    }

    #[test]
    fn lag_is_what_the_path_adds_and_a_marking_takes_the_upload_out_of_it() {
        let lag = |marking: &str| {
            let text = format!(
                "[path]\nup = \"5mbit\"\ndown = \"50mbit\"\nrtt = \"30ms\"\n\
                 up_queue = \"docsis-lld\"\ndown_queue = \"fifo:limit=1000p\"\n\n[phases]\n\
                 idle = \"0s\"\nramp = \"5s\"\nload = \"20s\"\ndrain = \"1s\"\n\n{UPLOAD}\n\
                 [[flow]]\nname = \"play\"\nkind = \"cloud-game\"\nmarking = \"{marking}\"\n"
            );
            let record = record(&text);
            assert!((value(&record, "play", "inputs_lost")) < 5.0);
            (value(&record, "play", "lag_p50"), flow(&record, "play").class.clone())
        };
        let (unmarked, class) = lag("none");
        assert_eq!(class, "");
        let (marked, class) = lag("nqb");
        assert_eq!(class, "dscp 45");
        // 30 ms of path, 0.25 ms up behind up to one full segment of 2.4 ms, 5.1 ms down.
        assert!((35.3..=38.0).contains(&marked), "{marked} ms");
        assert!(unmarked > marked + 5.0, "{unmarked} and {marked} ms");
    }

    #[test]
    fn keys_of_a_marking_that_is_not_set_are_refused_by_place() {
        for (key, wrong) in [
            ("flow.play.marking", "marking = \"l4\""),
            ("flow.play.min_rate", "min_rate = \"1mbit\""),
            ("flow.play.min_rate", "marking = \"nqb\"\nmin_rate = \"1mbit\""),
            ("flow.play.min_rate", "marking = \"l4s\"\nmin_rate = \"16mbit\""),
            ("flow.play.min_rate", "marking = \"l4s\"\nmin_rate = \"1kbit\""),
            ("flow.play.dscp", "marking = \"nqb\"\ndscp = 46"),
        ] {
            let flows = format!("[[flow]]\nname = \"play\"\nkind = \"cloud-game\"\n{wrong}\n");
            let error = Scenario::parse(&scenario(BUFFER_16_KIB, "5s", &flows), "test");
            let error = error.expect_err(wrong).to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_stream_beyond_the_line_is_late_or_lost() {
        let flows = "[[flow]]\nname = \"play\"\nkind = \"cloud-game\"\nrate = \"60mbit\"\n";
        let record = record(&scenario(BUFFER_16_KIB, "10s", flows));
        let late = value(&record, "play", "frames_late");
        let lost = value(&record, "play", "frames_lost");
        assert!(lost > 50.0 && late + lost > 80.0, "{late} % late, {lost} % lost");
    }
}

mod video {
    use super::*;

    const PLAYERS: [&str; 4] = ["bb", "festive", "bola", "robust-mpc"];

    fn watch(player: &str, down: &str) -> TrialRecord {
        let path = format!(
            "up = \"10mbit\"\ndown = \"{down}\"\nrtt = \"40ms\"\nup_queue = \"fifo:limit=1000p\""
        );
        let flows = format!("[[flow]]\nname = \"film\"\nkind = \"video\"\nplayer = \"{player}\"\n");
        record(&scenario(&path, "260s", &flows))
    }

    #[test]
    fn every_player_plays_without_a_stall_on_a_steady_line_and_uses_it() {
        for player in PLAYERS {
            let record = watch(player, "3.4mbit");
            let get = |name| value(&record, "film", name);
            assert!((get("chunks_loaded") - 48.0).abs() < f64::EPSILON, "{player}");
            assert!(get("rebuffering") < 0.1, "{player} stalls {} s", get("rebuffering"));
            let rate = get("bit_rate");
            assert!((1.5..=3.2).contains(&rate), "{player}: {rate} Mbit/s");
            // 48 chunks, at most 4.3 each.
            assert!(get("qoe") < 48.0 * 4.3 && get("qoe") > 30.0, "{player}: {}", get("qoe"));
        }
    }

    #[test]
    fn a_film_stalls_for_the_time_that_a_line_below_the_lowest_rate_needs_longer() {
        let path = "up = \"10mbit\"\ndown = \"200kbit\"\nrtt = \"40ms\"\n\
                    up_queue = \"fifo:limit=1000p\"";
        let flows = "[[flow]]\nname = \"film\"\nkind = \"video\"\nplayer = \"bb\"\n";
        let record = record(&scenario(path, "390s", flows));
        // 193 s at 0.3 Mbit/s and 3.5 % of headers take 300 s at 0.2 Mbit/s, less the first chunk's
        // 6.2 s of start-up and the last chunk's playing.
        let stalled = value(&record, "film", "rebuffering");
        assert!((95.0..=115.0).contains(&stalled), "{stalled} s");
        assert!(value(&record, "film", "qoe") < -300.0);
    }

    #[test]
    fn an_unfinished_film_has_no_quality() {
        let flows = "[[flow]]\nname = \"film\"\nkind = \"video\"\n";
        let record = record(&scenario(BUFFER_16_KIB, "20s", flows));
        let qoe = flow(&record, "film").metrics.iter().find(|metric| metric.name == "qoe");
        assert_eq!(qoe.map(|metric| metric.value), Some(None));
    }
}

mod interactive_video {
    use super::*;

    fn call(control: &str, down: &str, queue: &str) -> TrialRecord {
        let text = format!(
            "[path]\nup = \"10mbit\"\ndown = \"{down}\"\nrtt = \"40ms\"\n\
             up_queue = \"fifo:limit=1000p\"\ndown_queue = \"{queue}\"\n\n[phases]\nidle = \"0s\"\n\
             ramp = \"0s\"\nload = \"120s\"\ndrain = \"1s\"\n\n[[flow]]\nname = \"call\"\n\
             kind = \"interactive-video\"\ndirection = \"down\"\ncontrol = \"{control}\"\n"
        );
        record(&text)
    }

    #[test]
    fn a_call_has_both_directions_by_default() {
        let names = |direction: &str| {
            let text = format!(
                "[path]\nup = \"10mbit\"\nrtt = \"40ms\"\nup_queue = \"fifo:limit=1000p\"\n\
                 [phases]\nidle = \"0s\"\nramp = \"0s\"\nload = \"2s\"\n[[flow]]\n\
                 name = \"call\"\nkind = \"interactive-video\"\n{direction}"
            );
            let record = record(&text);
            let names = record.flows.iter().map(|flow| flow.name.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "call-up call-down");
        assert_eq!(names("direction = \"both\""), "call-up call-down");
        assert_eq!(names("direction = \"up\""), "call");
        assert_eq!(names("direction = \"down\""), "call");
    }

    #[test]
    fn a_fast_line_carries_the_full_rate_without_a_freeze() {
        for control in ["gcc", "loss"] {
            let record = call(control, "50mbit", "fifo:limit=1000p");
            let get = |name| value(&record, "call", name);
            assert!(get("bit_rate") > 1.8, "{control}: {} Mbit/s", get("bit_rate"));
            assert!(get("freezes").abs() < f64::EPSILON, "{control}");
            assert!((get("frame_rate") - 30.0).abs() < 0.1, "{control}");
            // 20 ms of path, 30 ms at both ends, and pacing: up to 33 ms / 2.5 and jitter of sizes.
            let delay = get("glass_to_glass_p50");
            assert!((50.0..=66.0).contains(&delay), "{control}: {delay} ms");
        }
    }

    #[test]
    fn delay_based_control_keeps_a_deep_buffer_short_and_loss_based_fills_it() {
        let gcc = call("gcc", "1mbit", "fifo:limit=256KiB");
        let loss = call("loss", "1mbit", "fifo:limit=256KiB");
        let slowest = |record| value(record, "call", "glass_to_glass_p99");
        assert!(slowest(&gcc) < 500.0, "{:?}", flow(&gcc, "call").metrics);
        // 256 KiB at 1 Mbit/s are 2.1 s, once more for what is lost and sent again.
        assert!(slowest(&loss) > 2_000.0, "{:?}", flow(&loss, "call").metrics);
        let rate = value(&gcc, "call", "bit_rate");
        assert!((0.5..=1.0).contains(&rate), "{rate} Mbit/s");
    }

    #[test]
    fn every_loss_is_repaired_and_a_sudden_drop_of_the_line_freezes_the_picture() {
        let record = call("gcc", "steps:0s=6mbit,60s=300kbit", "fifo:limit=100p");
        let get = |name| value(&record, "call", name);
        assert!(get("freezes") >= 1.0);
        assert!(get("frozen") < 20.0, "{} %", get("frozen"));
        assert!(get("packets_lost") > 0.0);
        assert!(get("frame_rate") > 22.0, "{} Hz", get("frame_rate"));
    }
}

/// A cloud game whose video follows the marks, beside a download.
mod cloud_game_l4s {
    use super::*;

    /// A game of at most 40 Mbit/s and a CUBIC download over a line of 30 Mbit/s.
    fn beside_a_download(queue: &str, rtt: &str) -> TrialRecord {
        let text = format!(
            "[path]\nup = \"30mbit\"\ndown = \"30mbit\"\nrtt = \"{rtt}\"\n\
             up_queue = \"fifo:limit=1000p\"\ndown_queue = \"{queue}\"\n\n[phases]\n\
             idle = \"0s\"\nramp = \"0s\"\nload = \"30s\"\ndrain = \"1s\"\n\n\
             [[flow]]\nname = \"play\"\nkind = \"cloud-game\"\nmarking = \"l4s\"\n\
             rate = \"40mbit\"\nmin_rate = \"1mbit\"\n\n[[flow]]\nname = \"download\"\n\
             kind = \"tcp\"\ndirection = \"down\"\ncongestion_control = \"cubic\"\n"
        );
        record(&text)
    }

    /// The download's share of what both get.
    fn share(record: &TrialRecord) -> f64 {
        let download = flow(record, "download").goodput_down_bit_per_s.expect("it is bulk") as f64;
        download / (download + value(record, "play", "bit_rate") * 1e6)
    }

    #[test]
    fn an_l4s_queue_is_not_classified_as_classic_and_keeps_the_lag_short() {
        for (queue, rtt_ms) in [("dualpi2", 10.0), ("dualpi2:profile=rfc", 40.0)] {
            let record = beside_a_download(queue, &format!("{rtt_ms}ms"));
            let get = |name| value(&record, "play", name);
            assert!(get("packets_marked") > 1.0, "{queue}: the premise");
            assert!(get("as_classic_sender").abs() < f64::EPSILON, "{queue}");
            // A frame leaves within 13.3 ms of the 16.7 until the next; the rest is the queue's.
            assert!(get("lag_p99") < rtt_ms + 25.0, "{queue}: {} ms", get("lag_p99"));
            let share = share(&record);
            assert!((0.3..=0.8).contains(&share), "{queue}: {share}");
        }
    }

    #[test]
    fn a_slow_docsis_line_that_marks_late_is_not_classified_as_classic() {
        let text = "[path]\nup = \"30mbit\"\ndown = \"10mbit\"\nrtt = \"20ms\"\n\
                    up_queue = \"fifo:limit=100p\"\ndown_queue = \"docsis-lld\"\n\n[phases]\n\
                    idle = \"0s\"\nramp = \"0s\"\nload = \"20s\"\ndrain = \"1s\"\n\n[[flow]]\n\
                    name = \"play\"\nkind = \"cloud-game\"\nmarking = \"l4s\"\n";
        let record = record(text);
        assert!(value(&record, "play", "packets_marked") > 1.0, "the premise");
        let classic = value(&record, "play", "as_classic_sender");
        assert!(classic < 5.0, "{:?}", flow(&record, "play").metrics);
    }

    #[test]
    fn one_queue_with_classic_marks_gets_a_classic_sender_that_leaves_a_third() {
        for queue in ["pie:profile=rfc,ecn=on", "codel:profile=linux,ecn=on"] {
            let record = beside_a_download(queue, "20ms");
            let get = |name| value(&record, "play", name);
            assert!(get("packets_marked") > 0.0, "{queue}: the premise");
            // All but the first four seconds of thirty.
            assert!(get("as_classic_sender") > 86.0, "{queue}: {} %", get("as_classic_sender"));
            let share = share(&record);
            assert!((0.33..=0.8).contains(&share), "{queue}: {share}");
        }
    }

    #[test]
    fn a_free_line_is_used_up_to_the_rate_without_marks() {
        let path = "up = \"30mbit\"\ndown = \"100mbit\"\nrtt = \"20ms\"\n\
                    up_queue = \"fifo:limit=1000p\"";
        let flows = "[[flow]]\nname = \"play\"\nkind = \"cloud-game\"\nmarking = \"l4s\"\n";
        let record = record(&scenario(path, "20s", flows));
        let get = |name| value(&record, "play", name);
        assert!((get("bit_rate") - 15.0).abs() < 0.3, "{} Mbit/s", get("bit_rate"));
        assert!(get("packets_marked").abs() < f64::EPSILON);
        // 20 ms of path, 0.04 ms up, and 31,250 bytes at twice 1.25 of 15 Mbit/s: 6.8 ms.
        assert!((get("lag_p50") - 26.8).abs() < 0.5, "{} ms", get("lag_p50"));
        assert!(get("spikes").abs() < f64::EPSILON);
        let play = flow(&record, "play");
        assert_eq!(play.class, "dscp 0 ect1");
        assert_eq!(play.congestion_control.as_deref(), Some("prague"));
    }

    #[test]
    fn an_outage_of_the_line_is_survived() {
        let text = "[path]\nup = \"30mbit\"\nrtt = \"20ms\"\nup_queue = \"fifo:limit=100p\"\n\
                    down = \"steps:0s=30mbit,4s=10kbit,8s=30mbit\"\ndown_queue = \"dualpi2\"\n\
                    [phases]\nidle = \"0s\"\nramp = \"0s\"\nload = \"16s\"\ndrain = \"1s\"\n\
                    [[flow]]\nname = \"play\"\nkind = \"cloud-game\"\nmarking = \"l4s\"\n";
        let record = record(text);
        let get = |name| value(&record, "play", name);
        assert!(get("bit_rate") > 6.0, "{} Mbit/s", get("bit_rate"));
        assert!(get("spikes") > 100.0, "{}", get("spikes"));
        assert!(get("lag_p50") < 50.0, "{} ms", get("lag_p50"));
    }
}

/// Same seed, same bytes, for every application.
#[test]
fn applications_repeat_with_the_seed() {
    let kinds = ["voip", "web", "game", "cloud-game", "video", "interactive-video"];
    let flows: Vec<_> = kinds
        .iter()
        .map(|kind| format!("[[flow]]\nname = \"{kind}\"\nkind = \"{kind}\"\n"))
        .collect();
    let adaptive = "[[flow]]\nname = \"l4s\"\nkind = \"cloud-game\"\nmarking = \"l4s\"\n";
    let flows = format!("{UPLOAD}\n{}\n{adaptive}", flows.join("\n"));
    let text = scenario(BUFFER_256_KIB, "20s", &flows);
    let first = record(&text);
    assert_eq!(first.flows, record(&text).flows);
    assert!(first.flows.iter().skip(1).all(|flow| !flow.metrics.is_empty()));
}
