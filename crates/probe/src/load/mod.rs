//! The load: flows that fill the path during a measurement.
//!
//! [`LoadServer`] is the far end, [`start_flow`] the near one. The receiver counts the payload 10
//! times a second; the sender's view of a TCP flow ([`TcpInfo`]) is recorded equally often, and its
//! round trip 100 times a second ([`RoundTripLog`]).
//! Congestion control is always chosen explicitly, because a machine's default (CUBIC, BBR) changes
//! the result.
//!
//! ECN on TCP is negotiated by the hosts (`net.ipv4.tcp_ecn` of the network namespace, or the
//! route's
//! `ecn` feature). A socket cannot request it, so it is not a parameter. UDP flows carry any ECN.

mod admission;
mod client;
mod congestion;
mod delivered;
mod lease;
mod opened;
mod pace;
mod peer;
mod protocol;
mod round_trips;
mod server;
mod steady;
mod tcp_client;
mod tcp_info;
mod udp_client;
mod udp_port;

use std::io;
use std::time::Duration;

use underload_record::schema::{Direction, Marking, PhaseWindow};

#[cfg(feature = "fuzzing")]
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
pub use round_trips::{READ_INTERVAL, RoundTrip, RoundTripLog};
pub use server::{FlowHost, UdpPort};
pub use server::{LoadServer, LoadServerConfig};
pub use steady::SteadyDetector;
pub use tcp_info::{TcpInfo, acknowledged_bytes, arrived_in_order, receiver_rtt_us};
pub use udp_port::UdpFlows;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFlow {
    /// Unique in the trial, for example `bulk-0`.
    pub name: String,
    pub direction: Direction,
    pub transport: Transport,
    /// DSCP and, for UDP, ECN of the flow's packets.
    pub marking: Marking,
    pub start_after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, sending as fast as its congestion control allows.
    Tcp {
        /// Name in the kernel, for example `cubic`.
        congestion_control: String,
    },
    /// UDP at a constant rate, evenly spaced or in bursts.
    Udp {
        /// Rate of whole IP packets, bit/s.
        rate_bit_per_s: u64,
        /// Bytes of an IP packet with its headers; 64 to 1500.
        packet_bytes: u16,
        /// Packets that are sent back to back at an unchanged mean rate; 1 for even spacing.
        burst_packets: u16,
    },
}

/// A TCP sender's state at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// On the run's clock; see [`Delivered::time_ns`].
    pub time_ns: u64,
    pub info: TcpInfo,
}

/// Counters and time series of one load flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowLog {
    /// Cumulative, in order of time.
    pub delivered: Vec<Delivered>,
    /// The sender's state, whichever end sends; empty for UDP.
    pub tcp: Vec<TcpSample>,
    /// The sender's round trips, whichever end sends; empty for UDP and if the sender's system does
    /// not report them.
    pub round_trips: RoundTripLog,
    /// The congestion control in use if the near end sends over TCP; else `None`.
    pub congestion_control: Option<String>,
    /// Payload bytes that this end sent, including those that the far end has not reported as
    /// arrived.
    pub bytes_sent: u64,
    /// Datagrams sent; `None` for TCP.
    pub packets_sent: Option<u64>,
    /// Why the flow ended before it was stopped; `None` if it did not.
    pub failure: Option<String>,
}

impl FlowLog {
    /// Whether no byte of the flow arrived.
    pub fn delivered_nothing(&self) -> bool {
        self.delivered.last().is_none_or(|last| last.bytes == 0)
    }

    /// Returns the payload delivered between two instants, bit/s, interpolated between records;
    /// `None` if no record is inside the window.
    pub fn goodput_bit_per_s(&self, start_ns: u64, end_ns: u64) -> Option<u64> {
        let window_ns = end_ns.checked_sub(start_ns).filter(|window| *window > 0)?;
        if self.delivered.last()?.time_ns <= start_ns {
            return None;
        }
        let bytes_at = |time_ns| bytes_at(&self.delivered, time_ns);
        let bytes = bytes_at(end_ns).saturating_sub(bytes_at(start_ns));
        Some((u128::from(bytes) * 8_000_000_000 / u128::from(window_ns)) as u64)
    }

    /// Returns the readings of the sender's round trip within a window, ns.
    pub fn round_trips_ns(&self, window: PhaseWindow) -> impl Iterator<Item = u64> {
        let readings = self.round_trips.readings.iter();
        let inside = readings.filter(move |reading| window.contains(reading.time_ns));
        inside.map(|reading| u64::from(reading.rtt_us) * 1_000)
    }

    /// Returns the segments that the sender had retransmitted by the end; `None` for UDP.
    pub fn retransmits(&self) -> Option<u64> {
        self.tcp.last().map(|sample| u64::from(sample.info.retransmits))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel has no such congestion control, or this process may not use it.
    #[error("congestion control {name:?} cannot be used here: available are {available}")]
    CongestionControl { name: String, available: String, source: io::Error },
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter { name: &'static str, value: String, accepted: &'static str },
    #[error("the load server refuses flow {flow}: {reason}")]
    Refused { flow: String, reason: String },
    #[error("flow {flow}: {step}")]
    Socket {
        /// The flow's name, or "load server".
        flow: String,
        step: &'static str,
        source: io::Error,
    },
    #[error("the other end is no load peer of this version: {what}")]
    Protocol {
        /// The part of the peer's message that could not be parsed.
        what: &'static str,
    },
    #[error("cancelled")]
    Cancelled,
}

pub(crate) const RECORD_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the handshake of the other end.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of records per flow: 28 hours.
pub(crate) const RECORDS_MAX: usize = 1_000_000;
/// Maximum number of unsent bytes in a TCP socket (`TCP_NOTSENT_LOWAT`): few, so that a stopped
/// flow ends at once, but enough for bursts.
const NOT_SENT_BYTES: u32 = 128 << 10;

/// Limits a connection's unsent data, so that its load ends as soon as it is stopped.
///
/// # Errors
/// Returns the error of the socket option.
pub fn keep_little_unsent(socket: &socket2::SockRef<'_>) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket.set_tcp_notsent_lowat(NOT_SENT_BYTES);
    // Other systems can only limit the send buffer.
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
        assert_eq!(log.goodput_bit_per_s(400, 500), None, "no counter covers that window");
        assert_eq!(FlowLog::default().goodput_bit_per_s(0, 100), None);
    }
}
