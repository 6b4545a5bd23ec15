//! Model to the `Main { ... }` form.

use std::fmt::Write;

use crate::code::top::{CM_MIC, CMTS_MIC};
use crate::encode::{scope_of, value_bytes};
use crate::schema::{self, Field, Kind, Scope};
use crate::tlv::{Config, Item, Tlv, Value};
use crate::value;

/// Writes the form that the open `docsis` encoder reads; MICs and pads become comments.
pub fn to_main(config: &Config) -> String {
    let mut out = String::from("Main\n{\n");
    for item in &config.items {
        match item {
            Item::Pad => out.push_str("\t/* Pad */\n"),
            Item::Tlv(tlv) if matches!(tlv.code, CM_MIC | CMTS_MIC) => {
                let name = if tlv.code == CM_MIC { "CmMic" } else { "CmtsMic" };
                let digest = value::hex(tlv.as_bytes().unwrap_or_default());
                let _ = writeln!(out, "\t/* {name} {digest} */");
            }
            Item::Tlv(tlv) => setting(&mut out, tlv, schema::top(), 1),
        }
    }
    out.push_str("}\n");
    out
}

fn setting(out: &mut String, tlv: &Tlv, scope: Scope, depth: usize) {
    let indent = "\t".repeat(depth);
    let field = schema::find(scope, tlv.code).filter(|field| !field.main_name.is_empty());
    match (&tlv.value, field) {
        // The encoder's grammar has no empty aggregate.
        (Value::Nested(children), Some(field)) if !children.is_empty() => {
            let _ = writeln!(out, "{indent}{}\n{indent}{{", field.main_name);
            let inner = scope_of(tlv, Some(field));
            for child in children {
                setting(out, child, inner, depth + 1);
            }
            let _ = writeln!(out, "{indent}}}");
        }
        (value, field) => {
            let named = match value {
                Value::Bytes(bytes) => field.and_then(|field| named(field, bytes)),
                Value::Nested(_) => None,
            };
            let _ = writeln!(out, "{indent}{}", named.unwrap_or_else(|| generic(tlv)));
        }
    }
}

/// Returns the line with the setting's name. `None` if the encoder would not read the value back.
fn named(field: &Field, bytes: &[u8]) -> Option<String> {
    let text = value::render(&field.kind, bytes)?;
    // A value outside the range needs GenericTLV, which cannot have an empty value.
    if !bytes.is_empty() && !field.fits_main(bytes) {
        return None;
    }
    let numbers = text.split(',').count();
    let spelled = match field.kind {
        Kind::Text { .. } | Kind::TextNul { .. } => quoted(&text)?,
        // The encoder reads one number as an integer, and lists of up to 128 numbers.
        Kind::List { .. } if !(2..=128).contains(&numbers) => return None,
        Kind::Ipv4List | Kind::Ipv6List if !(2..=15).contains(&numbers) => return None,
        Kind::Hex { .. } if bytes.is_empty() => return None,
        // The encoder's grammar requires a value here, and does not encode it.
        Kind::Empty => value::hex(&[0]),
        Kind::VarBind if text.ends_with(" HexString 0x") => {
            text.replace("HexString 0x", "String \"\"")
        }
        Kind::VarBind => match text.split_once(" String ") {
            Some((oid, string)) => format!("{oid} String {}", quoted(string)?),
            None => text,
        },
        _ => text,
    };
    Some(format!("{} {spelled};", field.main_name))
}

/// Returns a string literal. `None` if the encoder's strings cannot contain a character.
fn quoted(text: &str) -> Option<String> {
    let carried = |byte| matches!(byte, b' '..=b'~') && byte != b'\\';
    text.bytes().all(carried).then(|| format!("\"{}\"", text.replace('"', "\\\"")))
}

fn generic(tlv: &Tlv) -> String {
    let bytes = value_bytes(tlv);
    let (code, length, hex) = (tlv.code, bytes.len(), value::hex(&bytes));
    format!("GenericTLV TlvCode {code} TlvLength {length} TlvValue {hex};")
}
