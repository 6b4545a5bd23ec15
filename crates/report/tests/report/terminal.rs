//! Tables for the terminal.

use std::error::Error;

use underload_record::schema::World;
use underload_report::{load, render, summary_lines, table, warnings};
use underload_store::RunDir;

use crate::page::run;
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, Queue};

#[test]
fn the_table_is_aligned_and_within_100_columns() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let text = table(&[run(World::Live, &queues, 2, 10_000_000)]);
    let expected = "\
round-trip time, ms
  phase  window  samples  lost   p50   p90   p95   p99  p99.9   max  mean
buffer-control (fifo:profile=docsis,target=250ms), 2 trials
  idle   6.00 s      600     0  17.6  17.9  18.0  18.0      -  18.0  17.6
  load   14.0 s     1400     2   225   249   254   261      -   263   230
  up    goodput 9.43 Mbit/s, link 99.0 % used, 84 dropped (0.719 %), 14 marked (0.120 %)
docsis-pie:profile=rfc,target=10ms, 2 trials
  idle   6.00 s      600     0  17.5  17.9  18.0  18.0      -  18.0  17.5
  load   14.0 s     1400     2  24.0  27.5  28.3  29.1      -  29.5  24.7
  up    goodput 9.43 Mbit/s, link 99.0 % used, 84 dropped (0.719 %), 14 marked (0.120 %)
";
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn a_name_is_left_out_only_where_the_label_says_it() {
    let title = |name, spec| {
        let text = table(&[run(World::Sim, &[Queue { name, spec, ..DOCSIS_PIE }], 1, 20_000_000)]);
        let line = text.lines().find(|line| line.ends_with(", 1 trial")).unwrap_or_default();
        line.trim_end_matches(", 1 trial").to_owned()
    };
    for said in ["pie", "pie:target=5ms", "pie before 10mbit up"] {
        assert_eq!(title("pie", said), said);
    }
    for (name, label) in [("d", "diffserv:high=[]"), ("fifo:limit", "fifo:limit=180p")] {
        assert_eq!(title(name, label), format!("{name} ({label})"));
    }
    let spec = "pie before 10mbit up; pie before 100mbit down";
    let queue = Queue { name: "pie", spec, ..DOCSIS_PIE };
    let lines = summary_lines(&[run(World::Sim, &[queue], 1, 20_000_000)]);
    assert!(lines[0].starts_with("With pie the working latency is"), "{lines:?}");
}

#[test]
fn high_quantiles_need_samples() {
    let row = |repeats| {
        let text = table(&[run(World::Live, &[DOCSIS_PIE], repeats, 20_000_000)]);
        let row = text.lines().find(|line| line.starts_with("  load")).unwrap_or_default();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // One trial of 7 s has 350 samples, two have 700; a 99th percentile needs 500.
    let (few, enough) = (row(1), row(2));
    assert_eq!((few[3].as_str(), few[8].as_str()), ("350", "-"), "{few:?}");
    assert_eq!((enough[3].as_str(), enough[9].as_str()), ("700", "-"), "{enough:?}");
    assert_ne!(enough[8], "-", "{enough:?}");
    for (queues, words) in [
        (&[DOCSIS_PIE][..], "500 samples, which the variant does not have."),
        (&[DOCSIS_PIE, FQ_CODEL], "500 samples, which no variant has."),
    ] {
        let page = render(&[run(World::Live, queues, 1, 20_000_000)]).expect("a page");
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn long_titles_wrap_between_words() {
    let spec =
        "a-queue-with-a-long-name:and=its,parameters=too before a link of 60mbit:jitter=8ms up";
    let queue = Queue { name: "an-variant", spec, ..DOCSIS_PIE };
    let text = table(&[run(World::Live, &[queue], 2, 20_000_000)]);
    assert!(text.contains("60mbit:jitter=8ms"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn directories_of_two_worlds_become_one_table() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (live, sim) = (directory.path().join("live"), directory.path().join("sim"));
    for (path, world) in [(&live, World::Live), (&sim, World::Sim)] {
        let mut run = RunDir::create(path, synthetic::record(world, &[DOCSIS_PIE]))?;
        for trial in synthetic::trials(&[DOCSIS_PIE], 2, 50_000_000) {
            run.append_trial(&trial.record, &trial.samples, &trial.series)?;
        }
        run.finish(1.0)?;
    }
    let runs = load(&[&live, &sim])?;
    let text = table(&runs);
    assert!(text.contains("docsis-pie:profile=rfc,target=10ms (live), 2 trials"), "{text}");
    assert!(text.contains("docsis-pie:profile=rfc,target=10ms (sim), 2 trials"), "{text}");
    let missing = load(&[directory.path().join("nowhere")]).err().ok_or("read nothing")?;
    assert!(
        missing.to_string().contains("nowhere: there is no such file or directory"),
        "{missing}"
    );
    Ok(())
}

/// By hand: the 95th of 101 to 200 ms is 195 ms, and 20 ms without load.
#[test]
fn a_file_of_another_tool_begins_with_its_grade() {
    let loaded = (101..=200).map(|ms| ms.to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"dl_throughput":40000000,"il_h2_req_resp":[20],
            "lud_foreign_h2_req_resp":[{loaded}],"responsiveness":300}}"#
    );
    let run = underload_exchange::import(text.as_bytes()).expect("a file of networkQuality");
    let lines = summary_lines(std::slice::from_ref(&run));
    let expected = "Grade C: while you download, everything is 0.2 s late. Calls and games lag now and \
                    then. Graded by the p95 of 100 probes; not known: one-way delays, markings and \
                    whether the measuring machine was late.";
    assert_eq!(lines[0], expected);
    assert!(lines.iter().any(|line| line.starts_with("What to change: ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("300 RPM")), "{lines:?}");
    let several = summary_lines(&[run.clone(), run]);
    assert!(!several.iter().any(|line| line.contains("Grade")), "{several:?}");
}

#[test]
fn a_file_of_probes_alone_says_that_the_load_is_unknown() {
    let ping = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=212 ms\n\
                64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=230 ms\n";
    let ping = underload_exchange::import(ping.as_bytes()).expect("lines of ping");
    let said = "The file of ping does not say whether the line was busy: its round trips count as \
                idle, and are the latency under load if it was.";
    assert!(warnings(std::slice::from_ref(&ping)).iter().any(|line| line == said));
    let measured = [run(World::Measured, &[FQ_CODEL], 2, 10_000_000)];
    assert!(!warnings(&measured).iter().any(|line| line.contains("does not say")));
}
