//! The policy of a direction: what explains the fate of all markings together.
//!
//! A single changed marking says little: DSCP 45 becomes zero at the edge of a network that uses it
//! internally, in a home router that clears the whole byte, and where every DSCP is cleared. The
//! fate of the other markings distinguishes these cases, and shows whom to ask.

use std::fmt;

use serde::{Serialize, Serializer};
use underload_record::schema::{Direction, Ecn, Marking};

use super::hops::Change as HopChange;
use super::marks::{Change, Fate, MarkRow, MarkSurvey};

/// The changes that a direction makes to the DSCP and ECN fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "policy")]
pub enum Policy {
    /// DSCP and ECN become zero: a home router that treats the byte as the type of service of RFC
    /// 791.
    ByteCleared,
    /// Every DSCP becomes zero; ECN is unchanged.
    DscpCleared,
    /// DSCP 45 becomes zero and others are unchanged: the edge of a network that uses 45
    /// internally.
    NqbBleached,
    /// 45 is unchanged, and the DSCPs in `from`, which homes use for low latency, become 45: an
    /// edge that supports NQB.
    TranslatedToNqb { from: Vec<u8> },
    /// The upper three bits of each DSCP survive: a path over Wi-Fi user priorities (RFC 8325).
    ClassOnly,
    /// DSCPs change in another way. Pairs of sent and received.
    DscpChanged { changes: Vec<(u8, u8)> },
    /// ECN becomes Not-ECT; DSCPs are judged separately.
    EcnCleared,
    /// ECN codepoints change in another way than to CE. Pairs of sent and received.
    EcnChanged {
        #[serde(serialize_with = "by_name")]
        changes: Vec<(Ecn, Ecn)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyFinding {
    pub direction: Direction,
    #[serde(flatten)]
    pub policy: Policy,
    /// The hops between which the policy applies; `None` for the way down, or if the hops are
    /// unknown.
    pub place: Option<HopChange>,
}

impl Policy {
    /// Returns true if a hop's change is an effect of this policy.
    fn explains(&self, change: &HopChange) -> bool {
        if matches!(self, Self::EcnCleared | Self::EcnChanged { .. }) {
            change.from.ecn != change.to.ecn
        } else {
            change.from.dscp != change.to.dscp || *self == Self::ByteCleared
        }
    }
}

/// Returns the policies of both directions. `changes` are those that traced hops showed.
pub fn policies(survey: &MarkSurvey, changes: &[Option<HopChange>]) -> Vec<PolicyFinding> {
    let mut findings = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        for policy in direction_policies(survey, direction) {
            let is_explained = |change: &&HopChange| policy.explains(change);
            let place = changes.iter().flatten().find(is_explained).copied();
            let place = place.filter(|_| direction == Direction::Up);
            findings.push(PolicyFinding { direction, policy, place });
        }
    }
    findings
}

fn direction_policies(survey: &MarkSurvey, direction: Direction) -> Vec<Policy> {
    let fate = |row: &MarkRow| match direction {
        Direction::Up => row.up,
        Direction::Down => row.down,
    };
    let seen = |is_wanted: fn(&Marking) -> bool| {
        let rows = survey.rows.iter().filter(move |row| is_wanted(&row.sent));
        rows.map(|row| (row.sent, fate(row)))
    };
    let dscps: Vec<(u8, u8)> = seen(|sent| sent.ecn == Ecn::NotEct && sent.dscp != 0)
        .filter_map(|(sent, fate)| Some((sent.dscp, dscp_seen(sent.dscp, fate)?)))
        .collect();
    let ecns: Vec<(Ecn, Ecn)> = seen(|sent| sent.dscp == 0 && sent.ecn != Ecn::NotEct)
        .filter_map(|(sent, fate)| Some((sent.ecn, ecn_seen(sent.ecn, fate)?)))
        .collect();
    match (dscp_policy(&dscps), ecn_policy(&ecns)) {
        (Some(Policy::DscpCleared), Some(Policy::EcnCleared)) => vec![Policy::ByteCleared],
        (dscp, ecn) => dscp.into_iter().chain(ecn).collect(),
    }
}

/// Returns the DSCP that arrived; `None` if unknown.
fn dscp_seen(sent: u8, fate: Fate) -> Option<u8> {
    let Fate::Seen { dscp, .. } = fate else { return None };
    match dscp {
        Change::Kept => Some(sent),
        Change::Bleached => Some(0),
        Change::Remarked(to) => Some(to),
        Change::CongestionMarked | Change::NotAsked => None,
    }
}

fn by_name<S: Serializer>(changes: &[(Ecn, Ecn)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(changes.iter().map(|(from, into)| (from.name(), into.name())))
}

/// Returns the ECN codepoint that arrived, or the one sent if it became CE; `None` if unknown.
fn ecn_seen(sent: Ecn, fate: Fate) -> Option<Ecn> {
    let Fate::Seen { ecn, .. } = fate else { return None };
    match ecn {
        Change::Kept | Change::CongestionMarked => Some(sent),
        Change::Bleached => Some(Ecn::NotEct),
        Change::Remarked(to) => Some(Ecn::from_bits(to)),
        Change::NotAsked => None,
    }
}

fn dscp_policy(seen: &[(u8, u8)]) -> Option<Policy> {
    let changes: Vec<(u8, u8)> = seen.iter().copied().filter(|(from, to)| from != to).collect();
    if changes.is_empty() {
        return None;
    }
    let all_become = |to: u8| changes.iter().all(|(_, seen)| *seen == to);
    let is_class = |(from, to): &(u8, u8)| from & 0b11_1000 == *to;
    let nqb_stays = seen.contains(&(Marking::NQB, Marking::NQB));
    Some(if all_become(0) && changes.len() == seen.len() && seen.len() > 1 {
        Policy::DscpCleared
    } else if changes == [(Marking::NQB, 0)] && seen.len() > 1 {
        Policy::NqbBleached
    } else if all_become(Marking::NQB) && nqb_stays {
        Policy::TranslatedToNqb { from: changes.iter().map(|(from, _)| *from).collect() }
    } else if seen.iter().all(is_class) && seen.len() > 1 {
        Policy::ClassOnly
    } else {
        Policy::DscpChanged { changes }
    })
}

fn ecn_policy(seen: &[(Ecn, Ecn)]) -> Option<Policy> {
    let changes: Vec<(Ecn, Ecn)> = seen.iter().copied().filter(|(from, to)| from != to).collect();
    if changes.is_empty() {
        return None;
    }
    let is_cleared = changes.iter().all(|(_, to)| *to == Ecn::NotEct);
    Some(if is_cleared && changes.len() == seen.len() && seen.len() > 1 {
        Policy::EcnCleared
    } else {
        Policy::EcnChanged { changes }
    })
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteCleared => f.write_str(
                "DSCP and ECN are cleared together, as by a home router that treats the byte as \
                 the type of service",
            ),
            Self::DscpCleared => f.write_str("every DSCP is cleared, ECN is unchanged"),
            Self::NqbBleached => f.write_str(
                "DSCP 45 alone is cleared, as at the edge of a network that uses 45 internally",
            ),
            Self::TranslatedToNqb { from } => {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                write!(f, "{} become 45, and 45 is unchanged: ", from.join(", "))?;
                f.write_str("an edge that treats them as non-queue-building")
            }
            Self::ClassOnly => f.write_str(
                "the upper three bits of a DSCP survive (45 becomes 40), as over Wi-Fi user \
                 priorities",
            ),
            Self::DscpChanged { changes } => {
                let changes: Vec<_> =
                    changes.iter().map(|(from, to)| format!("{from} to {to}")).collect();
                write!(f, "DSCPs change: {}", changes.join(", "))
            }
            Self::EcnCleared => f.write_str("ECN is cleared"),
            Self::EcnChanged { changes } => {
                let named = |(from, to): &(Ecn, Ecn)| format!("{} to {}", from.name(), to.name());
                let changes: Vec<_> = changes.iter().map(named).collect();
                write!(f, "ECN changes: {}", changes.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::MARKINGS;

    /// Returns the policies of an upward direction that turns each byte into `byte(sent)`; the
    /// downward direction is not tested.
    fn found_up(byte: impl Fn(u8) -> u8) -> Vec<Policy> {
        let row = |sent: &Marking| {
            let seen = Marking::from_byte(byte(sent.to_byte()));
            let up = Fate::Seen {
                dscp: Change::from_dscps(sent.dscp, seen.dscp),
                ecn: Change::from_ecns(sent.ecn, seen.ecn),
            };
            let down = Fate::Seen { dscp: Change::NotAsked, ecn: Change::NotAsked };
            MarkRow { sent: *sent, packets: 20, answered: 20, up, down }
        };
        let survey = MarkSurvey { rows: MARKINGS.iter().map(row).collect() };
        let found = policies(&survey, &[]);
        assert!(found.iter().all(|found| found.direction == Direction::Up), "{found:?}");
        found.into_iter().map(|found| found.policy).collect()
    }

    #[test]
    fn each_policy_is_distinguished_from_the_others() {
        assert_eq!(found_up(|byte| byte), []);
        assert_eq!(found_up(|_| 0), [Policy::ByteCleared]);
        assert_eq!(found_up(|byte| byte & 3), [Policy::DscpCleared]);
        assert_eq!(found_up(|byte| byte & !3), [Policy::EcnCleared]);
        let nqb = |byte: u8| if byte >> 2 == 45 { byte & 3 } else { byte };
        assert_eq!(found_up(nqb), [Policy::NqbBleached]);
        assert_eq!(found_up(|byte| byte & 0xe3), [Policy::ClassOnly]);
        let edge = |byte: u8| match byte >> 2 {
            40 | 46 | 56 => 45 << 2 | byte & 3,
            _ => byte,
        };
        assert_eq!(found_up(edge), [Policy::TranslatedToNqb { from: vec![40, 46, 56] }]);
        let other = |byte: u8| if byte >> 2 == 8 { 10 << 2 } else { byte };
        assert_eq!(found_up(other), [Policy::DscpChanged { changes: vec![(8, 10)] }]);
        let ect1 = |byte: u8| if byte & 3 == 1 { byte + 1 } else { byte };
        let changes = vec![(Ecn::Ect1, Ecn::Ect0)];
        assert_eq!(found_up(ect1), [Policy::EcnChanged { changes }]);
    }

    #[test]
    fn congestion_marks_and_unknown_changes_are_not_taken_for_a_policy() {
        let marked = |byte: u8| if Ecn::from_bits(byte) == Ecn::NotEct { byte } else { byte | 3 };
        assert_eq!(found_up(marked), []);
        for fate in [Fate::Lost, Fate::Unknown, Fate::Refused] {
            let row = |sent: &Marking| MarkRow {
                sent: *sent,
                packets: 20,
                answered: 0,
                up: fate,
                down: fate,
            };
            let survey = MarkSurvey { rows: MARKINGS.iter().map(row).collect() };
            assert_eq!(policies(&survey, &[]), [], "{fate:?}");
        }
    }

    #[test]
    fn two_devices_are_two_policies() {
        // The edge of a peer behind a tunnel that clears ECN.
        let both = |byte: u8| if byte >> 2 == 45 { 0 } else { byte & !3 };
        assert_eq!(found_up(both), [Policy::NqbBleached, Policy::EcnCleared]);
    }
}
