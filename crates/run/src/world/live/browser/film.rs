//! The film of the model `video`, as files of a server: a manifest of DASH, and chunks of WebM.
//!
//! Every frame is the same key frame of one pixel, and a chunk is filled up to the size that its
//! bit rate gives it. A player decodes almost nothing, so that a busy processor delays it little.

use hyper::body::Bytes;
use underload_sim::application::video::{CHUNK, CHUNKS, LADDER, chunk_bytes};

use super::server::Content;

pub(super) struct Film;

/// The path of the manifest, below the site's root.
pub(super) const MANIFEST: &str = "film.mpd";
/// A key frame of VP8, of one pixel.
const FRAME: &[u8] = b"\x30\x01\0\x9d\x01\x2a\x01\0\x01\0\x0e\xc0\xfe\x25\xa4\0\x03\x70\0\0\0\0";
const FRAMES_PER_CHUNK: u64 = 16;

// Identifiers of Matroska's elements (RFC 9559, section 5).
const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1f43_b675;
const TIMESTAMP: u32 = 0xe7;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const BLOCK_DURATION: u32 = 0x9b;
const VOID: u32 = 0xec;
/// Size of an element's header: an identifier of one byte, and its length in four bytes.
const HEADER_BYTES: usize = 5;

impl Content for Film {
    fn resource(&self, path: &str) -> Option<(&'static str, Bytes)> {
        let path = path.strip_prefix('/')?;
        if path == MANIFEST {
            return Some(("application/dash+xml", manifest().into()));
        }
        let (level, file) = path.strip_suffix(".webm")?.split_once('/')?;
        let level = level.parse().ok().filter(|level| *level < LADDER.len())?;
        let bytes = match file {
            "start" => initialization(),
            _ => chunk(file.parse().ok().filter(|number| *number < CHUNKS as u64)?, level),
        };
        Some(("video/webm", bytes.into()))
    }
}

fn manifest() -> String {
    let level = |(level, rate): (usize, &f64)| {
        let rate = (rate * 1e6).round();
        format!("<Representation id=\"{level}\" bandwidth=\"{rate}\" width=\"1\" height=\"1\"/>\n")
    };
    let levels: String = LADDER.iter().enumerate().map(level).collect();
    let length = CHUNK.as_nanos();
    // Slightly shorter than all chunks together, so that rounding adds no chunk.
    let seconds = (CHUNKS as u64 * length - 1_000_000) as f64 / 1e9;
    format!(
        "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\" \
         profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" minBufferTime=\"PT4S\" \
         mediaPresentationDuration=\"PT{seconds:.3}S\">\n<Period>\n\
         <AdaptationSet contentType=\"video\" mimeType=\"video/webm\" codecs=\"vp8\">\n\
         <SegmentTemplate timescale=\"1000000000\" duration=\"{length}\" startNumber=\"0\" \
         initialization=\"$RepresentationID$/start.webm\" \
         media=\"$RepresentationID$/$Number$.webm\"/>\n\
         {levels}</AdaptationSet>\n</Period>\n</MPD>\n"
    )
}

/// Returns the file before the first chunk: the form of the film, without pictures.
fn initialization() -> Vec<u8> {
    let form = [
        number(0x4286, 1),
        number(0x42f7, 1),
        number(0x42f2, 4),
        number(0x42f3, 8),
        element(0x4282, b"webm"),
        number(0x4287, 2),
        number(0x4285, 2),
    ];
    // Time stamps are in ms.
    let info = [number(0x2a_d7b1, 1_000_000), element(0x4d80, b"u"), element(0x5741, b"u")];
    let picture = [number(0xb0, 1), number(0xba, 1)].concat();
    let track = [
        number(0xd7, 1),
        number(0x73c5, 1),
        number(0x83, 1),
        element(0x86, b"V_VP8"),
        element(0xe0, &picture),
    ];
    let tracks = element(0xae, &track.concat());
    let mut file = element(0x1a45_dfa3, &form.concat());
    file.extend(SEGMENT.to_be_bytes());
    // The chunks are in separate files, so the length is unknown: all bits are one.
    file.extend([0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    file.extend(element(0x1549_a966, &info.concat()));
    file.extend(element(0x1654_ae6b, &tracks));
    file
}

/// Returns the file of a chunk, which has the size of the model's.
fn chunk(number_of_chunk: u64, level: usize) -> Vec<u8> {
    let millis = |frame: u64| {
        let nanos = CHUNK.as_nanos() * (number_of_chunk * FRAMES_PER_CHUNK + frame);
        nanos / FRAMES_PER_CHUNK / 1_000_000
    };
    let start = millis(0);
    let mut content = number(TIMESTAMP, start);
    for frame in 0..FRAMES_PER_CHUNK {
        let [high, low] = ((millis(frame) - start) as u16).to_be_bytes();
        // Track 1, the time since the start of the chunk, and no flags.
        let block = [&[0x81, high, low, 0], FRAME].concat();
        let duration = number(BLOCK_DURATION, millis(frame + 1) - millis(frame));
        content.extend(element(BLOCK_GROUP, &[element(BLOCK, &block), duration].concat()));
    }
    let used = element(CLUSTER, &content).len() + HEADER_BYTES;
    let filler = (chunk_bytes(level) as usize).saturating_sub(used);
    content.extend(element(VOID, &vec![0; filler]));
    element(CLUSTER, &content)
}

/// Returns an element: identifier, length in four bytes (RFC 8794, section 4) and content.
fn element(identifier: u32, content: &[u8]) -> Vec<u8> {
    let length = 0x1000_0000 | content.len() as u32;
    [&trimmed(u64::from(identifier)), &length.to_be_bytes()[..], content].concat()
}

fn number(identifier: u32, value: u64) -> Vec<u8> {
    element(identifier, &trimmed(value))
}

/// Returns the bytes of a number without leading zeros; at least one.
fn trimmed(value: u64) -> Vec<u8> {
    let zeros = (value.leading_zeros() as usize / 8).min(7);
    value.to_be_bytes()[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits the content of an element into its elements: identifier, content.
    fn elements(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let mut all = Vec::new();
        while let Some(first) = bytes.first() {
            let (identifier, rest) = bytes.split_at(1 + first.leading_zeros() as usize);
            let identifier = identifier.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
            let (length, rest) = rest.split_first_chunk().expect("a length");
            let length = (u32::from_be_bytes(*length) & 0x0fff_ffff) as usize;
            all.push((identifier, &rest[..length]));
            bytes = &rest[length..];
        }
        all
    }

    #[test]
    fn chunks_have_the_sizes_of_the_models_and_follow_each_other() {
        let mut end = 0;
        for number in 0..CHUNKS as u64 {
            let level = number as usize % LADDER.len();
            let path = format!("/{level}/{number}.webm");
            let (_, bytes) = Film.resource(&path).expect("a chunk");
            assert_eq!(bytes.len() as u64, chunk_bytes(level));
            let cluster = elements(&bytes);
            let [(CLUSTER, content)] = cluster.as_slice() else { panic!("{number}") };
            let parts = elements(content);
            assert_eq!((parts[0].0, parts.last().map(|it| it.0)), (TIMESTAMP, Some(VOID)));
            let start = parts[0].1.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
            for (_, group) in parts.iter().filter(|(identifier, _)| *identifier == BLOCK_GROUP) {
                let group = elements(group);
                let (block, duration) = (group[0].1, group[1].1);
                let at = start + u64::from(u16::from_be_bytes([block[1], block[2]]));
                assert_eq!((at, &block[4..]), (end, FRAME));
                end += duration.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
            }
        }
        assert_eq!(end, CHUNKS as u64 * CHUNK.as_nanos() / 1_000_000);
        for path in ["/", "/film", "/6/0.webm", "/0/48.webm", "/0/-1.webm", "/a/0.webm", "film.mpd"]
        {
            assert!(Film.resource(path).is_none(), "{path}");
        }
        let (_, manifest) = Film.resource("/film.mpd").expect("a manifest");
        let manifest = String::from_utf8_lossy(&manifest);
        assert!(manifest.contains("PT192.999S") && manifest.contains("\"4300000\""), "{manifest}");
        assert!(Film.resource("/5/start.webm").is_some());
    }
}
