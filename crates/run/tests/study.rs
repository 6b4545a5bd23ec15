//! The study of lines that are each measured several times a day, simulated: the cut is found, and
//! it vanishes on lines whose path to the modem removes the marking.

use underload_record::schema::{StudyGroup, StudyRecord};
use underload_run::{Settings, run};
use underload_scenario::{Scenario, builtin};

/// The built-in scenario with fewer lines, shorter trials and one day.
fn short() -> Scenario {
    let text = builtin::find("low-latency/ull").expect("it is built in").text;
    let changes = [
        ("count = 40\n", "count = 24\n"),
        ("days = 2\n", "days = 1\n"),
        ("runs_per_day = 6\n", "runs_per_day = 3\n"),
        ("load = \"10s\"\n", "load = \"6s\"\n"),
        ("idle = \"2s\"\n", "idle = \"500ms\"\n"),
    ];
    let text = changes.into_iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    Scenario::parse(&text, "ull").expect("the scenario is right")
}

/// Returns groups of lines by the queue in front of their modem.
fn by_home(study: &StudyRecord) -> Vec<(String, Vec<&StudyGroup>)> {
    let mut homes: Vec<(String, Vec<&StudyGroup>)> = Vec::new();
    for group in &study.groups {
        let Some((_, home)) = group.conditions.iter().find(|(name, _)| name == "home") else {
            continue;
        };
        match homes.iter_mut().find(|(known, _)| known == home) {
            Some((_, groups)) => groups.push(group),
            None => homes.push((home.clone(), vec![group])),
        }
    }
    homes
}

#[test]
fn the_cut_is_found_and_vanishes_where_the_marking_does() {
    let scenario = short();
    let record = run(&scenario, &Settings::default(), &mut ()).expect("a run").record;
    let study = record.study.as_ref().expect("a study");
    assert!(study.ineligible > 0 && study.ineligible < 24, "{}", study.ineligible);
    let all = study.groups.first().expect("all lines");
    assert!(all.conditions.is_empty());
    assert_eq!(all.lines, 24 - study.ineligible);
    assert_eq!((all.runs + all.runs_void) as usize, record.trials.len());
    assert!(all.runs_void > 0, "the premise: somebody else's upload made runs void");
    let voids = record.trials.iter().filter(|trial| trial.conditions["others"] == "1").count();
    assert!(all.runs_void as usize <= voids + all.runs as usize / 5, "{} void", all.runs_void);
    for (home, groups) in by_home(study) {
        for group in groups {
            let cut = group.cut_percent.as_ref().expect("a cut").mean;
            match home.as_str() {
                "unlimited" => assert!(cut >= 50.0, "{:?}: {cut}", group.conditions),
                _ => assert!(cut < 10.0, "{:?}: {cut}", group.conditions),
            }
        }
    }
    let homes = by_home(study).len();
    assert!(homes >= 3, "the premise: lines of several homes, {homes}");
}

#[test]
fn a_run_has_its_line_day_and_minute() {
    let mut scenario = short();
    scenario.repeats = 3;
    let record = run(&scenario, &Settings::default(), &mut ()).expect("a run").record;
    let again = run(&scenario, &Settings::default(), &mut ()).expect("a run").record;
    assert_eq!(record.trials, again.trials, "the same seed gives the same study");
    for trial in &record.trials {
        assert_eq!(trial.conditions["day"], "0");
        assert!(trial.conditions["minute"].parse::<u32>().expect("a minute") < 480);
        assert!(["XB7", "XB8"].contains(&trial.conditions["model"].as_str()));
    }
}
