//! `underload docsis` as a user runs it: files, exit status, messages.

use std::path::Path;
use std::process::{Command, Output};

const TEXT: &str = "
NetworkAccessControl = 1
[[UpstreamServiceFlow]]
ServiceFlowReference = 1
QosParameterSetType = 7
MaximumSustainedTrafficRate = 10_000_000
BufferControl = { TargetBuffer = 51200 }
[[DownstreamServiceFlow]]
ServiceFlowReference = 2
QosParameterSetType = 7
";

fn docsis(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_underload"))
        .arg("docsis")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program runs")
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn prepared() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("cm.toml"), TEXT).expect("the text");
    let secret = directory.path().join("secret");
    underload_disk::write_new(&secret, b"bufferbloat\n", underload_disk::Access::Owner)
        .expect("the secret");
    directory
}

#[test]
fn decoded_text_encodes_to_the_same_file() {
    let directory = prepared();
    let at = directory.path();
    let encode = ["encode", "cm.toml", "--out", "cm.bin", "--secret-file", "secret"];
    assert_eq!(docsis(at, &encode).status.code(), Some(0));
    assert_eq!(docsis(at, &["decode", "cm.bin", "--out", "again.toml"]).status.code(), Some(0));
    let again = docsis(at, &["encode", "again.toml", "--out", "again.bin"]);
    assert_eq!(again.status.code(), Some(0), "unchanged text needs no secret: {again:?}");
    let read = |name: &str| std::fs::read(at.join(name)).expect("a file");
    assert_eq!(read("cm.bin"), read("again.bin"));

    let checked = docsis(at, &["check", "cm.bin", "--secret-file", "secret"]);
    assert_eq!(said(&checked), (Some(0), "cm.bin: 0 errors, 0 warnings, 0 notes\n".into()));
    let modem = docsis(at, &["modem", "cm.bin", "--json"]);
    assert!(String::from_utf8_lossy(&modem.stdout).contains("\"buffer_bytes\": 51200"));
}

#[test]
fn rules_see_the_settings_of_named_service_classes() {
    let directory = prepared();
    let at = directory.path();
    let flow = |number: u8, class: &str| {
        format!(
            "[[UpstreamServiceFlow]]\nServiceFlowReference = {number}\nQosParameterSetType = 7\n\
             ServiceClassName = \"{class}\"\n"
        )
    };
    let down = "[[DownstreamServiceFlow]]\nServiceFlowReference = 3\nQosParameterSetType = 7\n";
    let own = flow(1, "gold") + "BufferControl = { TargetBuffer = 51200 }\n";
    let text = format!("NetworkAccessControl = 1\n{own}{}{down}", flow(2, "gold"));
    let class = "[[UpstreamServiceFlow]]\nServiceClassName = \"gold\"\n\
                 BufferControl = { MinimumBuffer = 9000, MaximumBuffer = 8000 }\n";
    std::fs::write(at.join("cm.toml"), text).expect("the text");
    std::fs::write(at.join("gold.toml"), class).expect("the classes");
    std::fs::write(at.join("blue.toml"), class.replace("gold", "blue")).expect("the classes");
    let encode = ["encode", "cm.toml", "--out", "cm.bin", "--secret-file", "secret"];
    assert_eq!(said(&docsis(at, &encode)).0, Some(0));
    let check = |more: &[&str]| {
        let output = docsis(at, &[&["check", "cm.bin", "--secret-file", "secret"], more].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(check(&[]), (Some(0), String::new()), "names alone break no rule");
    let (status, found) = check(&["--service-classes", "gold.toml"]);
    assert_eq!(status, Some(1), "{found}");
    assert_eq!(found.matches("D301 error").count(), 1, "the first flow has its own: {found}");
    assert!(found.contains("UpstreamServiceFlow[2].BufferControl"), "{found}");
    let modem = docsis(at, &["modem", "cm.bin", "--service-classes", "gold.toml"]);
    let table = String::from_utf8_lossy(&modem.stdout).into_owned();
    assert_eq!(modem.status.code(), Some(1), "the modem rejects the class's range: {table}");
    assert_eq!(
        (table.matches("51200").count(), table.matches("rejected").count()),
        (1, 1),
        "{table}"
    );
    let (status, found) = check(&["--service-classes", "blue.toml"]);
    assert_eq!((status, found.matches("D411 warning").count()), (Some(0), 2), "{found}");
    assert_eq!(check(&["--service-classes", "absent.toml"]).0, Some(2));
}

#[test]
fn without_a_secret_nothing_is_written() {
    let directory = prepared();
    let (code, message) = said(&docsis(directory.path(), &["encode", "cm.toml", "--out", "x"]));
    assert_eq!(code, Some(2));
    assert!(message.contains("give --secret-file"), "{message}");
    assert!(!directory.path().join("x").exists());
}

#[test]
fn files_with_errors_are_not_written() {
    let directory = prepared();
    let at = directory.path();
    let bad = TEXT.replace("TargetBuffer = 51200", "MinimumBuffer = 2, MaximumBuffer = 1");
    std::fs::write(at.join("bad.toml"), bad).expect("the text");
    let encode = ["encode", "bad.toml", "--out", "bad.bin", "--secret-file", "secret"];
    let (code, message) = said(&docsis(at, &encode));
    assert_eq!(code, Some(2));
    assert!(message.contains("D301") && message.contains("fix:"), "{message}");
    assert!(!at.join("bad.bin").exists());
    assert_eq!(docsis(at, &[&encode[..], &["--force"]].concat()).status.code(), Some(0));
    assert_eq!(docsis(at, &["check", "bad.bin"]).status.code(), Some(1));
    assert_eq!(docsis(at, &["modem", "bad.bin"]).status.code(), Some(1));
}

#[test]
fn modem_rejects_files_without_an_upstream_flow() {
    let directory = prepared();
    let at = directory.path();
    std::fs::write(at.join("empty.bin"), "").expect("a file");
    let (code, message) = said(&docsis(at, &["modem", "empty.bin"]));
    assert_eq!(code, Some(1));
    assert!(message.contains("empty.bin: no upstream service flow (24)"), "{message}");

    let nameless = TEXT.replacen("ServiceFlowReference = 1\n", "", 1);
    std::fs::write(at.join("nameless.toml"), nameless).expect("the text");
    let encode = ["encode", "nameless.toml", "--out", "nameless.bin", "--force"];
    assert_eq!(docsis(at, &encode).status.code(), Some(0));
    let modem = docsis(at, &["modem", "nameless.bin"]);
    assert_eq!(modem.status.code(), Some(1));
    let table = String::from_utf8_lossy(&modem.stdout).into_owned();
    assert!(table.contains("-   rejected: ServiceFlowReference (1) is missing"), "{table}");
    let checked = docsis(at, &["check", "nameless.bin"]);
    let found = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(found.contains("D110") && found.contains("ServiceFlowReference (1) is"), "{found}");
}

#[test]
fn other_files_are_bad_input() {
    let directory = prepared();
    for arguments in [["decode", "cm.toml"], ["decode", "absent"], ["modem", "cm.toml"]] {
        let (code, message) = said(&docsis(directory.path(), &arguments));
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(message.contains(arguments[1]), "{message}");
        let is_text = arguments[1] == "cm.toml";
        assert!(!is_text || message.contains("this is text"), "{message}");
    }
}

#[test]
fn recommend_writes_picture_and_settings_to_encode() {
    let directory = prepared();
    let at = directory.path();
    let recommend = [
        "recommend", "--rate", "2mbit", "--rtt", "30ms", "--repeat", "1", "--limit", "24KiB",
        "--out", "made", "--json",
    ];
    let made = docsis(at, &recommend);
    let message = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{message}");
    let answer: serde_json::Value = serde_json::from_slice(&made.stdout).expect("a document");
    let recommended = answer["recommended"].as_str().expect("a name");
    assert!(["6KiB", "8KiB", "12KiB", "16KiB", "24KiB"].contains(&recommended), "{recommended}");
    assert_eq!(answer["table_2"], "16KiB");
    let svg = std::fs::read_to_string(at.join("made/trade.svg")).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("Pareto front"));
    let encode = ["encode", "made/settings.toml", "--out", "cm.bin", "--secret-file", "secret"];
    assert_eq!(said(&docsis(at, &encode)).0, Some(0));
    let modem = docsis(at, &["modem", "cm.bin", "--json"]);
    let bytes = 1024 * recommended.trim_end_matches("KiB").parse::<u64>().expect("KiB");
    let selected = String::from_utf8_lossy(&modem.stdout).into_owned();
    assert!(selected.contains(&format!("\"buffer_bytes\": {bytes}")), "{selected}");
    let (code, message) = said(&docsis(at, &recommend));
    assert_eq!(code, Some(2), "the folder is there already");
    assert!(message.contains("expected the name of a new folder"), "{message}");
}

#[test]
fn recommend_sets_the_queue_of_the_cmts_and_a_limit_of_latency() {
    let directory = prepared();
    let at = directory.path();
    let recommend = [
        "recommend", "--rate", "2mbit", "--rtt", "30ms", "--repeat", "1", "--limit", "24KiB",
        "--downstream", "--latency", "40ms", "--out", "made",
    ];
    let made = docsis(at, &recommend);
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert_eq!(made.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Downstream of 2 Mbit/s"), "{text}");
    assert!(text.contains("TargetBuffer (25.35.2)"), "{text}");
    assert!(text.contains("most of the link among candidates that add at most"), "{text}");
    assert!(!text.contains("Table 2") && !text.contains("grants"), "{text}");
    let sweep = std::fs::read_to_string(at.join("made/sweep.toml")).expect("a scenario");
    assert!(sweep.contains("down_queue = ") && !sweep.contains("map="), "{sweep}");
}

#[test]
fn a_change_by_pcmm_needs_a_cmts_that_supports_it() {
    let directory = prepared();
    let at = directory.path();
    let encode = ["encode", "cm.toml", "--out", "cm.bin", "--secret-file", "secret"];
    assert_eq!(said(&docsis(at, &encode)).0, Some(0));
    let flow = "[[UpstreamServiceFlow]]\nServiceFlowReference = 1\n";
    let change = format!("{flow}BufferControl = {{ TargetBuffer = 16384 }}\n");
    std::fs::write(at.join("change.toml"), change).expect("a text");
    let modem = docsis(at, &["modem", "cm.bin", "--pcmm", "change.toml"]);
    assert!(String::from_utf8_lossy(&modem.stdout).contains(" 16384 "));
    let (code, message) =
        said(&docsis(at, &["modem", "cm.bin", "--pcmm", "change.toml", "--cmts", "scalable"]));
    assert_eq!(code, Some(2));
    assert!(message.contains("--pcmm: expected --cmts dynamic"), "{message}");
    let (code, message) = said(&docsis(at, &["modem", "cm.bin", "--cmts", "none"]));
    assert_eq!(code, Some(0));
    assert!(message.contains("Buffer Control of 1 flow does not reach the modem"), "{message}");
}

#[test]
fn an_impossible_tier_is_bad_input() {
    let directory = prepared();
    for (arguments, expected) in [
        (["--rate", "10mbit", "--peak", "5mbit"], "--peak: expected at least the sustained rate"),
        (["--rate", "10mbit", "--burst", "1KiB"], "--burst: expected 1522 bytes"),
        (["--rate", "1kbit", "--rtt", "20ms"], "--rate: expected 100kbit to 10gbit"),
        (["--rate", "10mbit", "--rtt", "9ms..2ms"], "ascending"),
    ] {
        let made = docsis(directory.path(), &[&["recommend"][..], &arguments].concat());
        assert_eq!(made.status.code(), Some(2), "{arguments:?}");
        let message = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(message.contains(expected), "{message}");
    }
}

/// The emulated queue and the modem model choose the same size out of the same settings.
#[test]
fn the_emulated_modem_and_the_model_select_the_same_buffer() {
    use underload_aqm::config::LinkFacts;
    use underload_aqm::registry::QueueSetup;
    use underload_docsis::modem::Modem;
    use underload_docsis::qos::{BufferControl, Direction, Rates, ServiceFlow};

    let modem = Modem::new(1024, 262_144).expect("a modem");
    let cases: [(Option<u32>, u32, Option<u32>); 6] = [
        (None, 51_200, None),
        (None, 50_000, None),
        (Some(8_192), 51_200, Some(16_384)),
        (None, 1_536, None),
        (Some(50_200), 50_500, Some(51_100)),
        (Some(24_576), 24_576, Some(24_576)),
    ];
    for (minimum, target, maximum) in cases {
        let buffer = BufferControl { minimum, target: Some(target), maximum };
        let flow = ServiceFlow {
            rates: Rates { sustained_bit_per_s: Some(10_000_000), ..Rates::default() },
            buffer: Some(buffer),
            ..ServiceFlow::new(Direction::Upstream, 1)
        };
        let bound = |key: &str, bytes: Option<u32>| {
            bytes.map(|bytes| format!(",{key}={bytes}B")).unwrap_or_default()
        };
        let (min, max) = (bound("min", minimum), bound("max", maximum));
        let spec = format!("buffer-control:target={target}B,block=1KiB{min}{max}");
        let facts = LinkFacts::default();
        match (modem.select(&flow, None), QueueSetup::parse(&spec, &facts)) {
            (Ok(bytes), Ok(setup)) => {
                let queue = format!("{:?}", setup.config);
                assert!(queue.contains(&format!("bytes: {bytes}")), "{spec}: {bytes}, {queue}");
            }
            (Err(_), Err(_)) => {}
            (model, queue) => panic!("{spec}: {model:?} against {queue:?}"),
        }
    }
}
