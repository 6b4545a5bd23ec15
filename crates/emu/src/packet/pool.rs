//! Frames in recycled buffers of bounded total size.
//!
//! Buffers have three sizes, so that small packets in a queue do not occupy buffers for
//! super-packets. They are allocated on first use and never freed.

use super::classify::{Layout, Version};
use super::vnet::VnetHeader;
use underload_aqm::packet::Ecn;

/// A packet on a link: one segment of a frame. A frame that is not a super-packet has one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    slot: u32,
    /// Number of the segment, from 0.
    pub segment: u16,
}

impl Handle {
    /// Whether both are segments of one frame.
    pub fn same_frame(self, other: Self) -> bool {
        self.slot == other.slot
    }
}

/// A frame that was read from a device.
#[derive(Debug, Default)]
pub struct Frame {
    /// `virtio_net_hdr`, the packet, and unused space.
    pub bytes: Box<[u8]>,
    pub vnet: VnetHeader,
    pub layout: Layout,
    /// Number of segments, at least 1.
    pub segments: u16,
    /// Segments that are not released yet.
    references: u16,
}

impl Frame {
    pub fn packet(&self) -> &[u8] {
        &self.bytes[VnetHeader::LEN..][..self.layout.length as usize]
    }

    /// Returns the ECN codepoint that the packet arrived with.
    pub fn ecn(&self) -> Ecn {
        let second = self.packet()[1];
        Ecn::from_bits(match self.layout.version {
            Version::V4 => second,
            // The lowest bits of the traffic class, before the flow label.
            Version::V6 => second >> 4,
        })
    }
}

/// Sizes of buffers: for an Ethernet frame, for a jumbo frame or a small super-packet, and for the
/// largest super-packet (65,535 bytes and an IPv6 header).
const SIZES: [usize; 3] = [2048, 16_384, 65_536 + 64];

/// A pool of recycled frames.
#[derive(Debug)]
pub struct Pool {
    frames: Vec<Frame>,
    free: [Vec<u32>; SIZES.len()],
    /// The buffer that frames are read into; swapped with a frame's buffer of the same size.
    landing: Box<[u8]>,
    /// Size of all buffers.
    pub allocated_bytes: usize,
    limit_bytes: usize,
}

impl Pool {
    /// An empty pool of at most `limit_bytes` for frames of up to `frame_max` bytes with their
    /// `virtio_net_hdr`.
    pub fn new(limit_bytes: usize, frame_max: usize) -> Self {
        let class = size_class(frame_max);
        Self {
            frames: Vec::new(),
            free: [const { Vec::new() }; SIZES.len()],
            landing: vec![0; SIZES[class]].into_boxed_slice(),
            allocated_bytes: SIZES[class],
            limit_bytes,
        }
    }

    /// Returns the buffer for the next frame.
    pub fn landing(&mut self) -> &mut [u8] {
        &mut self.landing
    }

    /// Stores the frame of `length` bytes in [`Pool::landing`], with one reference for each
    /// segment; `None` if the pool is exhausted.
    pub fn store(
        &mut self,
        length: usize,
        vnet: VnetHeader,
        layout: Layout,
        segments: u16,
    ) -> Option<Handle> {
        let slot = self.take_free(size_class(length))?;
        let frame = &mut self.frames[slot as usize];
        if frame.bytes.len() == self.landing.len() {
            std::mem::swap(&mut frame.bytes, &mut self.landing);
        } else {
            frame.bytes[..length].copy_from_slice(&self.landing[..length]);
        }
        (frame.vnet, frame.layout) = (vnet, layout);
        (frame.segments, frame.references) = (segments, segments);
        Some(Handle { slot, segment: 0 })
    }

    pub fn frame(&mut self, handle: Handle) -> &mut Frame {
        &mut self.frames[handle.slot as usize]
    }

    /// Releases `segments` segments of a frame.
    pub fn release(&mut self, handle: Handle, segments: u16) {
        let frame = &mut self.frames[handle.slot as usize];
        debug_assert!(frame.references >= segments, "a segment was released twice");
        frame.references -= segments;
        if frame.references == 0 {
            self.free[size_class(frame.bytes.len())].push(handle.slot);
        }
    }

    fn take_free(&mut self, class: usize) -> Option<u32> {
        if let Some(slot) = self.free[class].pop() {
            return Some(slot);
        }
        let size = SIZES[class];
        if self.allocated_bytes + size > self.limit_bytes {
            // If all buffers of that size are in use, a free larger one is used.
            return self.free[class + 1..].iter_mut().find_map(Vec::pop);
        }
        self.allocated_bytes += size;
        let bytes = vec![0; size].into_boxed_slice();
        self.frames.push(Frame { bytes, ..Frame::default() });
        Some(self.frames.len() as u32 - 1)
    }
}

/// Index of the smallest size for `length` bytes, or of the largest size.
fn size_class(length: usize) -> usize {
    SIZES.iter().position(|size| length <= *size).unwrap_or(SIZES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(pool: &mut Pool, length: usize, segments: u16) -> Option<Handle> {
        pool.store(length, VnetHeader::default(), Layout::default(), segments)
    }

    #[test]
    fn a_frame_is_free_only_after_its_last_segment() {
        let mut pool = Pool::new(2 * SIZES[0], 1514);
        let first = store(&mut pool, 1000, 3).unwrap();
        assert_eq!(store(&mut pool, 1000, 1), None, "the landing buffer counts");
        pool.release(first, 2);
        assert_eq!(store(&mut pool, 1000, 1), None);
        pool.release(first, 1);
        assert_eq!(store(&mut pool, 1000, 1), Some(first));
    }

    #[test]
    fn content_survives_the_swap_and_the_copy() {
        for (frame_max, length) in [(1514, 1000), (65_000, 1000), (65_000, 60_000)] {
            let mut pool = Pool::new(1 << 20, frame_max);
            pool.landing()[..length].fill(7);
            let handle = store(&mut pool, length, 1).unwrap();
            pool.landing().fill(9);
            assert!(pool.frame(handle).bytes[..length].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_warm_pool_does_not_grow() {
        let mut pool = Pool::new(1 << 20, 65_000);
        for length in [100, 2000, 10_000, 60_000].into_iter().cycle().take(1000) {
            let handle = store(&mut pool, length, 1).unwrap();
            pool.release(handle, 1);
        }
        assert_eq!(pool.allocated_bytes, SIZES[0] + SIZES[1] + 2 * SIZES[2]);
    }

    #[test]
    fn an_exhausted_size_borrows_a_larger_buffer() {
        let mut pool = Pool::new(2 * SIZES[1], 10_000);
        let large = store(&mut pool, 10_000, 1);
        assert_eq!(store(&mut pool, 100, 1), None);
        pool.release(large.unwrap(), 1);
        assert_eq!(store(&mut pool, 100, 1), large);
    }
}
