//! A custom congestion control behaves like the built-in one with the same code: BBR, which owns
//! its window, and Reno, whose window the transport reduces.

mod support;

use std::sync::Arc;

use underload_aqm::time::Span;
use underload_sim::congestion::{Algorithm, Bbr, CongestionControl, OwnControl, Reno, Setup};
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::tcp::TcpConfig;

use support::{config, up_link, watch};

fn own(make: fn(Setup) -> Box<dyn CongestionControl>, like: Algorithm) -> FlowConfig {
    let own = OwnControl { name: "own:mine".to_owned(), make: Arc::new(make) };
    // With an own control only the algorithm's exit from slow start is used.
    let tcp = TcpConfig { own: Some(own), ..TcpConfig::of(like) };
    FlowConfig::new("tcp", FlowKind::Tcp(tcp))
}

#[test]
fn a_copied_congestion_control_gives_the_same_trial() {
    let bbr = own(|setup| Box::new(Bbr::new(setup)), Algorithm::Bbr);
    let reno = own(|setup| Box::new(Reno::new(setup.slow_start_exit)), Algorithm::Reno);
    for (own, algorithm) in [(bbr, Algorithm::Bbr), (reno, Algorithm::Reno)] {
        let of = |flow: FlowConfig| {
            let trial = config("fifo:limit=60p", "12mbit:delay=20ms", vec![flow], 8);
            let (outcome, states) = watch(trial, Span::from_millis(50));
            let course: Vec<_> = states.iter().map(|it| (it.window, it.pacing)).collect();
            (up_link(&outcome).clone(), course, outcome.record.flows[0].congestion_control.clone())
        };
        let (mine, windows, name) = of(own);
        let (theirs, known, _) = of(support::flow("tcp", algorithm));
        assert_eq!((mine, windows), (theirs, known), "{}", algorithm.name());
        assert_eq!(name.as_deref(), Some("own:mine"));
    }
}
