//! Model to bytes, and where each setting lands.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::code::top::{END, PAD};
use crate::decode::Limits;
use crate::schema::{self, Field, Scope};
use crate::tlv::{Config, Ending, Item, Path, Tlv, Value, has_wide_length};

/// Why a model cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value is longer than its length byte can say.
    #[error("{path}: {length} bytes; at most {limit} fit: split it over several settings")]
    TooLong {
        /// The setting that is too long.
        path: Path,
        /// Length of its value, bytes.
        length: usize,
        /// Longest value that its length field can express, bytes.
        limit: usize,
    },
    /// A type that stands for a pad or the end marker at the top level.
    #[error("{path}: types 0 and 255 are the pad and the end marker; choose another type")]
    Reserved {
        /// The setting.
        path: Path,
    },
    /// Aggregates nest too deep.
    #[error("{path}: settings nested more than {limit} deep")]
    TooDeep {
        /// The setting.
        path: Path,
        /// Levels accepted.
        limit: usize,
    },
    /// The file would be larger than anything reads.
    #[error("the file would have more than {limit} bytes")]
    FileTooLarge {
        /// Longest file accepted, bytes.
        limit: usize,
    },
}

impl Config {
    /// Writes the file.
    ///
    /// # Errors
    /// A value that does not fit its length byte, or a model past the default [`Limits`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let limits = Limits::default();
        let mut bytes = Vec::new();
        for (item, path) in self.items.iter().zip(self.top_paths()) {
            match item {
                Item::Pad => bytes.push(PAD),
                Item::Tlv(tlv) if matches!(tlv.code, PAD | END) => {
                    return Err(EncodeError::Reserved { path });
                }
                Item::Tlv(tlv) => write(tlv, has_wide_length(tlv.code), &path, 1, &mut bytes)?,
            }
        }
        if let Ending::Marker { pads } = self.ending {
            bytes.push(END);
            if pads > limits.bytes {
                return Err(EncodeError::FileTooLarge { limit: limits.bytes });
            }
            bytes.resize(bytes.len() + pads, PAD);
        }
        if bytes.len() > limits.bytes {
            return Err(EncodeError::FileTooLarge { limit: limits.bytes });
        }
        Ok(bytes)
    }

    fn top_paths(&self) -> Vec<Path> {
        let mut counts = BTreeMap::new();
        let root = Path::default();
        let path_of = |item: &Item| match item {
            Item::Pad => root.clone(),
            Item::Tlv(tlv) => step(&root, &mut counts, tlv.code, schema::TOP).0,
        };
        self.items.iter().map(path_of).collect()
    }

    /// Every setting with its place in the encoded file, in file order, outer before inner.
    pub fn walk(&self) -> Vec<Node<'_>> {
        let mut nodes = Vec::new();
        let mut counts = BTreeMap::new();
        let mut offset = 0;
        for item in &self.items {
            match item {
                Item::Pad => offset += 1,
                Item::Tlv(tlv) => {
                    let (path, field) = step(&Path::default(), &mut counts, tlv.code, schema::TOP);
                    let header = if has_wide_length(tlv.code) { 3 } else { 2 };
                    walk(tlv, offset, header, &path, field, &mut nodes);
                    offset += header + value_length(tlv);
                }
            }
        }
        nodes
    }
}

/// One setting with its position in the file.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// The setting.
    pub tlv: &'a Tlv,
    /// The schema's entry for the setting, if it has one.
    pub field: Option<&'static Field>,
    /// Offset of its type byte in the file.
    pub offset: usize,
    /// Length of the value, bytes.
    pub length: usize,
    /// Path of the setting through its parents.
    pub path: Path,
}

/// Encodes one setting as it stands at the top level of a file.
pub(crate) fn tlv_bytes(tlv: &Tlv) -> Result<Vec<u8>, EncodeError> {
    let path = Path::default().join(tlv.code, 1, schema::find(schema::TOP, tlv.code));
    let mut bytes = Vec::new();
    write(tlv, has_wide_length(tlv.code), &path, 1, &mut bytes)?;
    Ok(bytes)
}

/// The bytes of a value, of a leaf or of an aggregate; of an aggregate that has none, no bytes.
pub(crate) fn value_bytes(tlv: &Tlv) -> Vec<u8> {
    match &tlv.value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Nested(_) => {
            let header = if has_wide_length(tlv.code) { 3 } else { 2 };
            tlv_bytes(tlv).map_or_else(|_| Vec::new(), |mut bytes| bytes.split_off(header))
        }
    }
}

fn write(
    tlv: &Tlv,
    wide: bool,
    path: &Path,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let limits = Limits::default();
    if depth > limits.depth + 1 {
        return Err(EncodeError::TooDeep { path: path.clone(), limit: limits.depth });
    }
    out.push(tlv.code);
    let at = out.len();
    out.extend_from_slice(if wide { &[0, 0] } else { &[0] });
    let start = out.len();
    match &tlv.value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Nested(children) => {
            let scope = scope_of(tlv, path.field());
            let mut counts = BTreeMap::new();
            for child in children {
                let (path, _) = step(path, &mut counts, child.code, scope);
                write(child, false, &path, depth + 1, out)?;
            }
        }
    }
    let length = out.len() - start;
    let limit = if wide { usize::from(u16::MAX) } else { usize::from(u8::MAX) };
    if length > limit {
        return Err(EncodeError::TooLong { path: path.clone(), length, limit });
    }
    if wide {
        out[at..start].copy_from_slice(&(length as u16).to_be_bytes());
    } else {
        out[at] = length as u8;
    }
    Ok(())
}

/// The names that apply inside an aggregate.
pub(crate) fn scope_of(tlv: &Tlv, field: Option<&'static Field>) -> Scope {
    let vendor = tlv.child(schema::VENDOR_ID).and_then(Tlv::as_bytes);
    field.map_or(&[], |field| field.kind.scope(vendor))
}

fn step(
    parent: &Path,
    counts: &mut BTreeMap<u8, usize>,
    code: u8,
    scope: Scope,
) -> (Path, Option<&'static Field>) {
    let count = counts.entry(code).or_insert(0);
    *count += 1;
    let field = schema::find(scope, code);
    (parent.join(code, *count, field), field)
}

fn value_length(tlv: &Tlv) -> usize {
    match &tlv.value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Nested(children) => children.iter().map(|child| 2 + value_length(child)).sum(),
    }
}

fn walk<'a>(
    tlv: &'a Tlv,
    offset: usize,
    header: usize,
    path: &Path,
    field: Option<&'static Field>,
    nodes: &mut Vec<Node<'a>>,
) {
    let scope = scope_of(tlv, field);
    let node = Node { tlv, field, offset, length: value_length(tlv), path: path.clone() };
    nodes.push(node);
    let mut counts = BTreeMap::new();
    let mut inner = offset + header;
    for child in tlv.children() {
        let (path, field) = step(path, &mut counts, child.code, scope);
        walk(child, inner, 2, &path, field, nodes);
        inner += 2 + value_length(child);
    }
}
