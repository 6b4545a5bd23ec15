//! The offset of the far end's clock from ours.

use super::matching::{ReplyRecord, SentRecord};

/// An estimate of the far wall clock's lead over ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Lead of the far clock; negative if it is behind.
    pub offset_ns: i64,
    /// Largest error of the estimate if neither clock drifts: half the round trip, reached if one
    /// direction took all of it.
    pub error_ns: u64,
}

/// Estimates the offset from the exchange with the shortest round trip, as NTP's clock filter does
/// (RFC 5905 section 10): `((t2 - t1) + (t3 - t4)) / 2`. Returns `None` without a usable exchange.
///
/// The estimate assumes equal delays in both directions. Otherwise one-way delays are wrong by half
/// the difference; their variation is right.
pub fn estimate_clock_offset(sent: &[SentRecord], replies: &[ReplyRecord]) -> Option<ClockOffset> {
    let exchange = |reply: &ReplyRecord| {
        let index = sent
            .binary_search_by_key(&(reply.sequence, reply.class), |packet| {
                (packet.sequence, packet.class)
            })
            .ok()?;
        let (t1, t4) = (sent.get(index)?.sent_ns as i64, reply.received_ns as i64);
        let (t2, t3) = (reply.far_received_ns?, reply.far_sent_ns?);
        let round_trip_ns = u64::try_from((t4 - t1).checked_sub(t3.checked_sub(t2)?)?).ok()?;
        let offset_ns = t2.checked_sub(t1)?.checked_add(t3.checked_sub(t4)?)? / 2;
        Some(ClockOffset { offset_ns, error_ns: round_trip_ns.div_ceil(2) })
    };
    replies.iter().filter_map(exchange).min_by_key(|estimate| estimate.error_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_exchange_gives_the_clock_offset() {
        let packet = |sequence, sent_ns| SentRecord { sequence, sent_ns, ..SentRecord::default() };
        let answer = |sequence, far_received, far_sent, received_ns| ReplyRecord {
            sequence,
            received_ns,
            far_received_ns: Some(far_received),
            far_sent_ns: Some(far_sent),
            ..ReplyRecord::default()
        };
        // The far clock is 5000 ahead. Exchange 0 takes 10 + 10, exchange 1 queues 300 on its way.
        let sent = [packet(0, 100), packet(1, 200)];
        let replies = [answer(1, 5_510, 5_512, 522), answer(0, 5_110, 5_115, 125)];
        let estimate = estimate_clock_offset(&sent, &replies).unwrap();
        assert_eq!(estimate, ClockOffset { offset_ns: 5_000, error_ns: 10 });
        assert_eq!(estimate_clock_offset(&sent, &[]), None);
    }
}
