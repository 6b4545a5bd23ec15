//! `underload shape auto`: follows a line whose rate varies.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use underload_aqm::rate::Rate;
use underload_probe::survey::{Echo, Echoes};
use underload_record::schema::{Direction, PerDirection};
use underload_shape::auto::{Answer, Bounds};
use underload_shape::machine::{FollowedLine, Session, Snapshot, SnapshotError, now_ms};
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput as _, refuse};
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity;

use super::apply::{Change, Queueing};
use super::require_rights;

#[derive(Debug, Args)]
#[command(after_help = "\
Begins between the bounds of each direction, and changes the rates up to ten times a second: down
when round trips to the reflector grow under load, up when they do not. The reflector gets 40 pings
a second (27 kbit/s), which begin with the first change. Ctrl-C restores the queues that were there
before; after a kill the last rates stay until `underload shape off`.

Choose as --up-min and --down-min rates that the line always has, as --up-max and --down-max those
of its best moments; as reflector a host near the line: the provider's router, or a public resolver.

Examples:
  sudo underload shape auto --dev eth0 --reflector 1.1.1.1 \\
    --up-min 3mbit --up-max 20mbit --down-min 10mbit --down-max 120mbit
  sudo underload shape auto --dev wwan0 --reflector 1.1.1.1 --down-min 2mbit --down-max 60mbit")]
pub struct Arguments {
    /// The device that leads to the access line, such as eth0 or wwan0.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// A host near the line that answers pings.
    #[arg(long, value_name = "HOST")]
    reflector: String,
    /// The least rate of what the device sends.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, requires = "up_max")]
    up_min: Option<u64>,
    /// The largest rate of what the device sends.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, requires = "up_min")]
    up_max: Option<u64>,
    /// The least rate of what the device receives.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, requires = "down_max")]
    down_min: Option<u64>,
    /// The largest rate of what the device receives.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, requires = "down_min")]
    down_max: Option<u64>,
    #[command(flatten)]
    queueing: Queueing,
    #[command(flatten)]
    change: Change,
}

/// Interval between pings to the reflector.
const PING: Duration = Duration::from_millis(25);
/// Pings between two decisions.
const PINGS_PER_DECISION: u64 = 4;
/// Interval between lines of the report.
const REPORT: Duration = Duration::from_secs(10);

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let bounds = PerDirection::new(
            bounds(Direction::Up, self.up_min, self.up_max)?,
            bounds(Direction::Down, self.down_min, self.down_max)?,
        );
        if bounds == PerDirection::default() {
            refuse!(
                "nothing to follow: expected --up-min and --up-max, --down-min and --down-max, or \
                 both pairs"
            );
        }
        let base = bounds.map(|bounds| bounds.map(Bounds::base));
        let request = self.queueing.request(&self.dev, base)?;
        if Direction::ALL.iter().any(|it| request.queue(*it).name == "fifo") {
            warning!(
                "warning: in a fifo the pings wait behind the load, so the rates may fall to their \
                 minimum; better is --queue cake or fq-codel"
            );
        }
        require_rights("shape", "auto")?;
        let device = Snapshot::take(&self.dev).bad_input_if(SnapshotError::is_refusal)?.device;
        let interrupt = Interrupt::watch()?;
        let echoes = Echoes::to_host(&self.reflector);
        let echoes =
            echoes.with_context(|| format!("--reflector {}", self.reflector)).or_bad_input()?;
        let session = Session::open()?;
        self.change.apply(&request, &session, &interrupt)?;
        let name = device.name.clone();
        let mut line = FollowedLine::new(&session, device, request, bounds);
        match follow(&mut line, echoes, &interrupt) {
            Err(_) if line.check().is_err() => {
                note!("underload does not shape {name} any more");
                Ok(())
            }
            Err(error) => Err(error.context(format!(
                "{name} is not followed any more; `underload shape off --dev {name}` restores what \
                 was there before"
            ))),
            Ok(()) => {
                session.off(Some(&name))?;
                Err(interrupt.stopped(anyhow::anyhow!("{name} is as it was before")))
            }
        }
    }
}

/// Follows the line until Ctrl-C.
fn follow(
    line: &mut FollowedLine<'_>,
    mut echoes: Echoes,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let (mut next, mut reported) = (Instant::now(), Instant::now());
    let mut pings = 0_u64;
    while !interrupt.is_requested() {
        // A ping that the kernel refuses counts as unanswered.
        let _ = echoes.send();
        pings += 1;
        if pings.is_multiple_of(PINGS_PER_DECISION) {
            let time_ms = now_ms();
            line.decide(time_ms, &answers(time_ms, &mut echoes))?;
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            line.check()?;
            console::print(&line.report())?;
        }
        // Slots that passed meanwhile are skipped, so that pings never come in bursts.
        next = (next + PING).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Returns the answers since the last call, with times of the clock that shows `time_ms` now.
fn answers(time_ms: u64, echoes: &mut Echoes) -> Vec<Answer> {
    let now = Instant::now();
    let answer = |echo: &Echo| {
        let age_us = now.saturating_duration_since(echo.sent).as_micros() as u64;
        let round_trip_us = echo.round_trip.as_micros() as i64;
        Answer { sent_us: (time_ms * 1_000).saturating_sub(age_us), round_trip_us }
    };
    echoes.answered().iter().map(answer).collect()
}

fn bounds(
    direction: Direction,
    min: Option<u64>,
    max: Option<u64>,
) -> anyhow::Result<Option<Bounds>> {
    let (Some(min), Some(max)) = (min, max) else { return Ok(None) };
    let rate = Rate::from_bits_per_second;
    let Some(bounds) = Bounds::new(rate(min), rate(max)) else {
        refuse!("--{direction}-min is above --{direction}-max: expected at most {}", rate(max));
    };
    Ok(Some(bounds))
}
