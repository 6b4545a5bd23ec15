//! Model to bytes, and the offset of each setting.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::code::top::{END, PAD};
use crate::decode::Limits;
use crate::schema::{self, Field, Scope};
use crate::tlv::{Config, Ending, Item, Path, Tlv, Value, header_bytes};

/// The result of encoding a part of a file.
type Result<T, E = EncodeError> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    #[error("{path}: {length} bytes; at most {limit} fit: split it over several settings")]
    TooLong { path: Path, length: usize, limit: usize },
    #[error("{path}: types 0 and 255 are the pad and the end marker; choose another type")]
    Reserved { path: Path },
    #[error("{path}: settings nested more than {limit} deep")]
    TooDeep { path: Path, limit: usize },
    #[error("the file would have more than {limit} bytes")]
    FileTooLarge { limit: usize },
}

impl Config {
    /// Returns the bytes of the configuration file.
    ///
    /// # Errors
    /// If a value does not fit its length field, or the model exceeds the default [`Limits`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let limits = Limits::default();
        let mut bytes = Vec::new();
        for (item, path) in self.items.iter().zip(self.top_paths()) {
            match item {
                Item::Pad => bytes.push(PAD),
                Item::Tlv(tlv) if matches!(tlv.code, PAD | END) => {
                    return Err(EncodeError::Reserved { path });
                }
                Item::Tlv(tlv) => write(tlv, header_bytes(tlv.code), &path, 1, &mut bytes)?,
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
            Item::Tlv(tlv) => step(&root, &mut counts, tlv.code, schema::top()).0,
        };
        self.items.iter().map(path_of).collect()
    }

    /// Returns every setting and its offset in the encoded file, in file order, outer before inner.
    pub fn walk(&self) -> Vec<Node<'_>> {
        let mut nodes = Vec::new();
        let mut counts = BTreeMap::new();
        let mut offset = 0;
        for item in &self.items {
            match item {
                Item::Pad => offset += 1,
                Item::Tlv(tlv) => {
                    let (path, field) =
                        step(&Path::default(), &mut counts, tlv.code, schema::top());
                    let header = header_bytes(tlv.code);
                    walk(tlv, offset, header, &path, field, &mut nodes);
                    offset += header + value_length(tlv);
                }
            }
        }
        nodes
    }
}

/// A setting with its position in the file.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    pub tlv: &'a Tlv,
    /// `None` if the schema does not know the setting.
    pub field: Option<&'static Field>,
    /// Offset of the type byte in the file.
    pub offset: usize,
    /// Length of the value, bytes.
    pub length: usize,
    pub path: Path,
}

/// Zero bytes that pad a file of this length to a multiple of four.
pub(crate) fn standard_pads(bytes: usize) -> usize {
    bytes.next_multiple_of(4) - bytes
}

/// Encodes a top-level setting.
pub(crate) fn tlv_bytes(tlv: &Tlv) -> Result<Vec<u8>> {
    let path = Path::default().join(tlv.code, 1, schema::find(schema::top(), tlv.code));
    let mut bytes = Vec::new();
    write(tlv, header_bytes(tlv.code), &path, 1, &mut bytes)?;
    Ok(bytes)
}

/// Returns the bytes of a value. Empty for an aggregate that cannot be encoded.
pub(crate) fn value_bytes(tlv: &Tlv) -> Vec<u8> {
    match &tlv.value {
        Value::Bytes(bytes) => bytes.clone(),
        Value::Nested(_) => tlv_bytes(tlv)
            .map_or_else(|_| Vec::new(), |mut bytes| bytes.split_off(header_bytes(tlv.code))),
    }
}

fn write(tlv: &Tlv, header: usize, path: &Path, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let limits = Limits::default();
    if depth > limits.depth + 1 {
        return Err(EncodeError::TooDeep { path: path.clone(), limit: limits.depth });
    }
    out.push(tlv.code);
    let (at, start) = (out.len(), out.len() + header - 1);
    out.resize(start, 0);
    match &tlv.value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Nested(children) => {
            let scope = scope_of(tlv, path.field());
            let mut counts = BTreeMap::new();
            for child in children {
                let (path, _) = step(path, &mut counts, child.code, scope);
                write(child, 2, &path, depth + 1, out)?;
            }
        }
    }
    let length = out.len() - start;
    let limit = (1 << (8 * (header - 1))) - 1;
    if length > limit {
        return Err(EncodeError::TooLong { path: path.clone(), length, limit });
    }
    let length = length.to_be_bytes();
    out[at..start].copy_from_slice(&length[length.len() - (header - 1)..]);
    Ok(())
}

/// The settings that an aggregate may contain.
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
    nodes.push(Node { tlv, field, offset, length: value_length(tlv), path: path.clone() });
    let mut counts = BTreeMap::new();
    let mut inner = offset + header;
    for child in tlv.children() {
        let (path, field) = step(path, &mut counts, child.code, scope);
        walk(child, inner, 2, &path, field, nodes);
        inner += 2 + value_length(child);
    }
}
