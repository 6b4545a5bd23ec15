//! A connection as configured.

use crate::congestion::{Algorithm, EcnUse, OwnControl, PragueConfig, SlowStartExit};

/// A connection to simulate.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Congestion control, unless `own` replaces it.
    pub algorithm: Algorithm,
    /// A congestion control of the caller's instead of `algorithm`.
    pub own: Option<OwnControl>,
    /// ECN mode: the codepoint of data segments, and the kind of feedback.
    pub ecn: EcnUse,
    /// The condition that ends slow start before the first loss.
    pub slow_start_exit: SlowStartExit,
    /// Payload bytes of a full segment.
    pub segment_bytes: u16,
    /// IP and TCP headers with options, bytes.
    pub header_bytes: u16,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Payload bytes that may be under way, whatever the congestion window: the receive window or
    /// the send buffer, whichever is smaller.
    pub receive_window_bytes: u32,
    /// Payload bytes to transfer; `None`: until the flow is stopped.
    pub transfer_bytes: Option<u64>,
    /// Whether to note how long each segment takes, retransmissions included.
    pub notes_delivery: bool,
    /// How much Prague depends on its round trip; others do not look at it.
    pub prague: PragueConfig,
}

impl TcpConfig {
    /// The default with another congestion control, and slow start as Linux ends it there.
    pub fn of(algorithm: Algorithm) -> Self {
        let slow_start_exit = algorithm.slow_start_exit();
        Self { algorithm, slow_start_exit, ..Self::default() }
    }
}

impl Default for TcpConfig {
    /// Linux over Ethernet: CUBIC, no ECN, 1448 bytes in 1500, ten segments, and what the send
    /// buffer lets be under way.
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
            transfer_bytes: None,
            notes_delivery: false,
            prague: PragueConfig::default(),
        }
    }
}

/// Payload that Linux lets be under way with its default send buffer (`tcp_wmem`, 4 MiB): it counts
/// the memory of a packet, about 2,470 bytes where one holds one segment. On an idle machine 2.4
/// MB were seen at 12 Mbit/s, 2.6 at 30, 2.7 at 60 and 2.8 at 100; on a busy one, where it is
/// rarely woken and makes larger packets, 3.3 to 3.8.
const SEND_BUFFER_BYTES: u32 = 2_500_000;
/// IP and TCP headers with the options of a connection request.
pub(super) const SYN_BYTES: u32 = 60;
