//! UDP streams: one socket for all; the sender's address identifies the stream.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::SockRef;
use underload_probe::RunClock;
use underload_probe::network::POLL_INTERVAL;

/// The header of a datagram: `seconds u32 | microseconds u32 | counter u32 or u64`, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// When the datagram was sent, us of the sender's clock.
    pub sent_us: u64,
    /// Number of the datagram in its stream, from 1.
    pub counter: u64,
}

impl Datagram {
    /// Bytes of a header with a counter of 64 bits.
    pub const LEN: usize = 16;

    /// Reads a header; `None` if the datagram is too short.
    pub fn decode(bytes: &[u8], counter_64bit: bool) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let sent_us = u64::from(word(0)?) * 1_000_000 + u64::from(word(4)?);
        let high = u64::from(word(8)?);
        let counter = if counter_64bit { high << 32 | u64::from(word(12)?) } else { high };
        Some(Self { sent_us, counter })
    }

    /// Writes the header to the start of `bytes`, which has at least [`Datagram::LEN`] bytes.
    pub fn encode(self, counter_64bit: bool, bytes: &mut [u8]) {
        let mut header = [0; Self::LEN];
        header[..4].copy_from_slice(&((self.sent_us / 1_000_000) as u32).to_be_bytes());
        header[4..8].copy_from_slice(&((self.sent_us % 1_000_000) as u32).to_be_bytes());
        let len = if counter_64bit {
            header[8..].copy_from_slice(&self.counter.to_be_bytes());
            Self::LEN
        } else {
            header[8..12].copy_from_slice(&(self.counter as u32).to_be_bytes());
            12
        };
        if let Some(front) = bytes.get_mut(..len) {
            front.copy_from_slice(&header[..len]);
        }
    }
}

/// Counters of a stream's arrivals, as iperf3 counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reception {
    pub bytes: u64,
    /// The highest counter that has arrived.
    pub packets: u64,
    /// Counters that have not arrived yet.
    pub lost: u64,
    /// Datagrams that arrived after a later one.
    pub out_of_order: u64,
    /// Smoothed variation of the transit time, s (RFC 1889 section 6.3.1).
    pub jitter_s: f64,
    /// Transit time of the previous datagram, us; `None` before the first.
    transit_us: Option<i64>,
}

impl Reception {
    /// Counts a datagram of `bytes` that arrived at `arrived_us`.
    pub fn note(&mut self, datagram: Datagram, bytes: usize, arrived_us: u64) {
        self.bytes += bytes as u64;
        if datagram.counter > self.packets {
            self.lost = self.lost.saturating_add(datagram.counter - self.packets - 1);
            self.packets = datagram.counter;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let transit_us = (arrived_us as i64).wrapping_sub(datagram.sent_us as i64);
        let before_us = self.transit_us.replace(transit_us).unwrap_or(transit_us);
        let variation_s = transit_us.wrapping_sub(before_us).unsigned_abs() as f64 / 1e6;
        self.jitter_s += (variation_s - self.jitter_s) / 16.0;
    }

    /// Resets the jitter at the end of the omitted time.
    pub fn restart_jitter(&mut self) {
        self.jitter_s = 0.0;
    }
}

/// A stream, identified by the client's socket address.
#[derive(Debug)]
pub(super) struct UdpStream {
    pub peer: SocketAddr,
    counter_64bit: bool,
    is_running: AtomicBool,
    reception: Mutex<Reception>,
}

impl UdpStream {
    pub(super) fn run(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::Relaxed);
    }

    pub(super) fn reception(&self) -> MutexGuard<'_, Reception> {
        self.reception.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The UDP socket of all tests, and the streams that use it.
#[derive(Debug)]
pub(super) struct UdpHub {
    pub socket: UdpSocket,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    streams: BTreeMap<SocketAddr, Arc<UdpStream>>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    address: IpAddr,
    counter_64bit: bool,
    missing: usize,
    found: Sender<Arc<UdpStream>>,
}

/// The streams of a test; dropping it removes them from the hub.
#[derive(Debug)]
pub(super) struct UdpClaim {
    pub hub: Arc<UdpHub>,
    id: u64,
    // The lock only allows the test's threads to share the claim.
    found: Mutex<Receiver<Arc<UdpStream>>>,
    pub streams: Vec<Arc<UdpStream>>,
}

/// A client's hello and its answer, old and new, as bytes on the wire.
const HELLOS: [([u8; 4], [u8; 4]); 2] =
    [(*b"9876", *b"6789"), (123_456_789u32.to_le_bytes(), 987_654_321u32.to_le_bytes())];
/// Socket buffers for datagrams that arrive while the thread waits for a processor.
const BUFFER_BYTES: usize = 8 << 20;

impl UdpHub {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        let options = SockRef::from(&socket);
        // The kernel may cap the buffers at its own limit.
        let _ = options.set_recv_buffer_size(BUFFER_BYTES);
        let _ = options.set_send_buffer_size(BUFFER_BYTES);
        Ok(Self { socket, inner: Mutex::default() })
    }

    /// Lets hellos of `address` open streams of this test; `None` while another test of the same
    /// address waits for its streams.
    pub(super) fn claim(
        self: &Arc<Self>,
        id: u64,
        address: IpAddr,
        counter_64bit: bool,
        streams: usize,
    ) -> Option<UdpClaim> {
        let mut inner = self.lock();
        let address = address.to_canonical();
        if inner.waiting.iter().any(|waiting| waiting.address == address) {
            return None;
        }
        let (found, receiver) = channel();
        inner.waiting.push(Waiting { id, address, counter_64bit, missing: streams, found });
        let found = Mutex::new(receiver);
        Some(UdpClaim { hub: Arc::clone(self), id, found, streams: Vec::new() })
    }

    /// Receives datagrams of all streams until stopped.
    pub(super) fn serve(&self, stop: &AtomicBool) {
        let clock = RunClock::start();
        let mut datagram = vec![0; 1 << 16];
        let mut last: Option<Arc<UdpStream>> = None;
        while !stop.load(Ordering::Relaxed) {
            // Errors are the timeout, signals, and ICMP errors of earlier answers.
            let Ok((bytes, peer)) = self.socket.recv_from(&mut datagram) else { continue };
            let datagram = &datagram[..bytes];
            if let Some((_, reply)) = HELLOS.iter().find(|(hello, _)| hello == datagram) {
                if self.welcome(peer) {
                    let _ = self.socket.send_to(reply, peer);
                }
                continue;
            }
            // A stream that has ended may have a successor with the same address.
            let is_running = |stream: &UdpStream| stream.is_running.load(Ordering::Relaxed);
            if last.as_ref().is_none_or(|stream| stream.peer != peer || !is_running(stream)) {
                last = self.lock().streams.get(&peer).cloned();
            }
            if let Some(stream) = &last
                && is_running(stream)
                && let Some(header) = Datagram::decode(datagram, stream.counter_64bit)
            {
                let arrived_us = clock.now_on_both().unix_ns / 1_000;
                stream.reception().note(header, bytes, arrived_us);
            }
        }
    }

    /// Returns true if a hello is answered: of a known stream, or from the address of a test that
    /// waits for streams.
    fn welcome(&self, peer: SocketAddr) -> bool {
        let mut inner = self.lock();
        if inner.streams.contains_key(&peer) {
            return true;
        }
        let address = peer.ip().to_canonical();
        let Some(place) = inner.waiting.iter().position(|waiting| waiting.address == address)
        else {
            return false;
        };
        let waiting = &mut inner.waiting[place];
        let stream = Arc::new(UdpStream {
            peer,
            counter_64bit: waiting.counter_64bit,
            is_running: AtomicBool::new(false),
            reception: Mutex::default(),
        });
        let is_awaited = waiting.found.send(Arc::clone(&stream)).is_ok();
        waiting.missing -= usize::from(is_awaited);
        if !is_awaited || waiting.missing == 0 {
            inner.waiting.remove(place);
        }
        if is_awaited {
            inner.streams.insert(peer, stream);
        }
        is_awaited
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics half-way through a change under this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UdpClaim {
    /// Adds the streams that have opened since the last call.
    pub(super) fn collect(&mut self) {
        let found = self.found.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.streams.extend(found.try_iter());
    }
}

impl Drop for UdpClaim {
    fn drop(&mut self) {
        self.hub.lock().waiting.retain(|waiting| waiting.id != self.id);
        // Streams that opened after the last call are removed, too.
        self.collect();
        let mut inner = self.hub.lock();
        for stream in &self.streams {
            inner.streams.remove(&stream.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_counters_of_either_size() {
        let datagram = Datagram { sent_us: 5_000_007, counter: 9 };
        let mut bytes = [0xee; 16];
        datagram.encode(true, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(Datagram::decode(&bytes, true), Some(datagram));
        datagram.encode(false, &mut bytes);
        assert_eq!(bytes[..12], [0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(Datagram::decode(&bytes[..12], false), Some(datagram));
        assert_eq!(Datagram::decode(&bytes[..12], true), None);
    }

    #[test]
    fn loss_is_what_is_missing_and_late_ones_take_it_back() {
        let mut reception = Reception::default();
        for (counter, arrived_us) in [(1, 100), (2, 200), (5, 500), (4, 600)] {
            let datagram = Datagram { sent_us: counter * 100, counter };
            reception.note(datagram, 10, arrived_us);
        }
        assert_eq!((reception.bytes, reception.packets), (40, 5));
        assert_eq!((reception.lost, reception.out_of_order), (1, 1));
        // Only the last datagram's transit time differed, by 200 us.
        assert!((reception.jitter_s - 200e-6 / 16.0).abs() < 1e-12);
        reception.note(Datagram { sent_us: u64::MAX, counter: u64::MAX }, 10, 0);
        assert_eq!(reception.packets, u64::MAX);
    }

    #[test]
    fn hellos_are_answered_only_while_a_test_of_the_address_waits() {
        let hub = Arc::new(UdpHub::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap());
        let here = |port| SocketAddr::from(([192, 0, 2, 1], port));
        assert!(!hub.welcome(here(1)));
        let mut claim = hub.claim(1, here(0).ip(), true, 2).unwrap();
        assert!(hub.claim(2, here(0).ip(), true, 1).is_none(), "one after the other");
        assert!(!hub.welcome(SocketAddr::from(([192, 0, 2, 2], 1))));
        assert!(hub.welcome(here(1)) && hub.welcome(here(1)) && hub.welcome(here(2)));
        assert!(!hub.welcome(here(3)), "two were wanted");
        claim.collect();
        assert_eq!(claim.streams.len(), 2);
        let second = hub.claim(2, here(0).ip(), true, 1).unwrap();
        drop(claim);
        drop(second);
        assert!(hub.lock().streams.is_empty() && hub.lock().waiting.is_empty());
    }
}
