//! Reports in a real browser: large and small ones, by day and night, on a desk and in a hand,
//! pointed at, sorted, printed, and without a script.
//!
//! Without Chromium these tests are skipped. What `axe` finds is looked at where `UNDERLOAD_AXE`
//! names its `axe.min.js`, or `npm install --prefix ~/.cache/underload axe-core` put it there.

#[expect(dead_code, reason = "shared with the fleet's pages, which need more of it")]
#[path = "../../../orchestrator/tests/browser/chromium.rs"]
mod chromium;

use serde_json::{Value, json};
use tempfile::TempDir;
use underload_record::comparison::Comparison;
use underload_record::history::{Followed, Labelled, Mark, Marked, Point, Trend, Windows};
use underload_record::schema::{Finding, PlotKind, PlotRecord, RunRecord, VariantRecord, World};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Queue};
use underload_record::{LatencyPools, conclude};
use underload_report::{
    HistoryPage, Pairs, history_page, history_sentences, pairs_page, write_report,
};
use underload_store::RunData;

use chromium::{Browser, Screen};

/// A run of these variants, each with the same queue, concluded.
fn run_of(names: &[String], queue: Queue, change: impl Fn(&mut RunRecord)) -> RunData {
    let mut record = synthetic::record(World::Sim, &[]);
    let mut pools = LatencyPools::default();
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    for name in names {
        let mut factors = std::collections::BTreeMap::new();
        factors.insert("path.up_queue".to_owned(), name.clone());
        record.variants.push(VariantRecord {
            name: name.clone(),
            label: format!("{name}:profile=long,target=10ms before 10mbit:delay=8.5ms"),
            factors,
        });
        for mut trial in synthetic::trials(&[queue], 1, 100_000_000) {
            let index = record.trials.len() as u32;
            (trial.record.index, trial.record.variant) = (index, name.clone());
            trial.samples.iter_mut().for_each(|sample| sample.trial = index);
            trial.series.iter_mut().for_each(|series| series.trial = index);
            pools.add(&trial.record, &trial.samples);
            record.trials.push(trial.record);
            samples.extend(trial.samples);
            series.extend(trial.series);
        }
    }
    change(&mut record);
    conclude(&mut record, &pools);
    record.complete = true;
    RunData { record, samples, series, left_out: Vec::new() }
}

/// As many variants as the largest of the built-in scenarios has.
fn large() -> RunData {
    let rate = |number: usize| format!("{}mbit", 1 << (number % 7));
    let names: Vec<String> =
        (0..126).map(|number| format!("queue-{}/{}", number / 7, rate(number))).collect();
    run_of(&names, DOCSIS_PIE, |record| {
        record.scenario.plots = vec![PlotRecord {
            kind: PlotKind::Sweep,
            title: "Round trip over rate".to_owned(),
            variants: "{line}/{x}".to_owned(),
            metric: "load.rtt.p99".to_owned(),
            says: "round trip, ms".to_owned(),
            x_says: "rate".to_owned(),
            ..PlotRecord::default()
        }];
    })
}

fn small() -> RunData {
    let names = ["docsis-pie".to_owned(), "buffer-control".to_owned()];
    run_of(&names, BUFFER_CONTROL, |_| {})
}

/// A report of a measured line whose steps have findings.
fn measured() -> RunData {
    run_of(&["down".to_owned(), "up".to_owned()], BUFFER_CONTROL, |record| {
        record.world = World::Measured;
        for trial in &mut record.trials {
            let latencies = trial.latencies.clone();
            let finding = Finding {
                step: trial.variant.clone(),
                valid: true,
                latencies,
                goodput_up_mbit_s: Some(9.5),
                ..Finding::default()
            };
            trial.finding = Some(Box::new(finding));
        }
    })
}

/// The page of two weeks of a line, with a mark and a label, and its address.
fn history() -> (TempDir, String) {
    let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
    let run = |number: i64| {
        let value = if number % 4 == 3 { 120.0 } else { 40.0 } + (number % 3) as f64;
        Point { at_s: 1_795_392_000 + number * 6 * 3_600, offset_s: 3_600, value }
    };
    let points: Vec<Point> = (0..56).map(run).collect();
    let trends = ["down", "up"]
        .map(|step| Trend::of(step, Followed::LoadP99, points.clone(), windows, points[55].at_s));
    let mark = Mark { at_s: points[30].at_s, offset_s: 3_600, text: "new router".to_owned() };
    let changes = trends[0].around(std::slice::from_ref(&mark)).into_iter().flatten().collect();
    let (marks, level) = ([Marked { mark, changes }], trends[0].baseline.expect("56 runs"));
    let (label, step, followed) = ("wifi".to_owned(), "up".to_owned(), Followed::LoadP99);
    let labels = [Labelled { label, step, followed, level }];
    let sentences = history_sentences((&trends, &marks, &labels), followed, 56);
    let page = HistoryPage {
        sentences: &sentences,
        trends: &trends,
        marks: &marks,
        labels: &labels,
        skipped: &[],
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.html");
    std::fs::write(&path, history_page("A line over time", page)).expect("it is written");
    let address = format!("file://{}", path.display());
    (folder, address)
}

/// The report of a run, and its address.
/// Lines before and after a change.
fn pairs() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..30).map(|line| format!("line-{line} in a long street")).collect();
    let one = |line: usize| Comparison {
        baseline_value: Some(40.0 + line as f64),
        value: Some(20.0 + line as f64),
        unit: "ms".to_owned(),
        ..Comparison::default()
    };
    let step = Pairs {
        step: "up".to_owned(),
        number: Followed::LoadP99.words(),
        sentences: vec!["It is 30 ms after, instead of 50 before.".to_owned()],
        lines: names.into_iter().zip((0..30).map(one)).collect(),
        left_out: vec!["moved-in: only after".to_owned()],
    };
    let path = folder.path().join("pairs.html");
    std::fs::write(&path, pairs_page(&[step])).expect("it is written");
    let address = format!("file://{}", path.display());
    (folder, address)
}

fn written(run: RunData) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let page = write_report(folder.path(), &[run]).expect("a page");
    let address = format!("file://{}", page.display());
    (folder, address)
}

#[test]
fn reports_have_no_faults_on_desktops_and_phones_in_light_and_dark_mode() {
    let test = "reports_have_no_faults_on_desktops_and_phones_in_light_and_dark_mode";
    let Some(mut browser) = Browser::launch(test) else { return };
    let axe = chromium::axe(test);
    let mut faults = Vec::new();
    let runs = [("small", small()), ("large", large()), ("measured", measured())];
    let pages = runs.map(|(name, run)| (name, written(run)));
    for (name, (_folder, address)) in
        pages.into_iter().chain([("history", history()), ("pairs", pairs())])
    {
        for (screen, is_dark) in [(Screen::Desktop, false), (Screen::Phone, true)] {
            let what = format!("{name} {screen:?} dark: {is_dark}");
            browser.screen(screen, is_dark);
            browser.open(&address);
            let unnamed =
                "[...document.querySelectorAll('table')].filter((it) => !it.caption).length";
            assert_eq!(browser.value(unnamed), 0, "{what}: a table without a caption");
            let found = browser.faults(axe.as_deref());
            faults.extend(found.iter().map(|fault| format!("{what}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Screens of 900 pixels that the page of many variants may have.
const MOST_SCREENS: f64 = 12.0;

#[test]
fn a_page_of_many_variants_is_short_and_its_variants_are_sorted_and_filtered() {
    let test = "a_page_of_many_variants_is_short_and_its_variants_are_sorted_and_filtered";
    let Some(mut browser) = Browser::launch(test) else { return };
    let (_folder, address) = written(large());
    browser.screen(Screen::Desktop, false);
    browser.open(&address);
    let height = browser.value("document.documentElement.scrollHeight").as_f64();
    let screens = height.expect("a height") / 900.0;
    eprintln!("126 variants: {screens:.1} screens of 900 pixels");
    assert!(screens < MOST_SCREENS, "{screens} screens");

    let first = "document.querySelector('table.sortable tbody tr:not([hidden]) th').textContent";
    assert!(browser.text(first).contains("queue-0/1mbit"));
    let click = "document.querySelector('table.sortable th button').click()";
    browser.value(click);
    browser.value(click);
    assert!(browser.text(first).contains("queue-17/64mbit"), "{}", browser.text(first));
    let sorted = "document.querySelector('table.sortable th').getAttribute('aria-sort')";
    assert_eq!(browser.text(sorted), "descending");

    browser.value(
        "(() => { const input = document.querySelector('p.filter input');
            input.value = 'QUEUE-3/ 8mbit'; input.dispatchEvent(new Event('input')); })()",
    );
    let shown = "document.querySelectorAll('table.sortable tbody tr:not([hidden])').length";
    assert_eq!(browser.value(shown), 1);
    assert!(browser.text("document.querySelector('output.filter').textContent").contains("1 of"));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn curves_are_pointed_at_and_switched_off() {
    let Some(mut browser) = Browser::launch("curves_are_pointed_at_and_switched_off") else {
        return;
    };
    let (_folder, address) = written(small());
    browser.screen(Screen::Desktop, false);
    browser.open(&address);
    let folded = "document.querySelector('details.switches').open";
    assert_eq!(browser.value(folded), false, "the legend stands above the plot");
    let plot = "svg.plot:has(metadata)";
    let middle = browser.middle_of(plot);
    let tip = "document.querySelector('.tip').textContent";
    // Right of the least value of both distributions.
    let right = (middle.0 + 170.0, middle.1);
    browser.mouse("mouseMoved", right, 0);
    let told = browser.text(tip);
    assert!(told.contains("docsis-pie") && told.contains("buffer-control"), "{told}");
    assert!(told.contains("round-trip time, ms"), "{told}");
    browser.value("document.querySelector('.curves button').click()");
    browser.mouse("mouseMoved", (right.0 + 3.0, right.1), 0);
    let told = browser.text(tip);
    assert!(!told.contains("docsis-pie") && told.contains("buffer-control"), "{told}");
    browser.mouse("mouseMoved", (2.0, 2.0), 0);
    assert_eq!(browser.value("document.querySelector('.tip').hidden"), true);
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn parts_of_a_box_plot_have_no_switches() {
    let Some(mut browser) = Browser::launch("parts_of_a_box_plot_have_no_switches") else {
        return;
    };
    let names = ["pie/near", "pie/far", "fifo/near", "fifo/far"].map(str::to_owned);
    let run = run_of(&names, BUFFER_CONTROL, |record| {
        record.scenario.plots = vec![PlotRecord {
            kind: PlotKind::Box,
            title: "Round trips".to_owned(),
            variants: "{line}/{x}".to_owned(),
            metric: "load.rtt.p99".to_owned(),
            says: "round trip, ms".to_owned(),
            ..PlotRecord::default()
        }];
    });
    let (_folder, address) = written(run);
    browser.screen(Screen::Desktop, false);
    browser.open(&address);
    let figure = "[...document.querySelectorAll('figure')].find((figure) =>
        figure.textContent.includes('Each box is of 1 trial:'))";
    let lines = format!("{figure}.querySelectorAll('line.s-c0').length");
    assert_eq!(browser.value(&lines), 2 * 5, "five of each box");
    assert_eq!(browser.value(&format!("{figure}.querySelector('.switches')")), Value::Null);
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[test]
fn the_page_is_complete_without_a_script_and_unfolded_on_paper() {
    let test = "the_page_is_complete_without_a_script_and_unfolded_on_paper";
    let Some(mut browser) = Browser::launch(test) else { return };
    let (_folder, address) = written(small());
    browser.screen(Screen::Desktop, false);
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.open(&address);
    assert_eq!(browser.value("document.querySelector('p.filter, .curves, .tip')"), Value::Null);
    assert!(browser.value("document.querySelectorAll('nav.contents a').length").as_u64() > Some(2));
    let links = "[...document.querySelectorAll('nav.contents a')].every((link) =>
        document.getElementById(link.getAttribute('href').slice(1)))";
    assert_eq!(browser.value(links), true, "each leads somewhere");
    let folded = "[...document.querySelectorAll('details')].filter((details) =>
        !details.lastElementChild.checkVisibility()).length";
    assert!(browser.value(folded).as_u64() > Some(0), "on a screen details are folded");
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    assert_eq!(browser.value(folded), 0, "and on paper they are not");
}

/// A text that would change the page if it were interpreted as markup or as a script.
const HOSTILE: &str = "</metadata><img src=x onerror=\"document.title='owned'\">/<b>";

#[test]
fn names_of_runs_stay_text_in_the_script() {
    let test = "names_of_runs_stay_text_in_the_script";
    let Some(mut browser) = Browser::launch(test) else { return };
    let names: Vec<String> = (0..14).map(|number| format!("{number}{HOSTILE}")).collect();
    let run = run_of(&names, DOCSIS_PIE, |record| {
        record.scenario.plots = vec![PlotRecord {
            title: HOSTILE.to_owned(),
            variants: "{x}/*/*".to_owned(),
            metric: "load.rtt.p99".to_owned(),
            says: format!("{HOSTILE}\n0 0"),
            x_says: HOSTILE.to_owned(),
            ..PlotRecord::default()
        }];
    });
    let (_folder, address) = written(run);
    browser.screen(Screen::Desktop, false);
    browser.open(&address);
    for _ in 0..2 {
        browser.value("document.querySelectorAll('table.sortable th button')[0].click()");
    }
    let count = browser.value("document.querySelectorAll('svg.plot:has(metadata)').length");
    for number in 0..count.as_u64().expect("a count") {
        let select = format!("document.querySelectorAll('svg.plot:has(metadata)')[{number}]");
        let place = browser.value(&format!(
            "(() => {{ const it = {select}; it.closest('details')?.setAttribute('open', '');
                it.scrollIntoView({{ block: 'center' }}); const box = it.getBoundingClientRect();
                return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
        ));
        let at = |which: usize| place[which].as_f64().expect("a number");
        browser.mouse("mouseMoved", (at(0), at(1)), 0);
    }
    let tip = browser.text("document.querySelector('.tip').textContent");
    assert!(!tip.is_empty());
    assert_eq!(browser.value("document.querySelectorAll('img, b img, main script').length"), 0);
    assert!(!browser.text("document.title").contains("owned"));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}
