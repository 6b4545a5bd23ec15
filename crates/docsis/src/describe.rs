//! A file as a serialisable tree of named settings.

use serde::Serialize;

use crate::encode::scope_of;
use crate::schema::{self, Field, Kind, Scope};
use crate::tlv::{Config, Ending, Item, Tlv, Value, header_bytes};
use crate::value;

#[derive(Debug, Clone, Serialize)]
pub struct Description {
    /// Length of the file, bytes.
    pub bytes: usize,
    /// The settings in file order.
    pub tlvs: Vec<Setting>,
    /// Zero bytes between settings.
    pub inner_pads: usize,
    pub end_marker: bool,
    /// Zero bytes after the end marker.
    pub pads: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    pub code: u8,
    /// The specification's name; `TlvN` for a type without one.
    pub name: String,
    /// Offset of the type byte in the file.
    pub offset: usize,
    /// Bytes of the value.
    pub length: usize,
    /// `None` for aggregates and raw bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Spelled>,
    /// The value as `0x` bytes, if it has no other text form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'static str,
    /// The setting's effect on the modem.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub meaning: &'static str,
    /// The settings inside this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tlvs: Vec<Setting>,
}

/// The value of a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Spelled {
    Number(u64),
    List(Vec<u64>),
    Text(String),
}

impl Config {
    pub fn describe(&self) -> Description {
        let mut offset = 0;
        let mut tlvs = Vec::new();
        let mut inner_pads = 0;
        for item in &self.items {
            match item {
                Item::Pad => {
                    inner_pads += 1;
                    offset += 1;
                }
                Item::Tlv(tlv) => {
                    let header = header_bytes(tlv.code);
                    let setting = setting(tlv, schema::top(), offset, header);
                    offset += header + setting.length;
                    tlvs.push(setting);
                }
            }
        }
        let (end_marker, pads) = match self.ending {
            Ending::Marker { pads } => (true, pads),
            Ending::Missing => (false, 0),
        };
        let bytes = offset + usize::from(end_marker) + pads;
        Description { bytes, tlvs, inner_pads, end_marker, pads }
    }
}

fn setting(tlv: &Tlv, scope: Scope, offset: usize, header: usize) -> Setting {
    let field = schema::find(scope, tlv.code);
    let mut setting = Setting {
        code: tlv.code,
        name: field.map_or(format!("Tlv{}", tlv.code), |field| field.name.into()),
        offset,
        length: 0,
        value: None,
        raw: None,
        unit: field.map_or("", |field| field.unit),
        meaning: field.map_or("", |field| field.meaning),
        tlvs: Vec::new(),
    };
    match &tlv.value {
        Value::Bytes(bytes) => {
            setting.length = bytes.len();
            setting.value = field.and_then(|field| spelled(field, bytes));
            setting.raw = setting.value.is_none().then(|| value::hex(bytes));
        }
        Value::Nested(children) => {
            let inner = scope_of(tlv, field);
            for child in children {
                let at = offset + header + setting.length;
                let child = self::setting(child, inner, at, 2);
                setting.length += 2 + child.length;
                setting.tlvs.push(child);
            }
        }
    }
    setting
}

fn spelled(field: &Field, bytes: &[u8]) -> Option<Spelled> {
    let text = value::render(&field.kind, bytes)?;
    Some(match field.kind {
        Kind::Number { .. } => Spelled::Number(text.parse().ok()?),
        Kind::List { .. } => {
            let numbers = text.split(',').map(str::parse).collect::<Result<_, _>>();
            Spelled::List(numbers.ok()?)
        }
        _ => Spelled::Text(text),
    })
}
