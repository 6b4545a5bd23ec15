//! What travels between the two ends of a probe: STAMP packets, byte for byte.
//!
//! The layout is the Simple Two-way Active Measurement Protocol (RFC 8762) with the optional
//! extensions of RFC 8972, so that routers and other people's reflectors answer our probes and our
//! reflector answers theirs. All functions here work on slices that the caller owns: nothing is
//! allocated, no input can make them panic, and nothing reads a clock.
//!
//! Two choices of ours, both allowed by the RFCs:
//! - short test packets of TWAMP Light (14 to 43 bytes) are accepted, absent fields read as zero,
//!   and the answer is cut to the length of the request, so that a reflector never sends more than
//!   it got;
//! - bytes after the base packet whose TLV type would be 0 (reserved) are padding of a TWAMP Light
//!   sender: they are carried back unchanged instead of being called malformed.

mod authenticated;
mod class_of_service;
mod ntp;
mod reflect;
mod stamp;
mod tlv;

pub use authenticated::{KEYED_LEN, StampKey, reflect_keyed};
pub use class_of_service::{ClassOfService, EcnReply, MarkingPolicy};
pub use ntp::{ErrorEstimate, NtpTimestamp};
pub use reflect::{Arrival, Reply, reflect};
pub use stamp::{BASE_LEN, ReflectorPacket, SHORT_LEN, SenderPacket};
pub use tlv::{Tlv, TlvFlags, Tlvs, tlv_type, write_tlv};

/// Why a packet could not be decoded or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The packet ends before the fields that every variant of the protocol has.
    #[error("packet of {len} bytes is too short: at least {needed} are needed")]
    TooShort {
        /// Bytes that were there.
        len: usize,
        /// Bytes that would be accepted.
        needed: usize,
    },
    /// The caller's buffer cannot hold what should be written.
    #[error("buffer of {len} bytes is too small: {needed} are needed")]
    BufferTooSmall {
        /// Bytes that were there.
        len: usize,
        /// Bytes that would be accepted.
        needed: usize,
    },
    /// A TLV's length field points past the end of the packet.
    #[error("TLV at byte {offset} of the extension part overruns the packet")]
    TlvOverrun {
        /// Where the TLV begins, counted from the first byte after the base packet.
        offset: usize,
    },
    /// A value does not fit the TLV type that carries it.
    #[error("TLV type {tlv_type} needs a value of {needed} bytes, got {len}")]
    TlvLength {
        /// The type of the TLV at fault.
        tlv_type: u8,
        /// Bytes that were there.
        len: usize,
        /// Bytes that would be accepted.
        needed: usize,
    },
}

/// Copies `N` bytes at `offset` out of `bytes`, zero-filled where `bytes` is shorter.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    for (target, source) in value.iter_mut().zip(bytes.iter().skip(offset)) {
        *target = *source;
    }
    value
}
