//! `underload shape auto`: follows a line whose rate varies.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use underload_aqm::rate::Rate;
use underload_probe::survey::Echoes;
use underload_shape::auto::{Answer, Bounds, Decision, Follower, Reading, Way};
use underload_shape::machine::{ChangeError, Session, Snapshot, now_ms, sent_bytes};
use underload_shape::plan::ifb_name;
use underload_shape::request::Request;
use underload_tc::printed::Device;
use underload_terminal::console::{self, note, warning};
use underload_terminal::exit::{OrBadInput as _, refuse};
use underload_terminal::interrupt::Interrupt;
use underload_terminal::quantity;

use super::apply::{Change, Queueing, known};
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

/// A direction that is followed.
#[derive(Debug)]
struct Direction {
    name: &'static str,
    /// The device that counts what the shaper sends.
    place: String,
    follower: Follower,
    last: Option<Decision>,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        let up = bounds("up", self.up_min, self.up_max)?;
        let down = bounds("down", self.down_min, self.down_max)?;
        if up.is_none() && down.is_none() {
            refuse!(
                "nothing to follow: expected --up-min and --up-max, --down-min and --down-max, or \
                 both pairs"
            );
        }
        let base = |bounds: Option<Bounds>| bounds.map(Bounds::base);
        let request = self.queueing.request(&self.dev, base(up), base(down))?;
        if request.queue.name == "fifo" {
            warning!(
                "warning: in a fifo the pings wait behind the load, so the rates may fall to their \
                 minimum; better is --queue cake or fq-codel"
            );
        }
        require_rights("auto")?;
        let interrupt = Interrupt::watch()?;
        let echoes = echoes(&self.reflector)?;
        let device = known(Snapshot::take(&self.dev))?.device;
        let session = Session::open()?;
        self.change.apply(&request, &session, &interrupt)?;
        let ifb = ifb_name(device.index);
        let directions = [("up", device.name.clone(), Way::Up, up), ("down", ifb, Way::Down, down)];
        let directions = directions.into_iter().filter_map(|(name, place, way, bounds)| {
            Some(Direction { name, place, follower: Follower::new(way, bounds?), last: None })
        });
        let mut line = FollowedLine { directions: directions.collect(), request, device, session };
        let outcome = line.follow(echoes, &interrupt);
        line.end(outcome, &interrupt)
    }
}

/// A line that is being followed.
#[derive(Debug)]
struct FollowedLine {
    directions: Vec<Direction>,
    /// The request with the rates that are in force.
    request: Request,
    device: Device,
    session: Session,
}

impl FollowedLine {
    /// Follows the line until Ctrl-C.
    fn follow(&mut self, mut echoes: Echoes, interrupt: &Interrupt) -> anyhow::Result<()> {
        let (mut next, mut reported) = (Instant::now(), Instant::now());
        let mut pings = 0_u64;
        while !interrupt.is_requested() {
            // A ping that the kernel refuses counts as unanswered.
            let _ = echoes.send();
            pings += 1;
            if pings.is_multiple_of(PINGS_PER_DECISION) {
                self.decide(&mut echoes)?;
            }
            if reported.elapsed() >= REPORT {
                reported = Instant::now();
                if !self.is_shaped() {
                    return Err(ChangeError::Ended { device: self.device.name.clone() }.into());
                }
                console::print(&self.report())?;
            }
            // Slots that passed meanwhile are skipped, so that pings never come in bursts.
            next = (next + PING).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Lets each direction's rule decide, and changes rates that differ by 1 % or more.
    fn decide(&mut self, echoes: &mut Echoes) -> anyhow::Result<()> {
        let (time_ms, now) = (now_ms(), Instant::now());
        let answers: Vec<Answer> = echoes
            .answered()
            .iter()
            .map(|echo| {
                let age_us = now.saturating_duration_since(echo.sent).as_micros() as u64;
                let round_trip_us = echo.round_trip.as_micros() as i64;
                Answer { sent_us: (time_ms * 1_000).saturating_sub(age_us), round_trip_us }
            })
            .collect();
        let mut wanted = self.request.clone();
        for direction in &mut self.directions {
            let sent_bytes = sent_bytes(&direction.place)?;
            let reading = Reading { time_ms, answers: &answers, sent_bytes };
            let decision = direction.follower.decide(&reading);
            direction.last = Some(decision);
            let rate = if direction.name == "up" { &mut wanted.up } else { &mut wanted.down };
            if rate.is_some_and(|rate| differs(rate, decision.rate)) {
                *rate = Some(decision.rate);
            }
        }
        if wanted != self.request {
            self.session.change_rates(&self.device, &self.request, &wanted)?;
            self.request = wanted;
        }
        Ok(())
    }

    fn report(&self) -> String {
        let mut text = self.device.name.clone();
        for (place, direction) in self.directions.iter().enumerate() {
            let mbit = direction.follower.rate().bits_per_second() as f64 / 1e6;
            let separator = if place == 0 { ":" } else { "," };
            let _ = write!(text, "{separator} {} {mbit:.2} Mbit/s", direction.name);
            if let Some(decision) = direction.last {
                let _ = write!(text, " ({})", decision.reason);
            }
        }
        text + "\n"
    }

    fn is_shaped(&self) -> bool {
        self.session.is_shaped(&self.device)
    }

    /// Restores the queues after Ctrl-C. After another end the device is left as it is.
    fn end(&self, outcome: anyhow::Result<()>, interrupt: &Interrupt) -> anyhow::Result<()> {
        let device = &self.device.name;
        match outcome {
            Err(_) if !self.is_shaped() => {
                note!("underload does not shape {device} any more");
                Ok(())
            }
            Err(error) => Err(error.context(format!(
                "{device} is not followed any more; `underload shape off --dev {device}` restores \
                 what was there before"
            ))),
            Ok(()) => {
                self.session.off(Some(device))?;
                Err(interrupt.stopped(anyhow::anyhow!("{device} is as it was before")))
            }
        }
    }
}

/// Whether a change of the rate is worth a command.
fn differs(present: Rate, wanted: Rate) -> bool {
    let (present, wanted) = (present.bits_per_second(), wanted.bits_per_second());
    present.abs_diff(wanted) > present / 100
}

fn bounds(way: &str, min: Option<u64>, max: Option<u64>) -> anyhow::Result<Option<Bounds>> {
    let (Some(min), Some(max)) = (min, max) else { return Ok(None) };
    let rate = Rate::from_bits_per_second;
    let Some(bounds) = Bounds::new(rate(min), rate(max)) else {
        refuse!("--{way}-min is above --{way}-max: expected at most {}", rate(max));
    };
    Ok(Some(bounds))
}

/// Opens a socket for pings to the reflector.
fn echoes(reflector: &str) -> anyhow::Result<Echoes> {
    let resolved = (reflector, 0).to_socket_addrs();
    let addresses = resolved.with_context(|| format!("--reflector {reflector}")).or_bad_input()?;
    let mut failure = None;
    for address in addresses {
        match Echoes::start(address) {
            Ok(echoes) => return Ok(echoes),
            Err(error) => failure = Some(unreachable(address, error)),
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => bail!("--reflector {reflector}: no address"),
    }
}

fn unreachable(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("--reflector: no pings to {}", address.ip()))
}
