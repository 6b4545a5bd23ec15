//! The process that shapes by our gateway.

use std::path::Path;

use anyhow::Context as _;
use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_emu::gateway::{LaneConfig, Reading};
use underload_emu::shaper::{self, ShaperConfig};
use underload_record::schema::Direction;
use underload_shape::machine::{Shaper, Snapshot, State, follow};
use underload_shape::own::{OwnCounts, OwnWay, header_bytes, tun_names};
use underload_shape::record::Record;
use underload_shape::request::Request;
use underload_shape::tree::{Class, Counts};
use underload_terminal::interrupt::Interrupt;

/// Watches the change of a record, and shapes if this program is its engine.
pub(super) fn watch(record: &Path) -> anyhow::Result<()> {
    let started = |record: &Record| start(record).map_err(|error| format!("{error:#}"));
    Ok(follow(record, started)?)
}

struct Process {
    shaper: shaper::Shaper,
    interrupt: Interrupt,
}

/// Shapes the device of a record.
fn start(record: &Record) -> anyhow::Result<Box<dyn Shaper>> {
    // Before the gateway's threads start, which would take the signals.
    let interrupt = Interrupt::watch()?;
    let device = Snapshot::take(&record.device)?.device;
    let header_bytes = header_bytes(&device)?;
    let rate = |bits: Option<u64>| bits.map(Rate::from_bits_per_second);
    let request = Request {
        device: record.device.clone(),
        up: rate(record.up_bit_per_s),
        down: rate(record.down_bit_per_s),
        queue: Spec::parse(&record.queue)?,
        overhead: record.overhead,
        engine: record.engine,
    };
    let lane = |rate: Option<Rate>| {
        let setups = rate.map(|rate| request.setups(rate, header_bytes)).transpose()?;
        anyhow::Ok(setups.map(|(link, queue)| LaneConfig { link, queue }))
    };
    let config = ShaperConfig {
        device: device.index as u32,
        has_ethernet: header_bytes > 0,
        names: tun_names(device.index),
        up: lane(request.up)?,
        down: lane(request.down)?,
    };
    let shaper = shaper::Shaper::start(&config).context("--engine own")?;
    Ok(Box::new(Process { shaper, interrupt }))
}

impl Shaper for Process {
    fn counts(&self) -> OwnCounts {
        let [up, down] = [Direction::Up, Direction::Down].map(|way| counts(self.shaper.read(way)));
        OwnCounts { up, down }
    }

    fn state(&self) -> State {
        if self.interrupt.is_requested() {
            State::Stopped
        } else if self.shaper.is_running() {
            State::Shapes
        } else {
            State::Failed
        }
    }
}

fn counts(reading: Reading) -> OwnWay {
    let counts = Counts {
        sent_bytes: reading.sent.bytes,
        sent_packets: reading.sent.packets,
        dropped: reading.dropped,
        marked: Some(reading.marked),
        backlog_bytes: reading.backlog.bytes,
        backlog_packets: u64::from(reading.backlog.packets),
        delay_us: Some(micros(reading.sojourn_max)),
    };
    let [l4s, others] = reading.classes;
    let classes = [("L4S", l4s), ("others", others)].map(|(name, class)| Class {
        name: name.to_owned(),
        threshold_bit_per_s: 0,
        counts: Counts {
            sent_bytes: class.sent.bytes,
            sent_packets: class.sent.packets,
            dropped: class.dropped,
            marked: Some(class.marked),
            ..Counts::default()
        },
        peak_delay_us: micros(class.sojourn_max),
    });
    let has_l4s = l4s.sent.packets > 0;
    OwnWay { counts, classes: if has_l4s { classes.into() } else { Vec::new() } }
}

fn micros(span: Span) -> u64 {
    span.as_nanos() / 1_000
}
