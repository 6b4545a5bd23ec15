//! The load: flows that fill the path while the probe watches.
//!
//! [`LoadServer`] is the far end, [`start_flow`] the near one. Payload is counted where it arrives,
//! 10 times a second, and the sender's view of a TCP flow ([`TcpInfo`]) is recorded as often.
//! Congestion control is always named: what a machine uses by default (CUBIC, BBR) decides what its
//! user sees.
//!
//! ECN on TCP is negotiated by the hosts (`net.ipv4.tcp_ecn` of the network namespace, or the
//! route's `ecn` feature); a socket cannot ask for it, so it is no parameter here. UDP flows carry
//! any ECN.

mod admission;
mod client;
mod congestion;
mod delivered;
mod lease;
mod opened;
mod pace;
mod peer;
mod protocol;
mod server;
mod steady;
mod tcp_client;
mod tcp_info;
mod udp_client;
mod udp_port;

use std::io;
use std::time::Duration;

use underload_record::schema::{Direction, Marking};

#[cfg(fuzzing)]
pub use protocol::read_reports;

pub use admission::{Admission, FlowShare};
pub use client::{FlowHandle, start_flow};
pub use congestion::{
    available_congestion_controls, check_congestion_control, check_present, congestion_control_of,
    set_congestion_control,
};
pub use delivered::Delivered;
use delivered::{DeliveredLog, bytes_at};
pub use protocol::MAGIC;
pub use protocol::{FlowKind, Request, Response, Token, payload};
pub use server::{FlowHost, UdpPort};
pub use server::{LoadServer, LoadServerConfig};
pub use steady::SteadyDetector;
pub use tcp_info::{TcpInfo, acknowledged_bytes};
pub use udp_port::UdpFlows;

/// A flow to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFlow {
    /// Unique in the trial, for example `bulk-0`.
    pub name: String,
    /// Direction in which the payload goes.
    pub direction: Direction,
    /// Transport that carries the payload.
    pub transport: Transport,
    /// DSCP and, for UDP, ECN that its packets carry.
    pub marking: Marking,
    /// How long after the start of the load it starts.
    pub start_after: Duration,
}

/// The transport of a load flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, sending as fast as its congestion control allows.
    Tcp {
        /// Congestion control as the kernel names it, for example `cubic`.
        congestion_control: String,
    },
    /// UDP at a constant rate, evenly spaced or in bursts.
    Udp {
        /// Rate of whole IP packets, bit/s.
        rate_bit_per_s: u64,
        /// IP packet, bytes, headers included; 64 to 1500.
        packet_bytes: u16,
        /// Packets that leave back to back, the rate being the same; 1 is evenly spaced.
        burst_packets: u16,
    },
}

/// A TCP sender's state at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// When, on the run's clock; see [`Delivered::time_ns`].
    pub time_ns: u64,
    /// What of the kernel's `struct tcp_info` is recorded.
    pub info: TcpInfo,
}

/// Counters and curves that one load flow recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowLog {
    /// Cumulative, in order of time.
    pub delivered: Vec<Delivered>,
    /// Of the sender, whichever end that is; empty for UDP.
    pub tcp: Vec<TcpSample>,
    /// What the kernel used where the near end sends over TCP; else `None`.
    pub congestion_control: Option<String>,
    /// Payload bytes that this end wrote to a TCP connection, also those that the far end does not
    /// report as arrived; 0 for UDP.
    pub bytes_sent: u64,
    /// Datagrams that left; `None` for TCP.
    pub packets_sent: Option<u64>,
    /// Why it ended before it was told to; `None` if it did not.
    pub failure: Option<String>,
}

impl FlowLog {
    /// Payload delivered between two instants, bit/s, interpolated between records. `None` if the
    /// records do not reach into the window.
    pub fn goodput_bit_per_s(&self, start_ns: u64, end_ns: u64) -> Option<u64> {
        let window_ns = end_ns.checked_sub(start_ns).filter(|window| *window > 0)?;
        if self.delivered.last()?.time_ns <= start_ns {
            return None;
        }
        let bytes_at = |time_ns| bytes_at(&self.delivered, time_ns);
        let bytes = bytes_at(end_ns).saturating_sub(bytes_at(start_ns));
        Some((u128::from(bytes) * 8_000_000_000 / u128::from(window_ns)) as u64)
    }

    /// Segments that the sender had sent again by the end; `None` for UDP.
    pub fn retransmits(&self) -> Option<u64> {
        self.tcp.last().map(|sample| u64::from(sample.info.retransmits))
    }
}

/// Why a flow or the load server could not work.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel has no such congestion control, or does not let us use it.
    #[error("congestion control {name:?} cannot be used here: available are {available}")]
    CongestionControl {
        /// The congestion control that was asked for.
        name: String,
        /// The congestion controls that the kernel offers, separated by spaces.
        available: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// A parameter is out of range.
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// The value that the user gave.
        value: String,
        /// The values that would be accepted.
        accepted: &'static str,
    },
    /// The far end said no.
    #[error("the load server refuses flow {flow}: {reason}")]
    Refused {
        /// The flow's name.
        flow: String,
        /// In the server's words.
        reason: String,
    },
    /// A socket operation failed.
    #[error("flow {flow}: {step}")]
    Socket {
        /// The flow's name, or the server's.
        flow: String,
        /// The step that failed, as the message has it: "reading its address".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The other end does not speak this protocol.
    #[error("the other end is no load peer of this version: {what}")]
    Protocol {
        /// The part of the peer's message that was not understood.
        what: &'static str,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// From one record to the next.
pub(crate) const RECORD_INTERVAL: Duration = Duration::from_millis(100);
/// How long the other end may take to say hello.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Records per flow at most: 28 hours.
pub(crate) const RECORDS_MAX: usize = 1_000_000;
/// What TCP may hold that is not yet sent (`TCP_NOTSENT_LOWAT`): little, so that "stop" means stop,
/// and enough for bursts.
const NOT_SENT_BYTES: u32 = 128 << 10;

/// Keeps what a connection holds unsent small, so that its load ends when it is told to.
///
/// # Errors
/// What the kernel says.
pub fn keep_little_unsent(socket: &socket2::SockRef<'_>) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket.set_tcp_notsent_lowat(NOT_SENT_BYTES);
    // Elsewhere the send buffer is the limit.
    #[cfg(not(target_os = "linux"))]
    return socket.set_send_buffer_size(NOT_SENT_BYTES as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_interpolated_between_records() {
        let record = |time_ns, bytes| Delivered { time_ns, bytes, packets: 0 };
        let delivered = vec![record(100, 0), record(200, 1_000), record(400, 1_000)];
        let log = FlowLog { delivered, ..FlowLog::default() };
        assert_eq!(log.goodput_bit_per_s(100, 200), Some(80_000_000_000));
        assert_eq!(log.goodput_bit_per_s(150, 250), Some(40_000_000_000));
        assert_eq!(log.goodput_bit_per_s(0, 100), Some(0));
        assert_eq!(log.goodput_bit_per_s(300, 300), None);
        assert_eq!(log.goodput_bit_per_s(400, 500), None, "nothing is known of that window");
        assert_eq!(FlowLog::default().goodput_bit_per_s(0, 100), None);
    }
}
