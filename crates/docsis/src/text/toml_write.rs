//! Writes the model as TOML.

use std::fmt::Write;

use crate::code::top;
use crate::encode::{scope_of, standard_pads, value_bytes};
use crate::schema::{self, Field, Kind, Scope};
use crate::tlv::{Config, Ending, Item, Tlv, Value};
use crate::value;

/// Writes a file as TOML with the specification's names, each with its unit and meaning.
///
/// If the settings' order in the file differs from the order in the text (TOML wants numbers before
/// tables), a line `Order` lists the types in file order.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::from("# DOCSIS cable modem configuration\n");
    let tlvs: Vec<&Tlv> = config.tlvs().collect();
    let order = config.items.iter().map(|item| match item {
        Item::Pad => top::PAD,
        Item::Tlv(tlv) => tlv.code,
    });
    out.push_str(&ending(config));
    scope(&mut out, "", &tlvs, &order.collect::<Vec<_>>(), schema::top());
    out
}

fn ending(config: &Config) -> String {
    let Ok(bytes) = config.encode() else { return String::new() };
    match config.ending {
        Ending::Missing => "EndOfData = false  # the file has no end marker\n".into(),
        Ending::Marker { pads } if standard_pads(bytes.len() - pads) != pads => {
            format!("EndPads = {pads}  # zero bytes after the end marker\n")
        }
        Ending::Marker { .. } => String::new(),
    }
}

struct Group<'a> {
    field: Option<&'static Field>,
    key: String,
    tlvs: Vec<&'a Tlv>,
}

impl Group<'_> {
    fn is_tables(&self) -> bool {
        self.field.is_some_and(|field| field.kind.is_aggregate())
    }
}

fn scope(out: &mut String, prefix: &str, tlvs: &[&Tlv], order: &[u8], scope: Scope) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for tlv in tlvs {
        if let Some(group) = groups.iter_mut().find(|group| group.tlvs[0].code == tlv.code) {
            group.tlvs.push(tlv);
        } else {
            let field = schema::find(scope, tlv.code);
            let key = field.map_or(format!("Tlv{}", tlv.code), |field| field.name.into());
            groups.push(Group { field, key, tlvs: vec![tlv] });
        }
    }
    groups.sort_by_key(Group::is_tables);
    let natural = groups.iter().flat_map(|group| group.tlvs.iter().map(|tlv| tlv.code));
    if !natural.eq(order.iter().copied()) {
        let codes: Vec<_> = order.iter().map(u8::to_string).collect();
        let _ = writeln!(out, "Order = [{}]  # types in file order", codes.join(", "));
    }
    for group in &groups {
        if group.is_tables() {
            tables(out, prefix, group);
        } else {
            scalars(out, group);
        }
    }
}

fn scalars(out: &mut String, group: &Group<'_>) {
    let comment = group.field.map_or(String::new(), comment);
    let values: Vec<_> = group.tlvs.iter().map(|tlv| scalar(tlv, group.field)).collect();
    if let [value] = values.as_slice() {
        let _ = writeln!(out, "{} = {value}{comment}", group.key);
    } else {
        let _ = writeln!(out, "{} = [{comment}", group.key);
        for value in values {
            let _ = writeln!(out, "  {value},");
        }
        out.push_str("]\n");
    }
}

fn comment(field: &'static Field) -> String {
    let unit = if field.unit.is_empty() { String::new() } else { format!("{}: ", field.unit) };
    format!("  # {unit}{}", field.meaning)
}

fn scalar(tlv: &Tlv, field: Option<&'static Field>) -> String {
    let bytes = value_bytes(tlv);
    let Some(field) = field else { return quoted(&value::hex(&bytes)) };
    match (value::render(&field.kind, &bytes), &field.kind) {
        (Some(text), Kind::Number { .. }) => text,
        (Some(text), Kind::List { .. }) => format!("[{}]", text.replace(',', ", ")),
        (Some(text), _) => quoted(&text),
        (None, _) => raw(&bytes),
    }
}

fn raw(bytes: &[u8]) -> String {
    format!("{{ Bytes = {} }}", quoted(&value::hex(bytes)))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn tables(out: &mut String, prefix: &str, group: &Group<'_>) {
    let several = group.tlvs.len() > 1 || group.field.is_some_and(|field| field.repeats);
    let (open, close) = if several { ("[[", "]]") } else { ("[", "]") };
    let comment = group.field.map_or(String::new(), comment);
    let path = format!("{prefix}{}", group.key);
    for tlv in &group.tlvs {
        let _ = writeln!(out, "\n{open}{path}{close}{comment}");
        match &tlv.value {
            Value::Bytes(bytes) => {
                let _ = writeln!(out, "Bytes = {}", quoted(&value::hex(bytes)));
            }
            Value::Nested(children) => {
                let tlvs: Vec<&Tlv> = children.iter().collect();
                let order: Vec<u8> = children.iter().map(|child| child.code).collect();
                scope(out, &format!("{path}."), &tlvs, &order, scope_of(tlv, group.field));
            }
        }
    }
}
