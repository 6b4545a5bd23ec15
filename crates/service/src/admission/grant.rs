//! The ledger's input, a verified token or lease, and its output, a grant or a denial.

use std::time::Duration;

/// A token that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub id: [u8; 16],
    /// The highest rate that it is good for, bit/s; `None` leaves it to the server.
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

/// The reason why nothing was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Not now; room is expected after this, because of that.
    Busy(Duration, &'static str),
    /// Never; what would be.
    TooMuch(String),
}
