//! Lines before and after a change, with their numbers computed by hand.

use std::fs;

use underload_record::LatencyPools;
use underload_record::schema::{
    Distribution, FORMAT_VERSION, LatencySummary, Phase, PhaseWindow, TrialRecord, VariantRecord,
};
use underload_store::RunDir;

use super::*;
use crate::history::removed::{self, StepNumbers};

const NOW_S: i64 = 1_800_000_000;
const ANY: Choice = Choice { metric: None, step: None, are_groups: false };

/// Compares two lists of paths in a folder, both ways.
fn both_ways(
    folder: &Path,
    [before, after]: [&[&str]; 2],
    choice: &Choice,
) -> Result<[BeforeAfter; 2], BeforeAfterError> {
    let paths = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut seen = BTreeSet::new();
    let (before, _) = read(&paths(before), NOW_S, &mut seen)?;
    let (after, _) = read(&paths(after), NOW_S, &mut seen)?;
    Ok([compare(&before, &after, choice)?, compare(&after, &before, choice)?])
}

/// Writes what `ping` prints of a line with this round trip.
fn write_ping(folder: &Path, name: &str, ms: f64) {
    let line = |number| format!("64 bytes from 192.0.2.1: icmp_seq={number} ttl=57 time={ms} ms\n");
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, (1..=20).map(line).collect::<String>()).unwrap();
}

#[test]
fn speedtests_are_compared_by_the_latency_that_they_state() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rate, loaded) in [("old.json", 12_500_000, 413.0), ("new.json", 11_900_000, 48.0)] {
        let text = format!(
            r#"{{"type":"result","timestamp":"2026-11-29T21:00:00Z","ping":{{"latency":18}},
                "download":{{"bandwidth":{rate},"latency":{{"iqm":{loaded}}}}}}}"#
        );
        fs::write(folder.path().join(name), text).unwrap();
    }
    let [found, _] = both_ways(folder.path(), [&["old.json"], &["new.json"]], &ANY).unwrap();
    let comparison = &found.comparison;
    assert_eq!(found.metric, Followed::StatedLoad);
    assert_eq!((comparison.baseline_value, comparison.value), (Some(413.0), Some(48.0)));
    assert!(found.sentences[0].contains("48.0 ms"), "{}", found.sentences[0]);
    assert!(found.sentences[0].contains("413 ms"), "{}", found.sentences[0]);
}

/// Adds runs to a history: at `hour` of consecutive days, from `day` on.
fn write_history(folder: &Path, name: &str, (day, hour): (i64, i64), values: &[f64]) {
    fs::create_dir_all(folder.join(name)).unwrap();
    for (number, value) in (0..).zip(values) {
        let at_s = 1_790_000_000 / 86_400 * 86_400 + (day + number) * 86_400 + hour * 3_600;
        let values = BTreeMap::from([(Followed::LoadP99.name().to_owned(), *value)]);
        let numbers = RunNumbers {
            run: at_s.to_string(),
            started: jiff::Timestamp::from_second(at_s).unwrap().to_string(),
            name: "measure/quick".to_owned(),
            label: String::new(),
            device: String::new(),
            grade: None,
            steps: vec![StepNumbers { step: "up".to_owned(), values }],
        };
        removed::add(&folder.join(name), &numbers).unwrap();
    }
}

#[test]
fn files_of_other_tools_are_lines_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (
        [30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 110.0],
        [33.0, 20.0, 20.0, 21.0, 21.0, 20.0, 18.0, 10.0, 5.5],
    );
    let path = |side: &str, number: usize| format!("{side}/line-{number}.ping.txt");
    let mut names = [Vec::new(), Vec::new()];
    for (number, (old, new)) in old.into_iter().zip(new).enumerate() {
        for (at, (side, ms)) in [("old", old), ("new", new)].into_iter().enumerate() {
            write_ping(folder.path(), &path(side, number), ms);
            names[at].push(path(side, number));
        }
    }
    write_ping(folder.path(), "new/moved-in.txt", 1.0);
    names[1].push("new/moved-in.txt".to_owned());
    let lists = names.each_ref().map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
    let [found, back] = both_ways(folder.path(), [&lists[0], &lists[1]], &ANY).unwrap();
    // By hand: of nine ratios, sorted, the second lowest and the second highest hold the median
    // with 1 - 2 (1 + 9) / 2^9.
    let mut ratios: Vec<f64> = old.iter().zip(new).map(|(old, new)| new / old).collect();
    ratios.sort_by(f64::total_cmp);
    let range = found.comparison.range.unwrap();
    assert_eq!(
        (range.low, range.high, range.middle),
        (ratios[1], Some(ratios[7]), Some(ratios[4]))
    );
    assert!((range.confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-12, "{range:?}");
    assert_eq!((found.metric, found.improved, found.lines.len()), (Followed::IdleP50, Some(8), 9));
    assert_eq!(found.comparison.verdict, Verdict::Lower);
    assert_eq!(found.left_out, ["moved-in: only after"]);
    let said = &found.sentences[0];
    assert!(said.contains("is 20.0 ms after, instead of 70.0 ms before: 0.300 times ("), "{said}");
    assert!(said.contains("lower in 8 of 9 lines"), "{said}");
    let inverse = back.comparison.range.unwrap();
    assert!((inverse.low * ratios[7] - 1.0).abs() < 1e-9, "{inverse:?}");
    assert!((inverse.high.unwrap() * ratios[1] - 1.0).abs() < 1e-9, "{inverse:?}");
    assert_eq!((back.comparison.verdict, back.improved), (Verdict::Higher, Some(1)));
    let choice = Choice { are_groups: true, metric: Some(Followed::IdleP50), ..ANY };
    let moved = both_ways(folder.path(), [&lists[0], &lists[1]], &choice);
    // `ping` has no time of its start, so no run of these is at an hour; groups need none.
    assert_eq!(moved.unwrap()[0].comparison.verdict, Verdict::Lower);
}

#[test]
fn histories_are_compared_at_like_hours() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = ([80.0, 84.0, 76.0, 90.0, 82.0, 88.0], [21.0, 20.0, 25.0, 22.0, 24.0, 19.0]);
    write_history(folder.path(), "before", (0, 20), &old);
    write_history(folder.path(), "after", (20, 20), &new);
    // Mornings are quiet before and after.
    write_history(folder.path(), "after", (20, 5), &[9.0; 6]);
    let [found, back] = both_ways(folder.path(), [&["before"], &["after"]], &ANY).unwrap();
    let mut ratios: Vec<f64> =
        new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
    ratios.sort_by(f64::total_cmp);
    let range = found.comparison.range.unwrap();
    let middle = range.middle.unwrap();
    assert!(middle >= ratios[17] && middle <= ratios[18], "{middle} of {ratios:?}");
    assert!(range.low < middle && range.high.unwrap() > middle, "{range:?}");
    assert!((range.confidence - 0.99).abs() < 1e-12);
    let hours = found.lines[0].hours.as_ref().unwrap();
    assert_eq!((hours.later.unwrap().runs, hours.earlier.unwrap().runs), (6, 6));
    assert_eq!((found.comparison.verdict, found.improved), (Verdict::Lower, None));
    let inverse = back.comparison.range.unwrap();
    assert!((inverse.middle.unwrap() * middle - 1.0).abs() < 1e-9, "{inverse:?}");
    assert!((inverse.low * range.high.unwrap() - 1.0).abs() < 1e-9, "{inverse:?}");
    assert!(
        found.sentences[0].starts_with("before, after up: p99 of latency"),
        "{:?}",
        found.sentences
    );
    write_history(folder.path(), "morning", (40, 5), &[9.0; 6]);
    let [found, _] = both_ways(folder.path(), [&["before"], &["morning"]], &ANY).unwrap();
    assert_eq!(found.comparison.verdict, Verdict::NotComparable);
    assert!(found.sentences[0].contains("as too few are from the same hours"));
}

#[test]
fn a_history_counts_as_one_line_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (old, new)) in [(80.0, 20.0), (60.0, 30.0), (50.0, 10.0)].into_iter().enumerate() {
        write_history(folder.path(), &format!("old/{number}"), (0, 20), &vec![old; 4 + number]);
        write_history(folder.path(), &format!("new/{number}"), (20, 20), &[new; 5]);
    }
    let old: &[&str] = &["old/0", "old/1", "old/2"];
    let [found, _] = both_ways(folder.path(), [old, &["new/0", "new/1", "new/2"]], &ANY).unwrap();
    assert_eq!((found.improved, found.comparison.verdict), (Some(3), Verdict::TooFew));
    assert_eq!((found.comparison.value, found.comparison.baseline_value), (Some(20.0), Some(60.0)));
    let said = &found.sentences[0];
    assert!(said.contains("lower in 3 of 3 lines; 5 or more lines show how sure"), "{said}");
}

/// Writes a measured run of the steps down and up, with these p99s under load, ms.
fn write_run(folder: &Path, (name, label): (&str, &str), hour: u32, p99_ms: [f64; 2]) {
    let mut record = RunRecord {
        format_version: FORMAT_VERSION,
        world: World::Measured,
        complete: true,
        label: label.to_owned(),
        ..RunRecord::default()
    };
    record.scenario.name = "measure/quick".to_owned();
    record.host.started = format!("2026-11-20T{hour:02}:00:00Z");
    for (index, (step, ms)) in (0..).zip(["down", "up"].into_iter().zip(p99_ms)) {
        let ns = (ms * 1e6) as i64;
        let distribution = Distribution { count: 600, p99_ns: ns, ..Distribution::default() };
        let latency = LatencySummary {
            probe: "probe".to_owned(),
            window: PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 1 },
            sent: 600,
            distribution: Some(distribution),
            ..LatencySummary::default()
        };
        let variant = step.to_owned();
        record.variants.push(VariantRecord { name: variant.clone(), ..VariantRecord::default() });
        let latencies = vec![latency];
        record.trials.push(TrialRecord { index, variant, latencies, ..TrialRecord::default() });
    }
    underload_record::conclude(&mut record, &LatencyPools::default());
    let (samples, series, left_out) = (Vec::new(), Vec::new(), Vec::new());
    let run = RunData { record, samples, series, left_out };
    RunDir::write(folder.join(name), &run).unwrap();
}

#[test]
fn measured_runs_are_lines_by_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    for (name, label, ms) in [
        ("monday-1", "lake", [80.0, 400.0]),
        ("monday-2", "hill", [60.0, 300.0]),
        ("friday-1", "hill", [30.0, 30.0]),
        ("friday-2", "lake", [20.0, 20.0]),
    ] {
        write_run(folder.path(), (name, label), 9, ms);
    }
    let lists: [&[&str]; 2] = [&["monday-1", "monday-2"], &["friday-1", "friday-2"]];
    let [found, _] = both_ways(folder.path(), lists, &ANY).unwrap();
    let values = |it: &LinePair| (it.comparison.baseline_value, it.comparison.value);
    let lines: Vec<_> = found.lines.iter().map(|it| (it.line.as_str(), values(it))).collect();
    let of = |before, after| (Some(before), Some(after));
    assert_eq!(lines, [("hill", of(60.0, 30.0)), ("lake", of(80.0, 20.0))]);
    assert_eq!((found.step.as_str(), found.improved), ("down", Some(2)));
    // The other step is compared, too.
    let steps: Vec<&str> = found.other_steps.iter().map(|it| it.step.as_str()).collect();
    assert_eq!(steps, ["up"]);
    assert_eq!(found.other_steps[0].lines.last().map(values), Some(of(400.0, 20.0)));
    let choice = Choice { step: Some("up".to_owned()), ..ANY };
    let [found, _] = both_ways(folder.path(), lists, &choice).unwrap();
    assert_eq!(found.lines.last().map(values), Some(of(400.0, 20.0)));
    assert!(found.other_steps.is_empty(), "one was chosen");
    // Two runs of one label are a history, and the hours of both sides differ.
    write_run(folder.path(), ("friday-3", "lake"), 20, [21.0, 21.0]);
    let lists: [&[&str]; 2] = [&["monday-1"], &["friday-2", "friday-3"]];
    let [found, _] = both_ways(folder.path(), lists, &ANY).unwrap();
    let hours = found.lines[0].hours.as_ref().unwrap();
    assert_eq!((hours.later.unwrap().runs, hours.later.unwrap().p50), (1, 20.0));
    assert_eq!(found.comparison.verdict, Verdict::TooFew);
    assert!(found.sentences[0].contains("1 runs before it and 1 after it"), "{found:?}");
}

#[test]
fn what_cannot_be_paired_is_refused_with_the_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        write_ping(folder.path(), name, 20.0);
    }
    let said = |lists: [&[&str]; 2], choice: &Choice| {
        both_ways(folder.path(), lists, choice).unwrap_err().to_string()
    };
    let unpaired: [&[&str]; 2] = [&["a.txt", "b.txt"], &["c.txt", "d.txt"]];
    assert!(said(unpaired, &ANY).contains("before a, b, after c, d;"));
    assert!(said([&["a.txt"], &["a.txt"]], &ANY).ends_with("a.txt: occurs twice"));
    let choice = Choice { step: Some("down".to_owned()), ..ANY };
    assert!(said([&["a.txt"], &["b.txt"]], &choice).contains("no line has it on both sides"));
    let choice = Choice { metric: Some(Followed::GoodputUp), ..ANY };
    assert!(said([&["a.txt"], &["b.txt"]], &choice).starts_with("no line has a valid goodput up"));
    let choice = Choice { are_groups: true, ..choice };
    assert!(said(unpaired, &choice).contains("compares latencies"));
}

/// Writes results of a fleet: of each device one at the same hour of four days, from `day` on.
fn write_fleet(path: &Path, firmware: &str, day: i64, p99_ms: &[f64]) {
    use underload_store::Kind;
    use underload_store::table::{Cell, TableWriter};

    // In another order than the archive's, with a column of another program.
    let layout = [
        ("note", Kind::Text),
        ("p99_us", Kind::OptionalLong),
        ("dscp", Kind::OptionalLong),
        ("kind", Kind::OptionalText),
        ("step", Kind::OptionalText),
        ("firmware", Kind::Text),
        ("at_ms", Kind::Long),
        ("device", Kind::Bytes),
    ];
    let file = fs::File::create(path).unwrap();
    let mut table = TableWriter::new(file, &layout).unwrap();
    for (device, p99_ms) in (0_u8..).zip(p99_ms) {
        for at in day..day + 4 {
            let at_ms = (1_790_000_000 / 86_400 + at) * 86_400_000;
            // Round trips of probes with two DSCPs, and inside the load.
            for (dscp, factor) in [(Some(0_u8), 1.0), (Some(45), 0.1), (None, 0.5)] {
                let cells = [
                    Cell::from("x"),
                    Cell::Long((p99_ms * factor * 1e3) as i64),
                    Cell::from(dscp),
                    Cell::from("upload"),
                    Cell::from("loaded"),
                    Cell::from(firmware),
                    Cell::Long(at_ms),
                    Cell::Bytes(vec![device; 16].into()),
                ];
                table.push(cells.into_iter()).unwrap();
            }
        }
    }
    table.finish().unwrap();
}

#[test]
fn lines_of_a_fleet_are_known_by_their_devices() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = ([80.0, 60.0, 90.0, 75.0, 66.0, 120.0], [20.0, 30.0, 18.0, 50.0, 22.0, 24.0]);
    write_fleet(&folder.path().join("march.parquet"), "1.0", 0, &old);
    write_fleet(&folder.path().join("april.parquet"), "2.0", 30, &new);
    let lists: [&[&str]; 2] = [&["march.parquet"], &["april.parquet"]];
    let [found, _] = both_ways(folder.path(), lists, &ANY).unwrap();
    // By hand: of six ratios the lowest and the highest hold the median with 1 - 2 / 2^6.
    let mut ratios: Vec<f64> = old.iter().zip(new).map(|(old, new)| new / old).collect();
    ratios.sort_by(f64::total_cmp);
    let range = found.comparison.range.unwrap();
    let is_equal = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
    assert!(
        is_equal(range.low, ratios[0]) && is_equal(range.high.unwrap(), ratios[5]),
        "{range:?}"
    );
    assert!((range.confidence - (1.0 - 2.0 / 64.0)).abs() < 1e-12);
    assert_eq!((found.metric, found.step.as_str()), (Followed::LoadP99, "loaded"));
    assert_eq!((found.improved, found.comparison.verdict), (Some(6), Verdict::Lower));
    assert_eq!(found.lines[0].line, "00".repeat(16));
    let inside = Choice { metric: Some(Followed::InsideP99), ..ANY };
    let [found, _] = both_ways(folder.path(), lists, &inside).unwrap();
    assert_eq!(found.lines[0].comparison.value, Some(10.0));
    // Other lines: by hand, the median of all quotients of a line after and one before.
    let groups = Choice { are_groups: true, ..ANY };
    let [found, _] = both_ways(folder.path(), lists, &groups).unwrap();
    let mut ratios: Vec<f64> =
        new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = found.comparison.range.unwrap().middle.unwrap();
    assert!(middle >= ratios[17] && middle <= ratios[18], "{middle} of {ratios:?}");
    assert_eq!(found.sentences[1], "6 lines after (2.0), 6 before (1.0), one value each.");
    let page = found.page();
    assert!(page.contains("6 lines after (2.0)") && !page.contains("not measured"), "{page}");
    assert_eq!(page.matches("scope=\"row\"").count(), 12, "each line of both sides: {page}");
    fs::write(folder.path().join("other.parquet"), "PAR1 and no table").unwrap();
    let lists: [&[&str]; 2] = [&["march.parquet"], &["other.parquet"]];
    let error = both_ways(folder.path(), lists, &ANY).unwrap_err().to_string();
    assert!(
        error.contains("other.parquet: ") && error.contains("expected a fleet's results"),
        "{error}"
    );
}

#[test]
fn six_measured_lines_are_compared_as_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = ([80.0, 60.0, 90.0, 75.0, 66.0, 120.0], [20.0, 30.0, 18.0, 50.0, 22.0, 24.0]);
    let mut names = [Vec::new(), Vec::new()];
    for (line, (old, new)) in old.into_iter().zip(new).enumerate() {
        for (side, ms) in [old, new].into_iter().enumerate() {
            let name = format!("{side}-{line}");
            write_run(folder.path(), (&name, &format!("line {line}")), 9, [ms, ms]);
            names[side].push(name);
        }
    }
    let lists = names.each_ref().map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
    let [found, _] = both_ways(folder.path(), [&lists[0], &lists[1]], &ANY).unwrap();
    let mut ratios: Vec<f64> = old.iter().zip(new).map(|(old, new)| new / old).collect();
    ratios.sort_by(f64::total_cmp);
    let range = found.comparison.range.unwrap();
    assert_eq!((range.low, range.high), (ratios[0], Some(ratios[5])));
    assert_eq!(found.improved, Some(6));
    let page = found.page();
    assert!(
        page.contains("line 3") && page.matches("<svg").count() == 2,
        "a picture for each step"
    );
}
