//! Captures of one point of one trial: pcapng, raw IPv4, nanoseconds.

use std::borrow::Cow;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use underload_disk::{self as disk, GrowingFile};
use underload_sim::net::{Event, Sighting};

use super::header::{self, Passed, TcpFacts};
use super::point::{HopNames, Point};
use super::sequence::Offsets;
use crate::error::{Doing as _, Result};

pub struct Capture {
    path: PathBuf,
    writer: PcapNgWriter<BufWriter<GrowingFile>>,
    point: Point,
    passed: Passed,
    buffer: Vec<u8>,
    packets: u64,
    /// Packets dropped before this point since the last one that passed it.
    missed: u64,
}

impl Capture {
    pub fn begin(path: PathBuf, file: GrowingFile, point: Point, what: &str) -> Result<Self> {
        let begin = || -> Result<_, PcapError> {
            let program = concat!("underload ", env!("CARGO_PKG_VERSION"));
            let section = SectionHeaderBlock {
                endianness: Endianness::Little,
                options: vec![SectionHeaderOption::UserApplication(program.into())],
                ..SectionHeaderBlock::default()
            };
            let mut writer = PcapNgWriter::with_section_header(BufWriter::new(file), section)?;
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: header::MOST_BYTES as u32,
                options: vec![
                    InterfaceDescriptionOption::IfName(point.to_string().into()),
                    InterfaceDescriptionOption::IfDescription(what.to_owned().into()),
                    InterfaceDescriptionOption::IfTsResol(9),
                ],
            })?;
            Ok(writer)
        };
        let writer = begin().doing(format!("creating {}", path.display()))?;
        let (passed, buffer) = (Passed::default(), Vec::with_capacity(header::MOST_BYTES));
        Ok(Self { path, writer, point, passed, buffer, packets: 0, missed: 0 })
    }

    /// Records a packet if it passes the point.
    pub fn see(
        &mut self,
        sighting: &Sighting<'_>,
        names: &HopNames,
        facts: &TcpFacts,
        offsets: &Offsets,
    ) -> Result<()> {
        if self.point.misses(sighting, names) {
            self.missed += 1;
        }
        if !self.point.sees(sighting, names) {
            return Ok(());
        }
        header::write(&mut self.buffer, sighting, facts, offsets, &mut self.passed);
        let mut options: Vec<_> = comment(sighting).into_iter().collect();
        if self.missed > 0 {
            options.push(EnhancedPacketOption::DropCount(std::mem::take(&mut self.missed)));
        }
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(sighting.time.as_nanos()),
            original_len: sighting.len.max(self.buffer.len() as u32),
            data: Cow::Borrowed(&self.buffer),
            options,
        };
        let written = self.writer.write_pcapng_block(block);
        written.doing(format!("writing {}", self.path.display()))?;
        self.packets += 1;
        Ok(())
    }

    /// Returns the number of recorded packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    pub fn finish(mut self) -> Result<()> {
        let file = self.writer.get_mut();
        let flushed = file.flush().and_then(|()| file.get_ref().sync());
        flushed.doing(format!("writing {}", self.path.display()))
    }

    /// Removes the capture of a trial that was not completed.
    pub fn discard(self) {
        drop(self.writer);
        let _ = disk::remove(&self.path);
    }
}

/// Returns a comment with the facts about a packet that its headers cannot express.
fn comment(sighting: &Sighting<'_>) -> Option<EnhancedPacketOption<'static>> {
    let text = match sighting.event {
        Event::Drop(reason) => format!("dropped: {}", reason.name()),
        Event::Mark(reason) => format!("marked CE: {}", reason.name()),
        Event::Departure { .. } => {
            let sojourn = sighting.time.since(sighting.packet.meta.arrived);
            format!("sojourn {:.6} ms", sojourn.as_nanos() as f64 / 1e6)
        }
        Event::Sent | Event::Arrival | Event::Delivery | Event::Received => return None,
    };
    Some(EnhancedPacketOption::Comment(text.into()))
}
