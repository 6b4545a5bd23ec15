//! Session descriptions (RFC 8866, RFC 8829) of page and server: the few lines of an offer that an
//! ICE-lite server needs, and the answer.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use super::OfferError;
use crate::nq::OFFER_BYTES_MAX;

/// An ICE name has 4 to 256 characters (RFC 8839, 5.4).
const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 4..=256;
const MID_LEN_MAX: usize = 16;
/// Sent as `max-message-size`; a probe has 8 bytes.
pub(super) const MESSAGE_BYTES_MAX: u32 = 256;

/// The parts of a browser's offer that the server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The browser's half of the user name in its ICE checks.
    pub name: String,
    /// SHA-256 of the browser's DTLS certificate.
    pub fingerprint: [u8; 32],
    pub mid: String,
}

impl Offer {
    /// Parses an offer of one data channel and nothing else.
    ///
    /// # Errors
    /// Returns [`OfferError::Description`] with what is missing or wrong.
    pub fn parse(text: &str) -> Result<Self, OfferError> {
        let wrong = |what| Err(OfferError::Description(what));
        if text.len() > OFFER_BYTES_MAX {
            return wrong("longer than 16 KiB");
        }
        let mut media = 0;
        let (mut name, mut fingerprint, mut mid) = (None, None, None);
        for line in text.lines() {
            if let Some(medium) = line.strip_prefix("m=") {
                media += 1;
                if !medium.starts_with("application ") || !medium.ends_with("webrtc-datachannel") {
                    return wrong("a medium other than a data channel");
                }
            } else if let Some(value) = line.strip_prefix("a=ice-ufrag:") {
                name.get_or_insert(value);
            } else if let Some(value) = line.strip_prefix("a=mid:") {
                mid.get_or_insert(value);
            } else if let Some((kind, value)) =
                line.strip_prefix("a=fingerprint:").and_then(|rest| rest.split_once(' '))
                && kind.eq_ignore_ascii_case("sha-256")
            {
                fingerprint.get_or_insert(value);
            }
        }
        if media != 1 {
            return wrong("not one medium");
        }
        let is_ice = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
        let name = name.filter(|name| NAME_LENGTHS.contains(&name.len()));
        let Some(name) = name.filter(|name| name.bytes().all(is_ice)) else {
            return wrong("no ice-ufrag");
        };
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let mid = mid.filter(|mid| !mid.is_empty() && mid.len() <= MID_LEN_MAX);
        let Some(mid) = mid.filter(|mid| mid.bytes().all(is_token)) else {
            return wrong("no mid");
        };
        let Some(fingerprint) = fingerprint.and_then(read_fingerprint) else {
            return wrong("no SHA-256 fingerprint");
        };
        Ok(Self { name: name.to_owned(), fingerprint, mid: mid.to_owned() })
    }
}

/// Parses 32 bytes as `AB:CD:...`.
fn read_fingerprint(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut pairs = text.split(':');
    for byte in &mut bytes {
        let pair = pairs.next().filter(|pair| pair.len() == 2)?;
        let is_hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = is_hex.then(|| u8::from_str_radix(pair, 16).ok())??;
    }
    pairs.next().is_none().then_some(bytes)
}

pub(super) struct Answer<'a> {
    pub name: &'a str,
    pub password: &'a str,
    pub fingerprint: &'a [u8; 32],
    /// Addresses of the server, the most likely one first.
    pub addresses: &'a [IpAddr],
    pub port: u16,
}

impl Answer<'_> {
    /// The text, for the offer's only medium. Passive: the browser opens DTLS and SCTP.
    pub(super) fn write(&self, mid: &str) -> String {
        let digits: Vec<String> = self.fingerprint.iter().map(|it| format!("{it:02X}")).collect();
        let mut text = format!(
            "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n\
             a=group:BUNDLE {mid}\r\na=ice-lite\r\n\
             m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n\
             a=mid:{mid}\r\n\
             a=ice-ufrag:{}\r\na=ice-pwd:{}\r\na=fingerprint:sha-256 {}\r\na=setup:passive\r\n\
             a=sctp-port:5000\r\na=max-message-size:{MESSAGE_BYTES_MAX}\r\n",
            self.name,
            self.password,
            digits.join(":"),
        );
        for (index, address) in self.addresses.iter().enumerate() {
            // Returns the priority of a host's address (RFC 8445, 5.1.2.1), highest for the first
            // address.
            let priority = (126 << 24 | 65535 << 8 | 255u32) - ((index as u32) << 8);
            let port = self.port;
            // Writing to a text cannot fail.
            let _ = write!(
                text,
                "a=candidate:{} 1 udp {priority} {address} {port} typ host\r\n",
                index + 1
            );
        }
        text + "a=end-of-candidates\r\n"
    }
}

/// Returns the addresses at which a browser reaches the server: the local address of its
/// connection, and the requested authority if that is an address, as of a server behind an address
/// translator. Candidates cannot have scoped addresses.
pub(super) fn addresses(reached: IpAddr, authority: Option<&str>) -> Vec<IpAddr> {
    let asked = authority.and_then(|text| {
        let socket = text.parse::<SocketAddr>().map(|address| address.ip());
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        socket.or_else(|_| bare.parse()).ok()
    });
    let mut all = vec![reached.to_canonical()];
    all.extend(asked.map(|address| address.to_canonical()).filter(|asked| *asked != all[0]));
    all.retain(|address| !address.is_unspecified());
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHROMIUM: &str = include_str!("../../tests/offers/chromium.sdp");
    const FIREFOX: &str = include_str!("../../tests/offers/firefox.sdp");

    #[test]
    fn offers_of_browsers_are_read() {
        let chromium = Offer::parse(CHROMIUM).unwrap();
        assert_eq!((chromium.name.as_str(), chromium.mid.as_str()), ("MHOS", "0"));
        assert_eq!(chromium.fingerprint[..2], [0xEE, 0xC5]);
        let firefox = Offer::parse(FIREFOX).unwrap();
        assert_eq!((firefox.name.as_str(), firefox.mid.as_str()), ("18e61ca8", "0"));
        assert_eq!(firefox.fingerprint[31], 0xD7);
    }

    #[test]
    fn invalid_channel_offers_are_refused_with_a_reason() {
        for (from, to, word) in [
            ("m=application", "m=audio", "medium"),
            (
                "webrtc-datachannel",
                "webrtc-datachannel\r\nm=application 9 x webrtc-datachannel",
                "one",
            ),
            ("a=ice-ufrag:", "a=ufrag:", "ufrag"),
            ("a=ice-ufrag:", "a=ice-ufrag:x\"", "ufrag"),
            ("a=mid:0", "a=mid:0 0", "mid"),
            ("sha-256", "sha-1", "fingerprint"),
            ("sha-256 ", "sha-256 00:", "fingerprint"),
        ] {
            let text = CHROMIUM.replacen(from, to, 1);
            assert_ne!(text, CHROMIUM, "{from}");
            let error = Offer::parse(&text).unwrap_err().to_string();
            assert!(error.contains(word), "{from} -> {to}: {error}");
        }
        let long = format!("{CHROMIUM}a={}\r\n", "x".repeat(OFFER_BYTES_MAX));
        assert!(Offer::parse(&long).unwrap_err().to_string().contains("16 KiB"));
        assert!(Offer::parse("").is_err());
    }

    #[test]
    fn an_answer_names_where_the_server_is_reached() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (inside, outside) = (address("::ffff:10.0.0.1"), address("192.0.2.7"));
        assert_eq!(addresses(inside, Some("192.0.2.7:4863")), [address("10.0.0.1"), outside]);
        assert_eq!(addresses(outside, Some("192.0.2.7")), [outside]);
        assert_eq!(addresses(address("2001:db8::1"), Some("[2001:db8::2]")).len(), 2);
        assert_eq!(addresses(outside, Some("a.example:4863")), [outside]);
        assert_eq!(addresses(outside, Some("0.0.0.0:1")), [outside]);
        let answer = Answer {
            name: "abcd",
            password: "0123456789abcdef01234567",
            fingerprint: &[0xAB; 32],
            addresses: &[inside.to_canonical(), outside],
            port: 4863,
        };
        let text = answer.write("0");
        assert!(
            text.contains("a=candidate:1 1 udp 2130706431 10.0.0.1 4863 typ host\r\n"),
            "{text}"
        );
        assert!(text.contains("a=candidate:2 1 udp 2130706175 192.0.2.7 4863 typ host\r\n"));
        assert!(text.contains("a=ice-lite\r\n") && text.contains("a=setup:passive\r\n"));
        // The parser accepts the answer, too.
        assert_eq!(Offer::parse(&text).unwrap().fingerprint, [0xAB; 32]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in ".{0,400}") {
            let _ = Offer::parse(&text);
        }

        /// Fields of an offer go into the answer and must not add lines to it.
        #[test]
        fn parsed_values_fit_in_a_line(at in 0..600usize, put in "[\\x00-\\x7f]{0,6}") {
            let at = at.min(CHROMIUM.len());
            let text = format!("{}{put}{}", &CHROMIUM[..at], &CHROMIUM[at..]);
            if let Ok(offer) = Offer::parse(&text) {
                let plain = |byte: u8| byte.is_ascii_graphic();
                prop_assert!(offer.mid.bytes().all(plain) && offer.name.bytes().all(plain));
                prop_assert!(offer.mid.len() <= MID_LEN_MAX && offer.name.len() <= 256);
            }
        }
    }
}
