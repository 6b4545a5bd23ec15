//! Bytes and texts that are not configuration files: errors must name the place, without a panic.

mod common;

use common::bytes;
use underload_docsis::{Config, Item, Limits, Tlv, text};

fn refusal(file: &str) -> String {
    Config::decode(&bytes(&[file])).expect_err("a defect").to_string()
}

#[test]
fn truncated_files_name_the_byte_and_the_path() {
    assert_eq!(
        refusal("030101 18"),
        "byte 3, UpstreamServiceFlow[1] (24): truncated: the file ends after the type"
    );
    assert!(refusal("030101 1805 01020001").starts_with("byte 3, UpstreamServiceFlow[1] (24): "));
    assert_eq!(
        refusal("1809 01020001 ff"),
        "byte 0, UpstreamServiceFlow[1] (24): overlong or truncated: the length is 9 bytes, \
         5 are left"
    );
}

#[test]
fn every_prefix_of_a_file_is_read_or_refused_inside_it() {
    for (name, file) in common::files() {
        for length in 0..file.len() {
            if let Err(error) = Config::decode(&file[..length]) {
                assert!(error.offset < length, "{name} cut to {length}: {error}");
            }
        }
    }
}

#[test]
fn inner_lengths_may_not_reach_past_their_aggregate() {
    assert_eq!(
        refusal("180a 01020001 2304 0206 0000 ff"),
        "byte 8, UpstreamServiceFlow[1].BufferControl.TargetBuffer (24.35.2): overlong or \
         truncated: the length is 6 bytes, 2 are left"
    );
}

#[test]
fn duplicates_name_both_places() {
    assert_eq!(
        refusal("030101 030100 ff"),
        "byte 3, NetworkAccessControl[2] (3): present twice; the first is at byte 0; keep one"
    );
    let inner = refusal("1808 01020001 01020002 ff");
    assert!(inner.contains("ServiceFlowReference[2] (24.1): present twice"), "{inner}");
    let inner = refusal("1812 01020001 230c 020400000001 020400000002 ff");
    assert!(inner.starts_with("byte 14, UpstreamServiceFlow[1].BufferControl.TargetBuffer[2]"));
    let repeated = "0e06 000000000001 0e06 000000000002 ff";
    assert!(Config::decode(&bytes(&[repeated])).is_ok(), "type 14 may stand several times");
}

#[test]
fn wrong_lengths_say_what_is_accepted() {
    assert_eq!(
        refusal("03020101 ff"),
        "byte 0, NetworkAccessControl (3): has 2 bytes; accepted: 1"
    );
}

#[test]
fn only_pads_may_follow_the_end() {
    assert_eq!(
        refusal("030101 ff 00 01"),
        "byte 5, the file: only zero bytes may follow the end marker"
    );
}

#[test]
fn limits_hold() {
    let deep = bytes(&["180c 01020001 2306 020400000001 ff"]);
    let limits = Limits { depth: 1, ..Limits::default() };
    let error = Config::decode_lenient(&deep, &limits).unwrap_err().to_string();
    assert_eq!(
        error,
        "byte 6, UpstreamServiceFlow[1].BufferControl (24.35): settings nested more than 1 deep"
    );
    let limits = Limits { tlvs: 3, ..Limits::default() };
    assert!(
        Config::decode_lenient(&deep, &limits).unwrap_err().to_string().contains("more than 3")
    );
    let limits = Limits { bytes: 10, ..Limits::default() };
    assert!(Config::decode_lenient(&deep, &limits).unwrap_err().to_string().contains("at most 10"));
    let nested = (0..40).fold(Tlv::u8(1, 1), |inner, _| Tlv::nested(1, [inner]));
    assert!(Config::new([nested]).encode().unwrap_err().to_string().contains("more than 8 deep"));
}

#[test]
fn values_that_do_not_fit_their_length_are_not_encoded() {
    let long = Config::new([Tlv::nested(24, [Tlv::bytes(43, vec![0; 254])])]).encode().unwrap_err();
    assert!(long.to_string().contains("256 bytes; at most 255 fit"), "{long}");
    let wide = Config::new([Tlv::bytes(103, vec![0; 300])]).encode().unwrap();
    assert_eq!(wide[..3], [103, 1, 44]);
    assert_eq!(
        Config::decode(&wide)
            .unwrap()
            .settings_of_type(103)
            .next()
            .unwrap()
            .as_bytes()
            .unwrap()
            .len(),
        300
    );
    assert!(Config::new([Tlv::bytes(255, [])]).encode().is_err(), "the end marker is no setting");
}

#[test]
fn telephone_adapter_files_are_rejected() {
    assert!(refusal("fe0101 ff").contains("PacketCable"));
    // The text form leaves pads and MICs out, so the bytes encoded from it would start with 254, as
    // an adapter's file does.
    assert!(refusal("00 fe0101").contains("PacketCable"));
    assert!(refusal(&format!("0610{0} 00 fe0101 ff", "00".repeat(16))).contains("PacketCable"));
    assert!(Config::decode(&bytes(&["030101 fe0101 ff"])).is_ok());
}

#[test]
fn pads_vendor_settings_and_unknown_types_stay_where_they_are() {
    let file =
        bytes(&["00 030101 00 c80201ff 2b0a 080300000c 0103000000 2b05 0803001122 ff 000000"]);
    let config = Config::decode(&file).unwrap();
    assert_eq!(config.items.iter().filter(|item| **item == Item::Pad).count(), 2);
    assert_eq!(config.encode().unwrap(), file);
    let toml = text::to_toml(&config);
    assert_eq!(text::from_toml(&toml).unwrap().encode().unwrap(), file, "{toml}");
}

#[test]
fn vendor_fields_may_have_bytes_that_are_not_settings() {
    let file = bytes(&["2b07 080300000c 01ff ff"]);
    let config = Config::decode(&file).unwrap();
    assert_eq!(config.encode().unwrap(), file);
}

#[test]
fn toml_errors_name_the_key_and_what_is_accepted() {
    let message = |text: &str| text::from_toml(text).expect_err("a mistake").to_string();
    assert_eq!(
        message("[[UpstreamServiceFlow]]\nBufferControl = { TargetBuffer = 4294967296 }"),
        "line 2, UpstreamServiceFlow[1].BufferControl.TargetBuffer: `4294967296` is not accepted \
         here; \
         accepted: a whole number from 0 to 4294967295, in bytes"
    );
    assert!(message("MaxCPE = 1").contains("write MaximumNumberOfCpes"));
    assert!(message("NetworkAcessControl = 1").contains("did you mean NetworkAccessControl?"));
    assert!(message("NetworkAccessControl = \"1\"").contains("accepted: a whole number"));
    let wrong_type = message("[[UpstreamServiceFlow]]\nMaximumSustainedTrafficRate = \"10mbit\"");
    assert!(wrong_type.ends_with("from 0 to 4294967295, in bit/s"), "{wrong_type}");
    let main = "Main { UsServiceFlow { MaxRateSustained 10mbit; } }";
    let wrong_type = text::from_main(main).expect_err("a mistake").to_string();
    assert!(wrong_type.ends_with("from 0 to 4294967295, in bit/s"), "{wrong_type}");
    assert!(message("NetworkAccessControl = ").contains("line 1"));
    let syntax = message(&format!("\n{}", "[".repeat(10_000)));
    assert!(syntax.starts_with("line 2: ") && syntax.len() < 200, "{syntax}");
    let second = "[[UpstreamServiceFlow]]\n\n[[UpstreamServiceFlow]]\nSfAqmDisable = 1\n";
    assert!(message(second).starts_with("line 4, UpstreamServiceFlow[2].SfAqmDisable: unknown"));
    let listed = "[VendorSpecific]\nOrder = [1,\n 2]\n";
    assert!(message(listed).starts_with("line 2, VendorSpecific.Order: lists type 1"));
    let element = "CpeEthernetMacAddress = [\n  \"00:00:5e:00:53:01\",\n  1,\n]\n";
    assert!(message(element).starts_with("line 3, CpeEthernetMacAddress[2]: accepted"));
    assert!(message("\"a.b\" = 1").starts_with("a.b: unknown"), "a place that no line has");
    assert!(message("Order = [3]").contains("lists type 3 more often"));
    assert!(message("Tlv99 = \"0x123\"").contains("even number"));
    assert!(message("[[VendorSpecific]]\nExtendedCmtsMicConfiguration = {}").contains("0xffffff"));
}

#[test]
fn main_errors_name_the_line_and_what_is_accepted() {
    let message = |text: &str| text::from_main(text).expect_err("a mistake").to_string();
    assert!(
        message("Main {\n TargetBuffer 1; }")
            .starts_with("line 2: Main has no setting TargetBuffer")
    );
    assert!(
        message("Main {\n\n MaxCpe 1; }")
            .contains("line 3: Main has no setting MaxCpe; did you mean MaxCPE?")
    );
    assert!(message("Main { NetworkAccess 1;").contains("a } is missing"));
    assert!(message("Main { SwUpgradeFilename \"x; }").contains("a string starts here"));
    assert!(message("Main { /* }").contains("no */ follows"));
    assert!(
        message("Main { GenericTLV TlvCode 9 TlvLength 2 TlvValue 0x01; }").contains("has 1 bytes")
    );
    assert!(message("Main { SnmpMibObject sysContact.0 String \"x\"; }").contains("numeric"));
    assert!(message("Main { ManufacturerCVC \"file\"; }").contains("reads another file"));
    let deep = format!("Main {{ {} {} }}", "GenericTLV TlvCode 43 { ".repeat(20), "}".repeat(20));
    assert!(message(&deep).contains("more than 8 deep"));
}

#[test]
fn a_type_without_a_name_is_written_by_number() {
    let text = "Main { GenericTLV TlvCode 200 TlvString \"ab\"; \
        GenericTLV TlvCode 201 TlvStringZero \"ab\"; \
        GenericTLV TlvCode 202 TlvType Short TlvValue 258; \
        GenericTLV TlvCode 43 { GenericTLV TlvCode 8 TlvLength 3 TlvValue 0x00000c; } }";
    let encoded = text::from_main(text).unwrap().encode().unwrap();
    assert_eq!(encoded, bytes(&["c8026162 c903616200 ca020102 2b05080300000c ff"]));
}

#[test]
fn roots_of_object_names_and_names_in_quotes_are_read() {
    let encoded = |setting: &str| {
        let text = format!("Main {{ {setting} }}");
        text::from_main(&text).expect(setting).encode().expect(setting)
    };
    for (named, numeric) in [
        ("iso.3.6.1.2.1.69.1.3.1.0", ".1.3.6.1.2.1.69.1.3.1.0"),
        ("mib-2.69.1.5.8.1.7.4", ".1.3.6.1.2.1.69.1.5.8.1.7.4"),
        ("SNMPv2-SMI::enterprises.4115.1.3", ".1.3.6.1.4.1.4115.1.3"),
    ] {
        let object = |name: &str| encoded(&format!("SnmpMibObject {name} Integer 1;"));
        assert_eq!(object(named), object(numeric), "{named}");
    }
    let vpn = |id: &str| {
        encoded(&format!(
            "VendorSpecific {{ VendorIdentifier 0xffffff; L2VPNEncoding {{ VPNIdentifier {id}; }} }}"
        ))
    };
    assert_eq!(vpn("\"VLAN100\""), vpn("0x564c414e313030"));
}

/// A name turns raw bytes into settings: a file that was accepted must not become one with too many
/// settings.
#[test]
fn empty_settings_up_to_the_limit_are_decoded_checked_and_described() {
    let inner = Tlv::nested(5, vec![Tlv::bytes(1, []); 120]);
    let field = Tlv::nested(43, [Tlv::bytes(8, [0xff; 3]), inner]);
    let file = Config::new(vec![field; 526]).encode().unwrap();
    assert!((130_000..131_072).contains(&file.len()), "{}", file.len());
    let (config, defects) = Config::decode_lenient(&file, &Limits::default()).unwrap();
    assert!(config.walk().len() > 60_000 && !defects.is_empty());
    assert!(!underload_docsis::check::check(&file, Some(&common::secret())).is_empty());
    assert_eq!(text::from_toml(&text::to_toml(&config)).unwrap().encode().unwrap(), file);
    assert_eq!(text::from_main(&text::to_main(&config)).unwrap().encode().unwrap(), file);
}

/// The work must not grow with the square of the file's size: this test would take minutes.
#[test]
fn files_of_the_largest_size_are_checked_and_written_as_text() {
    let flow = "1808 01020001 2402 0005";
    let classifier = "1607 03020001 0901 00";
    let aggregate = "4608 01020005 2a02 0100";
    for (name, part) in [("flows", flow), ("classifiers", classifier), ("aggregates", aggregate)] {
        let mut file = bytes(&["030101"]);
        let part = bytes(&[part]);
        while file.len() + part.len() < 40_000 {
            file.extend(&part);
        }
        let (config, _) = Config::decode_lenient(&file, &Limits::default()).expect(name);
        assert!(config.items.len() > 3_000, "{name}");
        let findings = underload_docsis::check::check(&file, Some(&common::secret()));
        assert!(!findings.is_empty(), "{name}");
        let toml = text::to_toml(&config);
        assert_eq!(text::from_toml(&toml).expect(name).encode().expect(name), file, "{name}");
    }
}
