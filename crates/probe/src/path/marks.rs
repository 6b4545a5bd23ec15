//! Tests which markings survive, per direction.
//!
//! Every packet requests, with STAMP's Class of Service TLV, that its answer carries the same
//! marking; the answer reports the marking that arrived at the far end. One exchange thus shows
//! both directions. A reflector may refuse a marking (ours refuses CE and every DSCP that might
//! gain priority); the way down is then not judged for that marking.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use std::{fmt, io};

use serde::Serialize;
use underload_record::schema::{Ecn, Marking};

use crate::clock::RunClock;
use crate::endpoint::{EndpointError, ProbeSocket, Received, encode_request};
use crate::network::is_transient;
use crate::wire::{ClassOfService, EcnReply, ReflectorPacket, TlvFlags, tlv_type};

/// The markings that are tested: every ECN codepoint, the DSCPs of low latency, of its predecessors
/// and of other networks' use of the same codepoints, and DSCP 45 with L4S.
pub const MARKINGS: [Marking; 11] = [
    marking(0, Ecn::NotEct),
    marking(0, Ecn::Ect0),
    marking(0, Ecn::Ect1),
    marking(0, Ecn::Ce),
    marking(45, Ecn::NotEct),
    marking(45, Ecn::Ect1),
    marking(45, Ecn::Ce),
    marking(40, Ecn::NotEct),
    marking(46, Ecn::NotEct),
    marking(56, Ecn::NotEct),
    marking(8, Ecn::NotEct),
];

const fn marking(dscp: u8, ecn: Ecn) -> Marking {
    Marking { dscp, ecn }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarkSurvey {
    pub rows: Vec<MarkRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarkRow {
    /// The marking that was sent, and requested for the answer.
    pub sent: Marking,
    pub packets: u32,
    pub answered: u32,
    /// Fate from here to the far end.
    pub up: Fate,
    /// Fate from the far end to here.
    pub down: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fate")]
pub enum Fate {
    /// At least nine of ten packets arrived with one marking, which may have changed.
    Seen { dscp: Change, ecn: Change },
    /// No marking arrived on nine of ten packets: several paths, or a policy that varies. `mostly`
    /// is the most frequent.
    Mixed { mostly: Marking },
    /// No packet with this marking was answered, while other markings were. Which direction lost
    /// them is unknown.
    Lost,
    /// No packet of any marking was answered.
    Unknown,
    /// This machine's firewall refuses to send the marking.
    Refused,
}

/// Change of the DSCP or the ECN field of a marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change", content = "to")]
pub enum Change {
    Kept,
    /// The marking arrives as zero.
    Bleached,
    /// The field arrives with another value.
    Remarked(u8),
    /// ECT became CE: a queue on the path reports congestion, the purpose of ECT.
    CongestionMarked,
    /// The far end does not send this on request, or cannot report that it did.
    NotAsked,
}

impl Change {
    /// Returns true for a change that a path must not make.
    pub fn is_damage(self) -> bool {
        matches!(self, Self::Bleached | Self::Remarked(_))
    }

    pub(super) fn from_dscps(sent: u8, seen: u8) -> Self {
        match seen {
            _ if seen == sent => Self::Kept,
            0 => Self::Bleached,
            _ => Self::Remarked(seen),
        }
    }

    pub(super) fn from_ecns(sent: Ecn, seen: Ecn) -> Self {
        match (sent, seen) {
            _ if sent == seen => Self::Kept,
            (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => Self::CongestionMarked,
            (_, Ecn::NotEct) => Self::Bleached,
            _ => Self::Remarked(seen.bits()),
        }
    }
}

impl Fate {
    /// Returns true if the marking arrived as sent, or as ECT with CE.
    pub fn is_intact(self) -> bool {
        matches!(self, Self::Seen { dscp, ecn } if !dscp.is_damage() && !ecn.is_damage())
    }

    /// Returns true if the marking was lost or changed in a way that a path must not.
    pub fn is_damage(self) -> bool {
        !matches!(self, Self::Unknown | Self::Refused) && !self.is_intact()
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::Lost => "lost".to_owned(),
            Self::Unknown => "no answer".to_owned(),
            Self::Refused => "refused by this machine".to_owned(),
            Self::Mixed { mostly } => {
                format!("mixed, mostly {} {}", mostly.dscp, mostly.ecn.name())
            }
            Self::Seen { dscp, ecn } => {
                let both = (description(dscp, "DSCP", false), description(ecn, "ECN", true));
                match (dscp, ecn) {
                    (Change::Kept, Change::Kept) => "kept".to_owned(),
                    (Change::NotAsked, Change::NotAsked) => "not asked".to_owned(),
                    (Change::Kept, _) => both.1,
                    (_, Change::Kept) => both.0,
                    _ => format!("{}, {}", both.0, both.1),
                }
            }
        };
        f.pad(&text)
    }
}

fn description(change: Change, field: &str, is_ecn: bool) -> String {
    match change {
        Change::Kept => format!("{field} kept"),
        Change::Bleached => format!("{field} bleached"),
        Change::Remarked(to) if is_ecn => format!("ECN changed to {}", Ecn::from_bits(to).name()),
        Change::Remarked(to) => format!("{field} remarked to {to}"),
        Change::CongestionMarked => "marked CE on the way".to_owned(),
        Change::NotAsked => format!("{field} not asked"),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MarksError {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("asking {target} about markings: {step}")]
    Socket { target: SocketAddr, step: &'static str, source: io::Error },
    #[error(
        "no answer from {target} to STAMP packets: check that a reflector runs there and that no \
         firewall blocks UDP"
    )]
    Silent { target: SocketAddr },
    #[error("the reflector at {target} does not know the Class of Service TLV (RFC 8972)")]
    NoClassOfService { target: SocketAddr },
}

const PACKETS: u32 = 20;
/// Interval between packets, within a reflector's rate limit.
const INTERVAL: Duration = Duration::from_millis(8);
/// How long to wait for answers after the last packet.
const PATIENCE: Duration = Duration::from_millis(1_500);
const SESSION: u16 = 0x4d41;
const BYTES: usize = 52;

/// Tests every marking of [`MARKINGS`] at the reflector at `target`, from `socket`, which is bound
/// in the network to measure. Takes about four seconds.
///
/// # Errors
/// Returns an error without a usable socket or a route, if no answer arrives, and if the answers
/// have no Class of Service TLV.
pub fn survey_marks(socket: UdpSocket, target: SocketAddr) -> Result<MarkSurvey, MarksError> {
    let error = |step| move |source| MarksError::Socket { target, step, source };
    let mut socket = ProbeSocket::new(socket, "marks")?;
    socket.connect(target).map_err(error("connecting"))?;
    let clock = RunClock::start();
    let mut tally = Tally::default();
    let mut next_ns = clock.now_ns();
    for sequence in 0..PACKETS * MARKINGS.len() as u32 {
        let marking = MARKINGS[sequence as usize % MARKINGS.len()];
        let mut packet = [0; BYTES];
        let encoded = encode_request(&mut packet, sequence, SESSION, marking, clock.now_on_both());
        let sent = encoded.map(|()| socket.send(&packet, marking.to_byte(), None));
        match sent {
            // The kernel reports the error of an earlier packet (a closed port) with a later one.
            Some(Err(source)) if source.kind() == io::ErrorKind::ConnectionRefused => {}
            // This machine's firewall may refuse one marking and pass the others.
            Some(Err(source)) if source.kind() == io::ErrorKind::PermissionDenied => {
                tally.refuse(sequence, source);
            }
            Some(Err(source)) => return Err(error("sending")(source)),
            _ => {}
        }
        next_ns += INTERVAL.as_nanos() as u64;
        tally.receive_until(&mut socket, clock, next_ns).map_err(error("receiving"))?;
    }
    let last_ns = next_ns + PATIENCE.as_nanos() as u64;
    tally.receive_until(&mut socket, clock, last_ns).map_err(error("receiving"))?;
    match (tally.answered(), tally.without_class) {
        (0, 0) if tally.refused.iter().all(|count| *count > 0) => {
            let source = tally.refusal.unwrap_or_else(|| io::ErrorKind::PermissionDenied.into());
            Err(error("sending")(source))
        }
        (0, 0) => Err(MarksError::Silent { target }),
        (0, _) => Err(MarksError::NoClassOfService { target }),
        _ => Ok(tally.judge()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exchange {
    sequence: u32,
    class: ClassOfService,
    /// DSCP and ECN of the answer on arrival.
    arrived: Option<u8>,
}

#[derive(Debug, Default)]
struct Tally {
    exchanges: BTreeMap<u32, Exchange>,
    without_class: u32,
    /// Packets of each marking that this machine refused to send, and the last error.
    refused: [u32; MARKINGS.len()],
    refusal: Option<io::Error>,
}

impl Tally {
    fn receive_until(
        &mut self,
        socket: &mut ProbeSocket,
        clock: RunClock,
        until_ns: u64,
    ) -> io::Result<()> {
        let mut buffer = [0; 1_500];
        loop {
            let left_ns = until_ns.saturating_sub(clock.now_ns());
            let refused: u32 = self.refused.iter().sum();
            let all_answered =
                self.answered() + refused as usize == PACKETS as usize * MARKINGS.len();
            if left_ns < 1_000 || all_answered {
                return Ok(());
            }
            socket.set_read_timeout(Duration::from_nanos(left_ns))?;
            match socket.recv(&mut buffer) {
                Ok(received) => self.note(&buffer[..received.len], received),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&mut self, bytes: &[u8], received: Received) {
        let Ok((packet, tlvs)) = ReflectorPacket::decode(bytes) else { return };
        if packet.sender.session != SESSION {
            return;
        }
        let class = tlvs
            .find(tlv_type::CLASS_OF_SERVICE)
            .filter(|tlv| !tlv.flags.contains(TlvFlags::UNRECOGNIZED))
            .and_then(|tlv| ClassOfService::decode(tlv.value).ok());
        let Some(class) = class else {
            self.without_class += 1;
            return;
        };
        let sequence = packet.sender.sequence;
        if sequence < PACKETS * MARKINGS.len() as u32 {
            let arrived = received.traffic_class;
            self.exchanges.insert(sequence, Exchange { sequence, class, arrived });
        }
    }

    fn refuse(&mut self, sequence: u32, error: io::Error) {
        if let Some(count) = self.refused.get_mut(sequence as usize % MARKINGS.len()) {
            *count += 1;
        }
        self.refusal = Some(error);
    }

    fn answered(&self) -> usize {
        self.exchanges.len()
    }

    fn judge(&self) -> MarkSurvey {
        let row = |(index, sent): (usize, &Marking)| {
            let belongs =
                |exchange: &&Exchange| exchange.sequence as usize % MARKINGS.len() == index;
            let exchanges: Vec<Exchange> =
                self.exchanges.values().filter(belongs).copied().collect();
            let answered = exchanges.len() as u32;
            let is_refused = answered == 0 && self.refused.get(index).is_some_and(|n| *n > 0);
            let (up, down) = if is_refused {
                (Fate::Refused, Fate::Refused)
            } else {
                (up_fate(*sent, &exchanges), down_fate(&exchanges))
            };
            MarkRow { sent: *sent, packets: PACKETS, answered, up, down }
        };
        MarkSurvey { rows: MARKINGS.iter().enumerate().map(row).collect() }
    }
}

fn up_fate(sent: Marking, exchanges: &[Exchange]) -> Fate {
    let seen = exchanges.iter().map(|exchange| {
        let class = exchange.class;
        Marking { dscp: class.dscp_received, ecn: Ecn::from_bits(class.ecn_received) }
    });
    match prevailing(seen) {
        Err(fate) => fate,
        Ok(seen) => Fate::Seen {
            dscp: Change::from_dscps(sent.dscp, seen.dscp),
            ecn: Change::from_ecns(sent.ecn, seen.ecn),
        },
    }
}

fn down_fate(exchanges: &[Exchange]) -> Fate {
    let arrived = exchanges.iter().filter_map(|exchange| exchange.arrived);
    let seen = match prevailing(arrived.map(Marking::from_byte)) {
        Err(fate) => return fate,
        Ok(seen) => seen,
    };
    // A reflector applies one policy to all packets of a marking.
    let Some(class) = exchanges.first().map(|exchange| exchange.class) else { return Fate::Lost };
    let dscp = if class.dscp_refused {
        Change::NotAsked
    } else {
        Change::from_dscps(class.dscp_requested, seen.dscp)
    };
    let ecn = match class.ecn_reply {
        EcnReply::Set => Change::from_ecns(Ecn::from_bits(class.ecn_requested), seen.ecn),
        _ => Change::NotAsked,
    };
    Fate::Seen { dscp, ecn }
}

/// Returns the marking that nine of ten packets arrived with.
fn prevailing(seen: impl Iterator<Item = Marking>) -> Result<Marking, Fate> {
    let mut counts: BTreeMap<Marking, usize> = BTreeMap::new();
    seen.for_each(|marking| *counts.entry(marking).or_default() += 1);
    let total: usize = counts.values().sum();
    match counts.into_iter().max_by_key(|(_, count)| *count) {
        None => Err(Fate::Lost),
        Some((marking, count)) if count * 10 >= total * 9 => Ok(marking),
        Some((mostly, _)) => Err(Fate::Mixed { mostly }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(sent: Marking, up: u8, down: u8, refused: bool) -> Exchange {
        let class = ClassOfService {
            dscp_requested: sent.dscp,
            ecn_requested: sent.ecn.bits(),
            dscp_received: up >> 2,
            ecn_received: up & 3,
            dscp_refused: refused,
            ecn_reply: EcnReply::Set,
        };
        Exchange { sequence: 0, class, arrived: Some(down) }
    }

    #[test]
    fn each_direction_and_each_field_has_its_own_fate() {
        let sent = marking(45, Ecn::Ect1);
        let exchanges = [exchange(sent, 0x01, 0xb6, false)];
        let (up, down) = (up_fate(sent, &exchanges), down_fate(&exchanges));
        assert_eq!(up, Fate::Seen { dscp: Change::Bleached, ecn: Change::Kept });
        assert_eq!(down, Fate::Seen { dscp: Change::Kept, ecn: Change::Remarked(2) });
        assert_eq!(up.to_string(), "DSCP bleached");
        assert_eq!(down.to_string(), "ECN changed to ect0");
        assert!(up.is_damage() && down.is_damage());
    }

    #[test]
    fn added_congestion_marks_count_as_intact_and_removed_marks_as_damage() {
        let sent = marking(0, Ecn::Ect0);
        let marked = up_fate(sent, &[exchange(sent, 3, 2, false)]);
        assert!(marked.is_intact(), "{marked}");
        let sent = marking(0, Ecn::Ce);
        let unmarked = up_fate(sent, &[exchange(sent, 1, 3, false)]);
        assert_eq!(unmarked.to_string(), "ECN changed to ect1");
        assert_eq!(up_fate(sent, &[]), Fate::Lost);
    }

    #[test]
    fn a_refused_marking_is_not_judged_on_the_way_back() {
        let sent = marking(46, Ecn::NotEct);
        let exchanges = [exchange(sent, 0xb8, 0xb8, true)];
        assert_eq!(down_fate(&exchanges), Fate::Seen { dscp: Change::NotAsked, ecn: Change::Kept });
        assert_eq!(up_fate(sent, &exchanges).to_string(), "kept");
    }

    #[test]
    fn a_marking_that_never_left_is_refused_and_the_others_are_judged() {
        let mut tally = Tally::default();
        for index in 0..MARKINGS.len() as u32 {
            let sent = MARKINGS[index as usize];
            if sent.dscp == 45 {
                tally.refuse(index, io::ErrorKind::PermissionDenied.into());
            } else {
                let byte = sent.to_byte();
                let exchange = Exchange { sequence: index, ..exchange(sent, byte, byte, false) };
                tally.exchanges.insert(index, exchange);
            }
        }
        for row in tally.judge().rows {
            let expected = if row.sent.dscp == 45 { "refused by this machine" } else { "kept" };
            assert_eq!(row.up.to_string(), expected, "{:?}", row.sent);
            assert!(!row.up.is_damage());
        }
    }

    #[test]
    fn two_paths_that_disagree_are_mixed() {
        let sent = marking(45, Ecn::NotEct);
        let mut exchanges = vec![exchange(sent, 0xb4, 0xb4, false); 15];
        exchanges.extend([exchange(sent, 0, 0xb4, false); 5]);
        assert_eq!(up_fate(sent, &exchanges), Fate::Mixed { mostly: sent });
        assert_eq!(down_fate(&exchanges).to_string(), "kept");
    }
}
