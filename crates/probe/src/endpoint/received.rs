//! A datagram that a socket received, as far as the kernel describes it.

use std::net::{IpAddr, SocketAddr};

/// A received datagram's length, addresses and control data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub len: usize,
    /// True if the datagram was longer than the buffer.
    pub truncated: bool,
    /// The sender; `None` if the kernel did not report it, as with the fields below.
    pub peer: Option<SocketAddr>,
    /// The address of this machine that the datagram was sent to.
    pub sent_to: Option<IpAddr>,
    /// When the kernel received the datagram, by the wall clock.
    pub kernel_unix_ns: Option<u64>,
    /// DSCP and ECN on arrival.
    pub traffic_class: Option<u8>,
    /// Time to live or hop limit on arrival.
    pub ttl: Option<u8>,
}
