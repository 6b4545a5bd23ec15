//! Each rule fires where it should, and only there.

mod common;

use common::{bytes, secret};
use underload_docsis::check::{Finding, Rule, Severity, check};
use underload_docsis::mic::Extended;
use underload_docsis::{Config, Ending, Item, Tlv, text};

/// A file that breaks no rule.
const GOOD: &str = r#"
    NetworkAccessControl = 1
    LowLatencyDisable = 0

    [[UpstreamPacketClassification]]
    ClassifierReference = 1
    ServiceFlowReference = 2
    Ipv4PacketClassification = { IpTos = "0x010101" }
    [[UpstreamPacketClassification]]
    ClassifierReference = 2
    ServiceFlowReference = 2
    Ipv4PacketClassification = { IpTos = "0xb4b4fc" }

    [[UpstreamServiceFlow]]
    ServiceFlowReference = 1
    QosParameterSetType = 7
    AggregateServiceFlowReference = 5
    BufferControl = { TargetBuffer = 51200 }
    AqmEncodings = { SfAqmLatencyTarget = 10, AqmAlgorithm = 1 }
    [[UpstreamServiceFlow]]
    ServiceFlowReference = 2
    QosParameterSetType = 7
    AggregateServiceFlowReference = 5
    AqmEncodings = { AqmAlgorithm = 2, ImmediateAqmMaxThreshold = 1000 }

    [[DownstreamServiceFlow]]
    ServiceFlowReference = 3
    QosParameterSetType = 7

    [[UpstreamAggregateServiceFlow]]
    AggregateServiceFlowReference = 5
    MaximumSustainedTrafficRate = 10_000_000
    LowLatencyAggregateServiceFlowEncodings = { LowLatencyServiceFlowReference = 2 }

    [[VendorSpecific]]
    VendorIdentifier = "0xffffff"
    [VendorSpecific.ExtendedCmtsMicConfiguration]
    ExtendedCmtsMicHmacType = 1
    ExtendedCmtsMicBitmap = "0x120003c0001000000200001000"
"#;

fn sealed(toml: &str) -> Vec<u8> {
    let mut config = text::from_toml(toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    config.seal(Some(&secret())).unwrap();
    config.encode().unwrap()
}

fn findings(file: &[u8]) -> Vec<Finding> {
    check(file, Some(&secret()))
}

fn rules(file: &[u8]) -> Vec<&'static str> {
    findings(file).iter().map(|finding| finding.rule.id()).collect()
}

/// Returns the rules that are violated when one piece of the valid text is replaced.
fn with(from: &str, to: &str) -> Vec<&'static str> {
    assert!(GOOD.contains(from), "{from}");
    rules(&sealed(&GOOD.replacen(from, to, 1)))
}

#[test]
fn a_good_file_breaks_no_rule() {
    assert_eq!(findings(&sealed(GOOD)), []);
}

#[test]
fn rule_numbers_are_unique_and_rise() {
    assert!(Rule::ALL.is_sorted_by(|a, b| a.id() < b.id()));
}

#[test]
fn buffers() {
    let buffer = |settings: &str| with("TargetBuffer = 51200", settings);
    assert_eq!(buffer("MinimumBuffer = 20000, MaximumBuffer = 100"), ["D301", "D304"]);
    assert_eq!(buffer("MaximumBuffer = 16384, TargetBuffer = 51200"), ["D302", "D304"]);
    assert_eq!(buffer("MinimumBuffer = 24577"), ["D303", "D304"]);
    assert_eq!(buffer("MinimumBuffer = 24576"), ["D304"]);
    assert_eq!(buffer(""), ["D309"]);
    let flow = "QosParameterSetType = 7\n    AggregateServiceFlowReference = 5\n    BufferControl";
    let grants = flow.replace("\n    Buffer", "\n    ServiceFlowSchedulingType = 6\n    Buffer");
    assert_eq!(with(flow, &grants), ["D305"]);
    let down = "ServiceFlowReference = 3\n";
    assert_eq!(with(down, &format!("{down}BufferControl = {{ TargetBuffer = 1 }}\n")), ["D308"]);
    let rates =
        "MaximumSustainedTrafficRate = 2_000_000\n    PeakTrafficRate = 1_000_000\n    Buffer";
    assert_eq!(with(flow, &flow.replace("Buffer", rates)), ["D313"]);
}

/// 3044 bytes, the default, every 2 ms are 12.176 Mbit/s.
#[test]
fn a_maximum_traffic_burst_below_a_map_interval_caps_the_rate() {
    let flow = "QosParameterSetType = 7\n    AggregateServiceFlowReference = 5\n    BufferControl";
    let rate = |rates: &str| with(flow, &flow.replace("Buffer", &format!("{rates}\n    Buffer")));
    assert_eq!(rate("MaximumSustainedTrafficRate = 12_176_000"), [""; 0]);
    assert_eq!(rate("MaximumSustainedTrafficRate = 12_176_001"), ["D314"]);
    let burst = "MaximumSustainedTrafficRate = 20_000_000\n    MaximumTrafficBurst =";
    assert_eq!(rate(&format!("{burst} 5000")), [""; 0]);
    assert_eq!(rate(&format!("{burst} 4999")), ["D314"]);
}

#[test]
fn queue_management() {
    let aqm = |settings: &str| with("SfAqmLatencyTarget = 10, AqmAlgorithm = 1", settings);
    assert_eq!(aqm("SfAqmDisable = 1, SfAqmLatencyTarget = 10"), ["D306"]);
    assert_eq!(aqm("SfAqmDisable = 1"), [""; 0], "no rate is known to judge the buffer by");
    assert_eq!(aqm("LatencyHistogramEncodings = [20, 10]"), ["D310"]);
    assert_eq!(aqm("AqmAlgorithm = 1, ImmediateAqmMaxThreshold = 1000"), ["D311"]);
    let slow = GOOD
        .replacen("BufferControl", "MaximumSustainedTrafficRate = 1_000_000\n    BufferControl", 1)
        .replacen("SfAqmLatencyTarget = 10, AqmAlgorithm = 1", "SfAqmDisable = 1", 1);
    let found = findings(&sealed(&slow));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("409 ms"), "{}", found[0]);
    let off = with("LowLatencyDisable = 0", "LowLatencyDisable = 0\nCmUpstreamAqmDisable = 1");
    assert_eq!(off, ["D205", "D312", "D312"], "and the bitmap does not cover type 76");
}

#[test]
fn low_latency() {
    assert_eq!(with("LowLatencyDisable = 0", "LowLatencyDisable = 1"), ["D405"]);
    assert_eq!(with("\"0x010101\"", "\"0x010103\""), ["D406"]);
    assert_eq!(with("IpTos = \"0xb4b4fc\"", "IpProtocol = 17"), ["D407"]);
    assert_eq!(with("AqmAlgorithm = 2, Imm", "AqmAlgorithm = 1, Imm"), ["D311", "D408"]);
    assert_eq!(
        with("LowLatencyServiceFlowReference = 2", "LowLatencyServiceFlowReference = 9"),
        ["D402", "D408"]
    );
    let classifiers = GOOD.replace(
        "    ServiceFlowReference = 2\n    Ipv4",
        "    ServiceFlowReference = 1\n    Ipv4",
    );
    assert_eq!(rules(&sealed(&classifiers)), ["D403"]);
    let alone = GOOD.replacen("AggregateServiceFlowReference = 5", "", 1);
    assert_eq!(rules(&sealed(&alone)), ["D409"]);
    let coupled = |factor| {
        let member = "LowLatencyServiceFlowReference = 2";
        with(member, &format!("{member}, AqmCouplingFactor = {factor}"))
    };
    assert_eq!(coupled(1), ["D410"]);
    assert_eq!(coupled(19), ["D410"]);
    assert_eq!([coupled(20), coupled(255)], [[""; 0]; 2]);
    let second = "AggregateServiceFlowReference = 5\n    AqmEncodings";
    assert_eq!(with(second, "AqmEncodings"), ["D404"]);
    assert_eq!(with(second, &second.replace('5', "6")), ["D404", "D402"]);
    assert_eq!(with("ServiceFlowReference = 3", "ServiceFlowReference = 1"), ["D401"]);
}

#[test]
fn integrity() {
    let file = sealed(GOOD);
    assert_eq!(check(&file, None).iter().map(|f| f.rule.id()).collect::<Vec<_>>(), ["D203"]);
    let other = underload_docsis::mic::Secret::new(b"other");
    assert_eq!(
        check(&file, Some(&other)).iter().map(|f| f.rule.id()).collect::<Vec<_>>(),
        ["D202"]
    );
    let mut changed = file.clone();
    changed[2] = 0;
    assert_eq!(rules(&changed), ["D201", "D202"]);

    assert_eq!(with("0x120003c0001000000200001000", "0x120003c0001000000000001000"), ["D204"]);
    assert_eq!(with("0x120003c0001000000200001000", "0x120003c00010000002"), ["D205"]);
    let multicast = "LowLatencyDisable = 0\n\
        [[CMTSStaticMulticastSessionEncodings]]\nCMTSStaticMulticastSessionGroup = \"232.0.0.1\"\n";
    assert_eq!(with("LowLatencyDisable = 0\n", multicast), ["D205"], "types for the CMTS");
    let shared = with("[VendorSpecific.Ext", "CmLoadBalancingGroupId = 1\n    [VendorSpecific.Ext");
    assert_eq!(shared, ["D206"]);

    let mut config = text::from_toml(GOOD).unwrap();
    config.items.retain(|item| !matches!(item, Item::Tlv(tlv) if tlv.code == 43));
    let without = config.clone();
    config.seal(Some(&secret())).unwrap();
    assert_eq!(rules(&config.encode().unwrap()), ["D204", "D205"]);
    let mut mmh = without.clone();
    let field = Tlv::nested(6, [Tlv::u8(1, 2), Tlv::bytes(2, [0xff; 12])]);
    mmh.items.push(Item::Tlv(Tlv::nested(43, [Tlv::bytes(8, [0xff; 3]), field])));
    mmh.seal(None).unwrap();
    assert_eq!(rules(&mmh.encode().unwrap()), ["D110", "D207"]);
}

#[test]
fn an_explicit_digest_that_does_not_fit_is_found() {
    let covering = Extended::covering([3, 22, 24, 25, 43, 70, 91]);
    let Tlv { value: underload_docsis::Value::Nested(mut parts), .. } = covering else {
        panic!("an extension field is an aggregate");
    };
    let underload_docsis::Value::Nested(inner) = &mut parts[1].value else { panic!("43.6") };
    inner.push(Tlv::bytes(3, [0; 16]));
    let mut config = text::from_toml(GOOD).unwrap();
    config.items.retain(|item| !matches!(item, Item::Tlv(tlv) if tlv.code == 43));
    config.items.push(Item::Tlv(Tlv::nested(43, parts)));
    config.seal(Some(&secret())).unwrap();
    let mut file = config.encode().unwrap();
    assert_eq!(rules(&file), [""; 0]);
    let digest = config.walk().iter().find(|n| n.path.codes() == "43.6.3").unwrap().offset + 2;
    file[digest] ^= 1;
    assert_eq!(rules(&file), ["D208", "D201", "D202"]);
}

#[test]
fn structure() {
    assert_eq!(rules(&bytes(&["18 05"])), ["D101"]);
    let base = text::from_toml(GOOD).unwrap();
    let file = |change: &dyn Fn(&mut Config)| {
        let mut config = base.clone();
        config.seal(Some(&secret())).unwrap();
        change(&mut config);
        rules(&config.encode().unwrap())
    };
    assert_eq!(file(&|config| config.ending = Ending::Missing), ["D102"]);
    let more = |config: &mut Config| {
        if let Ending::Marker { pads } = &mut config.ending {
            *pads += 1;
        }
    };
    assert_eq!(file(&more), ["D103"]);
    assert_eq!(file(&|config| config.items.extend(vec![Item::Pad; 4])), ["D112"]);

    let added = |tlv: Tlv| {
        let mut config = base.clone();
        config.items.insert(0, Item::Tlv(tlv));
        config.seal(Some(&secret())).unwrap();
        rules(&config.encode().unwrap())
    };
    assert_eq!(added(Tlv::u8(3, 1)), ["D104"]);
    assert_eq!(added(Tlv::u16(18, 1)), ["D105", "D205"]);
    assert_eq!(added(Tlv::u8(18, 0)), ["D106", "D205"]);
    assert_eq!(added(Tlv::bytes(200, [1])), ["D107"]);
    assert_eq!(added(Tlv::bytes(200, [1; 255])), ["D108", "D107"]);
    assert_eq!(added(Tlv::bytes(103, [1; 9000])), ["D109", "D107"]);
    assert_eq!(added(Tlv::nested(4, [])), ["D111", "D205"]);
    // A vendor's field as deployed modems have it: its bytes are no list of settings.
    let of_vendor = bytes(&["0803 0000ca 3010 0108 0000"]);
    assert_eq!(added(Tlv::bytes(43, of_vendor.clone())), ["D113"]);
    let of_nobody = [&[8, 3, 0xff, 0xff, 0xff], &of_vendor[5..]].concat();
    assert_eq!(added(Tlv::bytes(43, of_nobody)), ["D106", "D101"]);
    assert_eq!(rules(&bytes(&["ff 000000"])), ["D110"; 5]);
}

#[test]
fn findings_name_rule_severity_place_and_fix() {
    let file =
        sealed(&GOOD.replacen("TargetBuffer = 51200", "MinimumBuffer = 5, MaximumBuffer = 4", 1));
    let found = &findings(&file)[0];
    assert_eq!(found.severity, Severity::Error);
    assert_eq!(file[found.offset], 35);
    assert_eq!(
        found.to_string(),
        format!(
            "D301 error: byte {}, UpstreamServiceFlow[1].BufferControl (24.35): minimum 5 is above \
             maximum 4: every modem refuses\n     fix: swap the two, or leave both out",
            found.offset
        )
    );
}
