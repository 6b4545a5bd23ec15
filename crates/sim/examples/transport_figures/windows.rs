//! Windows over time: Reno and CUBIC, alone and together; ends of slow start; BBR's cycles.

use std::error::Error;

use underload_aqm::time::Span;
use underload_report::diagram::{Curve, Panel, Scale};
use underload_sim::congestion::{Algorithm, SlowStartExit};
use underload_sim::flow::{FlowConfig, FlowKind};
use underload_sim::net::HopConfig;
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::run;

use crate::document::{Document, head, row, thin};
use crate::support::{State, bbr_alone, config, flow, gain_phases, goodput, watch};

pub fn draw(document: &mut Document) -> Result<(), Box<dyn Error>> {
    sawtooth(document)?;
    share(document)?;
    slow_start(document)?;
    bbr(document)
}

fn sawtooth(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let mut curves = Vec::new();
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let flows = vec![flow("flow", algorithm)];
        let config = config("fifo:limit=100000B", "20mbit:delay=40ms", flows, 60);
        let (_, states) = watch(config, Span::from_millis(100));
        let points = states.iter().map(|state| (state.seconds, state.window)).collect();
        curves.push(Curve::line(algorithm.name(), points));
    }
    let x = Scale::linear("time, s", 0.0..60.0);
    let y = Scale::linear("congestion window, segments", 0.0..300.0);
    let title = "Windows of Reno and CUBIC, each alone: 20 Mbit/s, 60 ms, queue of 100 kB";
    document.figure("sawtooth", title, vec![Panel { x, y, curves }])
}

/// Two flows of each algorithm at 20 Mbit/s behind CoDel.
fn share(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let mut table =
        head(&["round trip", "Reno, Mbit/s each", "CUBIC, Mbit/s each", "CUBIC / Reno"]).to_vec();
    let mut ratios = Vec::new();
    for rtt_ms in [10, 20, 40, 80, 120, 160, 200] {
        let flows = vec![
            flow("reno-0", Algorithm::Reno),
            flow("reno-1", Algorithm::Reno),
            flow("cubic-0", Algorithm::Cubic),
            flow("cubic-1", Algorithm::Cubic),
        ];
        let link = format!("20mbit:delay={}us", rtt_ms * 500);
        let mut config = config("codel:profile=linux", &link, flows, 300);
        let back = format!("1gbit:delay={}us", rtt_ms * 500);
        config.down = vec![HopConfig::parse("fifo:limit=10000p", &back)?];
        let outcome = run(config)?;
        let reno = f64::midpoint(goodput(&outcome, 0), goodput(&outcome, 1));
        let cubic = f64::midpoint(goodput(&outcome, 2), goodput(&outcome, 3));
        ratios.push((rtt_ms as f64, cubic / reno));
        table.push(row(&[
            format!("{rtt_ms} ms"),
            format!("{reno:.2}"),
            format!("{cubic:.2}"),
            format!("{:.2}", cubic / reno),
        ]));
    }
    document.numbers("share", &table)?;
    let curves = vec![
        Curve::line("CUBIC / Reno", ratios.clone()),
        Curve::rings("CUBIC / Reno", ratios),
        Curve::line("", vec![(0.0, 1.0), (200.0, 1.0)]),
    ];
    let x = Scale::linear("base round trip, ms", 0.0..205.0);
    let y = Scale::linear("ratio of goodputs", 0.0..4.0);
    let title = "CUBIC beside Reno, two flows each: 20 Mbit/s, CoDel";
    document.figure("share", title, vec![Panel { x, y, curves }])
}

fn slow_start(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let exits = [
        ("loss", SlowStartExit::Loss),
        ("HyStart", SlowStartExit::HyStart),
        ("HyStart++", SlowStartExit::HyStartPlusPlus),
    ];
    let mut table = head(&["ended by", "largest window", "segments sent again"]).to_vec();
    let mut curves = Vec::new();
    for (name, exit) in exits {
        let algorithm = Algorithm::Reno;
        let tcp = TcpConfig { algorithm, slow_start_exit: exit, ..TcpConfig::default() };
        let flows = vec![FlowConfig::new("flow", FlowKind::Tcp(tcp))];
        let config = config("fifo:limit=1000000B", "20mbit:delay=20ms", flows, 4);
        let (outcome, states) = watch(config, Span::from_millis(20));
        let largest = states.iter().map(|state| state.window).fold(0.0, f64::max);
        let again = outcome.record.flows[0].retransmits.unwrap_or(0);
        table.push(row(&[name.to_owned(), format!("{largest:.0}"), again.to_string()]));
        let points = states.iter().map(|state| (state.seconds, state.window)).collect();
        curves.push(Curve::line(name, points));
    }
    document.numbers("slow-start", &table)?;
    let x = Scale::linear("time, s", 0.0..4.0);
    let y = Scale::linear("congestion window, segments", 0.0..1_500.0);
    let title = "The end of slow start in a deep queue: Reno, 20 Mbit/s, 40 ms, 1 MB";
    document.figure("slow-start", title, vec![Panel { x, y, curves }])
}

fn bbr(document: &mut Document) -> Result<(), Box<dyn Error>> {
    let states = bbr_alone(45);
    let between = |from: f64, to: f64| {
        let states = states.iter().filter(move |state| (from..to).contains(&state.seconds));
        states.copied().collect::<Vec<State>>()
    };
    let phases = gain_phases(&between(3.0, 9.5));
    let median = |gain: f64| {
        let of_gain = |phase: &&(f64, usize)| (phase.0 - gain).abs() < 0.01;
        let mut lengths: Vec<usize> = phases.iter().filter(of_gain).map(|phase| phase.1).collect();
        lengths.sort_unstable();
        lengths[lengths.len() / 2]
    };
    let low = |state: &State| state.seconds > 1.0 && state.in_flight <= 4.0;
    let probes: Vec<(f64, usize)> = states
        .chunk_by(|a, b| low(a) == low(b))
        .filter(|chunk| low(&chunk[0]) && chunk.len() > 20)
        .map(|chunk| (chunk[0].seconds, chunk.len()))
        .collect();
    let mut table = vec!["| what | measured |".to_owned(), "|---|---|".to_owned()];
    table.push(format!(
        "| phases at 1.25, 0.75 and 1, medians | {}, {} and {} ms |",
        median(1.25),
        median(0.75),
        median(1.0)
    ));
    let starts: Vec<String> = probes.iter().map(|(start, _)| format!("{start:.1}")).collect();
    let lengths: Vec<String> = probes.iter().map(|(_, length)| length.to_string()).collect();
    table.push(format!("| at most four segments in flight from | {} s |", starts.join(", ")));
    table.push(format!("| for | {} ms |", lengths.join(", ")));
    document.numbers("bbr", &table)?;
    let curve = |name: &str, of: fn(&State) -> f64, states: &[State]| {
        let points = states.iter().map(|state| (state.seconds, of(state))).collect();
        Curve::line(name, thin(points, 900))
    };
    let panels = vec![
        Panel {
            x: Scale::linear("time, s", 4.0..6.0),
            y: Scale::linear("Mbit/s", 0.0..30.0),
            curves: vec![curve("pacing rate", |state| state.pacing, &between(4.0, 6.0))],
        },
        Panel {
            x: Scale::linear("time, s", 0.0..45.0),
            y: Scale::linear("segments", 0.0..250.0),
            curves: vec![curve("in flight", |state| state.in_flight, &states)],
        },
    ];
    document.figure("bbr", "BBR alone: 20 Mbit/s, 40 ms, queue of 1 MB", panels)
}
