//! Algorithms that the caller provides run like built-in ones; a scenario whose algorithm is
//! missing is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use underload_aqm::aqm::Verdict;
use underload_aqm::packet::Meta;
use underload_aqm::qdisc::Backlog;
use underload_aqm::queue::own::Judge;
use underload_aqm::time::{Span, Time};
use underload_record::schema::World;
use underload_run::sweep::Sweep;
use underload_run::{Destination, Settings, WorldChoice, run};
use underload_scenario::own::Own;
use underload_scenario::source::Source;
use underload_scenario::{Keys, Scenario};

const SPEC: &str = "own:bode,limit=1000p";

/// BoDe with a bound of 5 ms.
struct Bode;

impl Judge for Bode {
    fn on_dequeue(&mut self, now: Time, meta: &Meta, backlog: Backlog) -> Verdict {
        let in_time = now.since(meta.arrived) < Span::from_millis(5);
        if in_time || backlog.packets <= 3 { Verdict::Pass } else { Verdict::Drop }
    }
}

fn scenario() -> Scenario {
    Scenario::build("own")
        .path(Keys::new().set("up", "10mbit").set("rtt", "20ms"))
        .phases(Keys::new().set("load", "2s"))
        .flow("upload", "tcp", Keys::new().set("congestion_control", "cubic"))
        .flow("probe", "probe", Keys::new().set("interval", "10ms"))
        .variant("own", Keys::new().set("path.up_queue", SPEC))
        .variant("built-in", Keys::new().set("path.up_queue", "bode:bound=5ms"))
        .finish()
        .expect("a scenario")
}

fn brought() -> Settings {
    let own = Own::default().queue(SPEC, Arc::new(|_, _| Box::new(Bode))).expect("a SPEC");
    Settings { own, ..Settings::default() }
}

#[test]
fn a_custom_queue_gives_the_fates_of_the_built_in_one() {
    let record = run(&scenario(), &brought(), &mut ()).expect("a run").record;
    let [own, built_in] = [&record.trials[0], &record.trials[1]];
    assert_eq!(own.latencies, built_in.latencies);
    assert!(own.bottlenecks[0].queue.starts_with(SPEC), "{}", own.bottlenecks[0].queue);
    let drops = |variant: &str| underload_record::metric_of(&record, variant, "drops.up");
    assert!(drops("own").is_some_and(|percent| percent > 0.0), "the premise: it drops");
    assert_eq!(drops("own"), drops("built-in"));
}

#[test]
fn a_missing_custom_algorithm_is_refused_before_the_run() {
    let scenario = scenario();
    let error = run(&scenario, &Settings::default(), &mut ()).expect_err("nobody has it");
    assert!(error.is_refusal());
    assert!(
        error.to_string().starts_with("own: variant own: `own:bode,limit=1000p` is not"),
        "{error}"
    );
    assert_eq!(scenario.worlds(), [World::Sim]);
    let live = Settings { world: WorldChoice::Live, ..brought() };
    assert!(run(&scenario, &live, &mut ()).expect_err("not live").is_refusal());
    let folder = tempfile::tempdir().expect("a folder");
    let resume = Settings { destination: Destination::Resume(folder.path().into()), ..brought() };
    let error = run(&scenario, &resume, &mut ()).expect_err("not resumed");
    assert!(error.to_string().contains("cannot be resumed"), "{error}");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
}

#[test]
fn a_sweep_refuses_custom_algorithms() {
    let source = Source { name: "own".to_owned(), text: scenario().text };
    let text = "[[axis]]\nkey = \"path.up\"\nvalues = [\"5mbit\"]\n";
    let error = Sweep::parse(text, "a sweep", Some(source), "test", BTreeMap::new());
    let error = error.expect_err("not swept");
    assert!(error.to_string().contains("only algorithms of this program"), "{error}");
}
