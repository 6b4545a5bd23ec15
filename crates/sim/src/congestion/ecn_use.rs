//! The ECN modes of a connection.

use underload_aqm::packet::Ecn;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnUse {
    /// No ECN: packets are Not-ECT.
    #[default]
    Off,
    /// ECT(0), one reaction per window (RFC 3168).
    Classic,
    /// ECT(0) with a count of marks as feedback (DCTCP).
    Accurate,
    /// ECT(1) with a count of marks as feedback (Prague, RFC 9331).
    L4s,
}

impl EcnUse {
    /// Returns the codepoint of data segments.
    pub(crate) const fn codepoint(self) -> Ecn {
        match self {
            Self::Off => Ecn::NotEct,
            Self::Classic | Self::Accurate => Ecn::Ect0,
            Self::L4s => Ecn::Ect1,
        }
    }

    pub(crate) const fn is_accurate(self) -> bool {
        matches!(self, Self::Accurate | Self::L4s)
    }
}
