//! Packet scripts that push every discipline through its states.

use underload_aqm::packet::{Dscp, Ecn, Meta};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// Arrivals in order of time.
pub type Script = Vec<(Time, Meta)>;

/// Returns arrivals that overload a 10 Mbit/s link by `percent` of its rate for `span`, in random
/// gaps, from eight flows, some of them ECN-capable.
pub fn overload(rng: &mut Rng, start: Time, span: Span, percent: u32) -> Script {
    let mut script = Vec::new();
    let mut now = start;
    while now < start + span {
        let len = [1_500, 1_500, 1_500, 1_000, 300, 64][rng.below(6) as usize];
        let flow = rng.below(8);
        let mut meta = Meta::new(len, flow);
        meta.dst = flow % crate::HOSTS;
        meta.ecn = Ecn::from_bits((flow % 4) as u8);
        meta.dscp = [0, 0, 0, 45, 34].map(Dscp::new)[flow as usize % 5].expect("a codepoint");
        script.push((now, meta));
        // 800 ns per byte at 100 %; gaps are uniform between zero and twice the mean.
        let mean = u64::from(len) * 80_000 / u64::from(percent);
        now += Span::from_nanos(u64::from(rng.below(2 * mean as u32)));
    }
    script
}

/// Returns `count` small packets, one every `gap`.
pub fn trickle(start: Time, gap: Span, count: u64) -> Script {
    (0..count).map(|number| (start + gap * number, Meta::new(100, 3))).collect()
}

/// Returns 6 s of overload, silence, bursts and a trickle.
pub fn varied(seed: u64, start: Time) -> Script {
    let mut rng = Rng::new(seed).child("script");
    let at = |millis| start + Span::from_millis(millis);
    let mut script = overload(&mut rng, at(0), Span::from_millis(2_500), 220);
    script.extend(overload(&mut rng, at(4_000), Span::from_millis(30), 2_000));
    script.extend(overload(&mut rng, at(4_500), Span::from_millis(700), 105));
    script.extend(trickle(at(5_300), Span::from_millis(20), 30));
    script
}
