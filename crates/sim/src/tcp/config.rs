//! The configuration of a connection.

use underload_aqm::rate::Rate;

use crate::congestion::{Algorithm, EcnUse, OwnControl, PragueConfig, SlowStartExit};

#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Congestion control, unless `own` replaces it.
    pub algorithm: Algorithm,
    /// A custom congestion control that replaces `algorithm`.
    pub own: Option<OwnControl>,
    /// ECN mode: the codepoint of data segments, and the kind of feedback.
    pub ecn: EcnUse,
    pub slow_start_exit: SlowStartExit,
    /// Payload bytes of a full segment.
    pub segment_bytes: u16,
    /// IP and TCP headers with options, bytes.
    pub header_bytes: u16,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Limit of the payload bytes in flight besides the congestion window: the receive window or
    /// the send buffer, whichever is smaller.
    pub receive_window_bytes: u32,
    /// Highest rate of packets, which are then paced, as by an application that limits its transfer.
    pub max_rate: Option<Rate>,
    /// Payload bytes to transfer; `None`: until the flow is stopped.
    pub transfer_bytes: Option<u64>,
    /// Whether to record the delivery delay of each segment, including retransmissions.
    pub notes_delivery: bool,
    /// Used by Prague only.
    pub prague: PragueConfig,
}

impl TcpConfig {
    /// Returns the default with this algorithm and its slow start exit in Linux.
    pub fn of(algorithm: Algorithm) -> Self {
        let slow_start_exit = algorithm.slow_start_exit();
        Self { algorithm, slow_start_exit, ..Self::default() }
    }
}

impl Default for TcpConfig {
    /// Linux over Ethernet: CUBIC, no ECN, 1448 of 1500 bytes, ten segments, default buffer.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            own: None,
            ecn: EcnUse::Off,
            slow_start_exit: SlowStartExit::HyStart,
            segment_bytes: 1_448,
            header_bytes: 52,
            initial_window: 10,
            receive_window_bytes: SEND_BUFFER_BYTES,
            max_rate: None,
            transfer_bytes: None,
            notes_delivery: false,
            prague: PragueConfig::default(),
        }
    }
}

/// Payload in flight that Linux allows with its default send buffer (`tcp_wmem`, 4 MiB). The buffer
/// counts the memory of a packet, about 2,470 bytes for one segment. Measured on an idle machine:
/// 2.4 MB at 12 Mbit/s, 2.6 at 30, 2.7 at 60 and 2.8 at 100; on a busy one, where the sender wakes
/// rarely and makes larger packets, 3.3 to 3.8.
const SEND_BUFFER_BYTES: u32 = 2_500_000;
/// IP and TCP headers with the options of a connection request.
pub(super) const SYN_BYTES: u32 = 60;
