//! The ledger's input, a verified token or lease, and its output, a grant or a denial.

use std::time::Duration;

/// A verified token or lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub id: [u8; 16],
    /// Highest rate of a session, bit/s; `None` for the server's limit.
    pub rate_bit_per_s: Option<u64>,
    /// When the token expires, seconds since 1970.
    pub expires: u64,
    /// True for a lease, whose rates the orchestrator has reserved.
    pub is_reserved: bool,
}

/// A session's rates, volume and end, as granted by the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub id: u64,
    pub end_ns: u64,
    pub up_bit_per_s: u64,
    pub down_bit_per_s: u64,
    /// Volume of both directions together, bytes.
    pub volume_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Not now: how long to wait, and the reason.
    Busy(Duration, &'static str),
    /// Never: the limit that was exceeded.
    TooMuch(String),
}
