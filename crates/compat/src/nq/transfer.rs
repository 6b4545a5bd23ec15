//! A load of the page: the bytes that arrived, and the round trips of its connections as the
//! server's kernel has them.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};
use underload_probe::load::{READ_INTERVAL, TcpInfo, arrived_in_order, receiver_rtt_us};
use underload_record::schema::Direction;

use super::lease::Lease;

/// Maximum number of readings of a load: three connections for 13 s.
const READINGS_MAX: usize = 4_096;
/// A load is held back if its connections wait for the server's share for more than this part of
/// their time.
const HELD_BACK_SHARE: f64 = 0.1;

/// The server's view of one load of a page.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    /// Payload of uploads that arrived.
    pub bytes: AtomicU64,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// When the first connection began to load.
    start: Option<Instant>,
    /// Time since `start`, ms, and the round trip, us.
    readings: Vec<(u32, u32)>,
    /// Sum of the time of all connections.
    loaded: Duration,
    /// The part of `loaded` in which connections waited for the server's share.
    waited: Duration,
    /// Whether all segments of uploads arrived in order; `None` if it is unknown.
    in_order: Option<bool>,
}

/// The answer to `/inside`.
#[derive(Serialize)]
struct Answer<'a> {
    readings: &'a [(u32, u32)],
    held_back: bool,
    in_order: Option<bool>,
}

impl Transfer {
    pub fn inside_json(&self) -> String {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let held_back = inside.waited > inside.loaded.mul_f64(HELD_BACK_SHARE);
        let answer = Answer { readings: &inside.readings, held_back, in_order: inside.in_order };
        serde_json::to_string(&answer).unwrap_or_default()
    }

    fn note(&self, rtt_us: Option<u32>, loaded: Duration, waited: Duration) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *inside.start.get_or_insert_with(Instant::now);
        inside.loaded += loaded;
        inside.waited += waited;
        let after_ms = u32::try_from(start.elapsed().as_millis());
        if let (Some(rtt_us), Ok(after_ms)) = (rtt_us, after_ms)
            && inside.readings.len() < READINGS_MAX
        {
            inside.readings.push((after_ms, rtt_us));
        }
    }

    /// Notes whether the upload of one connection arrived in order so far. All did only if each did.
    fn note_order(&self, in_order: Option<bool>) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.in_order = match (inside.in_order, in_order) {
            (Some(before), Some(now)) => Some(before && now),
            (before, now) => now.or(before),
        };
    }
}

/// A task that reads the round trips of a loading connection until it is dropped.
pub(super) struct Reader(AbortHandle);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reader {
    /// Starts to read `socket`, whose payload goes in `direction`, for `transfer`.
    pub fn start(
        socket: Arc<OwnedFd>,
        direction: Direction,
        lease: Arc<Lease>,
        transfer: Arc<Transfer>,
    ) -> Self {
        let read = async move {
            let mut ticks = interval(READ_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first tick is due at once.
            ticks.tick().await;
            transfer.note(None, Duration::ZERO, Duration::ZERO);
            let (mut before, mut waited_before) = (Instant::now(), lease.waited());
            loop {
                ticks.tick().await;
                let (now, waited) = (Instant::now(), lease.waited());
                let rtt_us = round_trip_us(&socket, direction);
                if direction == Direction::Up {
                    transfer.note_order(arrived_in_order(&socket).ok().flatten());
                }
                transfer.note(rtt_us, now - before, waited.saturating_sub(waited_before));
                (before, waited_before) = (now, waited);
            }
        };
        Self(tokio::spawn(read).abort_handle())
    }
}

/// Returns the smoothed round trip of a loaded connection; `None` if the kernel has none. For
/// payload down it is the sender's. For payload up the sender is the client, and the receiver's
/// kernel derives the round trip from the time stamps of the payload.
fn round_trip_us(socket: &OwnedFd, direction: Direction) -> Option<u32> {
    match direction {
        Direction::Down => TcpInfo::read(socket).ok().map(|info| info.rtt_us),
        Direction::Up => receiver_rtt_us(socket).ok().flatten(),
    }
    .filter(|rtt_us| *rtt_us > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_in_order_if_no_connection_lost_a_segment() {
        let transfer = Transfer::default();
        for (now, all) in [
            (None, "null"),
            (Some(true), "true"),
            (None, "true"),
            (Some(false), "false"),
            (Some(true), "false"),
        ] {
            transfer.note_order(now);
            let told = transfer.inside_json();
            assert!(told.ends_with(&format!("\"in_order\":{all}}}")), "{now:?}: {told}");
        }
    }

    #[test]
    fn a_load_waiting_for_the_share_is_delayed_and_readings_are_bounded() {
        let transfer = Transfer::default();
        let none = "{\"readings\":[],\"held_back\":false,\"in_order\":null}";
        assert_eq!(transfer.inside_json(), none);
        let (tick, wait) = (Duration::from_millis(10), Duration::from_millis(2));
        transfer.note(Some(7_000), tick, Duration::ZERO);
        transfer.note(None, tick, wait);
        assert!(transfer.inside_json().contains(",7000]],\"held_back\":false,"));
        transfer.note(None, tick, wait);
        assert!(transfer.inside_json().contains("\"held_back\":true,"));
        for _ in 0..2 * READINGS_MAX {
            transfer.note(Some(1), tick, Duration::ZERO);
        }
        assert_eq!(transfer.inside.lock().unwrap().readings.len(), READINGS_MAX);
    }
}
