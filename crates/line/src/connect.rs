//! Connects to `underload serve`: verifies the server, requests a session, and adds hints to
//! errors.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underload_disk::folders;
use underload_probe::control::{
    Ask, ConnectOptions, Fingerprint, Remote, ServiceError, Trust, in_full, read_secret,
};
use underload_probe::network::{current_network, network_through};

use crate::error::{BadSetting, LineError, Setting};
use crate::target::Target;
use crate::{Progress, Request};

pub(crate) const FIRST_USE: &str = "first-use";

/// Parses `first-use`, a fingerprint, or the path of a certificate in PEM, whose key is trusted.
///
/// # Errors
/// Returns an error if the fingerprint or the file is malformed, or if `first-use` finds no home
/// directory for the file of known servers.
pub fn trust(text: &str) -> Result<Trust, LineError> {
    let pinned = match text {
        FIRST_USE => {
            let data = folders::data().ok_or(LineError::NoDataFolder)?;
            return Ok(Trust::FirstUse { known_servers: data.join("known-servers") });
        }
        fingerprint if fingerprint.starts_with("sha256:") => fingerprint.parse(),
        path => Fingerprint::of_pem(Path::new(path)),
    };
    let bad = |error: ServiceError| BadSetting { setting: Setting::Trust, source: error.into() };
    Ok(Trust::Pinned(pinned.map_err(bad)?))
}

/// Reads the first line of a file with a token.
pub(crate) fn read_token(path: &Path) -> Result<String, LineError> {
    let bytes = read_secret(path).map_err(LineError::TokenFile)?;
    let text = String::from_utf8_lossy(&bytes);
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(token.to_owned()),
        _ => Err(LineError::NoToken { path: path.to_owned() }),
    }
}

pub(crate) fn options(
    request: &Request,
    duration: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<ConnectOptions, LineError> {
    let trust = trust(&request.trust)?;
    let token = request.token_file.as_deref().map(read_token).transpose()?;
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
    Ok(ConnectOptions { trust, token, ask, network, cancel: Arc::clone(stop) })
}

pub(crate) fn connect_or_wait(
    target: &Target,
    options: &ConnectOptions,
    patience: Option<Duration>,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Remote, LineError> {
    let until = Instant::now() + patience.unwrap_or(Duration::ZERO);
    loop {
        let error = match connect(target, options) {
            Ok(remote) => return Ok(remote),
            Err(error) => error,
        };
        let busy_for = match &error {
            LineError::Connect { source, .. } => match **source {
                ServiceError::Busy { retry_after, .. } => Some(retry_after),
                _ => None,
            },
            _ => None,
        };
        let Some(retry_after) = busy_for else { return Err(error) };
        let again = Instant::now() + retry_after;
        if again > until {
            return Err(error);
        }
        progress.note(&format!("{}; waiting", in_full(&error)));
        while Instant::now() < again {
            if stop.load(Ordering::Relaxed) {
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
pub fn connect(target: &Target, options: &ConnectOptions) -> Result<Remote, LineError> {
    match Remote::connect(&target.name, &target.addresses, options) {
        Err(error @ ServiceError::NoAnswer { .. }) => Err(match hint(&error) {
            Some(hint) => LineError::NoAnswer { error: Box::new(error), hint },
            None => error.into(),
        }),
        Err(source) => {
            Err(LineError::Connect { server: target.name.clone(), source: Box::new(source) })
        }
        Ok(remote) => Ok(remote),
    }
}

/// Returns what a user can do about a refused or closed connection, or an answer that is not TLS.
fn hint(error: &ServiceError) -> Option<&'static str> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let io_error = loop {
        match cause?.downcast_ref::<io::Error>() {
            Some(io_error) => break io_error,
            None => cause = cause?.source(),
        }
    };
    match io_error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Some("nothing listens there: is `underload serve` running, and on this port?")
        }
        // The bytes are not TLS.
        io::ErrorKind::InvalidData => {
            Some("what answers there is no underload server: is it the port of something else?")
        }
        io::ErrorKind::UnexpectedEof => {
            Some("the other side closed the connection: is it the port of something else?")
        }
        _ => None,
    }
}
