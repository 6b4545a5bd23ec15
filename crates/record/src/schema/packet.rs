//! A packet at one place and instant: a row of `packets.parquet`.

use super::{Direction, Ecn};

/// An event of a packet at one point of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketSighting<'a> {
    /// Position of the trial in the run.
    pub trial: u32,
    /// Time of the event, ns since the start of the trial.
    pub time_ns: u64,
    pub direction: Direction,
    /// Name of the link, or its number from 1 if several have no name; empty if the path has one
    /// link, and at the endpoints.
    pub hop: &'a str,
    /// `sent`, `arrival`, `mark`, `drop`, `departure`, `delivery` or `received`.
    pub event: &'static str,
    /// Why it was marked or dropped, as the queue names it.
    pub reason: Option<&'static str>,
    /// Number of the packet in its trial, equal at every point of the path.
    pub id: u32,
    /// Name of the [`FlowRecord`](super::FlowRecord).
    pub flow: &'a str,
    /// Number of the connection or stream within the flow.
    pub channel: u16,
    /// `syn`, `syn-ack`, `data`, `ack`, `datagram`, `message`, `request`, `reply`, `flight` or
    /// `forecast`.
    pub kind: &'static str,
    /// Number of the segment, of the first missing segment (`ack`), or of the datagram. For Sprout,
    /// the bytes sent before (`flight`) or the tick (`forecast`).
    pub sequence: u32,
    pub retransmission: bool,
    /// Bytes at the IP layer.
    pub length: u32,
    pub dscp: u8,
    /// ECN codepoint at this point.
    pub ecn: Ecn,
    /// At a departure: time in the queue, ns.
    pub sojourn_ns: Option<u64>,
    /// At a departure: end of the transmission, ns.
    pub end_ns: Option<u64>,
}
