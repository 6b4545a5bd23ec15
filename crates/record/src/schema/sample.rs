//! What was recorded while a trial ran: probe samples and curves over time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underload_aqm::packet::Ecn;

use super::{Direction, Phase};

/// One probe packet: a row of `samples.parquet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// [`super::TrialRecord::index`].
    pub trial: u32,
    /// Position of the probe in [`super::TrialRecord::flows`]; the file holds its name.
    pub flow: u16,
    /// Sequence number in its flow, from 0, one per slot, so that a gap is a slot missed.
    pub sequence: u64,
    /// Phase of the scheduled time.
    pub phase: Phase,
    /// True when it was sent on the answer to the one before, not on a schedule.
    pub closed_loop: bool,
    /// When it should have been sent, ns since the start of the trial.
    pub scheduled_ns: u64,
    /// When it was sent, ns; lateness is `sent_ns - scheduled_ns`.
    pub sent_ns: u64,
    /// There and back from `sent_ns`, ns; `None` = lost.
    pub rtt_ns: Option<u64>,
    /// Client to server, ns; negative when the clocks disagree by more than the path takes.
    pub one_way_up_ns: Option<i64>,
    /// Server to client, ns; negative when the clocks disagree by more than the path takes.
    pub one_way_down_ns: Option<i64>,
    /// DSCP and ECN as sent by the client.
    pub marking_sent: Marking,
    /// DSCP and ECN as they reached the server; `None` when unknown or lost.
    pub marking_far: Option<Marking>,
    /// DSCP and ECN of the answer as it reached the client; `None` when unknown or lost.
    pub marking_near: Option<Marking>,
}

impl Sample {
    /// Delay between the scheduled and the actual sending of the probe, ns.
    pub fn lateness_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.scheduled_ns)
    }
}

/// The two fields of the former type-of-service byte.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Marking {
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Explicit congestion notification (RFC 3168).
    #[serde(with = "EcnName")]
    pub ecn: Ecn,
}

impl Marking {
    /// DSCP of non-queue-building traffic (RFC 9956).
    pub const NQB: u8 = 45;

    /// The traffic class in tables: `dscp 45 ect1`, `dscp 45` without ECN.
    pub fn label(self) -> String {
        match self.ecn {
            Ecn::NotEct => format!("dscp {}", self.dscp),
            _ => self.to_string(),
        }
    }

    /// As [`super::FlowRecord::class`]: the label, empty for best effort without ECN.
    pub fn class(self) -> String {
        if self == Self::default() { String::new() } else { self.label() }
    }

    /// The byte as it is on the wire: DSCP in the upper six bits.
    pub fn to_byte(self) -> u8 {
        (self.dscp << 2) | self.ecn.bits()
    }

    /// Reads DSCP and ECN from the byte of an IP header.
    pub fn from_byte(byte: u8) -> Marking {
        Marking { dscp: byte >> 2, ecn: Ecn::from_bits(byte) }
    }
}

/// As `dscp 45 ect1`.
impl fmt::Display for Marking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dscp {} {}", self.dscp, self.ecn.name())
    }
}

/// The error for text that does not parse as a marking such as `dscp 45 ect1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMarking;

/// As it is displayed; without the ECN it is `not-ect`.
impl FromStr for Marking {
    type Err = NoMarking;

    fn from_str(text: &str) -> Result<Self, NoMarking> {
        let fields = text.strip_prefix("dscp ").ok_or(NoMarking)?;
        let (dscp, ecn) = fields.split_once(' ').unwrap_or((fields, Ecn::NotEct.name()));
        let dscp = dscp.parse().ok().filter(|dscp| *dscp < 64).ok_or(NoMarking)?;
        Ok(Self { dscp, ecn: Ecn::from_name(ecn).ok_or(NoMarking)? })
    }
}

/// How files name an [`Ecn`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Ecn", rename_all = "kebab-case")]
enum EcnName {
    NotEct,
    Ect1,
    Ect0,
    Ce,
}

/// A named curve over a trial's time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// [`super::TrialRecord::index`].
    pub trial: u32,
    /// Its name: [`SeriesKind::name`] for what the report draws, any other (`up.pie.prob`) is kept
    /// and exported.
    pub name: String,
    /// Unit of the values, as printed.
    pub unit: String,
    /// The points, in order of time.
    pub points: Vec<SeriesPoint>,
}

/// A value at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Since the start of the trial, ns.
    pub time_ns: u64,
    /// The value, in the unit of its series.
    pub value: f64,
}

/// The curves that every world records in the same way and the report draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeriesKind {
    /// Bytes in the queue at that instant.
    Backlog,
    /// Sojourn of the packet that left at that instant (or the largest since the point before), ns.
    Sojourn,
    /// Bits sent on the link per second since the point before.
    Throughput,
    /// Packets dropped since the point before.
    Drops,
    /// Packets marked CE since the point before.
    Marks,
}

impl SeriesKind {
    /// Every kind.
    pub const ALL: [SeriesKind; 5] = [
        SeriesKind::Backlog,
        SeriesKind::Sojourn,
        SeriesKind::Throughput,
        SeriesKind::Drops,
        SeriesKind::Marks,
    ];

    /// The name of the series in a direction, for example `up.backlog`.
    pub fn name(self, direction: Direction) -> String {
        let kind = match self {
            SeriesKind::Backlog => "backlog",
            SeriesKind::Sojourn => "sojourn",
            SeriesKind::Throughput => "throughput",
            SeriesKind::Drops => "drops",
            SeriesKind::Marks => "marks",
        };
        format!("{direction}.{kind}")
    }

    /// The unit its values must have.
    pub fn unit(self) -> &'static str {
        match self {
            SeriesKind::Backlog => "bytes",
            SeriesKind::Sojourn => "ns",
            SeriesKind::Throughput => "bit/s",
            SeriesKind::Drops | SeriesKind::Marks => "packets",
        }
    }

    /// An empty series of this kind.
    pub fn series(self, trial: u32, direction: Direction) -> Series {
        let (name, unit) = (self.name(direction), self.unit().to_owned());
        Series { trial, name, unit, points: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_as_marking() {
        for byte in 0..=u8::MAX {
            assert_eq!(Marking::from_byte(byte).to_byte(), byte);
        }
        assert_eq!(Marking::from_byte(0xb5), Marking { dscp: 45, ecn: Ecn::Ect1 });
    }
}
