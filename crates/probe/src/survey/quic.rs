//! The smallest packet that every QUIC server answers: an Initial of a reserved version (RFC 9000,
//! section 6). The answer lists the supported versions; the server stores no state for it, and it
//! is shorter than the request.

/// Bytes of a connection identifier.
const NAME_BYTES: usize = 8;
/// Servers ignore shorter Initials (RFC 9000, section 14.1).
const OPENING_BYTES: usize = 1200;
/// A version that is reserved to force version negotiation (RFC 9000, section 15).
const VERSION: u32 = 0x1a2a_3a4a;

/// Returns a datagram that requests versions; `names` are the connection identifiers.
pub fn opening(names: [[u8; NAME_BYTES]; 2]) -> Vec<u8> {
    // Long header, fixed bit, and bits without meaning in a reserved version.
    let mut datagram = vec![0xc0];
    datagram.extend(VERSION.to_be_bytes());
    for name in names {
        datagram.push(NAME_BYTES as u8);
        datagram.extend(name);
    }
    datagram.resize(OPENING_BYTES, 0);
    datagram
}

/// Returns true if a datagram answers [`opening`]: version 0, the identifiers swapped.
pub fn is_negotiation(datagram: &[u8], names: [[u8; NAME_BYTES]; 2]) -> bool {
    let [asked, asking] = names;
    let Some((first, rest)) = datagram.split_first() else { return false };
    let Some(rest) = rest.strip_prefix(&[0; 4]) else { return false };
    let name = |rest: &[u8], name: [u8; NAME_BYTES]| {
        let rest = rest.strip_prefix(&[NAME_BYTES as u8])?;
        rest.strip_prefix(&name).map(<[u8]>::to_vec)
    };
    let versions = name(rest, asking).and_then(|rest| name(&rest, asked));
    // The list has at least one version, each of four bytes.
    first & 0x80 != 0
        && versions.is_some_and(|versions| !versions.is_empty() && versions.len() % 4 == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [[u8; 8]; 2] = [[1; 8], [2; 8]];

    fn answer() -> Vec<u8> {
        let mut answer = vec![0x80, 0, 0, 0, 0, 8];
        answer.extend([2; 8]);
        answer.push(8);
        answer.extend([1; 8]);
        answer.extend(1_u32.to_be_bytes());
        answer
    }

    #[test]
    fn a_negotiation_is_recognised_by_its_connection_ids() {
        assert_eq!(opening(NAMES).len(), 1200);
        assert!(is_negotiation(&answer(), NAMES));
        assert!(!is_negotiation(&answer(), [[1; 8], [3; 8]]));
        assert!(!is_negotiation(&opening(NAMES), NAMES), "our own words thrown back");
        for cut in 0..answer().len() {
            assert!(!is_negotiation(&answer()[..cut], NAMES), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = is_negotiation(&bytes, NAMES);
        }
    }
}
