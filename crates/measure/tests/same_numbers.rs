//! A dozen measurements and their numbers. The code that this crate replaced in commit dece21a
//! computed the same numbers.

use underload_measure::step;
use underload_probe::control::SessionNews;
use underload_probe::load::FlowLog;
use underload_probe::measure::{MeasurementConfig, MeasurementResult, RampEnd};
use underload_probe::preset::Step;
use underload_record::schema::{
    Distribution, FlowRecord, Phase, PhaseWindow, Quantile, Sample, Timeliness,
};

/// A change of [`plain`]; p50, p90, p99, maximum (ms) and loss (%) under load; p50 idle (ms),
/// goodput down and up (Mbit/s), buffer (KiB) and RPM; and why the result is invalid.
type Case = (fn(&mut MeasurementResult), &'static str, &'static str, &'static [&'static str]);

const MS: u64 = 1_000_000;
const LOAD: &str = "52.347 84.140 91.707 92.793 0.000";
const LOSS: &str = "52.347 84.136 91.687 92.793 2.600";
const MORE: &str = "53.261 84.087 91.687 92.745 24.900";
const FEW: &str = "53.329 85.169 - 91.740 0.000";
const RATES: &str = "12.455 40.000 - 400.869 1063.000";
const SLOTS: &str = "13 of 1200 probe slots missed (limit 1 %)";
const CPU: &str = "a thread of the run waited for a CPU 61 % of the time (limit 25 %)";
const LATE: &str = "the prober was 2.5 ms late at p99 (limit 1.0 ms)";
const BROKE: &str = "flow down-0 broke: reset";
const CASES: [Case; 12] = [
    (|_| (), LOAD, RATES, &[]),
    (|it| it.samples = probes(80_000, 40), LOSS, "12.455 40.000 - 400.768 1064.000", &[]),
    (|it| it.samples = probes(80_000, 4), MORE, "12.455 40.000 - 400.768 1064.000", &[]),
    (|it| it.samples = probes(3_000, 1), "- - - - 100.000", "12.455 40.000 - - -", &[]),
    (|it| it.samples.truncate(260), FEW, "12.455 40.000 - - 1053.000", &[]),
    (|it| it.flows.push(flow(None, Some(90_000))), LOAD, "12.455 40.090 - 401.771 1063.000", &[]),
    (|it| it.flows.push(flow(Some(9_500_000), None)), LOAD, "12.455 40.000 9.500 - 1063.000", &[]),
    (|it| it.phases.truncate(1), "", "12.455 40.000 - - -", &[]),
    (|it| it.samples.clear(), "", "- 40.000 - - -", &[]),
    (|it| it.timeliness.probe_slots_missed = 13, LOAD, RATES, &[SLOTS]),
    (|it| it.timeliness.probe_slots_missed = 12, LOAD, RATES, &[]),
    (late_and_broken, LOAD, RATES, &[LATE, CPU, BROKE]),
];

/// Returns a pseudorandom number below `limit`.
fn scattered(number: u64, limit: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % limit
}

/// A second of idle probes and five of loaded ones, one every 5 ms. The load adds up to `added_us`,
/// and one of `lost` loaded probes is lost.
fn probes(added_us: u64, lost: u64) -> Vec<Sample> {
    let sample = |number: u64| {
        let (is_idle, time_ns) = (number < 200, number * 5 * MS);
        let load_us = if is_idle { 0 } else { scattered(number + 7, added_us) };
        let rtt_ns = 12 * MS + (scattered(number, 900) + load_us) * 1_000;
        let is_lost = !is_idle && scattered(number + 99, lost) == 0;
        let phase = if is_idle { Phase::Idle } else { Phase::Load };
        let rtt_ns = (!is_lost).then_some(rtt_ns);
        Sample { phase, scheduled_ns: time_ns, sent_ns: time_ns, rtt_ns, ..Sample::default() }
    };
    (0..1_200).map(sample).collect()
}

fn flow(goodput_up_bit_per_s: Option<u64>, goodput_down_bit_per_s: Option<u64>) -> FlowRecord {
    FlowRecord { goodput_up_bit_per_s, goodput_down_bit_per_s, ..FlowRecord::default() }
}

fn late_and_broken(it: &mut MeasurementResult) {
    it.incomplete.push(BROKE.to_owned());
    it.timeliness.cpu_pressure_percent = Some(61.0);
    it.timeliness.prober_lateness =
        Some(Distribution { count: 1_200, p99_ns: 2_500_000, ..<_>::default() });
}

/// A load down of 40 Mbit/s that adds up to 80 ms and loses no probe.
fn plain() -> MeasurementResult {
    let window = |phase, start_ns, end_ns| PhaseWindow { phase, start_ns, end_ns };
    let mut load = FlowLog::default();
    for number in 0..50 {
        let rtt_us = 60_000 + scattered(number, 9_000) as u32;
        load.round_trips.note((1_000 + number * 100) * MS, rtt_us);
    }
    MeasurementResult {
        samples: probes(80_000, u64::MAX),
        phases: vec![
            window(Phase::Idle, 0, 1_000 * MS),
            window(Phase::Load, 1_000 * MS, 6_000 * MS),
        ],
        flows: vec![flow(None, None), flow(None, Some(40_000_000))],
        loads: vec![load],
        series: Vec::new(),
        timeliness: Timeliness { probe_slots_planned: 1_200, ..Timeliness::default() },
        ramp_end: RampEnd::Fixed,
        incomplete: Vec::new(),
        cancelled: false,
        load_spent: false,
        ce_alarms: Vec::new(),
        probe_counts: Vec::new(),
        inside: Vec::new(),
        clock_offset: None,
    }
}

#[test]
fn numbers_equal_those_of_the_code_that_this_crate_replaced() {
    let words = |numbers: [Option<f64>; 5]| {
        numbers.map(|it| it.map_or("-".to_owned(), |it| format!("{it:.3}"))).join(" ")
    };
    for (number, (change, load, rates, invalid_because)) in CASES.into_iter().enumerate() {
        let mut measured = plain();
        change(&mut measured);
        let (name, label, config) = (String::new(), String::new(), MeasurementConfig::default());
        let preset = Step { name, label, config };
        let it = step(&preset, measured, None, &SessionNews::default()).finding;
        let found = it.headline(Phase::Load);
        let found = found.map(|it| {
            let ms = |quantile| it.told_ns(quantile).map(|ns| ns as f64 / 1e6);
            let [p50, p90, p99, max] =
                [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::Max].map(ms);
            [p50, p90, p99, max, Some(it.lost_percent())]
        });
        assert_eq!(found.map(words).unwrap_or_default(), load, "case {number}");
        let idle_ns = it.headline(Phase::Idle).and_then(|it| it.told_ns(Quantile::P50));
        let idle_ms = idle_ns.map(|ns| ns as f64 / 1e6);
        let (down, up, rpm) = (it.goodput_down_mbit_s, it.goodput_up_mbit_s, it.rpm);
        let rpm = rpm.map(|rpm| rpm.draft_09);
        assert_eq!(words([idle_ms, down, up, it.buffer_kib, rpm]), rates, "case {number}");
        assert_eq!(it.invalid_because, invalid_because, "case {number}");
    }
}
