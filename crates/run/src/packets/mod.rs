//! Captures of the packets of a simulated trial, to open in Wireshark.
//!
//! - `point`: the points at which packets are captured.
//! - `capture`: a pcapng file of one point, with headers from `header` and `sequence`.
//!
//! Packets are written while the trial runs. Each capture has at most 50 million packets.

mod capture;
mod header;
mod point;
mod sequence;

use underload_sim::flow::FlowKind;
use underload_sim::net::{Body, Event, Sighting, Watcher};
use underload_sim::tcp::TcpConfig;
use underload_sim::trial::SimConfig;
use underload_store::RunDir;

use crate::error::{Doing as _, RunError};
use capture::Capture;
use header::TcpFacts;
use point::HopNames;
use sequence::{Offsets, half};

pub use point::{At, Point};

/// Maximum number of packets of a capture.
const MOST_PACKETS: u64 = 50_000_000;
/// Maximum number of trials whose packets are captured in one run.
const MOST_TRIALS: usize = 1_000;
const FOLDER: &str = "captures";

/// Rejects points that a variant does not have, and runs of too many trials.
pub(crate) fn check<'a>(
    points: &[Point],
    variants: impl Iterator<Item = Result<(&'a str, SimConfig), RunError>>,
    trials: usize,
) -> Result<(), RunError> {
    if trials > MOST_TRIALS {
        return Err(RunError::Refused(format!(
            "packets of {trials} trials; expected at most {MOST_TRIALS}, by --variant and --repeat"
        )));
    }
    for variant in variants {
        let (variant, config) = variant?;
        let names = HopNames::new(&config);
        for point in points {
            names
                .check(point)
                .map_err(|problem| RunError::Refused(format!("variant {variant}: {problem}")))?;
        }
    }
    Ok(())
}

/// The files of a running trial's packets.
pub(crate) struct TrialLog {
    trial: u32,
    names: HopNames,
    /// By the number of the flow.
    flows: Vec<TcpFacts>,
    captures: Vec<Capture>,
    offsets: Offsets,
    is_cut_off: bool,
    failure: Option<RunError>,
}

impl TrialLog {
    pub(crate) fn open(
        points: &[Point],
        directory: &RunDir,
        trial: u32,
        config: &SimConfig,
    ) -> Result<Self, RunError> {
        let variant = &config.label.variant;
        let capture = |point: &Point| {
            let name = format!("{trial:07}-{point}.pcapng");
            let (path, file) =
                (directory.path().join(FOLDER).join(&name), directory.begin_file(FOLDER, &name)?);
            Capture::begin(path, file, point.clone(), &format!("variant {variant}, trial {trial}"))
        };
        let captures = points.iter().map(capture).collect::<Result<_, RunError>>()?;
        let flows = config.flows.iter().map(|flow| match &flow.kind {
            FlowKind::Tcp(tcp) => TcpFacts::from(tcp),
            // Applications open connections with the default configuration of TCP.
            _ => TcpFacts::from(&TcpConfig::default()),
        });
        Ok(Self {
            trial,
            names: HopNames::new(config),
            flows: flows.collect(),
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
        self.captures.into_iter().try_for_each(Capture::finish)?;
        let trial = self.trial;
        let note = || format!("trial {trial}: a capture has only the first {MOST_PACKETS} packets");
        Ok(self.is_cut_off.then(note))
    }

    /// Removes the files of a trial that was not completed.
    pub(crate) fn discard(self) {
        self.captures.into_iter().for_each(Capture::discard);
    }

    fn record(&mut self, sighting: &Sighting<'_>) -> Result<(), RunError> {
        let segment = &sighting.packet.payload;
        let Some(facts) = self.flows.get(usize::from(segment.flow)) else {
            let problem = format!("a packet of flow {}, unknown to the trial", segment.flow);
            return Err(problem).of_world();
        };
        if let (Event::Sent, Body::Data(data)) = (sighting.event, &segment.body) {
            let half = half(segment.flow, segment.channel, sighting.direction);
            self.offsets.sent(half, *data, facts.segment_bytes);
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
