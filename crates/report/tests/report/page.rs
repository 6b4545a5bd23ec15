//! The page as a stranger gets it.

use std::collections::BTreeSet;
use std::error::Error;

use underload_record::schema::{
    Distribution, Finding, LatencySummary, Phase, PhaseWindow, RunRecord, Validity, VariantRecord,
    World,
};
use underload_record::{LatencyPools, conclude};
use underload_report::{finding_lines, plots, render, summary_lines, warnings, write_report};
use underload_store::RunData;

use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, Queue};

/// A concluded run in memory.
pub fn run(world: World, queues: &[Queue], repeats: u32, interval_ns: u64) -> RunData {
    conclude_all(synthetic::record(world, queues), synthetic::trials(queues, repeats, interval_ns))
}

pub fn conclude_all(mut record: RunRecord, trials: Vec<synthetic::Trial>) -> RunData {
    let mut pools = LatencyPools::default();
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    for trial in trials {
        pools.add(&trial.record, &trial.samples);
        record.trials.push(trial.record);
        samples.extend(trial.samples);
        series.extend(trial.series);
    }
    conclude(&mut record, &pools);
    record.complete = true;
    RunData { record, samples, series, left_out: Vec::new() }
}

#[test]
fn every_page_shows_the_stored_sentences_of_a_measurement() {
    let mut data = run(World::Measured, &[DOCSIS_PIE], 1, 10_000_000);
    let own = summary_lines(std::slice::from_ref(&data));
    data.record.verdict = vec![
        "up: the load adds 387 ms, which is bad.".to_owned(),
        "Ask \u{1b}[2J <them>".to_owned(),
    ];
    let lines = summary_lines(std::slice::from_ref(&data));
    assert_eq!(lines, ["up: the load adds 387 ms, which is bad.", "Ask \u{fffd}[2J <them>"]);
    let page = render(std::slice::from_ref(&data)).expect("a page");
    assert!(page.contains("up: the load adds 387 ms, which is bad."));
    assert!(page.contains("[2J &lt;them&gt;"), "escaped");
    assert!(!page.contains(&own[0]), "one verdict, not two");
    // Two runs are compared, so the verdict of neither is printed.
    let both = summary_lines(&[data.clone(), data]);
    assert!(both[0].contains("working latency"), "{both:?}");
}

/// The finding of a step whose load brings the p99 from 13 ms to `p99_ms`.
fn finding(step: &str, down_mbit_s: Option<f64>, p99_ms: i64) -> Finding {
    let latency = |phase, p50_ms: i64, p99_ms: i64| LatencySummary {
        probe: "probe".to_owned(),
        window: PhaseWindow { phase, start_ns: 0, end_ns: 5_000_000_000 },
        sent: 500,
        distribution: Some(Distribution {
            count: 500,
            p50_ns: p50_ms * 1_000_000,
            p99_ns: p99_ms * 1_000_000,
            ..Distribution::default()
        }),
        ..LatencySummary::default()
    };
    Finding {
        step: step.to_owned(),
        label: "TCP <cubic>".to_owned(),
        valid: true,
        latencies: vec![latency(Phase::Idle, 12, 13), latency(Phase::Load, 80, p99_ms)],
        goodput_down_mbit_s: down_mbit_s,
        buffer_kib: Some(251.0),
        ..Finding::default()
    }
}

#[test]
fn a_measured_line_opens_with_its_grade_and_what_to_change() {
    let mut data = run(World::Measured, &[DOCSIS_PIE, FQ_CODEL], 1, 10_000_000);
    let findings = [finding("down", Some(38.5), 40), finding("up", None, 450)];
    for (trial, finding) in data.record.trials.iter_mut().zip(findings.clone()) {
        trial.finding = Some(Box::new(finding));
    }
    data.record.verdict = finding_lines(&findings);
    let page = render(std::slice::from_ref(&data)).expect("a page");
    expect_well_formed(&page);
    let opening = page.split("<h2").next().unwrap_or_default();
    for part in [
        "<span class=\"grade poor\">F</span>",
        "while the line is busy, everything is 0.4 s late",
        "Games: 450 ms; 12 when idle",
        "38.5 Mbit/s carry 4K",
        "What to change: On OpenWrt install luci-app-sqm",
    ] {
        assert!(opening.contains(part), "{part} is not in the opening\n{opening}");
    }
    assert!(page.contains("TCP &lt;cubic&gt;") && !page.contains("<dt>Seed</dt>"));
    let said = summary_lines(std::slice::from_ref(&data));
    assert_eq!(said, data.record.verdict, "the words of the terminal");
}

/// Tags must nest; that is all a browser needs to show every part where it belongs.
fn expect_well_formed(markup: &str) {
    // The text of a script is not markup.
    let (before, rest) = markup.split_once("<script>").unwrap_or((markup, ""));
    let markup = &format!("{before}{}", rest.split_once("</script>").map_or("", |parts| parts.1));
    let mut open: Vec<&str> = Vec::new();
    for tag in markup.split('<').skip(1) {
        let name_end = tag.find([' ', '>', '/', '\n']).unwrap_or(tag.len());
        let inside = tag.split('>').next().unwrap_or_default();
        if let Some(closing) = tag.strip_prefix('/') {
            let name = closing.split('>').next().unwrap_or_default();
            assert_eq!(open.pop(), Some(name), "</{name}> closes another tag");
        } else if !inside.ends_with('/') && !["!DOCTYPE", "meta", "br"].contains(&&tag[..name_end])
        {
            open.push(&tag[..name_end]);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn the_page_is_whole_self_contained_and_small() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL];
    let html = render(&[run(World::Live, &queues, 5, 1_000_000)])?;
    expect_well_formed(&html);
    assert!(html.len() < 1_500_000, "{} bytes", html.len());
    assert_eq!(html.matches("<script").count(), 1, "the page's own, inside it");
    for remote in ["<script ", "<link", "<img", "@import", "url(", "src="] {
        assert!(!html.contains(remote), "{remote} in a page that must stand alone");
    }
    let links = html.matches("http").count() - html.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(links, 0, "the page points elsewhere");
    for part in ["p99.9", "docsis-pie:profile=rfc,target=10ms", "Figure 3", "0123456789abcdef"] {
        assert!(html.contains(part), "{part} is missing");
    }
    Ok(())
}

#[test]
fn the_same_run_gives_the_same_page() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let page = || render(&[run(World::Sim, &queues, 2, 20_000_000)]);
    assert_eq!(page()?, page()?);
    Ok(())
}

#[test]
fn the_first_line_says_what_differs_and_by_how_much() {
    let lines = summary_lines(&[run(World::Live, &[BUFFER_CONTROL, DOCSIS_PIE], 6, 10_000_000)]);
    assert_eq!(
        lines[0],
        "With docsis-pie (up queue: docsis-pie instead of fifo) the latency under load is 30.1 ms \
         instead of 285 ms with buffer-control: 8.8 to 9.5 times lower."
    );
    assert!(lines[1].contains("the median of many trials is within the range"), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("Of 5 published numbers")), "{lines:?}");
}

#[test]
fn alike_variants_are_reported_as_alike() {
    let twin = Queue { name: "twin", spec: "another", ..DOCSIS_PIE };
    let lines = summary_lines(&[run(World::Live, &[DOCSIS_PIE, twin], 2, 10_000_000)]);
    let said = " ms, the same as with ";
    assert!(lines[0].starts_with("With twin") && lines[0].contains(said), "{}", lines[0]);
}

/// A run of two queues whose variants the closure changes.
fn changed(world: World, change: impl Fn(&mut RunRecord)) -> RunData {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut record = synthetic::record(world, &queues);
    change(&mut record);
    conclude_all(record, synthetic::trials(&queues, 2, 10_000_000))
}

#[test]
fn a_measured_line_is_not_compared_with_itself() {
    let steps = |record: &mut RunRecord| {
        record.variants.iter_mut().for_each(|variant| variant.factors.clear());
    };
    let lines = summary_lines(&[changed(World::Measured, steps)]);
    assert!(
        lines[0].starts_with("buffer-control: the working latency is 225 ms at p50"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("docsis-pie: the working latency is 24.0 ms at p50"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("against") || line.contains("lower")));
}

#[test]
fn unequal_rates_and_lost_probes_are_reported() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut trials = synthetic::trials(&queues, 2, 10_000_000);
    for trial in trials.iter_mut().filter(|trial| trial.record.variant == "docsis-pie") {
        trial.record.flows[0].goodput_up_bit_per_s = Some(950_000);
        for summary in &mut trial.record.latencies {
            summary.lost = summary.sent / 4;
        }
    }
    let data = conclude_all(synthetic::record(World::Sim, &queues), trials);
    let line = &summary_lines(&[data])[0];
    assert!(line.contains("; goodput 0.950 against 9.43 Mbit/s up"), "{line}");
    assert!(line.contains("; 25.0 against 0.143 % of the probes were lost"), "{line}");
}

#[test]
fn the_class_with_the_largest_effect_is_named() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut trials = synthetic::trials(&queues, 2, 10_000_000);
    for trial in &mut trials {
        // A second class of probes, without delay in the second variant, and with the delay of the
        // first class in the first variant.
        let mut flow = trial.record.flows[1].clone();
        flow.name = "probe-dscp-45".to_owned();
        trial.record.flows.push(flow);
        let is_quick = trial.record.variant == "docsis-pie";
        let mut more = trial.samples.clone();
        for sample in &mut more {
            sample.flow = 2;
            sample.rtt_ns = sample.rtt_ns.map(|rtt| if is_quick { 17_500_000 } else { rtt });
        }
        trial.samples.extend(more);
        trial.record.latencies = underload_record::trial_latencies(
            &trial.samples, &trial.record.flows, &trial.record.phases,
        );
    }
    let data = conclude_all(synthetic::record(World::Sim, &queues), trials);
    let line = &summary_lines(std::slice::from_ref(&data))[0];
    assert!(line.contains("the latency under load of probe-dscp-45 is 17.5 ms against"), "{line}");
    let table = underload_report::table(std::slice::from_ref(&data));
    assert_eq!(table.matches(", 2 trials, round trips of flow probe\n").count(), 2, "{table}");
}

#[test]
fn invalid_and_missing_trials_are_announced() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut trials = synthetic::trials(&queues, 2, 20_000_000);
    for trial in &mut trials[..2] {
        trial.record.validity = synthetic::late();
    }
    let mut data = conclude_all(synthetic::record(World::Live, &queues), trials);
    data.record.complete = false;
    let said = warnings(std::slice::from_ref(&data));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].starts_with("2 of 4 trials are invalid"), "{}", said[1]);
    assert!(said[1].contains("4.2 ms late"), "{}", said[1]);
    let html = render(&[data])?;
    expect_well_formed(&html);
    assert!(html.contains("2 of 4 trials are invalid"));
    Ok(())
}

#[test]
fn a_run_without_any_trial_still_has_a_page() -> Result<(), Box<dyn Error>> {
    let record = synthetic::record(World::Live, &[BUFFER_CONTROL]);
    let html = render(&[conclude_all(record, Vec::new())])?;
    expect_well_formed(&html);
    assert!(html.contains("No valid trial"));
    assert!(render(&[]).is_err());
    Ok(())
}

#[test]
fn names_from_files_cannot_become_markup() -> Result<(), Box<dyn Error>> {
    let hostile = "<script>alert('x')</script>\"&";
    let mut trials = synthetic::trials(&[DOCSIS_PIE], 1, 20_000_000);
    let mut record = synthetic::record(World::Live, &[DOCSIS_PIE]);
    record.scenario.title = hostile.to_owned();
    record.scenario.text = format!("</pre>{hostile}");
    record.variants = vec![VariantRecord {
        name: hostile.to_owned(),
        label: hostile.to_owned(),
        factors: [(hostile.to_owned(), hostile.to_owned())].into(),
    }];
    record.commit = hostile.to_owned();
    for trial in &mut trials {
        trial.record.variant = hostile.to_owned();
        trial.record.bottlenecks[0].queue = hostile.to_owned();
        trial.record.flows[1].metrics[0].name = hostile.to_owned();
    }
    for expectation in &mut record.expectations {
        expectation.note = hostile.to_owned();
        expectation.variant = hostile.to_owned();
        expectation.metric = hostile.to_owned();
    }
    let data = [conclude_all(record, trials)];
    let html = render(&data)?;
    expect_well_formed(&html);
    assert_eq!(html.matches("<script").count(), 1, "no other than the page's own");
    for plot in plots(&data) {
        expect_well_formed(&plot.svg());
        assert!(!plot.svg().contains("<script"));
    }
    Ok(())
}

#[test]
fn several_runs_are_named_by_world() -> Result<(), Box<dyn Error>> {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let runs = [run(World::Live, &queues, 2, 20_000_000), run(World::Sim, &queues, 2, 20_000_000)];
    let html = render(&runs)?;
    expect_well_formed(&html);
    assert!(html.contains("docsis-pie (live)") && html.contains("docsis-pie (sim)"));
    let twice = [run(World::Sim, &queues, 1, 20_000_000), run(World::Sim, &queues, 1, 20_000_000)];
    assert!(render(&twice)?.contains("docsis-pie (run 2, sim)"));
    Ok(())
}

#[test]
fn files_hold_the_page_and_every_plot() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    // The report of an interrupted run, with other plots, beside a file that is not ours.
    write_report(
        directory.path(),
        &[run(World::Live, &[BUFFER_CONTROL, DOCSIS_PIE], 2, 50_000_000)],
    )?;
    assert!(directory.path().join("plots/cdf-load.svg").exists(), "the premise");
    std::fs::write(directory.path().join("plots/mine.svg"), "<svg>prefers-color-scheme</svg>")?;
    let data = [run(World::Live, &[BUFFER_CONTROL, DOCSIS_PIE], 12, 50_000_000)];
    let page = write_report(directory.path(), &data)?;
    assert_eq!(std::fs::read_to_string(page)?, render(&data)?);
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory.path().join("plots"))? {
        let path = entry?.path();
        let svg = std::fs::read_to_string(&path)?;
        expect_well_formed(&svg);
        assert!(svg.contains("prefers-color-scheme"), "{path:?} has no dark colours");
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    for name in ["overview", "cdf-mean", "cdf-max", "histogram-0", "timeline-1"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    assert!(names.contains("mine") && !names.contains("cdf-load"), "{names:?}");
    Ok(())
}

#[test]
fn no_link_of_a_run_directory_leads_to_other_files() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let [run_directory, other] = ["run", "other"].map(|name| directory.path().join(name));
    let data = [run(World::Live, &[BUFFER_CONTROL, DOCSIS_PIE], 2, 50_000_000)];
    write_report(&other, &data)?;
    let before = underload_disk::faults::tree(&other);
    for name in ["plots", "report.html", "plots/overview.svg"] {
        let link = run_directory.join(name);
        std::fs::create_dir_all(underload_disk::directory_of(&link))?;
        std::os::unix::fs::symlink(other.join(name), &link)?;
        let error = write_report(&run_directory, &data).expect_err("a link");
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(source.contains(&format!("{name} is a link")), "{error}: {source}");
        assert_eq!(underload_disk::faults::tree(&other), before, "{name}");
        std::fs::remove_dir_all(&run_directory)?;
    }
    // The directory that the user names may itself be a link.
    std::os::unix::fs::symlink(&other, &run_directory)?;
    write_report(&run_directory, &data)?;
    Ok(())
}

/// Writes pages for looking at, into the directory that `UNDERLOAD_LOOK` names.
#[test]
#[ignore = "writes files for a person to look at"]
fn pages_to_look_at() -> Result<(), Box<dyn Error>> {
    let directory = std::env::var("UNDERLOAD_LOOK").map(std::path::PathBuf::from)?;
    let queues = [BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL];
    let pair = [BUFFER_CONTROL, DOCSIS_PIE];
    let mut few = synthetic::trials(&queues, 5, 1_000_000);
    few[1].record.validity = Validity::clone(&synthetic::late());
    let few = conclude_all(synthetic::record(World::Live, &queues), few);
    write_report(&directory.join("few"), &[few])?;
    write_report(&directory.join("many"), &[run(World::Sim, &pair, 60, 20_000_000)])?;
    let runs = [run(World::Live, &queues, 6, 10_000_000), run(World::Sim, &queues, 6, 10_000_000)];
    write_report(&directory.join("combined"), &runs)?;
    Ok(())
}
