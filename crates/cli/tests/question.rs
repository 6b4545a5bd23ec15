//! `underload try`: a question without a file.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn underload(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("XDG_CACHE_HOME", folder);
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the record without the fields that differ between two runs of one scenario.
fn record(directory: &Path) -> Value {
    let bytes = std::fs::read(directory.join("run.json")).expect("a record");
    let mut record: Value = serde_json::from_slice(&bytes).expect("JSON");
    record.as_object_mut().expect("a table").remove("host");
    record
}

#[test]
fn a_saved_question_runs_with_the_same_result() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let folder = folder.path();
    let asked = [
        "try", "--up", "5mbit", "--down", "20mbit", "--rtt", "20ms", "--queue", "fifo", "--queue",
        "fq_codel", "--upload=2", "--call", "--game", "--page", "--load", "5s", "--repeat", "2",
        "--save", "mine.toml", "--out", "asked",
    ];
    let output = underload(&asked, folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("\nWith fq-codel the latency under load is "), "{printed}");
    assert!(text(&output.stderr).contains("underload run mine.toml --world sim"));
    let again = ["run", "mine.toml", "--world", "sim", "--no-cache", "--out", "again"];
    let output = underload(&again, folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), printed);
    for file in ["samples.parquet", "series.parquet", "trials.parquet"] {
        let read = |run: &str| std::fs::read(folder.join(run).join(file)).expect("a table");
        assert!(read("asked") == read("again"), "{file} differs");
    }
    assert_eq!(record(&folder.join("asked")), record(&folder.join("again")));
}

#[test]
fn without_options_a_plain_buffer_is_compared_with_cake() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let output = underload(&["try", "--load", "5s"], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("\nWith cake the latency under load is "), "{printed}");
    assert!(printed.contains(" with fifo: "), "{printed}");
    assert!(
        printed.contains("6 trials each, compared pair by pair: with 96 % certainty "),
        "{printed}"
    );
    assert!(printed.contains("\ncall-up: "), "{printed}");
}

#[test]
fn a_home_is_described_by_its_devices() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let ask = |words: &str| {
        let short = ["--load", "5", "--repeat", "1"];
        let words: Vec<&str> = ["try"].into_iter().chain(words.split(' ')).chain(short).collect();
        let output = underload(&words, folder.path());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        (text(&output.stderr), text(&output.stdout))
    };
    let (title, table) = ask("40/10 --rtt 20 --upload");
    assert!(title.contains("10mbit up, 40mbit down, 20ms away: upload; CAKE"), "{title}");
    assert!(!table.contains("call-up"), "only what is asked for: {table}");
    let (title, _) = ask("40/10 --upload=0");
    assert!(title.contains("away: only probes; CAKE"), "{title}");
    let (title, table) = ask("cable --router cake --router fq_codel@90/9 --upload --call");
    assert!(title.contains("cable, 20ms away: upload, call; the router shapes"), "{title}");
    for sentence in ["With router-cake ", "With router-fq_codel-90-9 ", " with no-router"] {
        assert!(table.contains(sentence), "{sentence}: {table}");
    }
    let (title, table) = ask("40/10 --modem docsis-pie --wifi 60 --backup 5 --video");
    assert!(title.contains("Wi-Fi of 60mbit: backup of 5mbit, video"), "{title}");
    assert!(table.contains("instead of docsis-pie) the latency"), "{table}");
    assert!(table.contains("goodput 4.8"), "the backup is paced: {table}");
}

#[test]
fn faults_name_the_options() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    std::fs::write(folder.path().join("there.toml"), "mine").expect("a file");
    for (arguments, expected) in [
        (&["--up", "20M"][..], "error: --up: `20M`: expected a rate such as 20mbit"),
        (&["--wifi", "fast"], "error: --wifi: there is no link `fast`"),
        (&["--backup", "5x"], "error: --backup: `5x`: expected a rate"),
        (&["--modem", "cak"], "error: --up-queue: there is no queue `cak`; did you mean `cake`?"),
        (&["--router", "cak"], "error: --router: there is no queue `cak`; did you mean `cake`?"),
        (&["--router", "cake@x"], "error: --router: `cake`: `rate=x`: expected a rate"),
        (&["--router", "cake", "--queue", "pie"], "'--queue <SPEC>'"),
        (&["--router", "pie", "--router", "pie"], "error: --router: a second one is named"),
        (&["--router", "cake", "--live"], "error: --live: only the simulator has calls"),
        (
            &["kable"],
            "error: kable: expected DOWN/UP in Mbit/s, such as 100/20, or one of 5g, adsl",
        ),
        (&["--rtt", "fast"], "error: --rtt: "),
        (&["--rtt", "1h"], "error: --rtt: expected 0s to 120s"),
        (&["--up", "20mbit:delay=5ms"], "error: --up: `delay` is set by `--rtt`; expected"),
        (&["--load", "soon"], "error: --load: "),
        (&["--queue", "cak"], "error: --queue: there is no queue `cak`; did you mean `cake`?"),
        (&["--queue", "pie", "--queue", "pie"], "error: --queue: a second one is named `pie`"),
        (&["--queue", "pie", "--queue", "pie:profile=linux"], "error: --queue: `pie` and"),
        (&["--congestion-control", "veno"], "error: --congestion-control: `veno` is not sim"),
        (&["--congestion-control", ""], "error: --congestion-control: expected the name of "),
        (
            &["--congestion-control", "bbr", "--congestion-control", "bbr"],
            "error: --congestion-control: `bbr` is given twice",
        ),
        (&["--save", "there.toml"], "error: --save there.toml: the file exists; expected a new"),
        (&["--live", "--call"], "error: --live: only the simulator has calls"),
    ] {
        let output = underload(&[&["try"], arguments].concat(), folder.path());
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
        assert!(printed.contains(expected), "{arguments:?}: {printed}");
        assert_eq!(printed.matches("error: ").count(), 1, "{arguments:?}: {printed}");
    }
    assert_eq!(std::fs::read(folder.path().join("there.toml")).expect("a file"), b"mine");
    assert!(!folder.path().join("runs").exists(), "nothing was run");
}

#[test]
fn several_congestion_controls_are_compared_behind_each_queue() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let controls = ["--congestion-control", "cubic", "--congestion-control", "bbr"];
    let line = ["try", "--queue", "codel", "--upload", "--load", "5s", "--repeat", "1"];
    let output = underload(&[&line[..], &controls, &["--out", "asked"]].concat(), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let mut lines = printed.lines();
    let sentence = lines.find(|line| line.contains("the latency under load")).unwrap_or_default();
    for variant in ["codel+bbr", "codel+cubic"] {
        assert!(sentence.contains(variant), "{printed}");
    }
    let wrong = [&line[..], &["--congestion-control", "bbrr"]].concat();
    let output = underload(&wrong, folder.path());
    let error = text(&output.stderr);
    assert!(error.contains("did you mean `bbr`?"), "{error}");
}
