//! The data path of one direction: device, link, device.

use std::io;

use underload_aqm::link::Link;
use underload_aqm::packet::Packet;
use underload_aqm::time::Time;
use underload_record::schema::Phase;

use super::recorder::{InputDrop, Recorder, Recording};
use crate::machine::{Clock, Tun};
use crate::packet::{
    FlowKey, HEADERS_MAX, Handle, Headers, VnetHeader, assemble, classify, segment_count,
    segment_length,
};

/// Number of packets read before due packets are delivered; the last super-packet may exceed it.
const READ_MAX: u64 = 64;
/// Maximum number of packets delivered before arrivals are read.
const DELIVER_MAX: usize = 256;
/// Maximum number of segments of a super-packet that are written together; a 64 KiB frame of
/// minimal segments is written in several parts.
const RUN_MAX: usize = 128;

/// Counters of the reads of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    pub frames_read: u64,
    /// Super-packets among these frames.
    pub super_packets_read: u64,
    /// Packets after cutting, as the queue saw them.
    pub packets: u64,
}

/// One direction of a gateway: devices, queue, link and recorder.
pub struct Lane {
    source: Tun,
    sink: Tun,
    link: Link<Handle>,
    key: FlowKey,
    pub recorder: Recorder,
    pub io: IoStats,
    run: Run,
    headers: Box<Headers>,
}

/// A frame that did not reach the queue.
struct Lost {
    reason: InputDrop,
    /// Packets that it would have been cut into, at least 1.
    packets: u16,
    bytes: u32,
}

/// Consecutive segments of one frame that leave together.
struct Run {
    /// The first segment, and the DSCP and ECN byte of all.
    first: Option<(Handle, u8)>,
    due: Vec<Time>,
}

impl Lane {
    /// A lane from `source` through `link` to `sink`.
    pub fn new(
        source: Tun,
        sink: Tun,
        link: Link<Handle>,
        key: FlowKey,
        recorder: Recorder,
    ) -> Self {
        Self {
            source,
            sink,
            link,
            key,
            recorder,
            io: IoStats::default(),
            run: Run { first: None, due: Vec::with_capacity(RUN_MAX) },
            headers: Box::new([0; VnetHeader::LEN + HEADERS_MAX]),
        }
    }

    pub fn link(&self) -> &Link<Handle> {
        &self.link
    }

    /// Appends a row to the time series.
    pub fn sample(&mut self, now: Time) {
        self.recorder.sample(now, &self.link);
    }

    /// Begins a phase of the trial at `now`.
    pub fn begin(&mut self, phase: Phase, now: Time) {
        self.recorder.begin(phase, now, self.link.queue());
    }

    pub fn finish(self, now: Time) -> Recording {
        self.recorder.finish(now, self.link.queue())
    }

    /// Publishes the counters for other threads.
    pub fn publish(&self) {
        self.recorder.publish();
    }

    /// Reads arrived frames, up to a limit. A packet arrives when the read returns; the segments of
    /// a super-packet arrive together. Returns the number of frames.
    pub fn receive(&mut self, clock: &Clock) -> io::Result<usize> {
        let mut frames = 0;
        let packets_max = self.io.packets + READ_MAX;
        while self.io.packets < packets_max && frames < READ_MAX as usize {
            let Some(length) = self.source.read(self.recorder.pool.landing())? else { break };
            frames += 1;
            if let Err(lost) = self.admit(length, clock.now()) {
                for _ in 0..lost.packets {
                    self.recorder.input_dropped(lost.reason, lost.bytes / u32::from(lost.packets));
                }
            }
        }
        self.io.frames_read += frames as u64;
        Ok(frames)
    }

    fn admit(&mut self, length: usize, now: Time) -> Result<(), Lost> {
        let bytes = length.saturating_sub(VnetHeader::LEN) as u32;
        let lost = |reason, packets| Lost { reason, packets, bytes };
        let frame = &self.recorder.pool.landing()[..length];
        let (vnet, packet) = frame.split_first_chunk().ok_or(lost(InputDrop::NotAPacket, 1))?;
        let vnet = VnetHeader::read(vnet);
        let found = classify(packet, self.key).map_err(|_| lost(InputDrop::NotAPacket, 1))?;
        let segments =
            segment_count(&vnet, &found.layout).map_err(|_| lost(InputDrop::BadSuperPacket, 1))?;
        let stored = self.recorder.pool.store(length, vnet, found.layout, segments);
        let mut handle = stored.ok_or(lost(InputDrop::NoBuffer, segments))?;
        self.io.packets += u64::from(segments);
        self.io.super_packets_read += u64::from(segments > 1);
        for segment in 0..segments {
            handle.segment = segment;
            let mut meta = found.meta;
            meta.len = segment_length(self.recorder.pool.frame(handle), segment);
            self.recorder.arrived(now, meta.len);
            self.link.send(now, Packet { meta, payload: handle }, &mut self.recorder);
        }
        Ok(())
    }

    /// Writes due packets, up to a limit. Returns their number.
    pub fn deliver(&mut self, clock: &Clock) -> usize {
        let now = clock.now();
        let mut packets = 0;
        while packets < DELIVER_MAX {
            let Some((due, packet)) = self.link.poll(now, &mut self.recorder) else { break };
            packets += 1;
            let tos = packet.meta.tos();
            if !self.run.continues(packet.payload, tos) {
                self.write_run(clock);
                self.run.first = Some((packet.payload, tos));
            }
            self.run.due.push(due);
        }
        self.write_run(clock);
        packets
    }

    /// When `deliver` has something to do next.
    pub fn next_event(&self) -> Option<Time> {
        self.link.next_event()
    }

    fn write_run(&mut self, clock: &Clock) {
        let Some((first, tos)) = self.run.first.take() else { return };
        let count = self.run.due.len() as u16;
        let segments = first.segment..=first.segment + count - 1;
        let frame = self.recorder.pool.frame(first);
        let (head, rest) = assemble(frame, &segments, tos, &mut self.headers);
        let bytes = (head.len() + rest.len() - VnetHeader::LEN) as u32;
        match self.sink.write(head, rest) {
            Ok(()) => {
                let written = clock.now();
                for due in &self.run.due {
                    self.recorder.delivered(*due, written);
                }
            }
            Err(_) => {
                for _ in &self.run.due {
                    self.recorder.input_dropped(InputDrop::DeviceRefused, bytes / u32::from(count));
                }
            }
        }
        self.recorder.pool.release(first, count);
        self.run.due.clear();
    }
}

impl Run {
    fn continues(&self, handle: Handle, tos: u8) -> bool {
        self.first.is_some_and(|(first, first_tos)| {
            first.same_frame(handle)
                && first_tos == tos
                && self.due.len() < RUN_MAX
                && usize::from(handle.segment) == usize::from(first.segment) + self.due.len()
        })
    }
}
