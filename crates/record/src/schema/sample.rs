//! Probe samples and time series of a trial.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underload_aqm::packet::{Dscp, Ecn};

use super::{Direction, Phase};

/// A probe packet: a row of `samples.parquet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// [`super::TrialRecord::index`] of its trial.
    pub trial: u32,
    /// Position of the probe in [`super::TrialRecord::flows`]; the file has its name.
    pub flow: u16,
    /// Number of the slot in its flow, from 0; a gap is a missed slot.
    pub sequence: u64,
    /// Phase of the scheduled time.
    pub phase: Phase,
    /// True if the probe was sent on the answer to the previous one, not on a schedule.
    pub closed_loop: bool,
    /// Scheduled time of sending, ns since the start of the trial.
    pub scheduled_ns: u64,
    /// Time of sending, ns since the start of the trial.
    pub sent_ns: u64,
    /// Round trip; `None` = lost.
    pub rtt_ns: Option<u64>,
    /// Client to server; negative if the clocks differ by more than the path takes.
    pub one_way_up_ns: Option<i64>,
    /// Server to client; negative if the clocks differ by more than the path takes.
    pub one_way_down_ns: Option<i64>,
    /// Marking that the client sent.
    pub marking_sent: Marking,
    /// Marking that reached the server; `None` if unknown or lost.
    pub marking_far: Option<Marking>,
    /// Marking of the answer that reached the client; `None` if unknown or lost.
    pub marking_near: Option<Marking>,
}

impl Sample {
    pub fn lateness_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.scheduled_ns)
    }
}

/// DSCP and ECN, the two fields of the former type-of-service byte.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Marking {
    /// 0 to 63 (RFC 2474).
    pub dscp: u8,
    #[serde(with = "EcnName")]
    pub ecn: Ecn,
}

impl Marking {
    /// DSCP of non-queue-building traffic (RFC 9956).
    pub const NQB: u8 = Dscp::NON_QUEUE_BUILDING.value();

    /// Returns the traffic class for tables: `dscp 45 ect1`, or `dscp 45` without ECN.
    pub fn label(self) -> String {
        match self.ecn {
            Ecn::NotEct => format!("dscp {}", self.dscp),
            _ => self.to_string(),
        }
    }

    /// Returns [`super::FlowRecord::class`]: the label, empty for best effort without ECN.
    pub fn class(self) -> String {
        if self == Self::default() { String::new() } else { self.label() }
    }

    /// Returns the byte of an IP header: DSCP in the upper six bits.
    pub fn to_byte(self) -> u8 {
        (self.dscp << 2) | self.ecn.bits()
    }

    /// Reads DSCP and ECN from the byte of an IP header.
    pub fn from_byte(byte: u8) -> Marking {
        Marking { dscp: byte >> 2, ecn: Ecn::from_bits(byte) }
    }
}

/// Prints `dscp 45 ect1`.
impl fmt::Display for Marking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dscp {} {}", self.dscp, self.ecn.name())
    }
}

/// The text is not a marking such as `dscp 45 ect1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMarking;

/// Parses the displayed form; without ECN name the field is `not-ect`.
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
    /// [`super::TrialRecord::index`] of its trial.
    pub trial: u32,
    /// [`SeriesKind::name`] for series that the report draws; a series of any other name, such as
    /// `up.pie.prob`, is stored and exported.
    pub name: String,
    /// Unit of the values, as printed.
    pub unit: String,
    /// In order of time.
    pub points: Vec<SeriesPoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Since the start of the trial.
    pub time_ns: u64,
    pub value: f64,
}

/// The series that every world records and the report draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeriesKind {
    /// Bytes in the queue.
    Backlog,
    /// Sojourn of the packet that left then, or the largest since the previous point, ns.
    Sojourn,
    /// Bits sent on the link per second since the previous point.
    Throughput,
    /// Packets dropped since the previous point.
    Drops,
    /// Packets marked CE since the previous point.
    Marks,
}

impl SeriesKind {
    pub const ALL: [SeriesKind; 5] = [
        SeriesKind::Backlog,
        SeriesKind::Sojourn,
        SeriesKind::Throughput,
        SeriesKind::Drops,
        SeriesKind::Marks,
    ];

    const fn name_and_unit(self) -> (&'static str, &'static str) {
        match self {
            SeriesKind::Backlog => ("backlog", "bytes"),
            SeriesKind::Sojourn => ("sojourn", "ns"),
            SeriesKind::Throughput => ("throughput", "bit/s"),
            SeriesKind::Drops => ("drops", "packets"),
            SeriesKind::Marks => ("marks", "packets"),
        }
    }

    /// Returns the name of the series in a direction, for example `up.backlog`.
    pub fn name(self, direction: Direction) -> String {
        format!("{direction}.{}", self.name_and_unit().0)
    }

    pub fn unit(self) -> &'static str {
        self.name_and_unit().1
    }

    /// Returns an empty series of this kind.
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
