//! Notifies pages of changes by server-sent events.
//!
//! A single task queries the store for all pages, and only while pages are open. An event has no
//! data: the page fetches its content with its own filters and rights.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use underload_fleet::store::{Archive, Filter};
use underload_probe::network::{PlaceLimits, Places};

use super::problem::Problem;
use super::question::DAY_MS;
use super::readers::Readers;

const EVERY: Duration = Duration::from_secs(5);
/// Maximum number of pages that receive events.
const SEATS: usize = 256;
/// Maximum number of pages of one token, so that one browser cannot use up all seats.
const SEATS_EACH: usize = 32;
/// After this time a page must connect and authenticate again.
const LASTS: Duration = Duration::from_mins(5);

pub(super) struct Live {
    /// Pages by the name of their visitor's token.
    seats: Places<String>,
    stamp: watch::Sender<u64>,
    is_asking: AtomicBool,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            seats: Places::new(PlaceLimits {
                in_all: SEATS,
                per_network: SEATS_EACH,
                grace: Duration::MAX,
            }),
            stamp: watch::Sender::new(0),
            is_asking: AtomicBool::new(false),
        }
    }
}

impl Live {
    /// Returns events for a page of the visitor with this token.
    pub(super) fn stream(
        self: &Arc<Self>,
        reader: String,
        readers: &Arc<Readers>,
        clock: fn() -> u64,
    ) -> Result<Response, Problem> {
        let seat = self.seats.take(Instant::now(), reader, None);
        let seat = seat.ok_or(Problem::Busy("Too many pages wait for events.", 60))?;
        let stamps = WatchStream::new(self.stamp.subscribe());
        let (live, readers) = (Arc::clone(self), Arc::clone(readers));
        tokio::spawn(async move { live.ask_while_somebody_looks(&readers, clock).await });
        let events = stamps.filter(|stamp| *stamp > 0).map(move |stamp| {
            let _held = &seat;
            let event = Event::default().event("change").data(stamp.to_string());
            Ok::<Event, Infallible>(event)
        });
        let ends = Instant::now() + LASTS;
        // A pause of [`LASTS`] also ends the stream; the browser opens another.
        let events = events.timeout(LASTS).map_while(Result::ok);
        let events = events.take_while(move |_| Instant::now() < ends);
        Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
    }

    async fn ask_while_somebody_looks(&self, readers: &Arc<Readers>, clock: fn() -> u64) {
        // A reader may subscribe, and its own task return because `is_asking` is still set, just
        // after the inner loop ends. The outer loop counts the receivers again for that reader.
        while self.stamp.receiver_count() > 0 {
            if self.is_asking.swap(true, Ordering::AcqRel) {
                return;
            }
            while self.stamp.receiver_count() > 0 {
                let today = (clock() / DAY_MS) as u32;
                if let Ok(stamp) = readers.ask("", move |archive| stamp(archive, today)).await {
                    self.stamp.send_if_modified(|old| std::mem::replace(old, stamp) != stamp);
                }
                tokio::time::sleep(EVERY).await;
            }
            // Not a plain store, which could be reordered after the count of receivers: a reader
            // that subscribed and saw `is_asking` set would then not be counted.
            self.is_asking.swap(false, Ordering::AcqRel);
        }
    }
}

/// Returns a number that changes with servers, plans and today's runs; never 0.
fn stamp(archive: &mut dyn Archive, today: u32) -> Result<u64, Problem> {
    let mut hash = DefaultHasher::new();
    for server in archive.servers()? {
        (server.address.name, server.sessions, server.heard_ms).hash(&mut hash);
        (server.reserved_up_bit_per_s, server.reserved_down_bit_per_s).hash(&mut hash);
    }
    for plan in archive.plans()? {
        (plan.name, plan.applied_ms, plan.stopped_ms).hash(&mut hash);
    }
    let runs = archive.outcomes(&Filter { from_day: Some(today), ..Filter::default() })?;
    for count in runs.counts {
        (count.outcome as u8, count.reason, count.count).hash(&mut hash);
    }
    Ok(hash.finish() | 1)
}
