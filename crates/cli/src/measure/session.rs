//! One measurement: a session at the server, then the preset's steps through it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use underload_probe::measure::Measurement;
use underload_probe::preset::{Knobs, Step, session_duration};
use underload_probe::service::{Ask, ConnectOptions, Remote, ServiceError, Trust};
use underload_probe::{RunClock, current_network};
use underload_report::RunDir;

use super::arguments::Arguments;
use super::record;
use super::target::Target;
use super::view::View;
use crate::home;
use crate::run::Interrupt;

/// A granted session and what to do with it.
pub struct Session<'a> {
    arguments: &'a Arguments,
    remote: Remote,
    steps: Vec<Step>,
}

/// What is declared where nobody says how fast the line is.
const RATE_UNKNOWN_BIT_PER_S: u64 = 10_000_000_000;

impl<'a> Session<'a> {
    /// Asks the server for a session that is long enough for the preset.
    pub fn open(
        arguments: &'a Arguments,
        target: &Target,
        knobs: &Knobs,
    ) -> anyhow::Result<Session<'a>> {
        let steps_for = |token| arguments.preset.0.steps(knobs, token);
        let nobody = underload_probe::load::Token([0; 16]);
        let duration = session_duration(&steps_for(nobody));
        let options = options(arguments, duration)?;
        let remote = connect(target, &options)?;
        let (fingerprint, is_new) = remote.identity();
        if is_new && arguments.trust == "first-use" {
            eprintln!("{}: seen for the first time, certificate {fingerprint}", target.name);
        }
        let steps = steps_for(remote.token());
        Ok(Self { arguments, remote, steps })
    }

    /// The preset's steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs the steps; each that ends is kept in `directory`.
    pub fn measure(&self, directory: &mut RunDir, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut view = View::start(&self.steps);
        for step in &self.steps {
            if interrupt.flag().load(Ordering::Relaxed) {
                break;
            }
            view.begin(step);
            let measured = Measurement::run(
                &step.config,
                self.remote.endpoints(),
                RunClock::start(),
                &mut |progress| view.show(&progress),
                interrupt.flag(),
            )
            .with_context(|| format!("step {}", step.name))?;
            if measured.cancelled {
                break;
            }
            let (trial, samples, series) = record::trial(step, measured, self.arguments.tier);
            view.end(&trial);
            directory.append_trial(&trial, &samples, &series)?;
        }
        view.close();
        Ok(())
    }
}

/// From `first-use` or a fingerprint.
pub fn trust(text: &str) -> anyhow::Result<Trust> {
    Ok(match text {
        "first-use" => Trust::FirstUse { known_servers: home::data()?.join("known-servers") },
        fingerprint => Trust::Pinned(fingerprint.parse().context("--trust")?),
    })
}

fn options(arguments: &Arguments, duration: Duration) -> anyhow::Result<ConnectOptions> {
    let trust = trust(&arguments.trust)?;
    let secret = arguments.token_file.as_deref().map(home::first_line).transpose()?;
    let (up, down) = match (arguments.tier, arguments.udp) {
        // Twice what is sold: lines are often given a little more, and bursts.
        (Some(tier), _) => (tier.up_bit_per_s * 2, tier.down_bit_per_s * 2),
        (None, Some(rate)) => (rate, rate),
        (None, None) => (RATE_UNKNOWN_BIT_PER_S, RATE_UNKNOWN_BIT_PER_S),
    };
    let ask = Ask { up_bit_per_s: up, down_bit_per_s: down, duration };
    Ok(ConnectOptions { trust, secret, ask, network: current_network() })
}

/// The first address that answers; a refusal is final, silence is not.
pub fn connect(target: &Target, options: &ConnectOptions) -> anyhow::Result<Remote> {
    let mut silent = None;
    for address in &target.addresses {
        match Remote::connect(&target.name, *address, options) {
            Ok(remote) => return Ok(remote),
            Err(error @ ServiceError::Socket { .. }) => {
                let error = anyhow::Error::from(error).context(address.to_string());
                silent.get_or_insert(error);
            }
            Err(error) => return Err(error).with_context(|| target.name.clone()),
        }
    }
    match silent {
        Some(error) => Err(error.context(format!("no answer from {}", target.name))),
        None => bail!("{} has no address", target.name),
    }
}
