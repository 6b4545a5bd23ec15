//! Time series of one trial per variant: latency, backlog, throughput, drops and marks.

use underload_record::schema::{
    Direction, FlowRecord, Phase, Series, SeriesKind, SeriesPoint, TrialRecord,
};

use super::Plot;
use super::canvas::{Across, Along, Canvas, Ink, style};
use super::chart::{self, Panel, WIDTH};
use super::scale::Scale;
use crate::subject::Subject;
use crate::words::{capital, list};

/// Maximum number of variants with time plots: a longer page would not be read.
pub(crate) const MOST_TIMELINES: usize = 12;

/// Buckets along the time axis, about one per pixel.
const BUCKETS: usize = 400;

const PANEL: u32 = 128;

/// Draws one figure per variant, all on the same scales.
pub(super) fn timelines(subjects: &[Subject<'_>]) -> Vec<Plot> {
    let recorded: Vec<Timeline<'_>> =
        subjects.iter().take(MOST_TIMELINES).filter_map(Timeline::of).collect();
    let kinds = Kind::all();
    let limits: Vec<f64> = kinds
        .iter()
        .map(|kind| recorded.iter().map(|timeline| timeline.largest(*kind)).fold(0.0, f64::max))
        .collect();
    let shown: Vec<(Kind, f64)> = kinds
        .into_iter()
        .zip(limits)
        .filter(|(kind, _)| recorded.iter().any(|timeline| timeline.has(*kind)))
        .collect();
    if shown.is_empty() {
        return Vec::new();
    }
    recorded.iter().map(|timeline| timeline.plot(&shown)).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    RoundTrip,
    Sojourn(Direction),
    Backlog(Direction),
    Throughput(Direction),
    /// The rate of a shaper that follows the line.
    ShapedRate(Direction),
    /// Sum over the load flows, shown if no link was recorded.
    Goodput(Direction),
    DropsAndMarks(Direction),
}

impl Kind {
    fn all() -> Vec<Kind> {
        let mut kinds = vec![Kind::RoundTrip];
        for direction in [Direction::Up, Direction::Down] {
            kinds.push(Kind::Sojourn(direction));
            kinds.push(Kind::Backlog(direction));
            kinds.push(Kind::Throughput(direction));
            kinds.push(Kind::ShapedRate(direction));
            kinds.push(Kind::Goodput(direction));
            kinds.push(Kind::DropsAndMarks(direction));
        }
        kinds
    }

    fn name(self) -> String {
        match self {
            Kind::RoundTrip => "round-trip time, ms".to_owned(),
            Kind::Sojourn(direction) => format!("sojourn in the {direction} queue, ms"),
            Kind::Backlog(direction) => format!("backlog of the {direction} queue, KiB"),
            Kind::Throughput(direction) => format!("throughput of the {direction} link, Mbit/s"),
            Kind::ShapedRate(direction) => format!("rate of the {direction} shaper, Mbit/s"),
            Kind::Goodput(direction) => format!("goodput {direction}, Mbit/s"),
            Kind::DropsAndMarks(direction) => {
                format!("packets dropped (red) and marked in the {direction} queue")
            }
        }
    }

    /// Returns the recorded series, and the divisor that converts its values to the panel's unit.
    fn source(self) -> Option<(String, f64)> {
        match self {
            Kind::RoundTrip | Kind::Goodput(_) | Kind::DropsAndMarks(_) => None,
            Kind::Sojourn(direction) => Some((SeriesKind::Sojourn.name(direction), 1e6)),
            Kind::Backlog(direction) => Some((SeriesKind::Backlog.name(direction), 1024.0)),
            Kind::Throughput(direction) => Some((SeriesKind::Throughput.name(direction), 1e6)),
            Kind::ShapedRate(direction) => Some((format!("{direction}.shaped_rate"), 1e6)),
        }
    }
}

/// The trial that is shown for a variant.
struct Timeline<'a> {
    subject: &'a Subject<'a>,
    trial: &'a TrialRecord,
    end_ns: u64,
    round_trips: Vec<SeriesPoint>,
    lost_ns: Vec<u64>,
}

/// Returns the round trips of the loading connection itself, ms, for servers that answer no probes.
fn own_round_trips(subject: &Subject<'_>, trial: &TrialRecord, flow: &str) -> Vec<SeriesPoint> {
    let series = subject.run.series_of(trial.index, &format!("{flow}.rtt"));
    let points = series.map_or(&[][..], |series| series.points.as_slice());
    let in_ms = |point: &SeriesPoint| SeriesPoint { value: point.value / 1e6, ..*point };
    points.iter().map(in_ms).collect()
}

impl<'a> Timeline<'a> {
    fn of(subject: &'a Subject<'a>) -> Option<Timeline<'a>> {
        let trial = subject.representative()?;
        let headline = subject.summary.headline(Phase::Load);
        let probe = headline.map(|headline| headline.probe.as_str());
        let flow = trial.flows.iter().position(|flow| Some(flow.name.as_str()) == probe);
        let samples = || {
            let of_trial = subject.run.samples_of(trial.index).iter();
            of_trial.filter(move |sample| flow == Some(usize::from(sample.flow)))
        };
        let mut round_trips: Vec<SeriesPoint> = samples()
            .filter_map(|sample| {
                let value = sample.rtt_ns? as f64 / 1e6;
                Some(SeriesPoint { time_ns: sample.sent_ns, value })
            })
            .collect();
        let foreign = trial.finding.as_ref().and_then(|finding| finding.foreign.as_ref());
        if let Some(foreign) = foreign {
            round_trips = own_round_trips(subject, trial, &foreign.test);
        }
        let lost_ns = samples().filter(|sample| sample.rtt_ns.is_none());
        let series_end = subject.run.series.iter().filter(|series| series.trial == trial.index);
        let ends = series_end.filter_map(|series| series.points.last()).map(|point| point.time_ns);
        let phases_end = trial.phases.iter().map(|phase| phase.end_ns);
        let end_ns = ends.chain(phases_end).max().filter(|end| *end > 0)?;
        let lost_ns = lost_ns.map(|sample| sample.sent_ns).collect();
        Some(Timeline { subject, trial, end_ns, round_trips, lost_ns })
    }

    fn series(&self, kind: SeriesKind, direction: Direction) -> &[SeriesPoint] {
        let series = self.subject.run.series_of(self.trial.index, &kind.name(direction));
        series.map_or(&[], |series| series.points.as_slice())
    }

    /// Returns the curve of a panel in the panel's unit, reduced to extremes per bucket.
    fn curve(&self, kind: Kind) -> Vec<(f64, f64)> {
        if let Kind::Goodput(direction) = kind {
            return self.goodput(direction);
        }
        match kind.source() {
            None => thin(&self.round_trips, self.end_ns, 1.0),
            Some((name, divisor)) => {
                let series = self.subject.run.series_of(self.trial.index, &name);
                series.map_or(Vec::new(), |series| thin(&series.points, self.end_ns, divisor))
            }
        }
    }

    /// Returns the sum over the load flows' delivery, Mbit/s, once per bucket.
    fn goodput(&self, direction: Direction) -> Vec<(f64, f64)> {
        let is_of = |flow: &&FlowRecord| match direction {
            Direction::Up => flow.goodput_up_bit_per_s.is_some(),
            Direction::Down => flow.goodput_down_bit_per_s.is_some(),
        };
        let curve = |flow: &FlowRecord| {
            let name = format!("{}.goodput", flow.name);
            self.subject.run.series_of(self.trial.index, &name)
        };
        let flows: Vec<&Series> = self.trial.flows.iter().filter(is_of).filter_map(curve).collect();
        let links = self.series(SeriesKind::Throughput, direction);
        if flows.is_empty() || !links.is_empty() {
            return Vec::new();
        }
        let at = |bucket: usize| {
            let time_ns = (self.end_ns as f64 * (bucket as f64 + 0.5) / BUCKETS as f64) as u64;
            let sum: f64 = flows.iter().map(|flow| rate_at(&flow.points, time_ns)).sum();
            (time_ns as f64 / 1e9, sum / 1e6)
        };
        (0..BUCKETS).map(at).collect()
    }

    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::DropsAndMarks(direction) => [SeriesKind::Drops, SeriesKind::Marks]
                .into_iter()
                .any(|kind| !self.series(kind, direction).is_empty()),
            _ => !self.curve(kind).is_empty(),
        }
    }

    fn largest(&self, kind: Kind) -> f64 {
        let largest_of = |points: Vec<(f64, f64)>| {
            points.into_iter().map(|(_, value)| value).fold(0.0, f64::max)
        };
        match kind {
            Kind::DropsAndMarks(direction) => [SeriesKind::Drops, SeriesKind::Marks]
                .into_iter()
                .map(|kind| largest_of(sums(self.series(kind, direction), self.end_ns)))
                .fold(0.0, f64::max),
            _ => largest_of(self.curve(kind)),
        }
    }

    fn plot(&self, shown: &[(Kind, f64)]) -> Plot {
        // A step that loads one direction has no goodput in the other.
        let is_own = |(kind, _): &&(Kind, f64)| match kind {
            Kind::Goodput(_) | Kind::ShapedRate(_) => self.has(*kind),
            _ => true,
        };
        let shown: Vec<(Kind, f64)> = shown.iter().filter(is_own).copied().collect();
        let name = format!("timeline-{}", self.subject.position);
        let TrialRecord { index, repeat, .. } = self.trial;
        let lost = match self.lost_ns.len() {
            0 => String::new(),
            1 => " 1 probe lost (red tick).".to_owned(),
            lost => format!(" {lost} probes lost (red ticks)."),
        };
        let why = match self.subject.trials().count() {
            1 => "the only valid one",
            _ => "the one with the middle median working latency",
        };
        let whose = match &self.trial.finding {
            Some(finding) if finding.foreign.is_some() && !self.round_trips.is_empty() => {
                " Round trips are the loading connection's own, smoothed."
            }
            _ => "",
        };
        let label = self.subject.label_words();
        let caption = format!(
            "{label}Trial {index} (repeat {repeat}), {why}. Shaded: the load phase.{whose}{lost}"
        );
        let height = 8 + PANEL * shown.len() as u32 + 34;
        chart::plot(&name, self.title(&shown), caption, height, |canvas| {
            for (number, (kind, limit)) in shown.iter().enumerate() {
                let top = 8 + PANEL * number as u32;
                let is_last = number + 1 == shown.len();
                let bottom = if is_last { top + PANEL + 16 } else { top + PANEL };
                let x_name = if is_last { "time since the trial began, s" } else { "" };
                self.draw_panel(canvas, (top, bottom), x_name, (*kind, *limit));
            }
            self.draw_phase_names(canvas);
        })
    }

    /// Returns what is shown, and of which variant: the name of the picture for who cannot see it.
    fn title(&self, shown: &[(Kind, f64)]) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (kind, _) in shown {
            let part = match kind {
                Kind::RoundTrip => "round-trip time",
                Kind::Throughput(_) | Kind::ShapedRate(_) | Kind::Goodput(_) => "rate",
                Kind::Sojourn(_) | Kind::Backlog(_) | Kind::DropsAndMarks(_) => "queue",
            };
            if parts.iter().all(|it| it != part) {
                parts.push(part.to_owned());
            }
        }
        format!("{} over time: {}", capital(&list(&parts)), self.subject.heading())
    }

    fn draw_panel(
        &self,
        canvas: &mut Canvas,
        rows: (u32, u32),
        x_name: &str,
        (kind, limit): (Kind, f64),
    ) {
        let end = self.end_ns as f64 / 1e9;
        let counts = matches!(kind, Kind::DropsAndMarks(_));
        let name = if counts {
            format!("{}, per {:.0} ms", kind.name(), end * 1e3 / BUCKETS as f64)
        } else {
            kind.name()
        };
        // Packets are whole numbers, so the axis must not have fractions.
        let limit = if counts { limit.max(4.0) } else { limit };
        let x = Scale::linear(x_name, 0.0..end);
        let y = Scale::linear(&name, 0.0..chart::above(limit));
        let mut panel = Panel::new(canvas, rows, &x, &y);
        panel.describe(&[]);
        for phase in self.trial.phases.iter().filter(|phase| phase.phase == Phase::Load) {
            let (from, to) = (phase.start_ns as f64 / 1e9, phase.end_ns as f64 / 1e9);
            panel.bar((from, 0.0), (to.min(end), y.range.end), Ink::Band);
        }
        let solid = Ink::Solid(self.subject.position);
        let Kind::DropsAndMarks(direction) = kind else {
            panel.curve(&self.curve(kind), solid, 1.2);
            if kind == Kind::RoundTrip {
                for lost_ns in &self.lost_ns {
                    let at = *lost_ns as f64 / 1e9;
                    panel.curve(&[(at, 0.0), (at, y.range.end * 0.06)], Ink::Alert, 1.0);
                }
            }
            return;
        };
        let width = end / BUCKETS as f64;
        for (series, ink) in [(SeriesKind::Marks, solid), (SeriesKind::Drops, Ink::Alert)] {
            let bars = sums(self.series(series, direction), self.end_ns);
            for (at, value) in bars.into_iter().filter(|(_, value)| *value > 0.0) {
                panel.bar((at, 0.0), (at + width, value), ink);
            }
        }
    }

    fn draw_phase_names(&self, canvas: &mut Canvas) {
        let plot_width = f64::from(WIDTH - 64);
        for phase in &self.trial.phases {
            let middle = phase.start_ns.midpoint(phase.end_ns.min(self.end_ns));
            let x = 50.0 + (middle as f64 / self.end_ns as f64 * plot_width).floor();
            let share = phase.length_ns() as f64 / self.end_ns as f64;
            if share * plot_width > 34.0 && x > 200.0 {
                let style = style(10.0, Ink::Muted, Across::Center, Along::Bottom);
                canvas.text(phase.phase.name(), (x, 24.0), style);
            }
        }
    }
}

/// Returns the value of the interval that contains a time: a point's rate covers the time since the
/// point before it. Returns 0 before the first point and after the last.
fn rate_at(points: &[SeriesPoint], time_ns: u64) -> f64 {
    let next = points.partition_point(|point| point.time_ns < time_ns);
    let is_inside = next > 0 && next < points.len();
    if is_inside && points[next].value.is_finite() { points[next].value } else { 0.0 }
}

/// Returns the smallest and largest value per bucket of time, in time order, so that peaks survive.
fn thin(points: &[SeriesPoint], end_ns: u64, divisor: f64) -> Vec<(f64, f64)> {
    let usable = points.iter().filter(|point| point.value.is_finite() && point.time_ns <= end_ns);
    let at = |point: &SeriesPoint| (point.time_ns as f64 / 1e9, point.value / divisor);
    let usable: Vec<&SeriesPoint> = usable.collect();
    let mut thinned = Vec::new();
    for in_bucket in usable.chunk_by(|a, b| bucket(a.time_ns, end_ns) == bucket(b.time_ns, end_ns))
    {
        let by_value = |a: &&&SeriesPoint, b: &&&SeriesPoint| a.value.total_cmp(&b.value);
        let (low, high) = (in_bucket.iter().min_by(by_value), in_bucket.iter().max_by(by_value));
        let (Some(low), Some(high)) = (low, high) else { continue };
        let (first, second) = if low.time_ns <= high.time_ns { (low, high) } else { (high, low) };
        thinned.push(at(first));
        if first.time_ns != second.time_ns {
            thinned.push(at(second));
        }
    }
    thinned
}

/// Returns the sum per bucket of time, at the bucket's start in seconds.
fn sums(points: &[SeriesPoint], end_ns: u64) -> Vec<(f64, f64)> {
    let usable = points.iter().filter(|point| point.value.is_finite() && point.time_ns <= end_ns);
    let mut sums: Vec<(usize, f64)> = Vec::new();
    for point in usable {
        let bucket = bucket(point.time_ns, end_ns);
        match sums.last_mut() {
            Some((last, sum)) if *last == bucket => *sum += point.value,
            _ => sums.push((bucket, point.value)),
        }
    }
    let width = end_ns as f64 / 1e9 / BUCKETS as f64;
    sums.into_iter().map(|(bucket, sum)| (bucket as f64 * width, sum)).collect()
}

fn bucket(time_ns: u64, end_ns: u64) -> usize {
    let bucket = u128::from(time_ns) * BUCKETS as u128 / u128::from(end_ns.max(1));
    (bucket as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_peak() {
        let point = |time_ns: u64| {
            let value = if time_ns == 7_777 { 900.0 } else { (time_ns % 10) as f64 };
            SeriesPoint { time_ns, value }
        };
        let points: Vec<SeriesPoint> = (0..100_000).map(point).collect();
        let thinned = thin(&points, 100_000, 1.0);
        assert!(thinned.len() <= 2 * BUCKETS);
        assert!(thinned.iter().any(|(_, value)| *value >= 900.0));
        assert!(thinned.is_sorted_by(|a, b| a.0 <= b.0), "time goes on");
    }

    #[test]
    fn sums_per_bucket_count_every_packet() {
        let points: Vec<SeriesPoint> =
            (0..5000).map(|time_ns| SeriesPoint { time_ns, value: 1.0 }).collect();
        let total: f64 = sums(&points, 4_999).iter().map(|(_, sum)| sum).sum();
        assert!((total - 5000.0).abs() < 1e-9);
    }
}
