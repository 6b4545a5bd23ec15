//! ICMP echoes to one host: the caller sends, a thread receives.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::ask::{ECHO_BYTES, EchoSocket, fill};

/// Echoes to one host. Dropping it ends the receiving thread.
#[derive(Debug)]
pub struct Echoes {
    socket: EchoSocket,
    /// Random bytes that answers must contain, so that no other host can forge one.
    secret: [u8; 8],
    /// When each echo was sent that is not answered.
    open: Vec<(u64, Instant)>,
    next: u64,
    arrivals: Receiver<(u64, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub sent: Instant,
    pub round_trip: Duration,
}

/// Echoes that wait for an answer; older ones are given up.
const OPEN_MAX: usize = 1_000;
/// How often the receiving thread checks whether it must end.
const POLL: Duration = Duration::from_millis(500);

impl Echoes {
    /// Opens a socket, and starts the receiving thread.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user may not send echoes.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        Self::start_through(address, None)
    }

    /// As [`Echoes::start`], to the first address of a host to which this works.
    ///
    /// # Errors
    /// Returns an error if the name is unknown, or the error of the last address.
    pub fn to_host(host: &str) -> io::Result<Self> {
        let mut failure = io::Error::other("no address");
        for address in (host, 0).to_socket_addrs()? {
            match Self::start(address) {
                Err(error) => failure = error,
                started => return started,
            }
        }
        Err(failure)
    }

    /// As [`Echoes::start`], through the network interface `device` alone if one is named.
    ///
    /// # Errors
    /// Returns the errors of [`Echoes::start`].
    pub fn start_through(address: SocketAddr, device: Option<&str>) -> io::Result<Self> {
        let socket = EchoSocket::open(address, device)?;
        let mut secret = [0; 8];
        fill(&mut secret)?;
        let (sender, arrivals) = channel();
        let receiving = socket.try_clone()?;
        thread::Builder::new()
            .name("echoes".to_owned())
            .spawn(move || receive(&receiving, secret, &sender))?;
        Ok(Self { socket, secret, open: Vec::new(), next: 0, arrivals })
    }

    /// Sends the next ICMP echo request, and returns when.
    ///
    /// # Errors
    /// Returns the kernel's error, for example that the network is unreachable.
    pub fn send(&mut self) -> io::Result<Instant> {
        let number = self.next;
        self.next += 1;
        let mut payload = [0; ECHO_BYTES];
        payload[..8].copy_from_slice(&self.secret);
        payload[8..16].copy_from_slice(&number.to_be_bytes());
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        let sent = Instant::now();
        self.open.push((number, sent));
        self.socket.send(&payload).map(|()| sent)
    }

    /// Returns the echoes that were answered since the previous call, by the time of sending. A
    /// second answer to an echo does not count.
    pub fn answered(&mut self) -> Vec<Echo> {
        let mut echoes: Vec<Echo> = Vec::new();
        while let Ok((number, arrived)) = self.arrivals.try_recv() {
            let Some(place) = self.open.iter().position(|(open, _)| *open == number) else {
                continue;
            };
            let (_, sent) = self.open.remove(place);
            echoes.push(Echo { sent, round_trip: arrived.saturating_duration_since(sent) });
        }
        echoes.sort_by_key(|echo| echo.sent);
        echoes
    }
}

/// Sends the numbers and times of answers until the receiver is dropped.
fn receive(socket: &EchoSocket, secret: [u8; 8], sender: &Sender<(u64, Instant)>) {
    // A packet without a number shows whether the peer is unreachable.
    const NONE: u64 = u64::MAX;
    loop {
        let number = match socket.receive(POLL) {
            Ok(Some(payload)) if payload[..8] == secret => {
                payload[8..16].try_into().map_or(NONE, u64::from_be_bytes)
            }
            Ok(_) => NONE,
            Err(error) => {
                let is_timeout =
                    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
                if !is_timeout {
                    // The error of an unreachable host is reported repeatedly.
                    thread::sleep(Duration::from_millis(10));
                }
                NONE
            }
        };
        if sender.send((number, Instant::now())).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_echo_is_answered_once_and_in_the_order_of_sending() {
        let mut echoes = match Echoes::start("127.0.0.1:0".parse().unwrap()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!(
                    "SKIPPED each_echo_is_answered_once_and_in_the_order_of_sending: {error}"
                );
                return;
            }
            echoes => echoes.unwrap(),
        };
        let start = Instant::now();
        for _ in 0..5 {
            echoes.send().unwrap();
        }
        let mut answered = Vec::new();
        while answered.len() < 5 {
            assert!(start.elapsed() < Duration::from_secs(20), "{answered:?}");
            answered.extend(echoes.answered());
            thread::sleep(Duration::from_millis(1));
        }
        assert!(answered.windows(2).all(|pair| pair[0].sent <= pair[1].sent));
        assert!(answered.iter().all(|echo| echo.sent >= start));
        assert_eq!(echoes.answered(), []);
    }
}
