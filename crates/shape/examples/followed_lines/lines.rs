//! Lines whose rates vary, drawn from seeds.

use std::fmt::Write as _;

use underload_aqm::rng::Rng;
use underload_record::schema::Direction;

use crate::course::Line;

/// Seconds of each course before it repeats.
const COURSE_S: u32 = 400;
const CONSTANT_UP: &str = "10mbit:delay=2ms";
const CONSTANT_DOWN: &str = "50mbit:delay=2ms";

/// Returns the ten lines of a set of seeds.
pub fn lines(first_seed: u64) -> Vec<Line> {
    let seeds = [first_seed, first_seed + 1];
    let mut lines = Vec::new();
    for seed in seeds {
        lines.push(down(seed, "cable, busy segment, down", (10, 50), &busy_segment(seed, 40_000)));
        lines.push(up(seed, "cable, busy segment, up", (3, 12), &busy_segment(seed, 10_000)));
        lines.push(down(seed, "satellite, handovers", (5, 60), &handovers(seed)));
    }
    let wander = "cellular:centre=30mbit,min=6mbit,max=60mbit,volatility=6mbit,reversion=6s,\
                  opportunity=3008B,outage-gap=60s,outage-length=300ms,outage-max=1s";
    lines.push(down(first_seed, "mobile, wanders", (5, 60), wander));
    let satellite = "cellular:centre=40mbit,min=8mbit,max=80mbit,volatility=9mbit,reversion=4s,\
                     opportunity=3008B,outage-gap=60s,outage-length=500ms,outage-max=3s,\
                     reconfigure=15s";
    lines.push(down(first_seed, "satellite, wanders", (8, 80), satellite));
    lines.push(down(first_seed, "lte-driving", (1, 11), "cellular:preset=lte-driving"));
    lines.push(down(first_seed, "lte-stationary", (1, 20), "cellular:preset=lte-stationary"));
    lines
}

fn down(seed: u64, name: &str, bounds: (u64, u64), link: &str) -> Line {
    Line {
        name: name.to_owned(),
        loaded: Direction::Down,
        links: [CONSTANT_UP.to_owned(), format!("{link},delay=5ms")],
        buffers: [375_000, bounds.1 * 60_000],
        bounds: [(3, 10), bounds],
        seed,
    }
}

fn up(seed: u64, name: &str, bounds: (u64, u64), link: &str) -> Line {
    Line {
        name: name.to_owned(),
        loaded: Direction::Up,
        links: [format!("{link},delay=5ms"), CONSTANT_DOWN.to_owned()],
        buffers: [bounds.1 * 40_000, 2_500_000],
        bounds: [bounds, (10, 50)],
        seed,
    }
}

/// A share of a segment that neighbours use, too: every 3 to 15 s 55 to 100 % of the rate are left.
fn busy_segment(seed: u64, kbit: u32) -> String {
    let mut rng = Rng::new(seed).child("busy segment");
    let (mut text, mut now_ms) = (String::from("steps:"), 0);
    while now_ms < COURSE_S * 1_000 {
        let rate = kbit / 100 * (55 + rng.below(46));
        let _ = write!(text, "{now_ms}ms={rate}kbit,");
        now_ms += 3_000 + rng.below(12_000);
    }
    text.trim_end_matches(',').to_owned()
}

/// Every 8 to 25 s a silence of 50 to 150 ms, then another rate of 20 to 55 Mbit/s.
fn handovers(seed: u64) -> String {
    let mut rng = Rng::new(seed).child("handovers");
    let (mut text, mut now_ms) = (String::from("steps:0ms=40000kbit,"), 0);
    while now_ms < COURSE_S * 1_000 {
        now_ms += 8_000 + rng.below(17_000);
        let _ = write!(text, "{now_ms}ms=0bit,");
        now_ms += 50 + rng.below(100);
        let _ = write!(text, "{now_ms}ms={}kbit,", 20_000 + rng.below(35_000));
    }
    text.trim_end_matches(',').to_owned()
}
