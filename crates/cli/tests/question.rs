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
    let rates = "\nWith cake (at 95.0 Mbit/s down and 19.0 Mbit/s up) the latency under load is ";
    assert!(printed.contains(rates), "{printed}");
    assert!(printed.contains(" with fifo: "), "{printed}");
    assert!(
        printed.contains("6 trials each, compared pair by pair: with 96 % certainty "),
        "{printed}"
    );
    assert!(printed.contains("\ncall-up: "), "{printed}");
}

#[test]
fn a_followed_line_is_compared_with_a_fixed_rate_and_drawn() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let asked = ["try", "--follow", "4..40", "--repeat", "2", "--load", "20", "--out", "asked"];
    let output = underload(&[&asked[..], &["--save", "mine.toml"]].concat(), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let follow = "\nWith follow (down rule at router: follow instead of its default) the latency under \
                  load ";
    assert!(printed.contains(follow) && printed.contains(" with fixed-"), "{printed}");
    assert!(
        printed.contains("\nWith oracle (") && printed.contains("\nWith no-router ("),
        "{printed}"
    );
    let page = std::fs::read_to_string(folder.path().join("asked/report.html")).expect("a page");
    let panels = page.matches(">rate of the down shaper, Mbit/s<").count();
    assert_eq!(panels, 2, "of the follower and of the oracle");
    let again = ["run", "mine.toml", "--world", "sim", "--no-cache", "--out", "again"];
    assert_eq!(text(&underload(&again, folder.path()).stdout), printed);
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
    assert!(
        title.contains("cable, 10mbit up, 100mbit down, 20ms away: upload, call; the router"),
        "{title}"
    );
    for sentence in ["With router-cake ", "With router-fq_codel-90-9 ", " with no-router"] {
        assert!(table.contains(sentence), "{sentence}: {table}");
    }
    let (title, table) = ask("40/10 --modem docsis-pie --wifi 60 --backup 5 --video");
    assert!(title.contains("Wi-Fi of 60mbit: backup of 5mbit, video"), "{title}");
    let changes = "With router-cake (both queues at router: cake instead of fifo, at 38.0 Mbit/s down \
                   and 9.50 Mbit/s up) the latency";
    assert!(table.contains(changes), "{table}");
    let (title, _) = ask("cable 200/20 cake@90% game");
    assert!(title.contains("cable, 20mbit up, 200mbit down, 20ms away: game"), "{title}");
    assert!(table.contains("goodput 4.8"), "the backup is paced: {table}");
}

#[test]
fn a_line_that_cannot_carry_its_calls_says_so_first() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let ask = |words: &str| {
        let output = underload(&["try", words, "--load", "5", "--repeat", "1"], folder.path());
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    // By hand: the lowest video is 50 kbit/s, with 48 bytes of headers per frame, 30 a second, 61.52;
    // the reports of the other direction's video are 20 of 48 bytes, 7.68 kbit/s.
    for (words, said) in [
        ("0.1/0.05 call", "0.050 Mbit/s up, and call-up and call-down need at least 0.069: they"),
        (
            "1/0.1 2 calls",
            "0.100 Mbit/s up, and call-up, call-down, call-2-up and call-2-down need at",
        ),
        (
            "0.1/5 game",
            "0.100 Mbit/s down, and game needs at least 0.116: it cannot work, whatever",
        ),
        ("0.25/5 video", "0.250 Mbit/s down, and video needs at least 0.300: it cannot work"),
    ] {
        let printed = ask(words);
        assert!(printed.contains(&format!("\nThe line carries {said}")), "{words}: {printed}");
    }
    let printed = ask("0.3/0.15 call game");
    assert!(!printed.contains("cannot work"), "{printed}");
}

#[cfg(unix)]
#[test]
fn a_name_of_bytes_is_a_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let name = std::ffi::OsStr::from_bytes(b"\xff.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(["try", "--load", "1s", "--repeat", "1", "--save"]).arg(name);
    command.current_dir(folder.path()).env("XDG_CACHE_HOME", folder.path());
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(folder.path().join(name).exists());
}

#[test]
fn faults_name_the_options() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    std::fs::write(folder.path().join("there.toml"), "mine").expect("a file");
    for (arguments, expected) in [
        (&["--up", "20x"][..], "error: --up: `20x`: expected a rate such as 20mbit"),
        (&["--wifi", "fast"], "error: --wifi: there is no link `fast`"),
        (&["--backup", "5x"], "error: --backup: `5x`: expected a rate"),
        (&["--modem", "cak"], "error: --up-queue: there is no queue `cak`; did you mean `cake`?"),
        (&["--router", "cak"], "error: --router: there is no queue `cak`; did you mean `cake`?"),
        (&["--router", "cake@x"], "error: --router: `cake@x`: expected DOWN/UP or a part of"),
        (&["--router", "cake@9/x"], "error: --router: `cake`: `rate=x`: expected a rate"),
        (&["cable", "--queue", "cake"], "error: --queue: a shaper in a cable modem wastes"),
        (&["100/20", "policer"], "error: policer: expected rates in Mbit/s, such as policer 50/10"),
        (&["--policer", "x/1"], "error: --policer: `policer`: `rate=x`: expected a rate"),
        (&["--save", "none/x.toml"], "error: --save none/x.toml: its folder does not exist"),
        (&["--call", "0"], "error: --call 0: how many follows `=`"),
        (
            &["40/10", "modem", "upload"],
            "error: up-queue: expected a queue, such as modem docsis-pie",
        ),
        (&["--video=101"], "error: video: 101: expected at most 100"),
        (&["--backup", "25"], "error: --backup: 25mbit is not below the line's 20mbit"),
        (&["--load", "0"], "error: --load: 0s is no time"),
        (&["--upload", "20mbit"], "error: --upload 20mbit: how many follows `=`"),
        (&["--modem", "pie", "--queue", "cake"], "error: --up-queue: --queue replaces it"),
        (&["--router", "cake", "--queue", "pie"], "'--queue <SPEC>'"),
        (&["--router", "pie", "--router", "pie"], "error: --router: a second one is named"),
        (&["--router", "cake", "--live"], "error: --live: only the simulator has calls"),
        (&["kable"], "error: kable: expected DOWN/UP in Mbit/s, such as 100/20, a line (5g, adsl"),
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

/// Returns a percentile of the probes under load of each trial, ms, in the order of the repeats.
fn percentiles(directory: &Path, name: &str) -> Vec<f64> {
    let record = record(directory);
    let trials = record["trials"].as_array().expect("trials");
    let percentile = |trial: &Value| {
        let all = trial["latencies"].as_array().expect("latencies");
        let of_probe = |it: &&Value| {
            it["probe"] == "probe"
                && it["measure"] == "round-trip"
                && it["window"]["phase"] == "load"
        };
        let latency = all.iter().find(of_probe).expect("the probe");
        let of_sent = latency["of_sent_ns"][name].as_f64();
        let of_answered = latency["distribution"][format!("{name}_ns")].as_f64();
        of_sent.or(of_answered).expect("a percentile") / 1e6
    };
    trials.iter().map(percentile).collect()
}

/// The trials of simulated runs are pairs; by hand: of six ratios the lowest and the highest hold the
/// median with 1 - 2 / 2^6.
#[test]
fn simulated_runs_are_compared_before_and_after() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let folder = folder.path();
    for (queue, out) in [("fifo", "before"), ("codel", "after")] {
        let asked = ["try", "10/5", "--queue", queue, "--upload", "--load", "20s", "--out", out];
        let output = underload(&asked, folder);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let compared = |before: &str, after: &str| -> Value {
        let asked = ["compare", "--before", before, "--after", after, "--json"];
        let output = underload(&asked, folder);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let is_equal = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
    let found = compared("before", "after");
    // The buffer drops too many probes for the p99 of all that were sent.
    let metric = found["comparison"]["metric"].as_str().expect("a name");
    let name = metric.strip_prefix("load.rtt.").and_then(|it| it.strip_suffix("_of_sent"));
    let name = name.expect("a percentile");
    let (before, after) =
        (percentiles(&folder.join("before"), name), percentiles(&folder.join("after"), name));
    assert_eq!((before.len(), after.len()), (6, 6));
    let mut ratios: Vec<f64> = after.iter().zip(&before).map(|(own, other)| own / other).collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[0] < ratios[5], "the trials differ: {ratios:?}");
    let range = &found["comparison"]["range"];
    assert!(is_equal(number(&range["low"]), ratios[0]), "{range} {ratios:?}");
    assert!(is_equal(number(&range["high"]), ratios[5]), "{range} {ratios:?}");
    assert!(is_equal(number(&range["middle"]), ratios[2]), "{range} {ratios:?}");
    assert_eq!(range["confidence"], 1.0 - 2.0 / 64.0);
    assert_eq!((&found["comparison"]["verdict"], &found["improved"]), (&"lower".into(), &6.into()));
    let back = &compared("after", "before")["comparison"];
    assert!(is_equal(number(&back["range"]["low"]), 1.0 / ratios[5]), "{back}");
    assert!(is_equal(number(&back["range"]["high"]), 1.0 / ratios[0]), "{back}");
    assert_eq!(back["verdict"], "higher");
    let asked = ["compare", "--before", "before", "--after", "after", "--html", "page.html"];
    let output = underload(&asked, folder);
    let printed = text(&output.stdout);
    assert!(printed.starts_with(&format!("The {name} of latency under load is ")), "{printed}");
    assert!(printed.contains("lower in 6 of 6 pairs of trials"), "{printed}");
    let page = std::fs::read_to_string(folder.join("page.html")).expect("a page");
    assert!(page.contains("of 6 pairs of trials") && page.contains("<svg"), "{page}");
    std::fs::write(folder.join("page.html"), "mine").expect("a file");
    let output = underload(&asked, folder);
    assert_eq!(output.status.code(), Some(2), "a file of somebody else");
    let asked = ["compare", "--before", "before", "--after", "after", "--metric", "qoo"];
    let output = underload(&asked, folder);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("no line has a valid lowest Quality of Outcome on both sides"), "{said}");
}
