//! Reads the model from TOML.

use std::collections::{BTreeMap, VecDeque};

use toml::{Table, Value as Toml};

use super::{Result, TextError, check_size, closest, normalise, toml_place};
use crate::code::top;
use crate::encode::standard_pads;
use crate::schema::{self, Field, Kind, Scope};
use crate::tlv::{Config, Ending, Item, Tlv};
use crate::value;

/// Parses a TOML text.
///
/// Keys are the specification's names, or `TlvN` with `0x` bytes for a type without a name. Any
/// value may be written as `{ Bytes = "0x..." }`. Settings have the order of the text, unless
/// `Order` lists their types; settings missing in `Order` follow the listed ones (before the MICs).
/// The file ends with the marker and pads to a multiple of four, unless `EndOfData` or `EndPads`
/// override this.
pub fn from_toml(text: &str) -> Result<Config> {
    check_size(text)?;
    read(text).map_err(|error| match error {
        TextError::At { place, problem } => match toml_place::line_of(text, &place) {
            Some(line) => TextError::at(format!("line {line}, {place}"), problem),
            None => TextError::at(place, problem),
        },
        error => error,
    })
}

fn read(text: &str) -> Result<Config> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        TextError::at(format!("line {line}"), error.message().trim().replace('\n', ", "))
    })?;
    let marked = match table.remove("EndOfData") {
        None => true,
        Some(Toml::Boolean(marked)) => marked,
        Some(_) => return Err(TextError::at("EndOfData", "accepted: true or false")),
    };
    let pads = match table.remove("EndPads") {
        None => None,
        Some(Toml::Integer(pads @ 0..=131_072)) => Some(pads as usize),
        Some(_) => return Err(TextError::at("EndPads", "accepted: 0 to 131072")),
    };
    let items = scope(&table, "", schema::top(), None)?.into_iter().map(|(code, tlv)| match tlv {
        Some(tlv) => Ok(Item::Tlv(tlv)),
        None if code == top::PAD => Ok(Item::Pad),
        None => Err(unlisted("Order", code)),
    });
    let mut config = Config { items: items.collect::<Result<_, _>>()?, ending: Ending::Missing };
    if marked {
        config.ending = Ending::Marker { pads: 0 };
        let pads = pads.unwrap_or(standard_pads(config.encode()?.len()));
        config.ending = Ending::Marker { pads };
    }
    normalise(&config)
}

fn unlisted(place: &str, code: u8) -> TextError {
    let problem = format!("lists type {code} more often than it is set; delete it, or the line");
    TextError::at(place, problem)
}

/// Returns the settings of a table in file order. `None` is an `Order` entry without a setting.
fn scope(
    table: &Table,
    place: &str,
    scope: Scope,
    parent: Option<&'static Field>,
) -> Result<Vec<(u8, Option<Tlv>)>> {
    let mut tlvs = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| *key != "Order") {
        let place = format!("{place}{key}");
        let (code, field) = named(key, &place, scope, parent)?;
        settings(value, code, field, &place, &mut tlvs)?;
    }
    match table.get("Order") {
        None => Ok(tlvs.into_iter().map(|tlv| (tlv.code, Some(tlv))).collect()),
        Some(order) => reorder(tlvs, order, &format!("{place}Order")),
    }
}

fn named(
    key: &str,
    place: &str,
    scope: Scope,
    parent: Option<&'static Field>,
) -> Result<(u8, Option<&'static Field>)> {
    if let Some(field) = scope.iter().find(|field| field.name == key) {
        return Ok((field.code, Some(field)));
    }
    if let Some(Ok(code)) = key.strip_prefix("Tlv").map(str::parse::<u8>) {
        return Ok((code, None));
    }
    let hint = match scope.iter().find(|field| field.main_name == key) {
        Some(field) => format!("write {}", field.name),
        None => match closest(key, scope.iter().map(|field| field.name)) {
            Some(name) => format!("did you mean {name}?"),
            None if parent.is_some_and(|field| matches!(field.kind, Kind::Extension(_))) => {
                "the specification's names need VendorIdentifier = \"0xffffff\"".into()
            }
            None => "write TlvN = \"0x...\" for a type N without a name".into(),
        },
    };
    Err(TextError::at(place, format!("unknown name here; {hint}")))
}

fn reorder(tlvs: Vec<Tlv>, order: &Toml, place: &str) -> Result<Vec<(u8, Option<Tlv>)>> {
    let error = || TextError::at(place, "accepted: a list of types from 0 to 255");
    let mut waiting: BTreeMap<u8, VecDeque<(usize, Tlv)>> = BTreeMap::new();
    for (position, tlv) in tlvs.into_iter().enumerate() {
        waiting.entry(tlv.code).or_default().push_back((position, tlv));
    }
    let mut ordered = Vec::new();
    for code in order.as_array().ok_or_else(error)? {
        let code = code.as_integer().and_then(|code| u8::try_from(code).ok()).ok_or_else(error)?;
        match waiting.get_mut(&code).and_then(VecDeque::pop_front) {
            Some((_, tlv)) => ordered.push((code, Some(tlv))),
            None if code == top::PAD => ordered.push((code, None)),
            None => return Err(unlisted(place, code)),
        }
    }
    let mut rest: Vec<_> = waiting.into_values().flatten().collect();
    rest.sort_by_key(|(position, _)| *position);
    let is_mic = |(code, _): &(u8, Option<Tlv>)| matches!(*code, top::CM_MIC | top::CMTS_MIC);
    let at = ordered.iter().position(is_mic).unwrap_or(ordered.len());
    ordered.splice(at..at, rest.into_iter().map(|(_, tlv)| (tlv.code, Some(tlv))));
    Ok(ordered)
}

/// Reads one key: a single setting, or a list of settings of the same type.
fn settings(
    value: &Toml,
    code: u8,
    field: Option<&'static Field>,
    place: &str,
    out: &mut Vec<Tlv>,
) -> Result<()> {
    let is_list = matches!(field.map(|field| &field.kind), Some(Kind::List { .. }));
    let single_list = |values: &[Toml]| is_list && values.iter().all(Toml::is_integer);
    match value {
        Toml::Array(values) if !single_list(values) => {
            for (index, value) in values.iter().enumerate() {
                let place = format!("{place}[{}]", index + 1);
                out.push(setting(value, code, field, &place)?);
            }
        }
        value => out.push(setting(value, code, field, place)?),
    }
    Ok(())
}

fn setting(value: &Toml, code: u8, field: Option<&'static Field>, place: &str) -> Result<Tlv> {
    if let Toml::Table(table) = value {
        if let (Some(bytes), 1) = (table.get("Bytes"), table.len()) {
            return Ok(Tlv::bytes(code, hex_bytes(bytes, &format!("{place}.Bytes"))?));
        }
        if let Some(field) = field.filter(|field| field.kind.is_aggregate()) {
            return aggregate(table, field, place);
        }
    }
    let Some(field) = field else { return Ok(Tlv::bytes(code, hex_bytes(value, place)?)) };
    let text = match value {
        Toml::Integer(number) => number.to_string(),
        Toml::String(text) => text.clone(),
        Toml::Array(values) => values.iter().map(Toml::to_string).collect::<Vec<_>>().join(","),
        _ => return Err(wrong_kind(field, place)),
    };
    let matches_kind = match field.kind {
        Kind::Number { .. } => value.is_integer(),
        Kind::List { .. } => value.is_array(),
        _ => value.is_str(),
    };
    if !matches_kind {
        return Err(wrong_kind(field, place));
    }
    let bytes = value::parse(&field.kind, &text)
        .map_err(|error| TextError::at(place, format!("{error}{}", field.in_unit())))?;
    Ok(Tlv::bytes(code, bytes))
}

fn wrong_kind(field: &Field, place: &str) -> TextError {
    let accepted = value::accepted(&field.kind);
    let quotes = match field.kind {
        Kind::Number { .. } | Kind::List { .. } | Kind::Aggregate(_) | Kind::Extension(_) => "",
        _ => ", in quotes",
    };
    TextError::at(place, format!("accepted: {accepted}{}{quotes}", field.in_unit()))
}

fn aggregate(table: &Table, field: &'static Field, place: &str) -> Result<Tlv> {
    let vendor = table.get("VendorIdentifier").and_then(Toml::as_str);
    let vendor = vendor.and_then(|text| value::unhex(text).ok());
    let inner = schema::inside(Some(field), vendor.as_deref());
    let children = scope(table, &format!("{place}."), inner, Some(field))?;
    let child = |(code, tlv): (u8, Option<Tlv>)| {
        tlv.ok_or_else(|| unlisted(&format!("{place}.Order"), code))
    };
    Ok(Tlv::nested(field.code, children.into_iter().map(child).collect::<Result<Vec<_>, _>>()?))
}

fn hex_bytes(value: &Toml, place: &str) -> Result<Vec<u8>> {
    let text = value.as_str().ok_or_else(|| {
        TextError::at(place, "accepted: 0x and an even number of hexadecimal digits, in quotes")
    })?;
    value::unhex(text).map_err(|error| TextError::at(place, error.to_string()))
}
