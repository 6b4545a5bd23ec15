//! Checks that no device header and packet make the segmentation of super-packets panic, and that
//! the segments contain the packet's payload completely and in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_emu::packet::{
    FlowKey, HEADERS_MAX, Pool, VnetHeader, assemble, classify, segment_count, segment_length,
};

// The first ten bytes are the device's header; the eleventh is the number of segments that leave
// together.
fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<{ VnetHeader::LEN }>() else { return };
    let Some((together, packet)) = rest.split_first() else { return };
    let vnet = VnetHeader::read(head);
    let Ok(found) = classify(packet, FlowKey(1)) else { return };
    let Ok(segments) = segment_count(&vnet, &found.layout) else { return };
    assert!(segments > 0);
    let length = VnetHeader::LEN + found.layout.length as usize;
    let mut pool = Pool::new(1 << 20, length);
    pool.landing()[..VnetHeader::LEN].copy_from_slice(head);
    pool.landing()[VnetHeader::LEN..length].copy_from_slice(&packet[..length - VnetHeader::LEN]);
    let Some(handle) = pool.store(length, vnet, found.layout, segments) else { return };
    let frame = pool.frame(handle);
    let payload_start = usize::from(found.layout.tcp_payload.unwrap_or(found.layout.transport));
    let payload = frame.packet()[payload_start..].to_vec();
    let step = u16::from(*together).max(1);
    let mut seen = Vec::new();
    let mut room = [0; VnetHeader::LEN + HEADERS_MAX];
    let mut first = 0;
    // More than a thousand segments would show nothing new.
    while first < segments.min(1000) {
        let last = first.saturating_add(step - 1).min(segments - 1);
        assert!(segment_length(frame, first) <= found.layout.length);
        let (headers, piece) = assemble(frame, &(first..=last), 0xb7, &mut room);
        if piece.is_empty() && first == 0 && last + 1 == segments {
            seen.extend_from_slice(&headers[VnetHeader::LEN + payload_start..]);
        } else {
            seen.extend_from_slice(piece);
        }
        first = last + 1;
    }
    assert!(payload.starts_with(&seen));
    if first == segments {
        assert_eq!(seen.len(), payload.len());
    }
});
