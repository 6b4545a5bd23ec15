//! Datagrams at a constant rate, evenly spaced or in bursts.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::protocol::{DatagramHeader, payload};
use crate::clock::RunClock;
use crate::endpoint::ThreadTiming;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Rate of whole IP packets, bit/s.
    pub rate_bit_per_s: u64,
    pub packet_bytes: u16,
    /// Packets that are sent back to back, at least 1.
    pub burst_packets: u16,
    /// IP and UDP header, bytes.
    pub header_bytes: u16,
    pub cookie: u64,
}

/// Counters of a paced sender, readable from other threads.
#[derive(Debug, Default)]
pub(super) struct PacedCounts {
    pub packets: AtomicU64,
    /// Payload of the packets, which the flow of a client shares with its reader.
    pub bytes: Arc<AtomicU64>,
}

/// A sender that was delayed sends packets that are at most this late and skips older ones, so that
/// a stall does not cause a burst above the rate.
const CATCH_UP_MAX: Duration = Duration::from_millis(20);

/// Returns the bytes of the IP and UDP headers of packets to `peer`.
pub(super) fn header_bytes(peer: SocketAddr) -> u16 {
    match peer.ip() {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => 48,
        _ => 28,
    }
}

/// Sends on a connected socket until `end_ns` or until `is_stopped`. Blocks the calling thread.
/// `admits` is called for every packet, with its IP length, and may return how long to wait.
pub(super) fn send_paced(
    socket: &UdpSocket,
    pace: Pace,
    clock: RunClock,
    end_ns: u64,
    is_stopped: impl Fn() -> bool,
    admits: impl Fn(u16) -> Result<(), Duration>,
    counts: &PacedCounts,
) {
    let timing = ThreadTiming { real_time_priority: None, spin_ns: 20_000 };
    timing.apply();
    let payload_bytes = usize::from(pace.packet_bytes.saturating_sub(pace.header_bytes));
    let mut datagram = payload(payload_bytes.max(DatagramHeader::LEN));
    let start_ns = clock.now_ns();
    let bit_nanos = u128::from(pace.packet_bytes) * 8 * 1_000_000_000;
    let due_ns = |index: u64| {
        // All packets of a burst are due with the first one.
        let first = index - index % u64::from(pace.burst_packets.max(1));
        let offset_ns = u128::from(first) * bit_nanos / u128::from(pace.rate_bit_per_s.max(1));
        start_ns.saturating_add(u64::try_from(offset_ns).unwrap_or(u64::MAX))
    };
    let catch_up_ns = CATCH_UP_MAX.as_nanos() as u64;
    let mut index = 0;
    let mut sequence = 0;
    while !is_stopped() {
        let now_ns = timing.wait_until(clock, due_ns(index).min(end_ns));
        if now_ns >= end_ns {
            return;
        }
        if now_ns < due_ns(index) {
            continue;
        }
        let is_too_late = now_ns - due_ns(index) > catch_up_ns;
        if !is_too_late && let Err(wait) = admits(pace.packet_bytes) {
            // Packets that become too late during the wait are skipped.
            clock.sleep_until(now_ns.saturating_add(wait.min(CATCH_UP_MAX).as_nanos() as u64));
            continue;
        }
        index += 1;
        if is_too_late {
            continue;
        }
        let header = DatagramHeader { cookie: pace.cookie, sequence };
        datagram[..DatagramHeader::LEN].copy_from_slice(&header.encode());
        sequence += 1;
        // A packet that the kernel refuses (queue full, port closed) is not counted as sent.
        if let Ok(bytes) = socket.send(&datagram) {
            counts.packets.fetch_add(1, Ordering::Relaxed);
            counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}
