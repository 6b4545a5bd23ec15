//! What a direction does to markings as a whole: the policy behind what became of each.
//!
//! One marking that changes says little: DSCP 45 becomes zero at the edge of a network that uses it
//! for itself, in a home router that clears the whole byte, and where every DSCP is cleared. What
//! became of the others tells these apart, and so whom to ask.

use std::fmt;

use serde::{Serialize, Serializer};
use underload_record::schema::{Direction, Ecn, Marking};

use super::hops::Change as HopChange;
use super::marks::{Change, Fate, MarkRow, MarkSurvey};

/// What a direction does to the DSCP field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "policy")]
pub enum Policy {
    /// DSCP and ECN become zero, whatever they were: a home router that takes the byte for the type
    /// of service of RFC 791.
    ByteCleared,
    /// Every DSCP becomes zero; ECN stays.
    DscpCleared,
    /// DSCP 45 becomes zero and others stay: the edge of a network that uses 45 for itself.
    NqbBleached,
    /// 45 stays, and what homes use for low latency becomes 45: an edge that takes part.
    TranslatedToNqb {
        /// What becomes 45.
        from: Vec<u8>,
    },
    /// Of each DSCP the three upper bits stay: a way over Wi-Fi user priorities (RFC 8325).
    ClassOnly,
    /// DSCPs change in some other way.
    DscpChanged {
        /// Which, and into what.
        changes: Vec<(u8, u8)>,
    },
    /// ECN becomes Not-ECT, whatever it was; DSCPs are another matter.
    EcnCleared,
    /// ECN codepoints change in some other way than to CE.
    EcnChanged {
        /// Which, and into what.
        #[serde(serialize_with = "by_name")]
        changes: Vec<(Ecn, Ecn)>,
    },
}

/// A policy, and where it is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyFinding {
    /// On which way.
    pub direction: Direction,
    /// Which policy.
    #[serde(flatten)]
    pub policy: Policy,
    /// Between which hops, as far as the way up could be traced; `None`: not known from here.
    pub place: Option<HopChange>,
}

impl Policy {
    /// Whether it is the ECN field alone that it changes.
    const fn is_of_ecn(&self) -> bool {
        matches!(self, Self::EcnCleared | Self::EcnChanged { .. })
    }

    /// Whether a hop's change is this policy's.
    fn explains(&self, change: &HopChange) -> bool {
        if self.is_of_ecn() {
            change.from.ecn != change.to.ecn
        } else {
            change.from.dscp != change.to.dscp || *self == Self::ByteCleared
        }
    }
}

/// The policies of both directions. `changes`: where hops were traced, what they showed.
pub fn policies(survey: &MarkSurvey, changes: &[Option<HopChange>]) -> Vec<PolicyFinding> {
    let mut findings = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        for policy in of_direction(survey, direction) {
            let is_its_own = |change: &&HopChange| policy.explains(change);
            let place = changes.iter().flatten().find(is_its_own).copied();
            let place = place.filter(|_| direction == Direction::Up);
            findings.push(PolicyFinding { direction, policy, place });
        }
    }
    findings
}

fn of_direction(survey: &MarkSurvey, direction: Direction) -> Vec<Policy> {
    let fate = |row: &MarkRow| match direction {
        Direction::Up => row.up,
        Direction::Down => row.down,
    };
    let dscps: Vec<(u8, u8)> = survey
        .rows
        .iter()
        .filter(|row| row.sent.ecn == Ecn::NotEct && row.sent.dscp != 0)
        .filter_map(|row| Some((row.sent.dscp, dscp_seen(row.sent.dscp, fate(row))?)))
        .collect();
    let ecns: Vec<(Ecn, Ecn)> = survey
        .rows
        .iter()
        .filter(|row| row.sent.dscp == 0 && row.sent.ecn != Ecn::NotEct)
        .filter_map(|row| Some((row.sent.ecn, ecn_seen(row.sent.ecn, fate(row))?)))
        .collect();
    match (dscp_policy(&dscps), ecn_policy(&ecns)) {
        (Some(Policy::DscpCleared), Some(Policy::EcnCleared)) => vec![Policy::ByteCleared],
        (dscp, ecn) => dscp.into_iter().chain(ecn).collect(),
    }
}

/// What a DSCP arrived as, where that is known.
fn dscp_seen(sent: u8, fate: Fate) -> Option<u8> {
    match fate {
        Fate::Seen { dscp, .. } => match dscp {
            Change::Kept => Some(sent),
            Change::Bleached => Some(0),
            Change::Remarked(to) => Some(to),
            Change::CongestionMarked | Change::NotAsked => None,
        },
        Fate::Mixed { .. } | Fate::Lost | Fate::Unknown | Fate::Refused => None,
    }
}

fn by_name<S: Serializer>(changes: &[(Ecn, Ecn)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(changes.iter().map(|(from, into)| (from.name(), into.name())))
}

/// What an ECN codepoint arrived as, where that is known; marked CE counts as kept.
fn ecn_seen(sent: Ecn, fate: Fate) -> Option<Ecn> {
    match fate {
        Fate::Seen { ecn, .. } => match ecn {
            Change::Kept | Change::CongestionMarked => Some(sent),
            Change::Bleached => Some(Ecn::NotEct),
            Change::Remarked(to) => Some(Ecn::from_bits(to)),
            Change::NotAsked => None,
        },
        Fate::Mixed { .. } | Fate::Lost | Fate::Unknown | Fate::Refused => None,
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
        let list = |f: &mut fmt::Formatter<'_>, changes: &mut dyn Iterator<Item = String>| {
            f.write_str(&changes.collect::<Vec<_>>().join(", "))
        };
        match self {
            Self::ByteCleared => f.write_str(
                "DSCP and ECN are cleared together, as by a home router that takes the byte for \
                 the type of service",
            ),
            Self::DscpCleared => f.write_str("every DSCP is cleared, ECN is left alone"),
            Self::NqbBleached => f.write_str(
                "DSCP 45 alone is cleared, as at the edge of a network that uses 45 for itself",
            ),
            Self::TranslatedToNqb { from } => {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                write!(f, "{} become 45, and 45 stays: ", from.join(", "))?;
                f.write_str("an edge that takes them for non-queue-building")
            }
            Self::ClassOnly => f.write_str(
                "the upper three bits of a DSCP survive (45 becomes 40), as over Wi-Fi user \
                 priorities",
            ),
            Self::DscpChanged { changes } => {
                f.write_str("DSCPs change: ")?;
                list(f, &mut changes.iter().map(|(from, to)| format!("{from} to {to}")))
            }
            Self::EcnCleared => f.write_str("ECN is cleared"),
            Self::EcnChanged { changes } => {
                f.write_str("ECN changes: ")?;
                let named = |(from, to): &(Ecn, Ecn)| format!("{} to {}", from.name(), to.name());
                list(f, &mut changes.iter().map(named))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::MARKINGS;

    /// What is found where a way up makes `byte` of each marking's; nothing is asked down.
    fn found_up(byte: impl Fn(u8) -> u8) -> Vec<Policy> {
        let row = |sent: &Marking| {
            let seen = Marking::from_byte(byte(sent.to_byte()));
            let up = Fate::Seen {
                dscp: Change::of_dscp(sent.dscp, seen.dscp),
                ecn: Change::of_ecn(sent.ecn, seen.ecn),
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
    fn each_policy_is_told_from_the_others() {
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
    fn congestion_marks_and_what_is_not_known_are_no_policy() {
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
        // A peer's edge behind a tunnel that clears ECN.
        let both = |byte: u8| if byte >> 2 == 45 { 0 } else { byte & !3 };
        assert_eq!(found_up(both), [Policy::NqbBleached, Policy::EcnCleared]);
    }
}
