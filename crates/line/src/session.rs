//! One measurement: a session at the server, then the preset's steps through it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use underload_probe::RunClock;
use underload_probe::control::{
    Ask, ConnectOptions, Fingerprint, Remote, ServiceError, SessionNews, Trust,
};
use underload_probe::load::Token;
use underload_probe::measure::Measurement;
use underload_probe::network::current_network;
use underload_probe::preset::{Knobs, Step, session_duration};
use underload_record::schema::Finding;
use underload_store::RunDir;
use underload_terminal::exit::OrBadInput;
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;

use super::Test;
use super::arguments::Arguments;
use super::record::{self, Plan};
use super::target::Target;
use super::view::View;

/// A granted session and what to do with it.
pub struct Session<'a> {
    arguments: &'a Arguments,
    remote: Remote,
    steps: Vec<Step>,
    /// Deviations from what was asked for, in words.
    notes: Vec<String>,
}

impl<'a> Session<'a> {
    /// Asks the server for a session that is long enough for the preset.
    pub fn open(
        arguments: &'a Arguments,
        target: &Target,
        knobs: &Knobs,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Session<'a>> {
        let preset = arguments.preset().0;
        let duration = session_duration(&preset.steps(knobs, Token([0; 16])));
        let options = options(arguments, duration, interrupt)?;
        let remote = connect_or_wait(target, &options, arguments.wait, interrupt)?;
        let (fingerprint, is_new) = remote.identity();
        if is_new && arguments.trust == FIRST_USE {
            eprintln!("{}: seen for the first time, key {fingerprint}", target.name);
        }
        let mut steps = preset.steps(knobs, remote.token());
        let mut notes = Vec::new();
        keep_to_markings(&mut steps, remote.granted().dscp_allowed, &mut notes);
        for note in &notes {
            eprintln!("{note}");
        }
        Ok(Self { arguments, remote, steps, notes })
    }
}

impl Test for Session<'_> {
    fn plan(&self) -> Plan {
        Plan {
            name: self.arguments.preset().to_string(),
            server: self.arguments.shown_host(),
            arms: record::arms(&self.steps),
            notes: self.notes.clone(),
        }
    }

    /// An error is also what the server said where it ended the session.
    fn measure(
        &mut self,
        directory: &mut RunDir,
        findings: &mut Vec<Finding>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut view = View::start(&self.steps);
        for step in &self.steps {
            if interrupt.is_requested() {
                break;
            }
            view.begin(step);
            let measured = Measurement::run(
                &step.config,
                self.remote.endpoints(),
                RunClock::start(),
                &mut |progress| view.show(&progress),
                interrupt.flag(),
            );
            let news = self.remote.news().clone();
            let measured = match measured {
                Ok(measured) => measured,
                Err(error) => {
                    view.close();
                    return Err(told(&news, error.into()).context(format!("step {}", step.name)));
                }
            };
            if measured.cancelled {
                break;
            }
            let step = underload_measure::step(step, measured, self.arguments.tier, &news);
            view.end(&step.finding);
            findings.push(record::store(step, directory)?);
            if let Some(reason) = &news.ended {
                view.close();
                bail!("the server ended the session: {reason}");
            }
        }
        view.close();
        Ok(())
    }
}

/// The error, or what the server said if that is the reason for it.
fn told(news: &SessionNews, error: anyhow::Error) -> anyhow::Error {
    match &news.ended {
        Some(reason) => error.context(format!("the server ended the session: {reason}")),
        None => error,
    }
}

/// The word for trusting a server at first sight.
const FIRST_USE: &str = "first-use";

/// From `first-use`, a fingerprint, or a certificate's PEM file, of which the key counts.
pub fn trust(text: &str) -> anyhow::Result<Trust> {
    Ok(match text {
        FIRST_USE => Trust::FirstUse { known_servers: home::data()?.join("known-servers") },
        fingerprint if fingerprint.starts_with("sha256:") => {
            Trust::Pinned(fingerprint.parse().context("--trust").or_bad_input()?)
        }
        path => {
            let pinned = Fingerprint::of_pem(Path::new(path));
            Trust::Pinned(pinned.context("--trust").or_bad_input()?)
        }
    })
}

fn options(
    arguments: &Arguments,
    duration: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<ConnectOptions> {
    let trust = trust(&arguments.trust)?;
    let token =
        arguments.token_file.as_deref().map(home::secret_line).transpose().or_bad_input()?;
    // Twice what is sold: lines are often given a little more, and bursts. What of UDP is sent goes
    // with the control of the measurement.
    let declared = |sold: Option<u64>| match (sold, arguments.udp) {
        (Some(sold), _) => Some(sold.saturating_mul(2)),
        (None, Some(rate)) => Some(rate.saturating_mul(2)),
        (None, None) => None,
    };
    let ask = Ask {
        up_bit_per_s: declared(arguments.tier.map(|tier| tier.up_bit_per_s)),
        down_bit_per_s: declared(arguments.tier.map(|tier| tier.down_bit_per_s)),
        duration,
    };
    let (network, cancel) = (current_network(), interrupt.shared());
    Ok(ConnectOptions { trust, token, ask, network, cancel })
}

/// Load flows in classes that the server does not send are best effort; probes in such classes are
/// sent, and the server says that it answers in the class that arrived.
fn keep_to_markings(steps: &mut [Step], dscp_allowed: u64, notes: &mut Vec<String>) {
    let allows = |dscp: u8| dscp_allowed >> (dscp & 63) & 1 == 1;
    let mut refused = Vec::new();
    for flow in steps.iter_mut().flat_map(|step| &mut step.config.loads) {
        if !allows(flow.marking.dscp) {
            refused.push(flow.marking.dscp);
            flow.marking.dscp = 0;
        }
    }
    refused.sort_unstable();
    refused.dedup();
    if !refused.is_empty() {
        let list: Vec<String> = refused.iter().map(u8::to_string).collect();
        let list = list.join(", ");
        notes.push(format!(
            "the server does not send DSCP {list}: load in these classes is best effort instead"
        ));
    }
}

fn connect_or_wait(
    target: &Target,
    options: &ConnectOptions,
    patience: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<Remote> {
    let until = Instant::now() + patience.unwrap_or(Duration::ZERO);
    loop {
        let error = match connect(target, options) {
            Ok(remote) => return Ok(remote),
            Err(error) => error,
        };
        let Some(ServiceError::Busy { retry_after, .. }) = error.downcast_ref() else {
            return Err(error);
        };
        let again = Instant::now() + *retry_after;
        if again > until {
            return Err(error);
        }
        eprintln!("{error:#}; waiting");
        while Instant::now() < again {
            if interrupt.is_requested() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A session at the target, by whichever of its addresses answers first.
pub fn connect(target: &Target, options: &ConnectOptions) -> anyhow::Result<Remote> {
    match Remote::connect(&target.name, &target.addresses, options) {
        Err(error @ ServiceError::NoAnswer { .. }) => Err(hinted(error.into())),
        other => other.with_context(|| target.name.clone()),
    }
}

/// With what a user can do about an answer of the wrong kind, or none.
fn hinted(error: anyhow::Error) -> anyhow::Error {
    let of_system = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
    };
    let kind = error.chain().find_map(of_system);
    let hint = match kind {
        Some(std::io::ErrorKind::ConnectionRefused) => {
            "nothing listens there: is `underload serve` running, and on this port?"
        }
        // Bytes that are no TLS.
        Some(std::io::ErrorKind::InvalidData) => {
            "what answers there is no underload server: is it the port of something else?"
        }
        _ => return error,
    };
    anyhow::anyhow!("{error:#}; {hint}")
}
