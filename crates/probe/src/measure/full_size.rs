//! Whether packets of full size pass a path that passes small ones. Behind tunnels that send no ICMP
//! they vanish, and a transfer then delivers nothing.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Endpoints;
use crate::wire::{BASE_LEN, SenderPacket};

/// Packets of each size.
const PACKETS: u32 = 3;
/// Longest wait for their answers.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// Largest IP packet of most networks.
const FULL_BYTES: usize = 1_500;

/// Sends small packets and packets of 1,500 bytes to the reflector, which answers in their size.
/// Returns whether those of 1,500 bytes come back; `None` if no packet does.
pub(super) fn passes(endpoints: &Endpoints) -> Option<bool> {
    let socket = endpoints.udp_socket("path MTU").ok()?;
    let target = endpoints.reflector;
    let headers = if let SocketAddr::V4(_) = target { 28 } else { 48 };
    let mut large = [0; FULL_BYTES];
    let large = &mut large[..FULL_BYTES - headers];
    for sequence in 0..PACKETS {
        SenderPacket { sequence, ..SenderPacket::default() }.encode(large).ok()?;
        // An error means that this machine itself knows a smaller MTU.
        socket.send_to(large, target).ok()?;
        socket.send_to(&large[..BASE_LEN], target).ok()?;
    }
    let (start, mut small, mut buffer) = (Instant::now(), false, [0; 2 * FULL_BYTES]);
    while let Some(left) = ANSWERS_MAX.checked_sub(start.elapsed()).filter(|it| !it.is_zero()) {
        socket.set_read_timeout(Some(left)).ok()?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if from.ip() == target.ip() && length > BASE_LEN => {
                return Some(true);
            }
            Ok(_) => small = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    small.then_some(false)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::measure::FarClock;
    use crate::network::current_network;

    /// Returns what is found behind a path that passes packets of at most `largest` bytes of UDP.
    fn found(largest: usize) -> Option<bool> {
        let reflector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = reflector.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2 * FULL_BYTES];
            for _ in 0..2 * PACKETS {
                let (length, from) = reflector.recv_from(&mut buffer).expect("a packet");
                if length <= largest {
                    reflector.send_to(&buffer[..length], from).expect("sent");
                }
            }
        });
        let endpoints = Endpoints {
            network: current_network(),
            reflector: address,
            load_server: address,
            far_clock: FarClock::Separate,
        };
        let found = passes(&endpoints);
        thread.join().expect("no panic");
        found
    }

    #[test]
    fn a_path_that_loses_full_packets_is_distinguished_from_one_that_loses_all() {
        assert_eq!(found(FULL_BYTES), Some(true));
        assert_eq!(found(1_400), Some(false));
        assert_eq!(found(0), None);
    }
}
