//! The two ends of a probe on real sockets, with plain threads.
//!
//! [`Prober`] runs a [`crate::session::Schedule`] on a thread of its own with absolute deadlines;
//! [`Requester`] runs a [`crate::session::ClosedLoop`]; [`Reflector`] answers both. Sockets come
//! from the caller, so the two ends may live in different network namespaces of one process.

mod ancillary;
mod bucket;
mod prober;
mod recent;
mod reflector;
mod requester;
mod socket;
mod thread;

pub use bucket::Bucket;
pub(crate) use prober::encode_request;
pub use prober::{ProbeClass, ProbeLog, Prober, ProberConfig};
pub use recent::RecentLatency;
pub use reflector::{Gate, Reflector, ReflectorConfig, ReflectorCounts};
pub use requester::{Requester, RequesterConfig};
pub use socket::{ProbeSocket, Received};
pub use thread::ThreadTiming;

/// Why a prober, requester or reflector could not work.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A socket could not be prepared.
    #[error("cannot set up the {end} socket: {step}")]
    Socket {
        /// The part that failed, as messages call it: "prober", "reflector".
        end: &'static str,
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start the {name} thread")]
    Thread {
        /// The thread's name.
        name: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A parameter is out of range.
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// The value that the user gave.
        value: u64,
        /// The values that would be accepted.
        accepted: &'static str,
    },
    /// A thread of ours panicked: a bug in this crate.
    #[error("the {name} thread panicked")]
    Panicked {
        /// The thread's name.
        name: &'static str,
    },
}
