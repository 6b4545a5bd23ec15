//! STAMP packets, byte for byte.
//!
//! The layout is the Simple Two-way Active Measurement Protocol (RFC 8762) with the extensions of
//! RFC 8972, so that routers and other implementations answer our probes and our reflector answers
//! theirs. All functions work on the caller's slices: they allocate nothing, read no clock, and no
//! input makes them panic.
//!
//! Two choices, both allowed by the RFCs:
//! - short test packets of TWAMP Light (14 to 43 bytes) are accepted, missing fields read as zero,
//!   and the answer is cut to the length of the request, so that a reflector never sends more than
//!   it received;
//! - bytes after the base packet whose TLV type would be 0 (reserved) are padding of a TWAMP Light
//!   sender: they are returned unchanged and not flagged as malformed.

mod class_of_service;
mod ntp;
mod reflect;
mod stamp;
mod tlv;

pub use class_of_service::{ClassOfService, EcnReply, MarkingPolicy};
pub use ntp::{ErrorEstimate, NtpTimestamp};
pub use reflect::{Arrival, Reply, reflect};
pub use stamp::{BASE_LEN, ReflectorPacket, SHORT_LEN, SenderPacket};
pub use tlv::{Tlv, TlvFlags, Tlvs, tlv_type, write_tlv};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The packet ends before the fields that every variant of the protocol has.
    #[error("packet of {len} bytes is too short: at least {needed} are needed")]
    TooShort { len: usize, needed: usize },
    #[error("buffer of {len} bytes is too small: {needed} are needed")]
    BufferTooSmall { len: usize, needed: usize },
    #[error("TLV at byte {offset} of the extension part overruns the packet")]
    TlvOverrun {
        /// Where the TLV begins, counted from the first byte after the base packet.
        offset: usize,
    },
    #[error("TLV type {tlv_type} needs a value of {needed} bytes, got {len}")]
    TlvLength { tlv_type: u8, len: usize, needed: usize },
}

/// Copies `N` bytes at `offset` out of `bytes`, zero-filled where `bytes` is shorter.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes.get(offset + index).copied().unwrap_or(0))
}
