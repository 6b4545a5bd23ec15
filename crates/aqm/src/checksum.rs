//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// Returns the ones' complement sum of `bytes` as big-endian words, without folding or inverting.
pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    words.fold(0u32, u32::wrapping_add)
}

/// Folds the carries into a sum of fewer than 65,536 words.
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// Returns the checksum after one word under it changed from `old` to `new` (RFC 1624 equation 3).
pub fn replace(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_worked_example_of_rfc_1624_section_4() {
        assert_eq!(replace(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn an_updated_checksum_verifies_like_a_computed_one(
            mut words in proptest::collection::vec(any::<u16>(), 2..30),
            at in any::<prop::sample::Index>(),
            new in any::<u16>(),
        ) {
            let bytes = |words: &[u16]| -> Vec<u8> {
                words.iter().flat_map(|word| word.to_be_bytes()).collect()
            };
            let before = !fold(sum(&bytes(&words)));
            let at = at.index(words.len());
            let after = replace(before, words[at], new);
            words[at] = new;
            words.push(after);
            let folded = fold(sum(&bytes(&words)));
            // Only a sum of all ones is accepted by a receiver; a header is never all zeroes.
            prop_assert!(folded == 0xffff || words.iter().all(|word| *word == 0));
        }
    }
}
