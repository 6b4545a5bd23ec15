//! Connects to `underload serve`: whom to trust, what to ask for, and which hints help.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use underload_probe::control::{Ask, ConnectOptions, Fingerprint, Remote, ServiceError, Trust};
use underload_probe::network::{current_network, network_through};
use underload_terminal::exit::OrBadInput as _;
use underload_terminal::home;
use underload_terminal::interrupt::Interrupt;

use crate::target::Target;
use crate::{Progress, Request};

pub(crate) const FIRST_USE: &str = "first-use";

/// Parses `first-use`, a fingerprint, or the path of a certificate in PEM, whose key is trusted.
///
/// # Errors
/// Returns an error if the fingerprint or the file is malformed, or if `first-use` finds no home
/// directory for the file of known servers.
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

pub(crate) fn options(
    request: &Request,
    duration: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<ConnectOptions> {
    let trust = trust(&request.trust)?;
    let token = request.token_file.as_deref().map(home::secret_line).transpose().or_bad_input()?;
    // Twice the rate that is sold: many lines carry a little more, and bursts. UDP load also
    // carries the control traffic of the measurement.
    let udp = request.knobs.udp.map(|udp| udp.rate_bit_per_s);
    let declared = |sold: Option<u64>| sold.or(udp).map(|rate| rate.saturating_mul(2));
    let ask = Ask {
        up_bit_per_s: declared(request.tier.map(|tier| tier.up_bit_per_s)),
        down_bit_per_s: declared(request.tier.map(|tier| tier.down_bit_per_s)),
        duration,
    };
    let network = request.interface.as_deref().map_or_else(current_network, network_through);
    let cancel = interrupt.shared();
    Ok(ConnectOptions { trust, token, ask, network, cancel })
}

pub(crate) fn connect_or_wait(
    target: &Target,
    options: &ConnectOptions,
    patience: Option<Duration>,
    progress: &mut dyn Progress,
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
        progress.note(&format!("{error:#}; waiting"));
        while Instant::now() < again {
            if interrupt.is_requested() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Connects to the address of the target that answers first.
///
/// # Errors
/// Returns an error if no address answers, or the server is not trusted or grants no session.
pub fn connect(target: &Target, options: &ConnectOptions) -> anyhow::Result<Remote> {
    match Remote::connect(&target.name, &target.addresses, options) {
        Err(error @ ServiceError::NoAnswer { .. }) => Err(with_hint(error.into())),
        other => other.with_context(|| target.name.clone()),
    }
}

/// Adds what a user can do about a refused or closed connection, or an answer that is not TLS.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let hint = match io_error.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::ConnectionRefused) => {
            "nothing listens there: is `underload serve` running, and on this port?"
        }
        // The bytes are not TLS.
        Some(std::io::ErrorKind::InvalidData) => {
            "what answers there is no underload server: is it the port of something else?"
        }
        Some(std::io::ErrorKind::UnexpectedEof) => {
            "the other side closed the connection: is it the port of something else?"
        }
        _ => return error,
    };
    anyhow::anyhow!("{error:#}; {hint}")
}
