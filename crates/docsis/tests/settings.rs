//! Every setting that the open `docsis` encoder has a name for, as a list of facts: type, name,
//! kind and range. Each is known here under that name, and converting between text and bytes is
//! exact.

use underload_docsis::check::{Rule, check};
use underload_docsis::schema::{self, Field, Kind};
use underload_docsis::{Config, Tlv, Value, text};

const LIST: &str = include_str!("data/settings.csv");
/// Type 94, which the list gives the name of type 93. The tests therefore identify it by number.
const MISNAMED: &str = "94";
/// Maximum number of bytes of a generated value, so that it fits into every aggregate.
const LONGEST: usize = 100;

struct Fact {
    codes: Vec<u8>,
    path: &'static str,
    name: &'static str,
    kind: &'static str,
    range: Option<(u64, u64)>,
}

impl Fact {
    /// Returns whether the setting is type 94 or inside it.
    fn is_misnamed(&self) -> bool {
        self.path.split('.').next() == Some(MISNAMED)
    }
}

fn facts() -> Vec<Fact> {
    let facts = LIST.lines().skip(1).map(|line| {
        let columns: Vec<&'static str> = line.split(',').collect();
        let [path, name, kind, low, high] = columns[..] else { panic!("five columns: {line}") };
        let codes = path.split('.').map(|code| code.parse().expect(line)).collect();
        let range = low.parse().ok().zip(high.parse().ok());
        Fact { codes, path, name, kind, range }
    });
    facts.collect()
}

/// The settings from the top level down to one.
fn fields(codes: &[u8]) -> Option<Vec<&'static Field>> {
    let mut scope = schema::top();
    codes
        .iter()
        .map(|code| {
            let field = schema::find(scope, *code)?;
            scope = schema::inside(Some(field), Some(&schema::GENERAL_VENDOR));
            Some(field)
        })
        .collect()
}

/// The kind of value in the list's words.
fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Number { width, .. } => format!("number {width}"),
        Kind::List { width: 2, low: 2, high: 2 } => "two tags".into(),
        Kind::List { width, .. } => format!("list {width}"),
        Kind::Text { .. } => "text".into(),
        Kind::TextNul { .. } => "text and zero".into(),
        Kind::Hex { .. } => "bytes".into(),
        Kind::Ipv4 => "ipv4".into(),
        Kind::Ipv4List => "ipv4 list".into(),
        Kind::Ipv6 => "ipv6".into(),
        Kind::Ipv6List => "ipv6 list".into(),
        Kind::Ipv6PrefixList => "ipv6 prefixes".into(),
        Kind::Ip => "address".into(),
        Kind::TaggedIp => "tagged address".into(),
        Kind::Transport => "address and port".into(),
        Kind::Mac => "ethernet".into(),
        Kind::MacMask => "ethernet and mask".into(),
        Kind::Oid => "oid".into(),
        Kind::WriteControl => "write control".into(),
        Kind::VarBind => "binding".into(),
        Kind::Empty => "nothing".into(),
        Kind::Aggregate(_) | Kind::Extension(_) => "settings".into(),
    }
}

/// Values of a kind at the ends of its range: as the encoder's text, and as bytes.
fn values(fact: &Fact) -> Vec<(String, Vec<u8>)> {
    let hex = |digits: &str| -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        (0..digits.len()).step_by(2).map(pair).collect()
    };
    let number = |width: usize| {
        let (low, high) = fact.range.unwrap_or((0, (1 << (8 * width)) - 1));
        let one = |n: u64| (n.to_string(), n.to_be_bytes()[8 - width..].to_vec());
        vec![one(low), one(high)]
    };
    let counts = |least: usize, most: usize| {
        let (low, high) = fact.range.unwrap_or((least as u64, most as u64));
        [low as usize, high as usize].map(|count| count.clamp(least, LONGEST))
    };
    let letters = |count: usize| "aB3 -_.z".chars().cycle().take(count).collect::<String>();
    match fact.kind {
        "number 1" => number(1),
        "number 2" => number(2),
        "number 3" => number(3),
        "number 4" => number(4),
        "bytes" => {
            let bytes = |count| (1..=count).map(|n| (n * 37 % 256) as u8).collect::<Vec<u8>>();
            let one = |count| (underload_docsis::value::hex(&bytes(count)), bytes(count));
            counts(1, 20).map(one).to_vec()
        }
        "text" => {
            let one = |count| (format!("\"{}\"", letters(count)), letters(count).into_bytes());
            counts(0, 40).map(one).to_vec()
        }
        "text and zero" => {
            let one = |count| (format!("\"{}\"", letters(count)), (letters(count) + "\0").into());
            counts(1, 40).map(one).to_vec()
        }
        kind => {
            let fixed = fixed_values(kind, fact.range);
            let fixed = fixed.unwrap_or_else(|| panic!("{}: no values of kind {kind}", fact.path));
            fixed.iter().map(|(text, digits)| ((*text).to_owned(), hex(digits))).collect()
        }
    }
}

/// Values of a kind without a range: as the encoder's text, and as hexadecimal digits.
fn fixed_values(
    kind: &str,
    range: Option<(u64, u64)>,
) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match kind {
        "list 1" => &[("0,7", "0007"), ("255,0", "ff00")],
        "list 2" if range == Some((4, 10)) => &[("1,2,3,65535", "000100020003ffff")],
        "list 2" => &[("1,65535", "0001ffff")],
        "two tags" => &[("0,4094", "00000ffe"), ("65535,1", "ffff0001")],
        "ipv4" => &[("0.0.0.0", "00000000"), ("192.0.2.255", "c00002ff")],
        "ipv4 list" => &[("192.0.2.1,10.0.0.1", "c00002010a000001")],
        "ipv6" => &[
            ("::", "00000000000000000000000000000000"),
            ("2001:db8::ff", "20010db80000000000000000000000ff"),
            ("::ffff:c000:201", "00000000000000000000ffffc0000201"),
        ],
        "ipv6 list" => {
            &[("::1,fe80::", "00000000000000000000000000000001fe800000000000000000000000000000")]
        }
        "ipv6 prefixes" => &[
            ("2001:db8::/32", "20010db800000000000000000000000020"),
            (
                "::/0,fe80::1/128",
                "0000000000000000000000000000000000fe80000000000000000000000000000180",
            ),
        ],
        "address" => {
            &[("192.0.2.1", "c0000201"), ("2001:db8::1", "20010db8000000000000000000000001")]
        }
        "tagged address" => {
            &[("192.0.2.1", "01c0000201"), ("2001:db8::1", "0220010db8000000000000000000000001")]
        }
        "address and port" => &[
            ("192.0.2.1/161", "c000020100a1"),
            ("2001:db8::1/65535", "20010db8000000000000000000000001ffff"),
        ],
        "ethernet" => &[("00:00:5e:00:53:ff", "00005e0053ff")],
        "ethernet and mask" => {
            &[("00:00:5e:00:53:01/ff:ff:ff:ff:ff:ff", "00005e005301ffffffffffff")]
        }
        "oid" => &[(".1.3.6.1.2.1", "06052b06010201")],
        "write control" => &[(".1.3.6.1.2.1 1", "06052b0601020101")],
        "binding" => &[
            (".1.3.6.1.2.1 Integer 1", "300a06052b06010201020101"),
            (".1.3.6.1.2.1 String \"\"", "300906052b060102010400"),
            (".1.3.6.1.2.1 HexString 0x00ff", "300b06052b06010201040200ff"),
        ],
        "nothing" => &[("0x00", "")],
        "digest" => &[("", "000102030405060708090a0b0c0d0e0f")],
        _ => return None,
    })
}

/// The setting inside the aggregates that lead to it, as bytes and as the encoder's text.
fn wrapped(fact: &Fact, names: &[&str], value: &str, bytes: Vec<u8>) -> (Config, String) {
    let (code, outer) = fact.codes.split_last().expect("a type");
    let mut tlv = Tlv::bytes(*code, bytes);
    let mut text = format!("{} {value};", fact.name);
    for (code, name) in outer.iter().zip(names).rev() {
        if *code == 43 && tlv.code != schema::VENDOR_ID {
            tlv = Tlv::nested(43, [Tlv::bytes(schema::VENDOR_ID, schema::GENERAL_VENDOR), tlv]);
            text = format!("{name} {{ VendorIdentifier 0xffffff; {text} }}");
        } else {
            tlv = Tlv::nested(*code, [tlv]);
            text = format!("{name} {{ {text} }}");
        }
    }
    let first = Tlv::u8(200, 1);
    let other = "GenericTLV TlvCode 200 TlvType Char TlvValue 1;";
    (Config::new([first, tlv]), format!("Main {{ {other} {text} }}"))
}

#[test]
fn every_setting_of_the_list_is_known_by_name_and_kind() {
    let facts = facts();
    assert!(facts.len() > 1_500, "{} facts", facts.len());
    for fact in &facts {
        let fields = fields(&fact.codes).unwrap_or_else(|| panic!("{} is unknown", fact.path));
        let field = fields.last().expect("a field");
        if fact.path == MISNAMED {
            assert_eq!(field.main_name, "", "{}", fact.path);
        } else {
            assert_eq!(field.main_name, fact.name, "{}", fact.path);
        }
        let digest = fact.kind == "digest";
        assert!(digest || kind_name(&field.kind) == fact.kind, "{} {:?}", fact.path, field.kind);
    }
}

#[test]
fn the_ends_of_every_range_survive_bytes_and_both_texts() {
    let facts = facts();
    let named = |codes: &[u8]| facts.iter().find(|fact| fact.codes == codes).expect("named").name;
    let mut values_tried = 0;
    for fact in facts.iter().filter(|fact| fact.kind != "settings") {
        let names: Vec<_> = (1..fact.codes.len()).map(|n| named(&fact.codes[..n])).collect();
        for (value, leaf) in values(fact) {
            values_tried += 1;
            let (config, theirs) = wrapped(fact, &names, &value, leaf.clone());
            let encoded = config.encode().expect(fact.path);
            assert_eq!(Config::decode(&encoded).as_ref(), Ok(&config), "{} {theirs}", fact.path);
            let toml = text::to_toml(&config);
            assert_eq!(text::from_toml(&toml).as_ref(), Ok(&config), "{}\n{toml}", fact.path);
            if fact.kind == "digest" {
                continue;
            }
            let main = text::to_main(&config);
            assert_eq!(text::from_main(&main).as_ref(), Ok(&config), "{}\n{main}", fact.path);
            if fact.is_misnamed() {
                continue;
            }
            assert_eq!(text::from_main(&theirs).as_ref(), Ok(&config), "{}\n{theirs}", fact.path);
            let field = *fields(&fact.codes).expect(fact.path).last().expect("a field");
            if field.kind.range_problem(&leaf).is_none() {
                let line = format!("\t{} {value};\n", fact.name);
                assert!(main.contains(&line), "{value} in\n{main}");
            }
        }
    }
    assert!(values_tried > 2_000, "{values_tried} values");
}

/// The checks accept what the list allows, apart from settings that a file should not have.
#[test]
fn the_ranges_of_the_list_are_allowed_here() {
    let stricter = ["24.6", "25.6"]; // the reserved bits of QosParameterSetType
    for fact in facts().iter().filter(|fact| fact.range.is_some()) {
        let fields = fields(&fact.codes).expect(fact.path);
        let kind = &fields.last().expect("a field").kind;
        if stricter.contains(&fact.path) {
            continue;
        }
        for (value, bytes) in values(fact) {
            assert_eq!(kind.range_problem(&bytes), None, "{} {value}", fact.path);
        }
    }
}

#[test]
fn no_other_setting_has_a_name() {
    let known: std::collections::BTreeSet<_> = facts().into_iter().map(|fact| fact.codes).collect();
    let mut more = Vec::new();
    let mut open = vec![(Vec::new(), schema::top())];
    while let Some((codes, scope)) = open.pop() {
        for field in scope {
            let codes = [codes.as_slice(), &[field.code]].concat();
            if !known.contains(&codes) {
                more.push(format!("{codes:?} {}", field.name));
            }
            open.push((codes, schema::inside(Some(field), Some(&schema::GENERAL_VENDOR))));
        }
    }
    assert_eq!(more, ["[25, 39] SfToIatcProfileNameReference"]);
}

#[test]
fn reserved_bits_of_the_parameter_set_are_an_error() {
    let check = |set: u8| {
        let flow = Tlv::nested(24, [Tlv::u16(1, 1), Tlv::u8(6, set)]);
        let bytes = Config::new([Tlv::u8(3, 1), flow]).encode().expect("bytes");
        let findings = check(&bytes, None);
        findings.into_iter().find(|finding| finding.rule == Rule::D106).map(|found| found.message)
    };
    assert_eq!(check(7), None);
    assert_eq!(check(9), Some("is 9".into()));
    assert_eq!(check(0), Some("is 0".into()));
}

#[test]
fn values_that_the_encoder_refuses_by_name_are_written_by_number() {
    let main = |tlv: Tlv| {
        let config = Config::new([tlv]);
        let text = text::to_main(&config);
        assert_eq!(text::from_main(&text).as_ref(), Ok(&config), "{text}");
        text
    };
    let groups: Vec<u8> = (1..=11_u16).flat_map(u16::to_be_bytes).collect();
    assert!(main(Tlv::bytes(37, groups[..20].to_vec())).contains("SubMgmtFilters 1,2,3"));
    assert!(main(Tlv::bytes(37, groups)).contains("GenericTLV TlvCode 37 TlvLength 22"));
    assert!(main(Tlv::u32(1, 1_218_000_000)).contains("GenericTLV TlvCode 1 TlvLength 4"));
    let empty = ".1.3.6.1.2.1.1.4.0 String \"\";";
    let read = text::from_main(&format!("Main {{ SnmpMibObject {empty} }}")).expect(empty);
    assert!(text::to_main(&read).contains(empty));
    let Value::Bytes(bytes) = &read.tlvs().next().expect("a setting").value else { panic!() };
    assert!(bytes.ends_with(&[4, 0]));
}

#[test]
fn text_is_rejected_as_a_configuration_file() {
    for text in ["NetworkAccessControl = 1\n", "Main { NetworkAccess 1; }", "\u{e9}t\u{e9}"] {
        let error = Config::decode(text.as_bytes()).expect_err(text).to_string();
        assert_eq!(
            error,
            "byte 0, the file: this is text, not a modem's binary file: encode reads it"
        );
        let findings = check(text.as_bytes(), None);
        assert!(findings[0].fix.contains("encode it"), "{}", findings[0]);
    }
    let cut = [0x18, 0x05, 0x01].as_slice();
    assert!(Config::decode(cut).expect_err("cut").to_string().contains("truncated"));
}
