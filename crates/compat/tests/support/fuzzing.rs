//! Entry point of the channel's fuzz target, compiled for it alone.

use std::time::Duration;

use super::harness::{BROWSER, Browser, Server, address, check};

/// An address that never proved that it receives.
const STRANGER: &str = "198.51.100.1:50000";

/// Plays a browser's handshake and probes to the table of sessions. Each step of the input loses,
/// repeats, cuts or alters the browser's next datagrams, adds datagrams inside or outside the
/// secured channel, or lets time pass. No step may make the table panic, add a session, or cause an
/// answer to a stranger.
pub fn datagrams(bytes: &[u8]) {
    let mut server = Server::new();
    let fingerprint = server.shown.fingerprint;
    let secrets = server.signal("ours", fingerprint);
    server.hear(address(BROWSER), &check(&secrets, &secrets.password));
    let mut browser = Browser::new(server.now, &server.shown);
    let mut rest = bytes;
    while let [step, length, after @ ..] = rest {
        let (argument, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        if *step % 8 == 7 {
            assert!(server.hear(address(STRANGER), argument).is_empty(), "an answer to a stranger");
        } else {
            play(&mut server, &mut browser, *step, argument);
        }
        assert!(server.table.len() <= 1);
    }
}

fn play(server: &mut Server, browser: &mut Browser, step: u8, argument: &[u8]) {
    let first = argument.first().copied().unwrap_or_default();
    match step % 8 {
        0 => deliver(server, browser, argument),
        1 => {
            server.wait(Duration::from_millis(u64::from(first) * 50));
            let _ = browser.dtls.handle_timeout(server.now);
        }
        2 if browser.is_ready() => browser.write(u16::from(first & 1), argument),
        3 => {
            let _ = browser.dtls.send_application_data(&sctp_packet(argument));
        }
        _ => {}
    }
    for mut datagram in browser.say(server.now) {
        match step % 8 {
            4 => alter(&mut datagram, argument),
            5 => datagram.truncate(usize::from(first)),
            6 if first % 2 == 0 => continue,
            6 => deliver(server, browser, &datagram),
            _ => {}
        }
        deliver(server, browser, &datagram);
    }
}

fn deliver(server: &mut Server, browser: &mut Browser, datagram: &[u8]) {
    for answer in server.hear(address(BROWSER), datagram) {
        let _ = browser.dtls.handle_packet(&answer);
    }
}

/// Changes bytes of a datagram. Each pair of `changes` is an offset and a number to add there.
fn alter(datagram: &mut [u8], changes: &[u8]) {
    for change in changes.chunks_exact(2) {
        let offset = usize::from(change[0]) % datagram.len().max(1);
        if let Some(byte) = datagram.get_mut(offset) {
            *byte = byte.wrapping_add(change[1]);
        }
    }
}

/// Makes an SCTP packet with these ports, tag and chunks and a valid checksum (RFC 9260,
/// appendix A); a receiver ignores packets with a wrong one.
fn sctp_packet(content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 12];
    let (header, chunks) = content.split_at(content.len().min(8));
    packet[..header.len()].copy_from_slice(header);
    packet.extend(chunks);
    let checksum = crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    packet
}

fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REVERSED: u32 = 0x82f6_3b78;
    let mut remainder = u32::MAX;
    for byte in bytes {
        remainder ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = POLYNOMIAL_REVERSED & (remainder & 1).wrapping_neg();
            remainder = (remainder >> 1) ^ carry;
        }
    }
    !remainder
}
