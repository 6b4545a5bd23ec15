//! The agent of a home, and in some homes people who use the line.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use underload_agent::Trust;
use underload_agent::address::Address;
use underload_agent::device::{self, Config, sleep};
use underload_agent::identity::Identity;
use underload_agent::measure::{BUSY_DEFAULT, Measurer};
use underload_agent::spool::BYTES_DEFAULT;
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_fleet::agent::Limits;
use underload_fleet::device::DeviceId;
use underload_probe::network::Line as Interfaces;
use underload_probe::network::current_network;
use underload_record::schema::ValidityLimits;

use super::access::{Line, SINK, TIER_BIT_PER_S, host_address};

pub(super) struct Home {
    pub line: Arc<Line>,
    pub device: DeviceId,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Why the agent failed.
    failure: Arc<Mutex<Option<String>>>,
}

/// How an agent reaches the orchestrator.
#[derive(Clone)]
pub(super) struct Fleet {
    pub orchestrator: Address,
    pub trust: Trust,
}

/// The agent's limits: the plans measure each line some thousand times a day.
fn limits() -> Limits {
    let bytes = u64::MAX;
    Limits {
        runs_per_day: 100_000,
        bytes_per_day: bytes,
        bytes_per_month: bytes,
        ..Limits::default()
    }
}

impl Home {
    pub(super) fn start(
        line: Arc<Line>,
        fleet: &Fleet,
        code: String,
        state: &Path,
    ) -> anyhow::Result<Self> {
        let state = state.join(format!("line-{:03}", line.number));
        let device = Identity::load_or_create(&state).context("the key of an agent")?.device();
        let stop = Arc::<AtomicBool>::default();
        let config = Config {
            orchestrators: vec![fleet.orchestrator.clone()],
            trust: fleet.trust,
            state,
            code: Some(code),
            attributes: line.attributes(),
            measurer: Measurer {
                network: current_network(),
                line: Interfaces::OfDefaultRoutes,
                busy_bit_per_s: BUSY_DEFAULT,
                tier_bit_per_s: TIER_BIT_PER_S,
                limits: ValidityLimits::default(),
                cancel: Arc::clone(&stop),
                carrier: Some(Arc::clone(&line) as _),
            },
            spool_bytes: BYTES_DEFAULT,
            start_within: Span::from_secs(2),
            confirm_removal: Span::ZERO,
            limits: limits(),
        };
        let failure = Arc::<Mutex<Option<String>>>::default();
        let reported = Arc::clone(&failure);
        let mut home = Self { line, device, stop, threads: Vec::new(), failure };
        home.spawn("agent", move |stop| {
            if let Err(error) = device::run(config, stop, &|_| {}) {
                let words = format!("{:#}", anyhow::Error::from(error));
                *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
            }
        })?;
        Ok(home)
    }

    /// Starts people who use the line for 8 to 16 s in every 24 to 48 s.
    pub(super) fn move_in(&mut self) -> anyhow::Result<()> {
        let seed = self.line.number as u64;
        self.spawn("people", move |stop| {
            let _ = use_the_line(seed, stop);
        })
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> anyhow::Result<()> {
        let (line, stop) = (Arc::clone(&self.line), Arc::clone(&self.stop));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Entering cannot fail: the namespace exists as long as `line`.
            let _ = line.at_home(|| work(&stop));
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Signals the threads of the home to stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the threads of the home have ended.
    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// 1.2 Mbit/s, as a video call.
const OWN_PACKET_BYTES: usize = 1_200;
const OWN_PACKET_INTERVAL: Duration = Duration::from_millis(8);

fn use_the_line(seed: u64, stop: &AtomicBool) -> std::io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(format!("{}:9", host_address(SINK)))?;
    let mut rng = Rng::new(seed);
    let mut seconds = |least: u32| Duration::from_secs(u64::from(least + rng.below(least + 1)));
    while sleep(seconds(16), stop) {
        let until = Instant::now() + seconds(8);
        while Instant::now() < until {
            let _ = socket.send(&[0; OWN_PACKET_BYTES]);
            if !sleep(OWN_PACKET_INTERVAL, stop) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use underload_fleet::plan::{Load, Plan};

    use super::*;

    /// `--seconds` accepts up to a day, so the limits must allow a day of both plans. An agent
    /// counts 130 % of a load's payload, because headers and acknowledgements use the line, too.
    #[test]
    fn a_line_stays_within_its_limits_for_a_day_of_both_plans() {
        let (mut runs, mut bytes) = (0.0, 0.0);
        for text in crate::demo::PLANS {
            let plan = Plan::parse(text).expect("it is built in");
            let run: f64 = Load::of(&plan).steps.iter().map(|step| step.bytes_per_run).sum();
            runs += plan.runs_per_day;
            bytes += 1.3 * run * plan.runs_per_day;
        }
        let limits = limits();
        assert!(runs < f64::from(limits.runs_per_day), "{runs} runs");
        assert!(bytes < limits.bytes_per_day as f64, "{bytes} bytes");
    }
}
