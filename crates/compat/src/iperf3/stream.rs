//! The threads that transfer payload, and their counters.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use underload_probe::RunClock;
use underload_probe::endpoint::ThreadTiming;
use underload_probe::load::payload;
use underload_probe::network::{POLL_INTERVAL, is_temporary};
use underload_record::schema::Direction;
use underload_service::CompatShare;

use super::udp::{Datagram, UdpHub, UdpStream};

/// The counters of a sender or a TCP receiver.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub bytes: AtomicU64,
    /// Datagrams sent; 0 for TCP.
    pub packets: AtomicU64,
}

/// The amount that the server sends in a test that ends by amount, all streams together.
#[derive(Debug)]
pub(super) struct Amount {
    bytes: Option<u64>,
    /// Whether there is omitted time: the client may end it later than the server, and need more.
    omits: bool,
    /// False during the omitted time, whose traffic does not count.
    counts: AtomicBool,
    promised: AtomicU64,
}

/// After this, a client that counted less than was sent gets another block.
const AMOUNT_GRACE: Duration = Duration::from_secs(1);

impl Amount {
    pub(super) fn new(bytes: Option<u64>, omits: bool) -> Self {
        Self { bytes, omits, counts: AtomicBool::new(!omits), promised: AtomicU64::new(0) }
    }

    pub(super) fn count(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Returns true if another block of `len` may be sent. The last block is sent whole, because
    /// clients wait for whole blocks.
    fn take(&self, len: usize) -> bool {
        let Some(bytes) = self.bytes else { return true };
        !self.counts.load(Ordering::Relaxed)
            || self.promised.load(Ordering::Relaxed) < bytes
                && self.promised.fetch_add(len as u64, Ordering::Relaxed) < bytes
    }

    /// Waits until another block may be sent; returns false if the test is `over` before.
    fn wait(&self, len: usize, over: &AtomicBool) -> bool {
        let start = Instant::now();
        while !self.take(len) {
            if over.load(Ordering::Relaxed) {
                return false;
            }
            if self.omits && start.elapsed() >= AMOUNT_GRACE {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

/// Keeps a rate from its first byte on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    clock: RunClock,
    start_ns: u64,
    bit_per_s: Option<u64>,
    bytes: u64,
}

/// Shorter waits are not slept but accumulated.
const PACING_NS: u64 = 1_000_000;
/// A delayed sender catches up at most this much.
const CATCH_UP_NS: u64 = 100_000_000;

impl Pacer {
    pub(super) fn new(clock: RunClock, bit_per_s: Option<u64>) -> Self {
        let bit_per_s = bit_per_s.map(|rate| rate.max(1));
        Self { clock, start_ns: clock.now_ns(), bit_per_s, bytes: 0 }
    }

    /// Returns when the rate allows the next byte, ns of the clock.
    fn due_ns(&self) -> u64 {
        let Some(rate) = self.bit_per_s else { return 0 };
        let after_ns = u128::from(self.bytes) * 8_000_000_000 / u128::from(rate);
        self.start_ns.saturating_add(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    fn note(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let now_ns = self.clock.now_ns();
        let due_ns = self.due_ns();
        if self.bit_per_s.is_some() && now_ns > due_ns.saturating_add(CATCH_UP_NS) {
            self.start_ns += now_ns - due_ns - CATCH_UP_NS;
        }
    }

    /// Sleeps until the rate allows the next byte, or until `over`.
    fn rest(&self, over: &AtomicBool) {
        let due_ns = self.due_ns();
        while !over.load(Ordering::Relaxed) {
            let now_ns = self.clock.now_ns();
            if now_ns.saturating_add(PACING_NS) > due_ns {
                return;
            }
            self.clock.sleep_until(due_ns.min(now_ns + POLL_INTERVAL.as_nanos() as u64));
        }
    }
}

/// The bytes that a stream may still transfer: its share of the server's capacity, until its test
/// ends.
#[derive(Clone, Copy)]
pub(super) struct Allowance<'a> {
    pub share: &'a CompatShare,
    pub over: &'a AtomicBool,
}

impl Allowance<'_> {
    fn is_over(self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits for a share of at most `bytes_max`; returns `None` once the test is over.
    fn wait(self, direction: Direction, bytes_max: usize) -> Option<usize> {
        while !self.is_over() && !self.share.is_over() {
            let bytes = bytes_max.min(self.share.chunk_bytes(direction)).max(1);
            match self.share.take(direction, bytes as u64) {
                Ok(()) => return Some(bytes),
                Err(wait) => std::thread::sleep(wait.min(POLL_INTERVAL)),
            }
        }
        None
    }

    /// Returns the unused share: `taken` less `moved` bytes.
    fn settle(self, direction: Direction, taken: usize, moved: usize) {
        if moved < taken {
            self.share.give_back(direction, (taken - moved) as u64);
        }
    }
}

/// Reads and discards until the test is over or the stream ends.
pub(super) fn receive_tcp(
    mut stream: &TcpStream,
    counters: &Counters,
    mut pacer: Pacer,
    allowance: Allowance<'_>,
) {
    let mut buffer = vec![0; 128 << 10];
    while let Some(taken) = allowance.wait(Direction::Up, buffer.len()) {
        let outcome = stream.read(&mut buffer[..taken]);
        allowance.settle(Direction::Up, taken, *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => return,
            Ok(bytes) => {
                counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                pacer.note(bytes);
                pacer.rest(allowance.over);
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => return,
        }
    }
}

/// Writes blocks of `len` until the test is over or the client leaves, and waits while `amount` is
/// used up.
pub(super) fn send_tcp(
    mut stream: &TcpStream,
    (len, amount): (usize, &Amount),
    counters: &Counters,
    mut pacer: Pacer,
    allowance: Allowance<'_>,
) {
    let block = payload(len);
    // Bytes left of the current block.
    let mut left = 0;
    loop {
        if left == 0 {
            if !amount.wait(len, allowance.over) {
                return;
            }
            left = len;
        }
        let Some(taken) = allowance.wait(Direction::Down, left) else { return };
        let outcome = stream.write(&block[len - left..][..taken]);
        allowance.settle(Direction::Down, taken, *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(bytes) => {
                counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                left -= bytes;
                pacer.note(bytes);
                pacer.rest(allowance.over);
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => return,
        }
    }
}

/// Scheduling of a UDP sender: no priority, and little spinning.
const UDP_TIMING: ThreadTiming = ThreadTiming { real_time_priority: None, spin_ns: 20_000 };

/// Sends datagrams with `len` bytes of payload until the test is over, evenly spaced at the pacer's
/// rate.
pub(super) fn send_udp(
    hub: &UdpHub,
    stream: &UdpStream,
    (len, counter_64bit): (usize, bool),
    counters: &Arc<Counters>,
    mut pacer: Pacer,
    allowance: Allowance<'_>,
) {
    UDP_TIMING.apply();
    let mut datagram = payload(len.max(Datagram::LEN));
    let mut counter = 0;
    while !allowance.is_over() {
        let due_ns = pacer.due_ns();
        if pacer.bit_per_s.is_some() && UDP_TIMING.wait_until(pacer.clock, due_ns) < due_ns {
            continue;
        }
        if let Err(wait) = allowance.share.take(Direction::Down, datagram.len() as u64) {
            std::thread::sleep(wait.min(POLL_INTERVAL));
            continue;
        }
        counter += 1;
        let sent_us = pacer.clock.now_on_both().unix_ns / 1_000;
        Datagram { sent_us, counter }.encode(counter_64bit, &mut datagram);
        match hub.socket.send_to(&datagram, stream.peer) {
            Ok(bytes) => {
                counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                counters.packets.store(counter, Ordering::Relaxed);
                pacer.note(bytes);
            }
            // The datagram is too long for the path, or the client left. Sleep to avoid a busy
            // loop.
            Err(_) => {
                allowance.settle(Direction::Down, datagram.len(), 0);
                counter -= 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_shared_and_ends_with_a_whole_block() {
        let amount = Amount::new(Some(2_500), false);
        assert_eq!((0..9).filter(|_| amount.take(1_000)).count(), 3);
        assert!(!amount.wait(1_000, &AtomicBool::new(true)), "it is used up, and the test over");
        let omitting = Amount::new(Some(2_500), true);
        assert!((0..99).all(|_| omitting.take(1_000)), "what is omitted does not count");
        omitting.count();
        assert_eq!((0..9).filter(|_| omitting.take(1_000)).count(), 3);
        assert!(omitting.wait(1_000, &AtomicBool::new(false)), "the client may need another");
        assert!((0..99).all(|_| Amount::new(None, false).take(1_000)));
    }

    #[test]
    fn a_pacer_is_due_when_its_bytes_are_paid_for() {
        let clock = RunClock::start();
        let mut pacer = Pacer::new(clock, Some(8_000));
        let start_ns = pacer.start_ns;
        pacer.bytes += 500;
        assert_eq!(pacer.due_ns(), start_ns + 500_000_000);
        assert_eq!(Pacer::new(clock, None).due_ns(), 0);
        let over = AtomicBool::new(true);
        pacer.rest(&over);
        assert!(clock.now_ns() < start_ns + 400_000_000, "the end is noticed");
    }
}
