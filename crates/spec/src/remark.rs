//! Rules by which devices on a path change the DSCP and ECN fields of packets that they forward.
//!
//! Some changes are meant: a network's edge translates its neighbour's codepoints (RFC 2474,
//! section 3). Others are faults: a field set to zero ("bleached") removes the class that a packet
//! requested, and a changed ECN field breaks the feedback of the transport (RFC 3168, section 7).
//! How rules are written is in [`config`](crate::config).

use alloc::vec::Vec;

use crate::packet::{Dscp, Ecn, Meta};

/// Rules in the order in which they change a packet; each sees the result of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// A change, and the share of packets that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of the DSCP or ECN field.
    pub change: Change,
    /// The share of matching packets that it applies to.
    pub share: Share,
}

/// A change of a packet's DSCP or ECN field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Some DSCPs become another.
    Dscp {
        /// The DSCPs to change: bit `n` is codepoint `n`.
        from: u64,
        /// The DSCP that replaces them.
        to: NewDscp,
    },
    /// The ECN field becomes Not-ECT, whatever it was.
    EcnBleach,
    /// One ECN codepoint becomes another.
    Ecn {
        /// The codepoint to change.
        from: Ecn,
        /// The codepoint that replaces it.
        to: Ecn,
    },
    /// Both fields become zero, as where the byte is the type of service of RFC 791.
    TosZero,
}

/// The DSCP of a changed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewDscp {
    /// A fixed codepoint.
    Value(Dscp),
    /// The class selector: the three upper bits stay, the three lower become zero.
    Class,
}

/// A share of the packets: those whose draw, a fraction of 2^32, is from `from_q32` up to but not
/// including `to_q32`. A packet draws once for all rules of a link, so rules with disjoint shares
/// change different packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The smallest draw in the share.
    pub from_q32: u64,
    /// The smallest draw above the share; greater than `from_q32`.
    pub to_q32: u64,
}

impl Share {
    /// The share of all packets: every draw is in it.
    pub const ALL: Self = Self { from_q32: 0, to_q32: 1 << 32 };

    #[inline]
    const fn contains(self, draw: u32) -> bool {
        self.from_q32 <= draw as u64 && (draw as u64) < self.to_q32
    }
}

impl Rules {
    /// Maximum number of rules of a link; each has a counter of changed packets.
    pub const MOST: usize = 8;

    /// No rule: packets stay as they are.
    pub const NONE: Self = Self(Vec::new());

    /// Returns the rules; `None` if there are more than [`Rules::MOST`].
    pub fn new(rules: Vec<Rule>) -> Option<Self> {
        (rules.len() <= Self::MOST).then_some(Self(rules))
    }

    /// Returns the rules in their order.
    #[inline]
    pub fn as_slice(&self) -> &[Rule] {
        &self.0
    }

    /// Whether a packet has to draw a number, because a rule changes only a share.
    pub fn draw(&self) -> bool {
        self.0.iter().any(|rule| rule.share != Share::ALL)
    }
}

impl Rule {
    /// Changes the fields of a packet that drew `draw`. Returns whether a field differs.
    #[inline]
    pub fn apply(&self, meta: &mut Meta, draw: u32) -> bool {
        if !self.share.contains(draw) {
            return false;
        }
        let before = (meta.dscp, meta.ecn);
        match self.change {
            Change::Dscp { from, to } if from >> meta.dscp.value() & 1 == 1 => {
                meta.dscp = match to {
                    NewDscp::Value(to) => to,
                    NewDscp::Class => meta.dscp.class_selector(),
                };
            }
            Change::EcnBleach => meta.ecn = Ecn::NotEct,
            Change::Ecn { from, to } if from == meta.ecn => meta.ecn = to,
            Change::TosZero => (meta.dscp, meta.ecn) = (Dscp::DEFAULT, Ecn::NotEct),
            Change::Dscp { .. } | Change::Ecn { .. } => {}
        }
        before != (meta.dscp, meta.ecn)
    }
}
