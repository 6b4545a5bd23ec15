//! CoDel as RFC 8289 section 5 writes it, with an exact square root.

use super::law::{Arithmetic, Codel};
use super::spacing;
use crate::aqm::Store;
use crate::qdisc::Backlog;
use crate::time::{Span, Time};

/// CoDel with the exact arithmetic of RFC 8289, section 5.
pub type Rfc = Codel<Exact>;

/// Nanoseconds; the root follows from the count.
#[derive(Clone, Debug)]
pub struct Exact;

impl Arithmetic for Exact {
    type Instant = Time;
    type Length = Span;
    type Root = ();

    #[inline]
    fn instant(time: Time) -> Time {
        time
    }

    fn length(span: Span) -> Span {
        span
    }

    #[inline]
    fn since(now: Time, earlier: Time) -> Span {
        now.since(earlier)
    }

    #[inline]
    fn after(from: Time, length: Span) -> Time {
        from + length
    }

    #[inline]
    fn is_shorter(a: Span, b: Span) -> bool {
        a < b
    }

    #[inline]
    fn is_over(now: Time, end: Time) -> bool {
        now >= end
    }

    fn is_due(now: Time, next: Time) -> bool {
        now >= next
    }

    fn root((): (), _count: u32) {}

    fn spacing(interval: Span, count: u32, (): ()) -> Span {
        Span::from_nanos(spacing(interval.as_nanos(), count))
    }

    fn sixteen_times(interval: Span) -> Span {
        interval * 16
    }

    #[inline]
    fn guarded<P>(store: &impl Store<P>) -> Backlog {
        store.backlog()
    }

    fn gauge_ns(_sojourn: Span) -> Option<f64> {
        None
    }
}
