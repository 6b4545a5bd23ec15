//! A server for `iperf3 -c`: TCP and UDP load, both directions, several tests at once.
//!
//! A client opens a control connection with a cookie, sends its parameters as JSON, opens data
//! connections with the same cookie (UDP: a hello datagram), and runs until it sends the end of the
//! test or its time is up; then both ends exchange results.
//!
//! Differences from iperf3's own server:
//!
//! - **Several tests at once**, each with a place ([`Iperf3Limits::tests_max`], also per network);
//!   without a free place a client gets iperf3's "busy" at once.
//! - Every test has a lease by this machine's clock: its declared time, at most
//!   [`Iperf3Limits::duration_max`]. A test also ends when nothing moves.
//! - With `-n` and `-k` the server stops sending over TCP after a whole block; iperf3's server
//!   continues until the client reports that it has enough. Over UDP both servers continue, because
//!   datagrams may be lost.
//! - The rate limit paces sending and reading, so that TCP slows down and is not cut off. UDP
//!   towards the server cannot be slowed down: the client has to declare its rate (`-b`), and the
//!   test ends if it exceeds the limit.
//! - UDP streams share one socket. A client's hello is answered, byte for byte, only while a test
//!   of the same address waits for it. Two UDP tests of one address open their streams one after
//!   the other, because a hello does not name its test.
//! - Payload is generated here. DSCP is sent only from an allow-list, and ECN not at all.
//! - Not supported: SCTP, authentication with RSA-encrypted passwords, MSS, zero copy, GSO. A
//!   client that requests SCTP is refused; the others do not change the traffic.

mod control;
mod parameters;
mod results;
mod server;
mod stream;
mod test;
mod udp;

use std::time::Duration;

use underload_probe::wire::MarkingPolicy;

pub use parameters::{Parameters, Protocol, Refusal};
pub use results::check_results;
pub use server::{Iperf3Counts, Iperf3Server};
pub use udp::{Datagram, Reception};

/// The TCP and UDP port that iperf3's client uses.
pub const IPERF3_PORT: u16 = 5201;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iperf3Limits {
    pub tests_max: usize,
    /// A network is a /24 of IPv4 or a /56 of IPv6.
    pub tests_per_network_max: usize,
    /// Streams of one test, per direction.
    pub streams_max: u32,
    /// Longest test, with omitted seconds.
    pub duration_max: Duration,
    /// Rate of one test in one direction, bit/s of payload; `None` for no limit. All tests together
    /// have at most [`Iperf3Limits::tests_max`] times this rate.
    pub bit_per_s_max: Option<u64>,
    /// A test in which nothing moves for this long ends.
    pub idle_timeout: Duration,
    pub policy: MarkingPolicy,
}

impl Default for Iperf3Limits {
    /// Four tests, two per network, 32 streams, two minutes, 1 Gbit/s, 15 s without progress.
    fn default() -> Self {
        Self {
            tests_max: 4,
            tests_per_network_max: 2,
            streams_max: 32,
            duration_max: Duration::from_mins(2),
            bit_per_s_max: Some(1_000_000_000),
            idle_timeout: Duration::from_secs(15),
            policy: MarkingPolicy::PUBLIC,
        }
    }
}

/// States on a control connection, one byte each.
mod state {
    pub const TEST_START: i8 = 1;
    pub const TEST_RUNNING: i8 = 2;
    pub const TEST_END: i8 = 4;
    pub const PARAM_EXCHANGE: i8 = 9;
    pub const CREATE_STREAMS: i8 = 10;
    pub const SERVER_TERMINATE: i8 = 11;
    pub const EXCHANGE_RESULTS: i8 = 13;
    pub const DISPLAY_RESULTS: i8 = 14;
    pub const ACCESS_DENIED: i8 = -1;
    pub const SERVER_ERROR: i8 = -2;
}

/// Longest time for each step of opening and closing a test.
const STEP_MAX: Duration = Duration::from_secs(10);
