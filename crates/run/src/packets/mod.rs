//! Every packet of a simulated trial, as rows of `packets.parquet` and as captures to open in
//! Wireshark.
//!
//! - `point`: the points at which packets are recorded.
//! - `capture`: a pcapng file of one point, with headers from `header` and `sequence`.
//!
//! Packets are written while the trial runs, with some megabytes of memory per running trial. Each
//! file of a trial has at most 50 million packets.

mod capture;
mod header;
mod point;
mod sequence;

use underload_record::schema::PacketSighting;
use underload_sim::flow::FlowKind;
use underload_sim::net::{Body, Event, Segment, Sighting, Watcher};
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::SimConfig;
use underload_store::{PacketTable, RunDir};

use crate::error::{Doing as _, RunError};
use capture::Capture;
use header::TcpFacts;
use point::HopNames;
use sequence::{Offsets, half};

pub use point::{At, Point};

/// Rows of a trial, and packets of a capture, at most.
const MOST_PACKETS: u64 = 50_000_000;
/// Trials whose packets are recorded in one run, at most.
const MOST_TRIALS: usize = 1_000;
const FOLDER: &str = "captures";

#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Points whose packets are rows of `packets.parquet`; empty for all, `None` for no table.
    pub rows: Option<Vec<Point>>,
    /// Points that are captured, each in a separate file.
    pub captures: Vec<Point>,
}

impl Wanted {
    pub fn is_empty(&self) -> bool {
        self.rows.is_none() && self.captures.is_empty()
    }

    /// Rejects points that a variant does not have, and runs of too many trials.
    pub(crate) fn check<'a>(
        &self,
        variants: impl Iterator<Item = Result<(&'a str, SimConfig), RunError>>,
        trials: usize,
    ) -> Result<(), RunError> {
        if trials > MOST_TRIALS {
            return Err(RunError::Refused(format!(
                "packets of {trials} trials; expected at most {MOST_TRIALS}, by --variant \
                 and --repeat"
            )));
        }
        for variant in variants {
            let (variant, config) = variant?;
            let names = HopNames::new(&config);
            for point in self.rows.iter().flatten().chain(&self.captures) {
                names.check(point).map_err(|problem| {
                    RunError::Refused(format!("variant {variant}: {problem}"))
                })?;
            }
        }
        Ok(())
    }
}

/// The files of a running trial's packets.
pub(crate) struct TrialLog {
    trial: u32,
    names: HopNames,
    flows: Vec<(String, TcpFacts)>,
    rows: Option<(PacketTable, Vec<Point>)>,
    captures: Vec<Capture>,
    offsets: Offsets,
    is_cut_off: bool,
    failure: Option<RunError>,
}

impl TrialLog {
    pub(crate) fn open(
        wanted: &Wanted,
        directory: &RunDir,
        trial: u32,
        config: &SimConfig,
    ) -> Result<Self, RunError> {
        let rows = match &wanted.rows {
            Some(points) => Some((directory.packet_table(trial)?, points.clone())),
            None => None,
        };
        let variant = &config.label.variant;
        let capture = |point: &Point| {
            let name = format!("{trial:07}-{point}.pcapng");
            let (path, file) =
                (directory.path().join(FOLDER).join(&name), directory.begin_file(FOLDER, &name)?);
            Capture::begin(path, file, point.clone(), &format!("variant {variant}, trial {trial}"))
        };
        let captures = wanted.captures.iter().map(capture).collect::<Result<_, RunError>>()?;
        let flows = config.flows.iter().map(|flow| {
            let facts = match &flow.kind {
                FlowKind::Tcp(tcp) => TcpFacts::from(tcp),
                // Applications open connections with the default.
                _ => TcpFacts::from(&TcpConfig::default()),
            };
            (flow.name.clone(), facts)
        });
        Ok(Self {
            trial,
            names: HopNames::new(config),
            flows: flows.collect(),
            rows,
            captures,
            offsets: Offsets::default(),
            is_cut_off: false,
            failure: None,
        })
    }

    /// Completes the files. Returns a note for the user if the limit was reached.
    pub(crate) fn finish(mut self) -> Result<Option<String>, RunError> {
        if let Some(failure) = self.failure.take() {
            self.discard();
            return Err(failure);
        }
        if let Some((table, _)) = self.rows {
            table.finish()?;
        }
        self.captures.into_iter().try_for_each(Capture::finish)?;
        let trial = self.trial;
        let note = || format!("trial {trial}: only its first {MOST_PACKETS} packets are in a file");
        Ok(self.is_cut_off.then(note))
    }

    /// Removes the files of a trial that was not completed.
    pub(crate) fn discard(self) {
        if let Some((table, _)) = self.rows {
            table.discard();
        }
        self.captures.into_iter().for_each(Capture::discard);
    }

    fn record(&mut self, sighting: &Sighting<'_>) -> Result<(), RunError> {
        let segment = &sighting.packet.payload;
        let Some((flow, facts)) = self.flows.get(usize::from(segment.flow)) else {
            let problem = format!("a packet of flow {}, which the trial has not", segment.flow);
            return Err(problem).of_world();
        };
        if let (Event::Sent, Body::Data(data)) = (sighting.event, &segment.body) {
            let half = half(segment.flow, segment.channel, sighting.direction);
            self.offsets.sent(half, *data, facts.segment_bytes);
        }
        if let Some((table, points)) = &mut self.rows
            && (points.is_empty() || points.iter().any(|point| point.sees(sighting, &self.names)))
        {
            if table.rows() as u64 >= MOST_PACKETS {
                self.is_cut_off = true;
            } else {
                let hop = self.names.name(sighting.direction, sighting.hop);
                table.push(&row(self.trial, sighting, hop, flow))?;
            }
        }
        for capture in &mut self.captures {
            if capture.packets() >= MOST_PACKETS {
                self.is_cut_off = true;
            } else {
                capture.see(sighting, &self.names, facts, &self.offsets)?;
            }
        }
        Ok(())
    }
}

impl Watcher for TrialLog {
    fn see(&mut self, sighting: &Sighting<'_>) {
        if self.failure.is_none()
            && let Err(failure) = self.record(sighting)
        {
            self.failure = Some(failure);
        }
    }
}

fn row<'a>(trial: u32, sighting: &Sighting<'a>, hop: &'a str, flow: &'a str) -> PacketSighting<'a> {
    let meta = &sighting.packet.meta;
    let Segment { channel, body, .. } = &sighting.packet.payload;
    let (kind, sequence, retransmission) = kind_and_number(body);
    let (event, reason) = match sighting.event {
        Event::Sent => ("sent", None),
        Event::Arrival => ("arrival", None),
        Event::Mark(reason) => ("mark", Some(reason.name())),
        Event::Drop(reason) => ("drop", Some(reason.name())),
        Event::Departure { .. } => ("departure", None),
        Event::Delivery => ("delivery", None),
        Event::Received => ("received", None),
    };
    let end = match sighting.event {
        Event::Departure { end } => Some(end),
        _ => None,
    };
    PacketSighting {
        trial,
        time_ns: sighting.time.as_nanos(),
        direction: sighting.direction,
        hop,
        event,
        reason,
        id: meta.id,
        flow,
        channel: *channel,
        kind,
        sequence,
        retransmission,
        length: sighting.len,
        dscp: meta.dscp.value(),
        ecn: meta.ecn,
        sojourn_ns: end.map(|_| sighting.time.since(meta.arrived).as_nanos()),
        end_ns: end.map(underload_aqm::time::Time::as_nanos),
    }
}

/// Returns kind, sequence number, and whether it is a retransmission.
fn kind_and_number(body: &Body) -> (&'static str, u32, bool) {
    match body {
        Body::Syn => ("syn", 0, false),
        Body::SynAck => ("syn-ack", 0, false),
        Body::Data(data) => ("data", data.sequence, data.retransmission),
        Body::Ack(ack) => ("ack", ack.cumulative, false),
        Body::Datagram(datagram) => ("datagram", datagram.sequence, false),
        Body::Message(message) => ("message", message.sequence, false),
        Body::Report(report) => ("report", report.end, false),
        Body::Flight(flight) => ("flight", flight.sequence, false),
        Body::Forecast(forecast) => ("forecast", forecast.tick, false),
        Body::Request { sequence } => ("request", *sequence, false),
        Body::Reply { sequence, .. } => ("reply", *sequence, false),
    }
}
