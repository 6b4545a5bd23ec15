//! The kernel's state of a TCP connection.

use std::io;

use crate::sys::{TCP_INFO_LEN, tcp_info};
use crate::system::AsFd;

/// The fields of Linux's `struct tcp_info` (linux/tcp.h) that explain a bulk flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip, us.
    pub rtt_us: u32,
    pub rtt_variance_us: u32,
    /// Smallest recent round trip, us.
    pub rtt_min_us: u32,
    pub congestion_window_segments: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Segments acknowledged with an ECN echo since the connection began.
    pub delivered_ce: u32,
    /// Most recent delivery rate, bytes per second.
    pub delivery_rate_bytes_per_s: u64,
    /// Pacing rate, bytes per second; all bits one without pacing.
    pub pacing_rate_bytes_per_s: u64,
}

impl TcpInfo {
    pub const LEN: usize = 40;

    /// Reads `TCP_INFO` of a connected socket.
    ///
    /// # Errors
    /// Returns the kernel's error, for example for a socket that is not TCP.
    pub fn read(socket: &impl AsFd) -> io::Result<Self> {
        let raw = tcp_info(socket.as_fd())?;
        Ok(Self {
            rtt_us: native_u32(&raw, 68),
            rtt_variance_us: native_u32(&raw, 72),
            rtt_min_us: native_u32(&raw, 148),
            congestion_window_segments: native_u32(&raw, 80),
            retransmits: native_u32(&raw, 100),
            delivered_ce: native_u32(&raw, 196),
            delivery_rate_bytes_per_s: native_u64(&raw, 160),
            pacing_rate_bytes_per_s: native_u64(&raw, 104),
        })
    }

    /// Reads `TCP_INFO`; `None` on systems without it.
    pub fn if_supported(socket: &impl AsFd) -> io::Result<Option<Self>> {
        match Self::read(socket) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            info => info.map(Some),
        }
    }

    /// Encodes the state for the wire, big-endian.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let words = [
            self.rtt_us,
            self.rtt_variance_us,
            self.rtt_min_us,
            self.congestion_window_segments,
            self.retransmits,
            self.delivered_ce,
        ];
        let mut bytes = [0; Self::LEN];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_be_bytes());
        }
        bytes[24..32].copy_from_slice(&self.delivery_rate_bytes_per_s.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.pacing_rate_bytes_per_s.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |offset| u32::from_be_bytes(part(bytes, offset));
        Self {
            rtt_us: word(0),
            rtt_variance_us: word(4),
            rtt_min_us: word(8),
            congestion_window_segments: word(12),
            retransmits: word(16),
            delivered_ce: word(20),
            delivery_rate_bytes_per_s: u64::from_be_bytes(part(bytes, 24)),
            pacing_rate_bytes_per_s: u64::from_be_bytes(part(bytes, 32)),
        }
    }
}

/// Returns the payload bytes that the peer has acknowledged since the connection began, plus one
/// for the handshake. Bytes in this end's buffers do not count.
pub fn acknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    Ok(native_u64(&tcp_info(socket.as_fd())?, 120))
}

/// Returns the round trip of a connection as its receiving end derives it from the TCP time stamps
/// of the payload, smoothed, us. `None` if the connection has no time stamps: the kernel then knows
/// only an upper bound. 0 before the first payload.
pub fn receiver_rtt_us(socket: &impl AsFd) -> io::Result<Option<u32>> {
    const TIME_STAMPS: u8 = 1;
    let raw = tcp_info(socket.as_fd())?;
    Ok((raw[5] & TIME_STAMPS != 0).then(|| native_u32(&raw, 92)))
}

/// Returns whether every segment of the peer arrived in order since the connection began: then none
/// was lost on the way. `None` if the kernel does not count others (before Linux 5.4), or if the
/// connection negotiated ECN, with which a full queue marks segments instead.
pub fn arrived_in_order(socket: &impl AsFd) -> io::Result<Option<bool>> {
    const ECN: u8 = 8;
    let raw = tcp_info(socket.as_fd())?;
    // The window that the peer offers is the field after the count, and came with it.
    let is_counted = native_u32(&raw, 228) > 0;
    Ok((is_counted && raw[5] & ECN == 0).then(|| native_u32(&raw, 224) == 0))
}

fn native_u32(raw: &[u8; TCP_INFO_LEN], offset: usize) -> u32 {
    u32::from_ne_bytes(part(raw, offset))
}

fn native_u64(raw: &[u8; TCP_INFO_LEN], offset: usize) -> u64 {
    u64::from_ne_bytes(part(raw, offset))
}

pub(super) fn part<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[offset + index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_loopback_connection_has_plausible_numbers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let info = TcpInfo::read(&near).unwrap();
        assert!(info.rtt_us > 0 && info.rtt_us < 5_000_000);
        assert!((2..10_000).contains(&info.congestion_window_segments));
        assert_eq!((info.retransmits, info.delivered_ce), (0, 0));
        assert!(receiver_rtt_us(&far).unwrap().is_none_or(|rtt_us| rtt_us < 5_000_000));
        // `None` where connections negotiate ECN.
        assert_ne!(arrived_in_order(&far).unwrap(), Some(false));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::read(&udp).is_err());
    }

    #[test]
    fn acknowledged_bytes_exclude_the_send_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[1; 1000]) {
            written += count as u64;
        }
        // The peer does not read: arrived data is in its buffer, the rest in this end's.
        let mut buffer = vec![0; 64 << 20];
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let arrived = far.peek(&mut buffer).unwrap() as u64;
            let acknowledged = acknowledged_bytes(&near).unwrap();
            assert!(acknowledged <= arrived + 1 && acknowledged < written);
            if acknowledged == arrived + 1 && arrived > 0 {
                break;
            }
            assert!(std::time::Instant::now() < until, "{acknowledged} of {arrived}");
        }
        near.set_nonblocking(false).unwrap();
        far.read_exact(&mut buffer[..written as usize]).unwrap();
        while acknowledged_bytes(&near).unwrap() < written + 1 {
            assert!(std::time::Instant::now() < until);
        }
    }

    #[test]
    fn numbers_survive_the_round_trip() {
        let info = TcpInfo {
            rtt_us: 1,
            rtt_variance_us: 2,
            rtt_min_us: 3,
            congestion_window_segments: 4,
            retransmits: 5,
            delivered_ce: 6,
            delivery_rate_bytes_per_s: 7,
            pacing_rate_bytes_per_s: u64::MAX,
        };
        assert_eq!(TcpInfo::from_bytes(&info.to_bytes()), info);
    }
}
