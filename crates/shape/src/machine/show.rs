//! The state of the queues of shaped devices: limits, backlogs, delays, drops and marks, as data and
//! as text.

use std::fmt::Write as _;

use serde::Serialize;
use underload_aqm::rate::Rate;
use underload_record::schema::PerDirection;
use underload_record::text::one_line;
use underload_tc::printed::{Class, Counts, Reading};

use super::session::{Shaped, Standing};
use crate::rate::requested;

/// All devices that underload shapes.
#[derive(Debug, Serialize)]
pub struct Overview {
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
    #[serde(flatten)]
    flows: PerDirection<Option<Flow>>,
}

/// Limit and counts of one direction.
#[derive(Debug, Serialize)]
struct Flow {
    /// The rate to which the direction is shaped, bit/s.
    limit_bit_per_s: u64,
    counts: Counts,
    /// The classes of CAKE.
    classes: Vec<Class>,
}

impl Overview {
    pub fn new(shaped: Vec<Shaped>) -> Self {
        Self { devices: shaped.into_iter().map(DeviceView::new).collect() }
    }

    /// Returns the state of each device, and the counts of its directions and classes.
    pub fn to_text(&self) -> String {
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
            for (name, flow) in view.flows() {
                let _ = writeln!(
                    text,
                    "  {name:<5} {} Mbit/s: {}",
                    mbit(flow.limit_bit_per_s),
                    totals(flow)
                );
                let used = flow.classes.iter().filter(|class| class.counts.sent_packets > 0);
                for class in used.filter(|_| flow.classes.len() > 1) {
                    let _ = writeln!(text, "    {:<12} {}", class.name, class_totals(class));
                }
            }
        }
        text
    }
}

impl DeviceView {
    fn new(shaped: Shaped) -> Self {
        let Shaped { record, name, standing, mut queues } = shaped;
        let flows = PerDirection::from_fn(|direction| {
            let queues = std::mem::take(&mut queues[direction]);
            // `auto` changes the rates of the queues alone.
            let present = queues.first().and_then(|root| requested(&root.qdisc, record.overhead));
            let limit = present.map(Rate::bits_per_second).or(record.bit_per_s[direction])?;
            Flow::new(limit, queues)
        });
        let (state, undone_in_s) = match standing {
            Standing::Confirmed => ("confirmed", None),
            Standing::Pending { left } => ("pending", Some(left.as_secs_f64())),
            Standing::Temporary { left } => ("temporary", Some(left.as_secs_f64())),
            Standing::Late => ("late", None),
            Standing::Lost | Standing::Undone => ("lost", None),
        };
        let device = one_line(&name.unwrap_or(record.device));
        Self { device, state, undone_in_s, queue: record.queue, flows }
    }

    fn flows(&self) -> impl Iterator<Item = (&'static str, &Flow)> {
        self.flows.iter().filter_map(|(direction, flow)| Some((direction.name(), flow.as_ref()?)))
    }
}

impl Flow {
    /// Creates a direction from the readings of its queues, root first; `None` without readings.
    fn new(limit_bit_per_s: u64, readings: Vec<Reading>) -> Option<Self> {
        let mut counts = readings.first()?.counts;
        // Below a rate limit, the queue itself marks and measures; below `cake_mq` each of its parts.
        for Counts { marked, delay_us, .. } in readings[1..].iter().map(|reading| reading.counts) {
            counts.marked = [counts.marked, marked].into_iter().flatten().reduce(|a, b| a + b);
            counts.delay_us = counts.delay_us.max(delay_us);
        }
        let classes = readings.into_iter().next().map(|root| root.classes).unwrap_or_default();
        Some(Self { limit_bit_per_s, counts, classes })
    }
}

fn totals(flow: &Flow) -> String {
    let Counts { sent_bytes, sent_packets, .. } = flow.counts;
    format!("{} MB in {sent_packets} packets, {}", megabytes(sent_bytes), present(&flow.counts))
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
