//! Checks that decoding and encoding are inverses, and so are the text forms.

use proptest::collection::vec;
use proptest::prelude::*;
use underload_docsis::mic::Secret;
use underload_docsis::schema::{self, Field, Kind, Scope};
use underload_docsis::{Config, Ending, Item, Limits, Tlv, Value, text};

/// A value of a kind, usually one within its range.
fn leaf(kind: &'static Kind) -> BoxedStrategy<Vec<u8>> {
    let any_bytes = vec(any::<u8>(), 0..12).boxed();
    let fitting = match *kind {
        Kind::Number { width, .. } => vec(any::<u8>(), width).boxed(),
        Kind::Text { low, high } => {
            let range = low.min(20)..=high.min(20);
            range.prop_flat_map(|n| vec(b' '..=b'~', n)).boxed()
        }
        Kind::TextNul { .. } => vec(b'A'..=b'z', 2..8)
            .prop_map(|mut name| {
                name.push(0);
                name
            })
            .boxed(),
        Kind::Hex { low, high } => vec(any::<u8>(), low.min(20)..=high.min(20)).boxed(),
        Kind::List { width, low, high } => {
            (low..=high.min(15)).prop_flat_map(move |n| vec(any::<u8>(), n * width)).boxed()
        }
        Kind::Ipv4 => vec(any::<u8>(), 4).boxed(),
        Kind::Ipv4List => (1_usize..4).prop_flat_map(|n| vec(any::<u8>(), 4 * n)).boxed(),
        Kind::Ipv6 => vec(any::<u8>(), 16).boxed(),
        Kind::Ipv6List => (1_usize..4).prop_flat_map(|n| vec(any::<u8>(), 16 * n)).boxed(),
        Kind::Ipv6PrefixList => (1_usize..4).prop_flat_map(|n| vec(any::<u8>(), 17 * n)).boxed(),
        Kind::Ip => prop_oneof![vec(any::<u8>(), 4), vec(any::<u8>(), 16)].boxed(),
        Kind::TaggedIp => (1_u8..3, vec(any::<u8>(), 16))
            .prop_map(|(tag, bytes)| {
                let length = if tag == 1 { 4 } else { 16 };
                [&[tag], &bytes[..length]].concat()
            })
            .boxed(),
        Kind::Empty => Just(Vec::new()).boxed(),
        Kind::Transport | Kind::Mac => vec(any::<u8>(), 6).boxed(),
        Kind::MacMask => vec(any::<u8>(), 12).boxed(),
        Kind::Oid => Just(vec![6, 3, 0x2b, 6, 1]).boxed(),
        Kind::WriteControl => Just(vec![6, 3, 0x2b, 6, 1, 1]).boxed(),
        Kind::VarBind => any::<u8>().prop_map(|n| vec![0x30, 8, 6, 3, 0x2b, 6, 1, 2, 1, n]).boxed(),
        Kind::Aggregate(_) | Kind::Extension(_) => unreachable!("aggregates are not leaves"),
    };
    prop_oneof![9 => fitting, 1 => any_bytes].boxed()
}

fn setting(field: &'static Field, depth: usize) -> BoxedStrategy<Tlv> {
    match &field.kind {
        Kind::Aggregate(inner) => {
            settings(inner, depth + 1).prop_map(|tlvs| Tlv::nested(field.code, tlvs)).boxed()
        }
        Kind::Extension(inner) => extension(field.code, inner, depth),
        kind => leaf(kind).prop_map(|bytes| Tlv::bytes(field.code, bytes)).boxed(),
    }
}

/// The specification's own extension, or a vendor's.
fn extension(code: u8, inner: Scope, depth: usize) -> BoxedStrategy<Tlv> {
    let general = settings(inner, depth + 1).prop_map(move |mut tlvs| {
        tlvs.retain(|tlv| tlv.code != schema::VENDOR_ID);
        tlvs.insert(0, Tlv::bytes(schema::VENDOR_ID, schema::GENERAL_VENDOR));
        Tlv::nested(code, tlvs)
    });
    let vendor = vec((any::<u8>(), vec(any::<u8>(), 0..6)), 0..4).prop_map(move |parts| {
        let own = parts.into_iter().filter(|(code, _)| *code != schema::VENDOR_ID);
        let own = own.map(|(code, bytes)| Tlv::bytes(code, bytes));
        let id = Tlv::bytes(schema::VENDOR_ID, [0, 0, 0x0c]);
        Tlv::nested(code, std::iter::once(id).chain(own))
    });
    prop_oneof![general, vendor].boxed()
}

/// A few settings of an aggregate in random order, sometimes including unknown types.
fn settings(scope: Scope, depth: usize) -> BoxedStrategy<Vec<Tlv>> {
    let most = if depth > 2 { 3 } else { 7 };
    let known = (0..scope.len().max(1)).prop_flat_map(move |index| match scope.get(index) {
        Some(field) => setting(field, depth),
        None => Just(Tlv::bytes(200, [])).boxed(),
    });
    let unknown = (1_u8..=254, vec(any::<u8>(), 0..6))
        .prop_filter("a known type", move |(code, _)| schema::find(scope, *code).is_none())
        .prop_map(|(code, bytes)| Tlv::bytes(code, bytes));
    vec(prop_oneof![8 => known, 1 => unknown], 0..most).boxed()
}

fn fits(tlv: &Tlv) -> bool {
    match &tlv.value {
        Value::Bytes(bytes) => bytes.len() <= 255,
        Value::Nested(children) => {
            children.iter().all(fits)
                && Config::new([Tlv::nested(1, children.clone())]).encode().is_ok()
        }
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let item = prop_oneof![
        12 => settings(schema::top(), 1).prop_map(|tlvs| {
            tlvs.into_iter().filter(fits).map(Item::Tlv).collect::<Vec<_>>()
        }),
        1 => Just(vec![Item::Pad]),
    ];
    let ending = prop_oneof![
        4 => (0_usize..6).prop_map(|pads| Ending::Marker { pads }),
        1 => Just(Ending::Missing),
    ];
    (vec(item, 0..12), ending)
        .prop_map(|(items, ending)| Config { items: items.concat(), ending })
        .prop_filter("a PacketCable file", |config| first_code(config) != Some(254))
}

/// The type of the first setting, pads and MICs aside.
fn first_code(config: &Config) -> Option<u8> {
    config.items.iter().find_map(|item| match item {
        Item::Tlv(tlv) if !matches!(tlv.code, 6 | 7) => Some(tlv.code),
        _ => None,
    })
}

fn lenient(bytes: &[u8]) -> Config {
    Config::decode_lenient(bytes, &Limits::default()).expect("a readable file").0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn decoding_undoes_encoding(config in configs()) {
        let bytes = config.encode().unwrap();
        prop_assert_eq!(lenient(&bytes), config);
    }

    #[test]
    fn encoding_undoes_decoding(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok((config, _)) = Config::decode_lenient(&bytes, &Limits::default()) {
            prop_assert_eq!(config.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn toml_keeps_every_byte(config in configs()) {
        let text = text::to_toml(&config);
        let read = text::from_toml(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(read.encode().unwrap(), config.encode().unwrap(), "{}", text);
    }

    #[test]
    fn the_main_form_keeps_every_setting(mut config in configs()) {
        let secret = Secret::new(b"s");
        // Type 254 would begin an adapter's file if the settings before it were missing.
        let kept = |item: &Item| matches!(item, Item::Tlv(tlv) if !matches!(tlv.code, 6 | 7 | 254));
        config.items.retain(kept);
        config.ending = Ending::default();
        let text = text::to_main(&config);
        let mut read =
            text::from_main(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&read, &config, "{}", text);
        if read.seal(Some(&secret)).is_ok() {
            config.seal(Some(&secret)).unwrap();
            prop_assert_eq!(read.encode().unwrap(), config.encode().unwrap());
            prop_assert_eq!(config.encode().unwrap().len() % 4, 0);
        }
    }

    #[test]
    fn sealed_files_keep_their_mics_through_decoding(mut config in configs()) {
        let secret = Secret::new(b"s");
        if config.seal(Some(&secret)).is_ok() {
            let read = lenient(&config.encode().unwrap());
            let stored = |code| {
                let setting = read.settings_of_type(code).next();
                setting.and_then(Tlv::as_bytes).map(<[u8]>::to_vec)
            };
            prop_assert_eq!(stored(6), Some(read.cm_mic().unwrap().to_vec()));
            prop_assert_eq!(stored(7), Some(read.cmts_mic(&secret).unwrap().to_vec()));
        }
    }

    #[test]
    fn places_are_where_the_bytes_are(config in configs()) {
        let bytes = config.encode().unwrap();
        for node in config.walk() {
            prop_assert_eq!(bytes[node.offset], node.tlv.code, "{}", node.path);
        }
        prop_assert_eq!(config.describe().bytes, bytes.len());
    }

    #[test]
    fn checks_never_panic_and_place_findings_inside_the_file(bytes in vec(any::<u8>(), 0..200)) {
        for finding in underload_docsis::check::check(&bytes, Some(&Secret::new(b"s"))) {
            prop_assert!(finding.offset <= bytes.len());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\PC\n]{0,200}") {
        let _ = text::from_toml(&text);
        let _ = text::from_main(&text);
        let _ = text::from_main(&format!("Main {{ {text} }}"));
    }
}

/// Checks the premise of these properties: the generated files are not trivial.
#[test]
fn generated_files_have_depth_and_variety() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut settings, mut deep, mut unnamed, mut raw) = (0, 0, 0, 0);
    for _ in 0..200 {
        let config = configs().new_tree(&mut runner).unwrap().current();
        let (_, defects) =
            Config::decode_lenient(&config.encode().unwrap(), &Limits::default()).unwrap();
        raw += defects.len();
        for node in config.walk() {
            settings += 1;
            deep += usize::from(node.path.codes().matches('.').count() >= 2);
            unnamed += usize::from(node.field.is_none());
        }
    }
    let counts = [settings, deep, unnamed, raw];
    assert!(counts.iter().all(|count| *count >= 100), "{counts:?}");
}
