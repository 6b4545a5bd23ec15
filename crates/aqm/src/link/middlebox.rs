//! Changes of the DSCP and ECN fields of packets that the path behind a link delivers.
//!
//! A link without these options has no [`Middlebox`] and pays one test per packet.

use crate::packet::{Ecn, Packet};
use crate::qdisc::{MarkReason, Observer};
use crate::remark::Rules;
use crate::rng::Rng;
use crate::time::Time;

/// Marks and changes packets behind a link.
#[derive(Clone, Debug)]
pub struct Middlebox {
    options: MiddleboxOptions,
    mark_rng: Rng,
    /// Draws each packet's place among the rules' shares; `None` if every rule has all packets.
    share_rng: Option<Rng>,
}

/// The parameters of a [`Middlebox`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MiddleboxOptions {
    /// Probability that an ECT(0) or ECT(1) packet becomes CE, independent of others, as a fraction
    /// of 2^32. For other packets nothing is drawn.
    pub mark_q32: u64,
    /// Rules that change both fields afterwards, in order.
    pub rules: Rules,
}

impl MiddleboxOptions {
    /// Whether the middlebox changes nothing.
    pub fn is_empty(&self) -> bool {
        self.mark_q32 == 0 && self.rules.as_slice().is_empty()
    }
}

impl Middlebox {
    /// Returns a middlebox that draws from child streams of `rng`.
    pub fn new(options: MiddleboxOptions, rng: &Rng) -> Self {
        let share_rng = options.rules.draw().then(|| rng.child("remark"));
        Self { options, mark_rng: rng.child("mark"), share_rng }
    }

    /// Changes a packet that will be delivered.
    pub(super) fn pass<P>(
        &mut self,
        now: Time,
        packet: &mut Packet<P>,
        observer: &mut impl Observer<P>,
    ) {
        if matches!(packet.meta.ecn, Ecn::Ect0 | Ecn::Ect1)
            && self.options.mark_q32 > 0
            && u64::from(self.mark_rng.next_u32()) < self.options.mark_q32
        {
            packet.meta.ecn = Ecn::Ce;
            observer.marked(now, packet, MarkReason::Link);
        }
        let draw = self.share_rng.as_mut().map_or(0, Rng::next_u32);
        for (number, rule) in self.options.rules.as_slice().iter().enumerate() {
            if rule.apply(&mut packet.meta, draw) {
                observer.remarked(now, packet, number);
            }
        }
    }
}
