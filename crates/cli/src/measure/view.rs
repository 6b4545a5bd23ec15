//! Progress of a measurement on stderr: a live picture on a terminal, otherwise a line per phase.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use underload_probe::measure::Progress;
use underload_probe::preset::Step;
use underload_record::schema::{
    Finding, LatencyMeasure, LatencySummary, PerDirection, Phase, Quantile,
};
use underload_terminal::console::note;

use crate::present::print_line;

pub struct View {
    bar: ProgressBar,
    steps: usize,
    done: usize,
    title: String,
    /// Goodput down and up.
    rates: PerDirection<Curve>,
    classes: Vec<Curve>,
    rate: RateMeter,
    phase: Option<Phase>,
}

/// A number that is drawn while it changes: a rate, or the median round trip of a class of probes.
struct Curve {
    name: String,
    unit: &'static str,
    /// Recent values, oldest first. `None` if no probe returned.
    history: VecDeque<Option<f64>>,
    recent: Option<f64>,
}

/// Columns of a curve, each 100 ms.
const CURVE: usize = 50;
const NAME_COLUMNS: usize = 20;

impl View {
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            steps: 0,
            done: 0,
            title: String::new(),
            rates: Curve::of_rates(),
            classes: Vec::new(),
            rate: RateMeter::default(),
            phase: None,
        }
    }

    fn picture(&self, progress: &Progress) -> String {
        let (at, of) = (progress.in_phase.as_secs_f64(), progress.phase_max.as_secs_f64());
        let pressure = progress
            .cpu_pressure_percent
            .map_or("-".to_owned(), |percent| format!("{percent:.0} %"));
        let late_ms = progress.lateness_ns as f64 / 1e6;
        let mut lines = vec![
            self.title.clone(),
            format!(
                "  {:<6} {} {at:.1} of {} s",
                progress.phase,
                filled(at / of.max(1e-9)),
                seconds(of)
            ),
            format!("  this machine: waits for a CPU {pressure}, probes {late_ms:.2} ms late"),
        ];
        let rates = self.rates.iter().map(|(_, rate)| rate);
        lines.extend(rates.chain(&self.classes).map(Curve::line));
        lines.join("\n")
    }
}

impl underload_line::Progress for View {
    fn note(&mut self, text: &str) {
        note!("{text}");
    }

    fn start(&mut self, steps: &[Step]) {
        self.steps = steps.len();
    }

    fn begin_step(&mut self, step: &Step) {
        // A step may be measured twice.
        self.done = step.config.trial as usize + 1;
        self.phase = None;
        self.rate = RateMeter::default();
        self.title = format!("[{}/{}] {}: {}", self.done, self.steps, step.name, step.label);
        self.rates = Curve::of_rates();
        let probes = step.config.probe.classes.iter();
        self.classes = probes.map(|probe| Curve::new(&probe.name, "ms")).collect();
        if self.bar.is_hidden() {
            note!("{}", self.title);
        }
    }

    fn update(&mut self, progress: &Progress) {
        self.rate.note(Instant::now(), progress.bytes_up, progress.bytes_down);
        let (up, down) = self.rate.mbit_per_s();
        self.rates.up.note(Some(up));
        self.rates.down.note(Some(down));
        for (class, median) in self.classes.iter_mut().zip(&progress.recent_medians_ns) {
            class.note(median.map(|median_ns| median_ns as f64 / 1e6));
        }
        if !self.bar.is_hidden() {
            self.bar.set_message(self.picture(progress));
            self.bar.tick();
        } else if self.phase != Some(progress.phase) {
            let most = progress.phase_max.as_secs_f64();
            note!("  {}: up to {} s", progress.phase, seconds(most));
        }
        self.phase = Some(progress.phase);
    }

    fn end_step(&mut self, finding: &Finding) {
        let mut lines = Vec::new();
        if !self.bar.is_hidden() {
            lines.push(self.title.clone());
        }
        let is_round_trip = |it: &&LatencySummary| it.measure == LatencyMeasure::RoundTrip;
        lines.extend(finding.latencies.iter().filter(is_round_trip).map(line));
        let verdict = if finding.uncertain { "UNCERTAIN" } else { "INVALID" };
        let reasons = finding.invalid_because.iter();
        lines.extend(reasons.map(|reason| format!("  {verdict}: {reason}")));
        for text in lines {
            print_line(&self.bar, &text);
        }
    }

    fn close(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Formats seconds without a decimal if they are whole.
fn seconds(value: f64) -> String {
    if (value - value.round()).abs() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn line(latency: &LatencySummary) -> String {
    let ms = |quantile| {
        let ns = latency.told_ns(quantile);
        ns.map_or("-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6))
    };
    let is_p95 = |(quantile, _): &(Quantile, i64)| *quantile == Quantile::P95;
    let high = latency.highest_answered().filter(is_p95).map_or(Quantile::P99, |it| it.0);
    let [p50, p90, highest, max] = [Quantile::P50, Quantile::P90, high, Quantile::Max].map(ms);
    let LatencySummary { probe, window, sent, .. } = latency;
    let (phase, high, lost) = (window.phase, high.name(), latency.lost_percent());
    format!(
        "  {phase:<5} {probe:<NAME_COLUMNS$} p50 {p50} p90 {p90} {high} {highest} max {max} ms, \
         {sent} probes, {lost:.1} % lost"
    )
}

impl Curve {
    fn new(name: &str, unit: &'static str) -> Self {
        Self { name: name.to_owned(), unit, history: VecDeque::new(), recent: None }
    }

    fn of_rates() -> PerDirection<Self> {
        PerDirection::new(Self::new("rate up", "Mbit/s"), Self::new("rate down", "Mbit/s"))
    }

    fn note(&mut self, value: Option<f64>) {
        self.recent = value.or(self.recent);
        self.history.push_back(value);
        while self.history.len() > CURVE {
            self.history.pop_front();
        }
    }

    fn line(&self) -> String {
        let value = self.recent.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let known = self.history.iter().flatten();
        let largest = known.fold(0.0_f64, |largest, value| largest.max(*value));
        let block = |value: f64| block(value / largest.max(f64::MIN_POSITIVE));
        let curve: String = self.history.iter().map(|value| value.map_or('×', block)).collect();
        let Self { name, unit, .. } = self;
        format!(
            "  {name:<NAME_COLUMNS$} {value:>8} {unit:<6} {curve:<CURVE$} top {largest:.1} {unit}"
        )
    }
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn block(share: f64) -> char {
    let index = (share.clamp(0.0, 1.0) * 8.0) as usize;
    BLOCKS[index.min(7)]
}

/// Returns a bar of twenty columns.
fn filled(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * 20.0).round() as usize;
    format!("{}{}", "━".repeat(full), "─".repeat(20 - full))
}

/// Throughput of the last second.
#[derive(Default)]
struct RateMeter(VecDeque<(Instant, u64, u64)>);

const RATE_WINDOW: Duration = Duration::from_secs(1);

impl RateMeter {
    fn note(&mut self, now: Instant, bytes_up: u64, bytes_down: u64) {
        self.0.push_back((now, bytes_up, bytes_down));
        while self.0.len() > 2 && now.duration_since(self.0[0].0) > RATE_WINDOW {
            self.0.pop_front();
        }
    }

    /// Goodput up and down, Mbit/s.
    fn mbit_per_s(&self) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return (0.0, 0.0) };
        let seconds = last.0.duration_since(first.0).as_secs_f64();
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 * 8.0 / 1e6 / seconds;
        (rate(first.1, last.1), rate(first.2, last.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_print_with_a_decimal_where_it_matters() {
        let values = [0.1, 0.5, 1.5, 2.0, 60.0, 7.02].map(seconds);
        assert_eq!(values, ["0.1", "0.5", "1.5", "2", "60", "7"]);
    }

    #[test]
    fn the_curve_scales_to_its_largest_value_and_shows_gaps() {
        let mut class = Curve::new("probe", "ms");
        for value in [Some(1.0), None, Some(80.0)] {
            class.note(value);
        }
        let line = class.line();
        assert!(line.contains("   80.00 ms     ▁×█"), "{line}");
        assert!(line.ends_with("top 80.0 ms"), "{line}");
        let mut idle = Curve::of_rates().up;
        idle.note(Some(0.0));
        assert!(idle.line().contains("0.00 Mbit/s ▁"), "{}", idle.line());
    }

    #[test]
    fn the_picture_draws_the_rates_and_each_class() {
        let mut view = View::new();
        view.classes = vec![Curve::new("probe", "ms")];
        let mut progress = Progress {
            phase: Phase::Load,
            in_phase: Duration::ZERO,
            phase_max: Duration::from_secs(10),
            bytes_up: 0,
            bytes_sent: 0,
            bytes_down: 0,
            probes_sent: 0,
            probes_answered: 0,
            recent_medians_ns: vec![None],
            lateness_ns: 0,
            cpu_pressure_percent: None,
        };
        for bytes in [0, 1_000_000] {
            progress.bytes_down = bytes;
            underload_line::Progress::update(&mut view, &progress);
        }
        let picture = view.picture(&progress);
        for name in ["rate up", "rate down", "probe"] {
            assert!(picture.lines().any(|line| line.trim_start().starts_with(name)), "{picture}");
        }
    }

    #[test]
    fn the_rate_is_of_the_last_second() {
        let mut meter = RateMeter::default();
        let start = Instant::now();
        for step in 0..30_u64 {
            meter.note(start + Duration::from_millis(100 * step), step * 125_000, 0);
        }
        let (up, down) = meter.mbit_per_s();
        assert!((up - 10.0).abs() < 1e-6 && down == 0.0, "{up}");
    }
}
