//! Decodes the bytes of a file into the model.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::code::top::{CM_MIC, CMTS_MIC, END, PAD};
use crate::schema::{self, Field, Kind, Scope, number};
use crate::tlv::{Config, Ending, Item, Path, Tlv, Value, header_bytes};

/// Limits of a decoder, so that a hostile file costs bounded memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Length of a file. Modems must accept 8,192 bytes; files with certificate chains are longer.
    pub bytes: usize,
    /// Number of settings, including settings inside others.
    pub tlvs: usize,
    /// Levels of nested aggregates.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // `bytes` can contain this number of settings of two bytes each.
        Self { bytes: 128 * 1024, tlvs: 64 * 1024, depth: 8 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("byte {offset}, {path}: {problem}")]
pub struct DecodeError {
    /// Offset of the element's first byte in the file.
    pub offset: usize,
    pub path: Path,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("the file has {bytes} bytes; at most {limit} are read")]
    FileTooLarge { bytes: usize, limit: usize },
    #[error("more than {limit} settings")]
    TooManyTlvs { limit: usize },
    #[error("settings nested more than {limit} deep")]
    TooDeep { limit: usize },
    #[error("truncated: the file ends after the type")]
    NoLength,
    #[error("overlong or truncated: the length is {length} bytes, {left} are left")]
    Truncated { length: usize, left: usize },
    #[error("only zero bytes may follow the end marker")]
    AfterEnd,
    /// A second instance of a setting that must not repeat. `first` is the offset of the first.
    #[error("present twice; the first is at byte {first}; keep one")]
    Duplicate { first: usize },
    #[error("has {length} bytes; accepted: {accepted}")]
    WrongLength { length: usize, accepted: String },
    #[error("this is text, not a modem's binary file: encode reads it")]
    Text,
    #[error("this is a PacketCable MTA file (it starts with 254), not a cable modem's")]
    PacketCable,
}

impl Config {
    /// Decodes a file. Every structural defect is an error, also duplicates and impossible lengths.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match Self::decode_lenient(bytes, &Limits::default())? {
            (config, defects) if defects.is_empty() => Ok(config),
            (_, mut defects) => Err(defects.swap_remove(0)),
        }
    }

    /// Decodes a file whose top level is correct, and returns the defects inside it. Duplicates
    /// stay in the model, and values that their type does not allow stay bytes, so encoding the
    /// result returns the same bytes.
    ///
    /// # Errors
    /// If the file exceeds a limit or a top-level element does not fit into the file.
    pub fn decode_lenient(
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<(Self, Vec<DecodeError>), DecodeError> {
        let mut decoder = Decoder { limits, tlvs: 0, defects: Vec::new() };
        let config = decoder.file(bytes).map_err(|error| DecodeError::or_text(error, bytes))?;
        Ok((config, decoder.defects))
    }
}

impl DecodeError {
    /// Returns [`Problem::Text`] instead if the whole file is text.
    fn or_text(self, bytes: &[u8]) -> Self {
        let in_text = |char: char| !char.is_control() || matches!(char, '\t' | '\n' | '\r');
        let is_text = std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(in_text));
        let is_large = matches!(self.problem, Problem::FileTooLarge { .. });
        if is_text && !is_large {
            return Self { offset: 0, path: Path::default(), problem: Problem::Text };
        }
        self
    }
}

struct Decoder<'a> {
    limits: &'a Limits,
    tlvs: usize,
    defects: Vec<DecodeError>,
}

/// An element before its value is interpreted.
struct Raw<'a> {
    code: u8,
    offset: usize,
    value_offset: usize,
    value: &'a [u8],
}

fn fail<T>(offset: usize, path: &Path, problem: Problem) -> Result<T, DecodeError> {
    Err(DecodeError { offset, path: path.clone(), problem })
}

/// The start of a telephone adapter's file: type 254, length 1.
const ADAPTER: [u8; 2] = [254, 1];

impl Decoder<'_> {
    fn file(&mut self, bytes: &[u8]) -> Result<Config, DecodeError> {
        let root = Path::default();
        if bytes.len() > self.limits.bytes {
            let problem = Problem::FileTooLarge { bytes: bytes.len(), limit: self.limits.bytes };
            return fail(0, &root, problem);
        }
        let mut items = Vec::new();
        let mut seen = Seen::default();
        let mut position = 0;
        // An adapter's file may start with pads and MICs: an encoder adds both again, and the text
        // form without them must decode as the bytes do.
        let mut begun = false;
        while position < bytes.len() {
            match bytes[position] {
                PAD => {
                    items.push(Item::Pad);
                    position += 1;
                }
                END => {
                    let rest = &bytes[position + 1..];
                    if let Some(stray) = rest.iter().position(|byte| *byte != 0) {
                        return fail(position + 1 + stray, &root, Problem::AfterEnd);
                    }
                    return Ok(Config { items, ending: Ending::Marker { pads: rest.len() } });
                }
                code => {
                    if bytes[position..].starts_with(&ADAPTER) && !begun {
                        return fail(position, &root, Problem::PacketCable);
                    }
                    begun |= !matches!(code, CM_MIC | CMTS_MIC);
                    let field = schema::find(schema::top(), code);
                    let path = seen.path(&root, code, field);
                    let raw = raw_at(bytes, position, 0, header_bytes(code), &path)?;
                    position = raw.value_offset + raw.value.len();
                    items.push(Item::Tlv(self.tlv(&raw, field, &path, 1)?));
                    self.note_duplicate(&mut seen, &raw, field, &path);
                }
            }
        }
        Ok(Config { items, ending: Ending::Missing })
    }

    fn tlv(
        &mut self,
        raw: &Raw<'_>,
        field: Option<&'static Field>,
        path: &Path,
        depth: usize,
    ) -> Result<Tlv, DecodeError> {
        self.tlvs += 1;
        if self.tlvs > self.limits.tlvs {
            let problem = Problem::TooManyTlvs { limit: self.limits.tlvs };
            return fail(raw.offset, path, problem);
        }
        let kind = field.map(|field| &field.kind);
        if let Some(kind) = kind.filter(|kind| kind.is_aggregate()) {
            return Ok(Tlv { code: raw.code, value: self.aggregate(raw, kind, path, depth)? });
        }
        if let Some(accepted) = kind.and_then(|kind| kind.length_problem(raw.value)) {
            let problem = Problem::WrongLength { length: raw.value.len(), accepted };
            self.defects.push(DecodeError { offset: raw.offset, path: path.clone(), problem });
        }
        Ok(Tlv::bytes(raw.code, raw.value))
    }

    /// Returns the inner settings; the bytes, with a defect, if the value is no list of settings.
    fn aggregate(
        &mut self,
        raw: &Raw<'_>,
        kind: &Kind,
        path: &Path,
        depth: usize,
    ) -> Result<Value, DecodeError> {
        if depth > self.limits.depth {
            return fail(raw.offset, path, Problem::TooDeep { limit: self.limits.depth });
        }
        let scope = kind.scope(vendor_of(raw.value));
        let parts = match split(raw, scope, path) {
            Ok(parts) => parts,
            Err(defect) => {
                // Only the vendor knows whether the bytes of its field are settings.
                if !kind.is_foreign(vendor_of(raw.value)) {
                    self.defects.push(defect);
                }
                return Ok(Value::Bytes(raw.value.to_vec()));
            }
        };
        let mut seen = Seen::default();
        let mut children = Vec::with_capacity(parts.len());
        for part in &parts {
            let field = schema::find(scope, part.code);
            let path = seen.path(path, part.code, field);
            children.push(self.tlv(part, field, &path, depth + 1)?);
            self.note_duplicate(&mut seen, part, field, &path);
        }
        Ok(Value::Nested(children))
    }

    fn note_duplicate(
        &mut self,
        seen: &mut Seen,
        raw: &Raw<'_>,
        field: Option<&'static Field>,
        path: &Path,
    ) {
        let first = seen.record(raw.code, raw.offset);
        if first != raw.offset && field.is_some_and(|field| !field.repeats) {
            let problem = Problem::Duplicate { first };
            self.defects.push(DecodeError { offset: raw.offset, path: path.clone(), problem });
        }
    }
}

/// For each type among siblings: how many there were and the offset of the first.
#[derive(Default)]
struct Seen(BTreeMap<u8, (usize, usize)>);

impl Seen {
    fn path(&self, parent: &Path, code: u8, field: Option<&'static Field>) -> Path {
        let ordinal = self.0.get(&code).map_or(1, |(count, _)| count + 1);
        parent.join(code, ordinal, field)
    }

    /// Returns the offset of the first sibling of this type.
    fn record(&mut self, code: u8, offset: usize) -> usize {
        let entry = self.0.entry(code).or_insert((0, offset));
        entry.0 += 1;
        entry.1
    }
}

fn raw_at<'a>(
    bytes: &'a [u8],
    position: usize,
    base: usize,
    header: usize,
    path: &Path,
) -> Result<Raw<'a>, DecodeError> {
    let offset = base + position;
    let Some(length_bytes) = bytes.get(position + 1..position + header) else {
        return fail(offset, path, Problem::NoLength);
    };
    let length = number(length_bytes) as usize;
    let start = position + header;
    let Some(value) = bytes.get(start..start + length) else {
        let left = bytes.len() - start;
        return fail(offset, path, Problem::Truncated { length, left });
    };
    Ok(Raw { code: bytes[position], offset, value_offset: base + start, value })
}

fn split<'a>(parent: &Raw<'a>, scope: Scope, path: &Path) -> Result<Vec<Raw<'a>>, DecodeError> {
    let mut parts = Vec::new();
    let mut seen = Seen::default();
    let mut position = 0;
    while position < parent.value.len() {
        let code = parent.value[position];
        let path = seen.path(path, code, schema::find(scope, code));
        let raw = raw_at(parent.value, position, parent.value_offset, 2, &path)?;
        position = raw.value_offset + raw.value.len() - parent.value_offset;
        seen.record(code, raw.offset);
        parts.push(raw);
    }
    Ok(parts)
}

/// The vendor identifier (type 8) inside an extension field.
fn vendor_of(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    while let [code, length, tail @ ..] = rest {
        let value = tail.get(..usize::from(*length))?;
        if *code == schema::VENDOR_ID {
            return Some(value);
        }
        rest = &tail[usize::from(*length)..];
    }
    None
}
