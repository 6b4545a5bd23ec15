//! Decides whether a datagram is answered: a function of the datagram, its sender and the time.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use underload_probe::endpoint::Bucket;
use underload_probe::network::CustomerNetwork;
use underload_probe::wire::{BASE_LEN, NtpTimestamp, ReflectorPacket, SHORT_LEN};

use super::StampConfig;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A base packet, possibly with extensions.
    Reflect,
    /// A short packet of a listed sender: answered as if it were filled up with zeros.
    ReflectPadded,
    /// A reflector's answer, or a packet from a port of reflectors.
    Reflector,
    /// A sender that is not listed, or a packet too short for an unlisted sender.
    Stranger,
    Limited,
}

/// Decides about one datagram after the other. A flood of forged addresses allocates nothing.
pub struct Guard {
    config: StampConfig,
    own_port: u16,
    in_all: Bucket,
    // Keyed, so that a sender cannot choose the bucket of another network.
    hasher: RandomState,
    networks: Vec<Bucket>,
}

const BUCKETS: usize = 4096;
/// Services listen below this port; measurements do not come from there.
const PORT_MIN: u16 = 1024;
/// Longest time between arrival and answer in a reflector's packet, s.
const REFLECTION_MAX_S: u64 = 60;

impl Guard {
    /// Returns the guard of a reflector on `own_port`.
    pub fn new(config: StampConfig, own_port: u16) -> Self {
        let per_network = Bucket::new(config.packets_per_second_per_network_max);
        Self {
            in_all: Bucket::new(config.packets_per_second_max),
            hasher: RandomState::new(),
            networks: vec![per_network; BUCKETS],
            own_port,
            config,
        }
    }

    /// Decides about `datagram` from `sender`, which arrived at `now_ns`.
    pub fn judge(&mut self, now_ns: u64, datagram: &[u8], sender: SocketAddr) -> Verdict {
        let address = sender.ip();
        if sender.port() < PORT_MIN || sender.port() == self.own_port {
            return Verdict::Reflector;
        }
        let is_listed = self.config.sources.iter().any(|source| source.contains(address));
        let verdict = if is_listed || self.config.sources.is_empty() {
            judge_packet(datagram, is_listed)
        } else {
            Verdict::Stranger
        };
        if !matches!(verdict, Verdict::Reflector | Verdict::Stranger) {
            let index = self.hasher.hash_one(CustomerNetwork::of(address)) as usize % BUCKETS;
            // A network above its own limit uses nothing of the common limit.
            if !self.networks[index].take(now_ns) || !self.in_all.take(now_ns) {
                return Verdict::Limited;
            }
        }
        verdict
    }
}

fn judge_packet(datagram: &[u8], is_listed: bool) -> Verdict {
    let Some((base, _)) = datagram.split_first_chunk::<BASE_LEN>() else {
        let is_test_packet = is_listed && datagram.len() >= SHORT_LEN;
        return if is_test_packet { Verdict::ReflectPadded } else { Verdict::Stranger };
    };
    // A sender's packet is zero from here on (RFC 8972 section 3).
    let is_plain = base[16..].iter().all(|byte| *byte == 0);
    if is_plain || is_listed && !is_answer(base) { Verdict::Reflect } else { Verdict::Reflector }
}

/// Returns true for an answer: it was received shortly before it was sent, both by one clock.
/// Seconds are the upper half of a time stamp in either format. Random padding passes once in 70
/// million times.
fn is_answer(base: &[u8; BASE_LEN]) -> bool {
    let Ok((answer, _)) = ReflectorPacket::decode(base) else { return false };
    let (NtpTimestamp(sent), NtpTimestamp(received)) = (answer.timestamp, answer.received);
    received != 0 && sent.wrapping_sub(received) >> 32 < REFLECTION_MAX_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_probe::wire::{Arrival, MarkingPolicy, SenderPacket, reflect};

    const PORT: u16 = 8620;

    fn guard(config: StampConfig) -> Guard {
        Guard::new(config, PORT)
    }

    fn listing(sources: &str) -> StampConfig {
        StampConfig { sources: vec![sources.parse().unwrap()], ..StampConfig::default() }
    }

    fn sender(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn request() -> Vec<u8> {
        let mut packet = vec![0; BASE_LEN];
        let timestamp = NtpTimestamp(0xee00_0000_0000_0000);
        SenderPacket { sequence: 5, timestamp, ..SenderPacket::default() }
            .encode(&mut packet)
            .unwrap();
        packet
    }

    fn answer_to(request: &[u8]) -> Vec<u8> {
        let mut out = vec![0; request.len()];
        let received = NtpTimestamp(0xee00_0000_8000_0000);
        let arrival = Arrival { received, traffic_class: 0, ttl: 64 };
        let reply = reflect(request, arrival, MarkingPolicy::PUBLIC, &mut out).unwrap();
        reply.stamp(&mut out, NtpTimestamp(received.0 + 500));
        out
    }

    #[test]
    fn a_reflector_is_not_answered_wherever_it_listens() {
        let answer = answer_to(&request());
        for config in [StampConfig::default(), listing("0.0.0.0/0")] {
            let mut guard = guard(config);
            let mut judge = |packet: &[u8], from: &str| guard.judge(0, packet, sender(from));
            assert_eq!(judge(&request(), "192.0.2.1:40000"), Verdict::Reflect);
            assert_eq!(judge(&answer, "192.0.2.1:40000"), Verdict::Reflector);
            for port in [862, 7, 1023, PORT] {
                let from = format!("192.0.2.1:{port}");
                assert_eq!(judge(&request(), &from), Verdict::Reflector, "{port}");
            }
        }
    }

    #[test]
    fn short_and_padded_packets_are_answered_only_to_listed_senders() {
        let mut padded = request();
        padded[16..].fill(0xa5);
        let mut guard = guard(listing("192.0.2.0/24"));
        let here = sender("192.0.2.1:40000");
        assert_eq!(guard.judge(0, &request()[..14], here), Verdict::ReflectPadded);
        assert_eq!(guard.judge(0, &request()[..13], here), Verdict::Stranger);
        assert_eq!(guard.judge(0, &padded, here), Verdict::Reflect);
        let there = sender("198.51.100.1:40000");
        assert_eq!(guard.judge(0, &request(), there), Verdict::Stranger);
        let mut open = Guard::new(StampConfig::default(), PORT);
        assert_eq!(open.judge(0, &request()[..43], here), Verdict::Stranger, "a longer answer");
        assert_eq!(open.judge(0, &padded, here), Verdict::Reflector);
    }

    #[test]
    fn one_network_cannot_use_the_answers_of_others() {
        let config = StampConfig {
            packets_per_second_max: 100,
            packets_per_second_per_network_max: 40,
            ..StampConfig::default()
        };
        let mut guard = guard(config);
        let mut count = |from: &str| {
            (0..50)
                .filter(|host| {
                    let from = sender(&from.replace('N', &host.to_string()));
                    guard.judge(0, &request(), from) == Verdict::Reflect
                })
                .count()
        };
        assert_eq!(count("192.0.2.N:40000"), 4, "a tenth of a second's");
        assert_eq!(count("[2001:db8:0:100::N]:40000"), 4, "of its /56");
        let others: usize = (0..50).map(|net| count(&format!("10.0.{net}.N:40000"))).sum();
        assert_eq!(others, 2, "the total is ten");
    }
}
