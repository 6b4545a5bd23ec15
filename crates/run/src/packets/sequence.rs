//! Converts segment numbers of the simulator to byte numbers of TCP headers.
//!
//! Retransmissions have the same boundaries, and all segments are full except the last one of each
//! write, so the offset of a segment follows from its number and from the few short segments before
//! it. The initial sequence number is 0.

use std::collections::BTreeMap;

use underload_record::schema::Direction;
use underload_sim::net::Data;

/// One direction of one connection: flow, channel and direction of its data.
pub type Half = (u16, u16, u8);

pub fn half(flow: u16, channel: u16, direction: Direction) -> Half {
    (flow, channel, direction as u8)
}

/// The offsets of all connections of a trial.
#[derive(Debug, Default)]
pub struct Offsets(BTreeMap<Half, Stream>);

#[derive(Debug, Default)]
struct Stream {
    /// The number of the next new segment.
    next: u32,
    /// Short segments, with the bytes that they and earlier ones lack in total.
    short: Vec<(u32, u32)>,
}

impl Offsets {
    /// Records a segment that an endpoint sends.
    pub fn sent(&mut self, half: Half, data: Data, segment_bytes: u32) {
        let stream = self.0.entry(half).or_default();
        if data.sequence < stream.next {
            return;
        }
        stream.next = data.sequence + 1;
        let lacks = segment_bytes.saturating_sub(data.len.into());
        if lacks > 0 {
            let before = stream.short.last().map_or(0, |(_, total)| *total);
            stream.short.push((data.sequence, before.wrapping_add(lacks)));
        }
    }

    /// Returns the byte number at which a segment starts; 1 for the first.
    pub fn start(&self, half: Half, segment: u32, segment_bytes: u32) -> u32 {
        let full = segment.wrapping_mul(segment_bytes).wrapping_add(1);
        let Some(Stream { short, .. }) = self.0.get(&half) else { return full };
        let before = short.partition_point(|(sequence, _)| *sequence < segment);
        let lacks = before.checked_sub(1).map_or(0, |last| short[last].1);
        full.wrapping_sub(lacks)
    }
}

#[cfg(test)]
mod tests {
    use underload_sim::net::Stamp;

    use super::*;

    #[test]
    fn short_segments_shift_the_offsets_of_later_ones() {
        let half = half(3, 0, Direction::Up);
        let mut offsets = Offsets::default();
        for (sequence, len) in [(0, 1000), (1, 300), (2, 1000), (3, 50), (4, 1000), (1, 300)] {
            let (retransmission, window_reduced, push) = (false, false, false);
            let sent = Stamp::default();
            let data = Data { sequence, len, retransmission, window_reduced, push, sent };
            offsets.sent(half, data, 1000);
        }
        let starts: Vec<u32> = (0..6).map(|segment| offsets.start(half, segment, 1000)).collect();
        assert_eq!(starts, [1, 1001, 1301, 2301, 2351, 3351]);
    }
}
