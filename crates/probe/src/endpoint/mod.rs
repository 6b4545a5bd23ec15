//! The two ends of a probe on real sockets, with plain threads.
//!
//! [`Prober`] runs a [`crate::session::Schedule`] on a separate thread with absolute deadlines;
//! [`Requester`] runs a [`crate::session::ClosedLoop`]; [`Reflector`] answers both. Sockets come
//! from the caller, so the two ends may be in different network namespaces of one process.

#[cfg(unix)]
mod ancillary;
#[cfg(windows)]
#[path = "ancillary_windows.rs"]
mod ancillary;
mod bucket;
mod prober;
mod received;
mod recent;
mod reflector;
mod requester;
mod socket;
mod thread;

pub use bucket::Bucket;
pub(crate) use prober::encode_request;
pub use prober::{ProbeClass, ProbeLog, Prober, ProberConfig};
pub use received::Received;
pub use reflector::{Gate, Reflector, ReflectorConfig, ReflectorCounts};
pub use requester::{Requester, RequesterConfig};
pub use socket::ProbeSocket;
pub use thread::ThreadTiming;

use std::thread::{Builder, JoinHandle};

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("cannot set up the {end} socket: {step}")]
    Socket {
        /// The end that failed, as messages call it: "prober", "reflector".
        end: &'static str,
        step: &'static str,
        source: std::io::Error,
    },
    #[error("cannot start the {name} thread")]
    Thread { name: &'static str, source: std::io::Error },
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter { name: &'static str, value: u64, accepted: &'static str },
    /// A thread panicked: a defect of this crate.
    #[error("the {name} thread panicked")]
    Panicked { name: &'static str },
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, EndpointError> {
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|source| EndpointError::Thread { name, source })
}

/// Joins a thread that [`spawn`] started; returns a default value if `thread` is `None`.
fn join<T: Default>(thread: Option<JoinHandle<T>>, name: &'static str) -> Result<T, EndpointError> {
    let Some(thread) = thread else { return Ok(T::default()) };
    thread.join().map_err(|_| EndpointError::Panicked { name })
}
