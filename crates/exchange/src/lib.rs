//! Files of other tools: read as runs, and runs written for them.
//!
//! | file | read | written |
//! |---|---|---|
//! | `.flent.gz` (flent, file versions 1 to 4) | yes | yes, [`flent_file`] |
//! | JSON of `irtt client -o`, also gzipped | yes | |
//! | JSON of `iperf3 -J` | yes | |
//! | JSON of `networkQuality -c` and of Ookla's `speedtest` | yes | |
//! | lines of `ping`, of `mtr` (also its JSON), and of Mahimahi's `mm-link` | yes | |
//! | `.crr` (crusader, versions 1 and 2) | yes | |
//!
//! What a file does not record stays unknown: an imported trial has no timeliness, so nothing shows
//! whether its machine was late; its title names the tool. A file of probes alone counts as idle.
//!
//! Files come from strangers. Their size before and after decompression ([`BYTES_MAX`]), their rows
//! (`rows::ROWS_MAX`) and their series (`rows::NAMES_MAX`) are limited, which bounds the memory
//! that a file takes. Control characters are removed from their texts.

mod crusader;
mod files;
mod flent;
mod flent_export;
mod imported;
mod iperf3;
mod irtt;
mod mahimahi;
mod mtr;
mod network_quality;
mod numbers;
mod ping;
mod rows;
mod sniff;
mod speedtest;

use std::borrow::Cow;

use flate2::read::MultiGzDecoder;
use imported::{Imported, decompress};
use underload_store::RunData;

pub use files::{Content, Format, file_name, plain};
pub use flent_export::flent_file;
pub use imported::{BYTES_MAX, ImportError};

/// Reads the content of another tool's file, in any known format, as a run with one trial.
///
/// # Errors
/// Returns [`ImportError`] if the content is too large, damaged, of no known tool, or empty.
pub fn import(bytes: &[u8]) -> Result<RunData, ImportError> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(ImportError::TooLarge);
    }
    rows::counted(|| {
        if bytes.starts_with(&GZIP_MAGIC) {
            return import_text(&decompress(MultiGzDecoder::new(bytes))?);
        }
        if crusader::is_crusader(bytes) {
            return crusader::read(bytes).map(Imported::all_into_run);
        }
        import_text(bytes)
    })
}

/// Reads text in UTF-8, or in UTF-16 as PowerShell redirects output.
fn import_text(bytes: &[u8]) -> Result<RunData, ImportError> {
    let word: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return import_json(bytes),
    };
    let (pairs, _) = bytes[2..].as_chunks::<2>();
    let words = pairs.iter().map(|pair| word(*pair));
    let text: String =
        char::decode_utf16(words).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    import_json(text.as_bytes())
}

fn import_json(bytes: &[u8]) -> Result<RunData, ImportError> {
    // irtt writes lines for people before its JSON if both go to one file; comments may have braces.
    let start = bytes.iter().position(|byte| *byte == b'{');
    let Some(start) = start.filter(|_| !bytes.starts_with(b"#")) else {
        let text = String::from_utf8_lossy(bytes);
        let read = match text.as_ref() {
            text if ping::is_ping(text) => ping::read,
            text if mtr::is_report(text) => mtr::read_report,
            text if mtr::is_raw(text) => mtr::read_raw,
            text if mahimahi::is_log(text) => mahimahi::read,
            _ => return Err(ImportError::Unknown(sniff::looks_like(bytes))),
        };
        return Ok(read(&text)?.into_run());
    };
    let mut text = Cow::Borrowed(&bytes[start..]);
    if matches!(documents(&text).next(), Some(Err(_))) {
        text = Cow::Owned(sniff::with_absent_numbers(&text));
    }
    let text = text.as_ref();
    let mut documents = documents(text);
    let marks = match documents.next() {
        Some(Ok(marks)) => marks,
        Some(Err(error)) => return Err(sniff::damage(bytes, start, &error)),
        None => return Err(ImportError::Unknown(sniff::looks_like(bytes))),
    };
    if marks.r#type.is_some() {
        return speedtest::read(text).map(Imported::all_into_run);
    }
    // Text may follow, such as lines that a server printed into the file.
    let rest = text.get(documents.byte_offset()..).unwrap_or_default();
    if rest.trim_ascii_start().starts_with(b"{") {
        return Err(ImportError::Several);
    }
    let imported = match marks {
        Marks { round_trips: Some(_), .. } => irtt::read(text)?,
        Marks { intervals: Some(_), .. } => iperf3::read(text)?,
        Marks { raw_values: Some(_), .. } | Marks { results: Some(_), .. } => flent::read(text)?,
        Marks { report: Some(_), .. } => mtr::read_json(text)?,
        Marks { dl_throughput: Some(_), .. } | Marks { ul_throughput: Some(_), .. } => {
            return network_quality::read(text).map(Imported::all_into_run);
        }
        _ => return Err(ImportError::Unknown(sniff::looks_like(bytes))),
    };
    Ok(imported.into_run())
}

fn documents(
    text: &[u8],
) -> serde_json::StreamDeserializer<'_, serde_json::de::SliceRead<'_>, Marks> {
    serde_json::Deserializer::from_slice(text).into_iter()
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The keys by which the formats differ.
#[derive(serde::Deserialize)]
struct Marks {
    round_trips: Option<serde::de::IgnoredAny>,
    intervals: Option<serde::de::IgnoredAny>,
    raw_values: Option<serde::de::IgnoredAny>,
    results: Option<serde::de::IgnoredAny>,
    report: Option<serde::de::IgnoredAny>,
    dl_throughput: Option<serde::de::IgnoredAny>,
    ul_throughput: Option<serde::de::IgnoredAny>,
    r#type: Option<serde::de::IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn unknown_content_is_refused_with_the_known_formats() {
        for bytes in [b"".as_slice(), b"hello", b"{}", b"{\"a\":", &[0x59, 1, 2], &[0xff; 100]] {
            let error = import(bytes).unwrap_err();
            assert!(error.to_string().contains("flent"), "{error}");
        }
        let error = import(&[0x1f, 0x8b, 8, 0]).unwrap_err();
        assert!(matches!(error, ImportError::Compression(_)));
    }

    /// The message names what the file looks like, the place where it is damaged, and the kinds that
    /// can be read.
    #[test]
    fn a_file_that_cannot_be_read_is_described() {
        let said = |bytes: &[u8]| import(bytes).unwrap_err().to_string();
        for (bytes, looks) in [
            (b"".as_slice(), "an empty file"),
            (b"<html>", "a page (HTML) or XML"),
            (b"PAR1", "a Parquet file"),
            (&[0xd4, 0xc3, 0xb2, 0xa1, 0], "a packet capture, which `underload replay` reads"),
            (b"rate 5", "text without JSON"),
            (&[0xff; 9], "binary data"),
            (br#"{"a":1}"#, "JSON of another tool"),
        ] {
            let said = said(bytes);
            assert!(said.starts_with(&format!("it looks like {looks}; ")), "{said}");
        }
        let cut = br#"{"start":{"version":"iperf 3.12"},
            "intervals":[{"streams":["#;
        let said_of_cut = said(cut);
        assert!(said_of_cut.contains("JSON of iperf3, but at line 2, column "), "{said_of_cut}");
        assert!(said_of_cut.contains("it ends too early"), "{said_of_cut}");
        let exponent = br#"{"intervals":[{"streams":[{"bits_per_second": 5.924e 06}]}]}"#;
        assert!(said(exponent).contains("line 1, column 53 "), "{}", said(exponent));
    }

    #[test]
    fn nan_and_utf_16_are_read() {
        let text = r#"{"start":{},"intervals":[{"streams":[
            {"socket":5,"end":1.0,"bits_per_second":8e6},
            {"socket":6,"end":1.0,"bits_per_second":-nan}]}],"end":{"x":"-nan"}}"#;
        let run = import(text.as_bytes()).unwrap();
        assert_eq!(run.record.trials[0].flows.len(), 1);
        let words = |swap: bool| {
            let bytes = |word: u16| if swap { word.to_be_bytes() } else { word.to_le_bytes() };
            "\u{feff}"
                .encode_utf16()
                .chain(text.encode_utf16())
                .flat_map(bytes)
                .collect::<Vec<u8>>()
        };
        assert_eq!(import(&words(false)).unwrap(), run);
        assert_eq!(import(&words(true)).unwrap(), run);
    }

    fn gzipped(text: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn irtts_gzipped_file_is_read_as_its_plain_one() {
        let text = br#"{"version":{"irtt":"0.9.0"},"config":{"params":{}},"stats":{},
            "round_trips":[{"seqno":0,"timestamps":{"client":{"send":{"monotonic":1}}},
            "delay":{"rtt":7}}]}"#;
        let (plain, packed) = (import(text).unwrap(), import(&gzipped(text)).unwrap());
        assert_eq!(plain, packed);
        assert_eq!(packed.samples[0].rtt_ns, Some(7));
    }

    #[test]
    fn several_documents_in_one_file_are_refused() {
        let one = r#"{"start":{},"intervals":[{"streams":[{"socket":5,"end":1.0,
            "bits_per_second":8e6}]}],"end":{}}"#;
        assert!(import(one.as_bytes()).is_ok());
        let with_text = format!("{one}\n[  5] 0.00-1.00 sec, printed by the server");
        assert_eq!(import(with_text.as_bytes()).unwrap(), import(one.as_bytes()).unwrap());
        let stream = r#"{"event":"start","data":{}} {"event":"end","data":{}}"#;
        for several in [format!("{one}\n{one}"), format!("{one}{{"), stream.to_owned()] {
            let error = import(several.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("several JSON documents"), "{error}");
        }
    }

    // 60 KB of compressed file would become 1 GB of values.
    #[test]
    fn a_file_of_millions_of_rows_is_refused() {
        let flent = format!(
            r#"{{"metadata":{{}},"raw_values":{{"Ping (ms) ICMP":[{}{{}}]}}}}"#,
            "{},".repeat(rows::ROWS_MAX)
        );
        let trip = r#"{"seqno":1}"#;
        let irtt = format!(
            r#"{{"version":{{"irtt":"0"}},"config":{{"params":{{}}}},"stats":{{}},
            "round_trips":[{}{trip}]}}"#,
            format!("{trip},").repeat(rows::ROWS_MAX)
        );
        for text in [flent, irtt] {
            let packed = gzipped(text.as_bytes());
            assert!(packed.len() < 200_000, "{}", packed.len());
            let error = import(&packed).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains("rows are not read"), "{source}");
        }
    }

    #[test]
    fn text_of_a_file_cannot_control_the_terminal() {
        let text = r#"{"metadata":{"NAME":"a\nb","TITLE":"\u001b]0;own\u0007\u009b2J","LENGTH":1,
            "TOTAL_LENGTH":1},"x_values":[0.0],"results":{"Ping (ms) \u001b[2J":[1.0]}}"#;
        let run = import(text.as_bytes()).unwrap();
        let flow = &run.record.trials[0].flows[0];
        for text in [&flow.name, &run.record.scenario.title] {
            assert!(text.contains('\u{fffd}') && !text.contains(char::is_control), "{text:?}");
        }
        assert_eq!(run.record.variants[0].name, "a\u{fffd}b");
    }

    #[test]
    fn decompression_stops_at_the_limit() {
        let endless = std::io::repeat(b' ');
        assert!(matches!(decompress(endless), Err(ImportError::TooLarge)));
    }
}
