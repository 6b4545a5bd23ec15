//! Guesses what a file that cannot be read is, and replaces `nan` by `null`.

use super::imported::ImportError;

/// Bytes at the start of a file in which its kind is looked for.
const START: usize = 64 << 10;

/// Describes a file by its first bytes, for a message.
pub(super) fn looks_like(bytes: &[u8]) -> &'static str {
    const CAPTURE: &str = "a packet capture, which `underload replay` reads";
    let start = &bytes[..bytes.len().min(START)];
    let has = |word: &str| start.windows(word.len()).any(|window| window == word.as_bytes());
    match start {
        [] => "an empty file",
        [b'P', b'A', b'R', b'1', ..] => "a Parquet file",
        [0x0a, 0x0d, 0x0d, 0x0a, ..]
        | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..]
        | [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..] => CAPTURE,
        [b'<', ..] => "a page (HTML) or XML",
        _ if has("\"intervals\"") => "JSON of iperf3",
        _ if has("\"round_trips\"") => "JSON of irtt",
        _ if has("\"raw_values\"") || has("\"results\"") => "JSON of flent",
        _ if has("\"hubs\"") => "JSON of mtr",
        _ if has("\"dl_throughput\"") => "JSON of networkQuality",
        _ if has("\"bandwidth\"") => "JSON of speedtest",
        _ if has("Speedtest by Ookla") => "the text of speedtest; `speedtest -f json` writes JSON",
        _ if has("==== SUMMARY ====") => "the text of networkQuality; `-c` writes JSON",
        _ if has("Interval  ") && has("Bitrate") => "the text of iperf3; `iperf3 -J` writes JSON",
        _ if start.contains(&b'{') && std::str::from_utf8(start).is_ok() => "JSON of another tool",
        _ if start.iter().any(|byte| *byte == 0 || *byte >= 0xf8) => "binary data",
        _ => "text without JSON",
    }
}

/// Says where the JSON that begins at `start` stops, and why.
pub(super) fn damage(bytes: &[u8], start: usize, error: &serde_json::Error) -> ImportError {
    let before = bytes[..start].split(|byte| *byte == b'\n').count() - 1;
    let mut what = error.to_string();
    what.truncate(what.rfind(" at line ").unwrap_or(what.len()));
    let what = if error.is_eof() { "it ends too early".to_owned() } else { format!("has: {what}") };
    let (line, column) = (before + error.line(), error.column());
    ImportError::Damaged { looks: looks_like(bytes), line, column, what }
}

/// Returns the text with `null` for numbers that JSON does not have, which C prints as `nan`,
/// `-nan` and `inf`.
pub(super) fn with_absent_numbers(text: &[u8]) -> Vec<u8> {
    let is_word = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
    let (mut repaired, mut rest, mut is_string) = (Vec::with_capacity(text.len()), text, false);
    while let Some(first) = rest.first() {
        let length = match first {
            b'\\' if is_string => rest.len().min(2),
            first if !is_string && is_word(first) => {
                rest.iter().take_while(|it| is_word(it)).count()
            }
            _ => 1,
        };
        let (word, after) = rest.split_at(length);
        is_string ^= word == b"\"";
        let plain = word.strip_prefix(b"-").unwrap_or(word).to_ascii_lowercase();
        let is_absent = matches!(plain.as_slice(), b"nan" | b"inf" | b"infinity");
        repaired.extend_from_slice(if is_absent { b"null" } else { word });
        rest = after;
    }
    repaired
}
