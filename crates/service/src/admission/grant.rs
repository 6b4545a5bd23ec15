//! What is shown to the ledger, and what it grants.

use std::time::Duration;

/// A token that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The token's identifier.
    pub id: [u8; 16],
    /// The highest rate that it is good for, bit/s; `None` leaves it to the server.
    pub rate_bit_per_s: Option<u64>,
    /// Seconds since 1970.
    pub expires: u64,
    /// It is a lease: its rates are reserved for it.
    pub is_reserved: bool,
}

/// What the ledger has granted to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub id: u64,
    pub end_ns: u64,
    pub up_bit_per_s: u64,
    pub down_bit_per_s: u64,
    /// Both directions together.
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
