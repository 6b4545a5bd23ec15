//! The answer to a probe: its fields and their order.

use super::session::ReceivedSoFar;
use super::{Parameters, packet};
use underload_probe::Instants;

const ON_SENDING: u8 = 1;
const ON_RECEIVING: u8 = 2;
const MIDPOINT: u8 = 4;
const WALL: u8 = 1;
const MONOTONIC: u8 = 2;

/// A received probe, with the values for its answer.
pub(super) struct Probe {
    pub flags: u8,
    pub token: u64,
    pub sequence: u32,
    pub so_far: ReceivedSoFar,
    pub received: Instants,
    /// Length of the probe, which the answer must not exceed.
    pub bytes: usize,
}

/// Writes the answer into `out`; `None` if it would be longer than its request.
///
/// Order: count, window, then time stamps, each on the wall clock and on the monotonic clock:
/// receive, midpoint, send. The time of sending is read last.
pub(super) fn write(
    deal: &Parameters,
    probe: &Probe,
    key: Option<&[u8]>,
    filling: &[u8],
    now: impl Fn() -> Instants,
    out: &mut Vec<u8>,
) -> Option<()> {
    packet::begin(out, probe.flags, probe.token, key);
    out.extend_from_slice(&probe.sequence.to_le_bytes());
    if deal.received_stats & 1 != 0 {
        out.extend_from_slice(&probe.so_far.count.to_le_bytes());
    }
    if deal.received_stats & 2 != 0 {
        out.extend_from_slice(&probe.so_far.window.to_le_bytes());
    }
    let stamps_at = out.len();
    let stamps = match deal.stamp_at {
        MIDPOINT => 1,
        at => usize::from(at & ON_RECEIVING != 0) + usize::from(at & ON_SENDING != 0),
    };
    let clocks = usize::from(deal.clock & WALL != 0) + usize::from(deal.clock & MONOTONIC != 0);
    out.resize(stamps_at + stamps * clocks * 8, 0);
    let wanted = usize::try_from(deal.length).unwrap_or(0).max(out.len());
    if wanted > probe.bytes {
        return None;
    }
    let filled = wanted - out.len();
    out.extend(filling.iter().cycle().take(filled));
    let sent = now();
    let moments: &[Instants] = match deal.stamp_at {
        MIDPOINT => &[midpoint(probe.received, sent)],
        3 => &[probe.received, sent],
        ON_RECEIVING => &[probe.received],
        ON_SENDING => &[sent],
        _ => &[],
    };
    let mut at = stamps_at;
    for moment in moments {
        for (clock, nanos) in [(WALL, moment.unix_ns), (MONOTONIC, moment.run_ns)] {
            if deal.clock & clock != 0 {
                out[at..at + 8].copy_from_slice(&nanos.to_le_bytes());
                at += 8;
            }
        }
    }
    packet::seal(out, key);
    Some(())
}

fn midpoint(a: Instants, b: Instants) -> Instants {
    Instants { run_ns: a.run_ns.midpoint(b.run_ns), unix_ns: a.unix_ns.midpoint(b.unix_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Probe = Probe {
        flags: 0,
        token: 7,
        sequence: 9,
        so_far: ReceivedSoFar { count: 3, window: 0b111 },
        received: Instants { run_ns: 100, unix_ns: 1_000 },
        bytes: 80,
    };

    fn answer(deal: &Parameters) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let now = || Instants { run_ns: 200, unix_ns: 1_100 };
        write(deal, &PROBE, None, &[0xaa, 0xbb], now, &mut out).map(|()| out)
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn all_fields_come_in_the_order_of_the_protocol() {
        let deal = Parameters {
            received_stats: 3,
            stamp_at: 3,
            clock: 3,
            length: 64,
            ..Parameters::default()
        };
        let bytes = answer(&deal).unwrap();
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[..4], [0x14, 0xa7, 0x5b, 2]);
        assert_eq!((word(&bytes, 4), bytes[12], bytes[16]), (7, 9, 3));
        let stamps: Vec<u64> = (0..5).map(|n| word(&bytes, 20 + 8 * n)).collect();
        assert_eq!(stamps, [0b111, 1_000, 100, 1_100, 200]);
        assert_eq!(bytes[60..], [0xaa, 0xbb, 0xaa, 0xbb]);
    }

    #[test]
    fn fewer_fields_make_a_shorter_answer_and_a_longer_one_is_not_sent() {
        let deal = Parameters { stamp_at: 4, clock: 2, ..Parameters::default() };
        let bytes = answer(&deal).unwrap();
        assert_eq!((bytes.len(), word(&bytes, 16)), (24, 150));
        assert_eq!(answer(&Parameters::default()).unwrap().len(), 16);
        assert!(answer(&Parameters { length: 81, ..deal }).is_none());
    }
}
