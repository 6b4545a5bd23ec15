//! Extensions after the base packet (RFC 8972 section 4): flags, type, length, value.

use super::WireError;

/// Bytes before a TLV's value.
const HEADER_LEN: usize = 4;

/// TLV types of RFC 8972 section 5.1.
pub mod tlv_type {
    /// Not a TLV: padding of a sender without TLV support.
    pub const RESERVED: u8 = 0;
    pub const EXTRA_PADDING: u8 = 1;
    /// DSCP and ECN, requested and received.
    pub const CLASS_OF_SERVICE: u8 = 4;
}

/// The flags of a TLV (RFC 8972 section 4, figure 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlvFlags(pub u8);

impl TlvFlags {
    /// U: the type is unknown. Senders set it; reflectors that know the type clear it.
    pub const UNRECOGNIZED: Self = Self(0x80);
    /// M: the TLV could not be parsed.
    pub const MALFORMED: Self = Self(0x40);

    /// Returns true if every flag of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One extension; its value borrows the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    pub flags: TlvFlags,
    pub tlv_type: u8,
    pub value: &'a [u8],
    /// Where the TLV begins, counted from the first byte after the base packet.
    pub offset: usize,
}

/// An iterator over extensions. It ends at the end of the packet, at padding (type 0 or fewer bytes
/// than a header), or after the first error.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Tlvs<'a> {
    /// `bytes` are those after the base packet.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Returns the first extension of type `tlv_type`, if the ones before it can be parsed.
    pub fn find(self, tlv_type: u8) -> Option<Tlv<'a>> {
        self.map_while(Result::ok).find(|tlv| tlv.tlv_type == tlv_type)
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.offset..)?;
        let (header, body) = rest.split_first_chunk::<HEADER_LEN>()?;
        let [flags, tlv_type, high, low] = *header;
        if tlv_type == tlv_type::RESERVED {
            self.offset = self.bytes.len();
            return None;
        }
        let offset = self.offset;
        let Some(value) = body.get(..usize::from(u16::from_be_bytes([high, low]))) else {
            self.offset = self.bytes.len();
            return Some(Err(WireError::TlvOverrun { offset }));
        };
        self.offset += HEADER_LEN + value.len();
        Some(Ok(Tlv { flags: TlvFlags(flags), tlv_type, value, offset }))
    }
}

/// Writes one TLV at the start of `out` and returns its length in bytes.
///
/// # Errors
/// Returns [`WireError::BufferTooSmall`] if `out` is shorter, [`WireError::TlvLength`] if the
/// length of the value exceeds 16 bits.
pub fn write_tlv(
    out: &mut [u8],
    flags: TlvFlags,
    tlv_type: u8,
    value: &[u8],
) -> Result<usize, WireError> {
    let Ok(value_len) = u16::try_from(value.len()) else {
        let needed = usize::from(u16::MAX);
        return Err(WireError::TlvLength { tlv_type, len: value.len(), needed });
    };
    let needed = HEADER_LEN + value.len();
    let len = out.len();
    let target = out.get_mut(..needed).ok_or(WireError::BufferTooSmall { len, needed })?;
    let [high, low] = value_len.to_be_bytes();
    target[..HEADER_LEN].copy_from_slice(&[flags.0, tlv_type, high, low]);
    target[HEADER_LEN..].copy_from_slice(value);
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_and_stubs_end_the_list_without_an_error() {
        assert_eq!(Tlvs::new(&[0; 40]).count(), 0);
        assert_eq!(Tlvs::new(&[0x80, 4, 0]).count(), 0);
        assert_eq!(Tlvs::new(&[]).count(), 0);
    }

    #[test]
    fn an_overrunning_length_is_reported_once_with_its_place() {
        let bytes = [0x80, 1, 0, 1, 9, 0x80, 4, 0, 4, 1, 2, 3];
        let read: Vec<_> = Tlvs::new(&bytes).collect();
        assert_eq!(read.len(), 2);
        assert!(read[0].is_ok_and(|tlv| tlv.value == [9]));
        assert_eq!(read[1], Err(WireError::TlvOverrun { offset: 5 }));
        assert_eq!(Tlvs::new(&bytes).find(4), None);
    }

    proptest! {
        #[test]
        fn tlvs_survive_the_round_trip(
            list in prop::collection::vec(
                (any::<u8>(), 1u8.., prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        ) {
            let mut out = [0; 400];
            let mut used = 0;
            for (flags, tlv_type, value) in &list {
                used += write_tlv(&mut out[used..], TlvFlags(*flags), *tlv_type, value).unwrap();
            }
            let read: Result<Vec<_>, _> = Tlvs::new(&out[..used]).collect();
            let read: Vec<_> = read.unwrap().iter()
                .map(|tlv| (tlv.flags.0, tlv.tlv_type, tlv.value.to_vec())).collect();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn any_bytes_terminate_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Tlvs::new(&bytes).count() <= bytes.len() / HEADER_LEN + 1);
        }
    }
}
