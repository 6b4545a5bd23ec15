//! `underload shape show`: what the queues of shaped devices do.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use underload_aqm::rate::Rate;
use underload_line::history::escape_label;
use underload_shape::machine::{Session, Shaped, Standing};
use underload_shape::rate::requested;
use underload_tc::printed::{Class, Counts, Reading};
use underload_terminal::console;
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity;

use crate::present::write_for_collector;

#[derive(Debug, Args)]
#[command(after_help = "\
Counts are those since the device is shaped. The delay is that which the queue measures of recent
packets (CAKE, CoDel, PIE).

Examples:
  underload shape show
  underload shape show --every 1s
  underload shape show --prometheus /var/lib/node_exporter/shape.prom
  underload shape show --json | jq '.devices[].up.counts.dropped'")]
pub struct Arguments {
    /// Prints JSON; with --every, a document on each line.
    #[arg(long)]
    json: bool,
    /// Writes the counts in Prometheus' text format; - is stdout.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "every"])]
    prometheus: Option<PathBuf>,
    /// Shows the present rates again and again, until Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct Document {
    devices: Vec<DeviceView>,
}

#[derive(Debug, Serialize)]
struct DeviceView {
    device: String,
    /// `confirmed`, `pending`, `temporary`, `late` or `lost`.
    state: &'static str,
    /// Seconds until the change is undone; only if the state is `pending` or `temporary`.
    undone_in_s: Option<f64>,
    queue: String,
    up: Option<Way>,
    down: Option<Way>,
}

/// Rates and counts of one direction.
#[derive(Debug, Serialize)]
struct Way {
    /// The rate to which the direction is shaped, bit/s.
    limit_bit_per_s: u64,
    /// The rate at which it was sent since the reading before; `None` for the first.
    rate_bit_per_s: Option<u64>,
    counts: Counts,
    /// The classes of CAKE.
    classes: Vec<Class>,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let session = Session::open()?;
        if let Some(path) = &self.prometheus {
            return write_for_collector(path, &document(&session, None)?.to_prometheus());
        }
        let Some(every) = self.every else {
            let document = document(&session, None)?;
            return if self.json {
                console::print_json(&document)
            } else {
                console::print(&document.to_text())
            };
        };
        let interrupt = Interrupt::watch()?;
        let mut before: Option<(Instant, Document)> = None;
        while !interrupt.is_requested() {
            let now = Instant::now();
            let since = before.as_ref().map(|(then, document)| (now - *then, document));
            let document = document(&session, since)?;
            if self.json {
                console::print(&format!("{}\n", serde_json::to_string(&document)?))?;
            } else {
                console::print(&document.to_lines())?;
            }
            before = Some((now, document));
            sleep(every, &interrupt);
        }
        Ok(())
    }
}

/// Sleeps for `time`, or until Ctrl-C.
fn sleep(time: Duration, interrupt: &Interrupt) {
    let end = Instant::now() + time;
    while !interrupt.is_requested() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Reads all shaped devices. Rates are those since the document before.
fn document(session: &Session, before: Option<(Duration, &Document)>) -> anyhow::Result<Document> {
    let devices = session.list()?.into_iter().map(|shaped| {
        let old = before.and_then(|(elapsed, document)| {
            let name = &shaped.record.device;
            let old = document.devices.iter().find(|view| view.device == *name)?;
            Some((elapsed, old))
        });
        view(shaped, old)
    });
    Ok(Document { devices: devices.collect() })
}

fn view(shaped: Shaped, before: Option<(Duration, &DeviceView)>) -> DeviceView {
    let Shaped { record, name, standing, up, down } = shaped;
    let old = |way: fn(&DeviceView) -> &Option<Way>| {
        before.and_then(|(elapsed, view)| Some((elapsed, way(view).as_ref()?)))
    };
    let limit = |first: Option<u64>, queues: &[Reading]| {
        // `auto` changes the rates of the queues alone.
        let present = requested(&queues.first()?.qdisc, record.overhead);
        present.map(Rate::bits_per_second).or(first)
    };
    let (up_limit, down_limit) =
        (limit(record.up_bit_per_s, &up), limit(record.down_bit_per_s, &down));
    let up = up_limit.and_then(|limit| way(limit, up, old(|view| &view.up)));
    let down = down_limit.and_then(|limit| way(limit, down, old(|view| &view.down)));
    let (state, undone_in_s) = match standing {
        Standing::Confirmed => ("confirmed", None),
        Standing::Pending { left } => ("pending", Some(left.as_secs_f64())),
        Standing::Temporary { left } => ("temporary", Some(left.as_secs_f64())),
        Standing::Late => ("late", None),
        Standing::Lost | Standing::Undone => ("lost", None),
    };
    let device = name.unwrap_or(record.device);
    DeviceView { device, state, undone_in_s, queue: record.queue, up, down }
}

/// Returns a direction out of its queues, root first; `None` if they are gone.
fn way(
    limit_bit_per_s: u64,
    readings: Vec<Reading>,
    before: Option<(Duration, &Way)>,
) -> Option<Way> {
    let mut counts = readings.first()?.counts;
    // Below a rate limit, the queue itself marks and measures; below `cake_mq` each of its parts.
    for Counts { marked, delay_us, .. } in readings[1..].iter().map(|reading| reading.counts) {
        counts.marked = [counts.marked, marked].into_iter().flatten().reduce(|a, b| a + b);
        counts.delay_us = counts.delay_us.max(delay_us);
    }
    let rate_bit_per_s = before.and_then(|(elapsed, old)| {
        let bytes = counts.sent_bytes.checked_sub(old.counts.sent_bytes)?;
        let seconds = elapsed.as_secs_f64();
        (seconds > 0.0).then(|| (bytes as f64 * 8.0 / seconds) as u64)
    });
    let classes = readings.into_iter().next().map(|root| root.classes).unwrap_or_default();
    Some(Way { limit_bit_per_s, rate_bit_per_s, counts, classes })
}

/// A number for Prometheus: its name, kind, help and value.
type Family = (&'static str, &'static str, &'static str, fn(&Way) -> Option<f64>);

const FAMILIES: [Family; 7] = [
    ("limit_bits_per_second", "gauge", "Rate to which the direction is shaped.", |way| {
        Some(way.limit_bit_per_s as f64)
    }),
    ("sent_bytes_total", "counter", "Bytes that the shaper sent.", |way| {
        Some(way.counts.sent_bytes as f64)
    }),
    ("sent_packets_total", "counter", "Packets that the shaper sent.", |way| {
        Some(way.counts.sent_packets as f64)
    }),
    ("dropped_packets_total", "counter", "Packets that the queue dropped.", |way| {
        Some(way.counts.dropped as f64)
    }),
    ("marked_packets_total", "counter", "Packets that the queue marked CE.", |way| {
        Some(way.counts.marked? as f64)
    }),
    ("backlog_bytes", "gauge", "Bytes that wait.", |way| Some(way.counts.backlog_bytes as f64)),
    ("delay_seconds", "gauge", "Delay of recent packets.", |way| {
        Some(way.counts.delay_us? as f64 / 1e6)
    }),
];

impl Document {
    fn to_text(&self) -> String {
        if self.devices.is_empty() {
            return "underload shapes no device\n".to_owned();
        }
        let mut text = String::new();
        for view in &self.devices {
            let state = match view.undone_in_s {
                Some(seconds) if view.state == "temporary" => {
                    format!("undone in {seconds:.0} s, or with the command that measures")
                }
                Some(seconds) => format!("undone in {seconds:.0} s unless confirmed"),
                None if view.state == "lost" => {
                    "its queues were removed or replaced by another program".to_owned()
                }
                None => view.state.to_owned(),
            };
            let _ = writeln!(text, "{}: {}, {state}", view.device, view.queue);
            for (name, way) in view.ways() {
                let _ = writeln!(
                    text,
                    "  {name:<5} {} Mbit/s: {}",
                    mbit(way.limit_bit_per_s),
                    totals(way)
                );
                let used = way.classes.iter().filter(|class| class.counts.sent_packets > 0);
                for class in used.filter(|_| way.classes.len() > 1) {
                    let _ = writeln!(text, "    {:<12} {}", class.name, class_totals(class));
                }
            }
        }
        text
    }

    /// Returns the counts of all directions in Prometheus' text format.
    fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in FAMILIES {
            let mut lines = String::new();
            for view in &self.devices {
                for (direction, way) in view.ways() {
                    let Some(value) = value(way) else { continue };
                    let device = escape_label(&view.device);
                    let labels = format!("device=\"{device}\",direction=\"{direction}\"");
                    let _ = writeln!(lines, "underload_shaper_{name}{{{labels}}} {value}");
                }
            }
            if !lines.is_empty() {
                let _ = writeln!(text, "# HELP underload_shaper_{name} {help}");
                let _ = write!(text, "# TYPE underload_shaper_{name} {kind}\n{lines}");
            }
        }
        text
    }

    /// Returns a line for each direction, with its present rate.
    fn to_lines(&self) -> String {
        let mut text = String::new();
        for view in &self.devices {
            for (name, way) in view.ways() {
                let rate = way.rate_bit_per_s.map_or_else(|| "-".to_owned(), mbit);
                let (limit, device) = (mbit(way.limit_bit_per_s), &view.device);
                let _ = writeln!(
                    text,
                    "{device} {name:<4} {rate:>8} of {limit} Mbit/s, {}",
                    present(&way.counts)
                );
            }
        }
        text
    }
}

impl DeviceView {
    fn ways(&self) -> impl Iterator<Item = (&'static str, &Way)> {
        let up = self.up.iter().map(|way| ("up", way));
        up.chain(self.down.iter().map(|way| ("down", way)))
    }
}

fn totals(way: &Way) -> String {
    let Counts { sent_bytes, sent_packets, .. } = way.counts;
    format!("{} MB in {sent_packets} packets, {}", megabytes(sent_bytes), present(&way.counts))
}

fn class_totals(class: &Class) -> String {
    let sent = megabytes(class.counts.sent_bytes);
    let peak = class.peak_delay_us as f64 / 1e3;
    format!("{sent} MB, {}, at most {peak:.1} ms", present(&class.counts))
}

/// Returns drops, marks, backlog and delay.
fn present(counts: &Counts) -> String {
    let mut text = format!("{} dropped", counts.dropped);
    if let Some(marked) = counts.marked {
        let _ = write!(text, ", {marked} marked");
    }
    let _ = write!(text, ", {:.1} kB waiting", counts.backlog_bytes as f64 / 1e3);
    if let Some(delay) = counts.delay_us {
        let _ = write!(text, ", delay {:.1} ms", delay as f64 / 1e3);
    }
    text
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn mbit(bits: u64) -> String {
    let megabits = bits as f64 / 1e6;
    if megabits >= 100.0 { format!("{megabits:.0}") } else { format!("{megabits:.2}") }
}

fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(100)..=Duration::from_hours(1);
    let time = quantity::duration(text)?;
    if bounds.contains(&time) { Ok(time) } else { Err("expected 100ms to 1h".to_owned()) }
}
