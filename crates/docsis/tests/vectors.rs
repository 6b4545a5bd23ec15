//! Bytes that an independent encoder made: decoded, encoded, sealed and written as text.

mod common;

use common::{bytes, files, secret};
use underload_docsis::describe::{Setting, Spelled};
use underload_docsis::qos::{
    AqmAlgorithm, AqmEncodings, BufferControl, Direction, Rates, ServiceFlow,
};
use underload_docsis::{Config, Tlv, text};

#[test]
fn files_have_the_published_lengths() {
    let lengths: Vec<_> = files().iter().map(|(_, file)| file.len()).collect();
    assert_eq!(lengths, [160, 260, 284, 56]);
}

#[test]
fn decoding_and_encoding_preserves_every_file() {
    for (name, file) in files() {
        let config = Config::decode(&file).expect(name);
        assert_eq!(config.encode().expect(name), file, "{name}");
    }
}

#[test]
fn sealing_computes_the_same_mics_and_pads() {
    for (name, file) in files() {
        let mut config = Config::decode(&file).expect(name);
        config.seal(Some(&secret())).expect(name);
        assert_eq!(config.encode().expect(name), file, "{name}");
    }
}

#[test]
fn another_secret_or_another_setting_gives_other_mics() {
    let file = bytes(&[common::BUFFER_CONTROL]);
    let mut config = Config::decode(&file).unwrap();
    config.seal(Some(&underload_docsis::mic::Secret::new(b"bufferbloat2"))).unwrap();
    let resealed = config.encode().unwrap();
    assert_eq!(resealed[..file.len() - 18 - 2], file[..file.len() - 18 - 2], "CM MIC has no key");
    assert_ne!(resealed, file);
}

#[test]
fn toml_preserves_every_file() {
    for (name, file) in files() {
        let text = text::to_toml(&Config::decode(&file).expect(name));
        let config =
            text::from_toml(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert_eq!(config.encode().expect(name), file, "{name}\n{text}");
    }
}

#[test]
fn the_main_form_and_sealing_preserve_every_file() {
    for (name, file) in files() {
        let text = text::to_main(&Config::decode(&file).expect(name));
        let mut config =
            text::from_main(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        config.seal(Some(&secret())).expect(name);
        assert_eq!(config.encode().expect(name), file, "{name}\n{text}");
    }
}

/// The files of the vectors, written by hand from their description alone.
#[test]
fn hand_written_text_gives_the_published_bytes() {
    let toml = r#"
        NetworkAccessControl = 1
        MaximumNumberOfCpes = 4
        DefaultUpstreamTargetBuffer = 50
        CmUpstreamAqmDisable = 0
        Order = [3, 24, 25, 18, 68, 76]

        [[UpstreamServiceFlow]]
        ServiceFlowReference = 1
        QosParameterSetType = 7
        MaximumSustainedTrafficRate = 10_000_000
        MaximumTrafficBurst = 40960
        PeakTrafficRate = 12_000_000
        BufferControl = { MinimumBuffer = 8192, TargetBuffer = 51200, MaximumBuffer = 131072 }
        AqmEncodings = { SfAqmDisable = 0, SfAqmLatencyTarget = 10, AqmAlgorithm = 1 }

        [[DownstreamServiceFlow]]
        ServiceFlowReference = 2
        QosParameterSetType = 7
        ServiceClassName = "ds100"
        MaximumSustainedTrafficRate = 100_000_000
        MaximumTrafficBurst = 3044
        PeakTrafficRate = 120_000_000
        BufferControl = { TargetBuffer = 1048576 }
        AqmEncodings = { SfAqmDisable = 0, SfAqmLatencyTarget = 15 }
    "#;
    let main = r#"
        Main {
            NetworkAccess 1;
            UsServiceFlow {
                UsServiceFlowRef 1; QosParamSetType 7;
                MaxRateSustained 10000000; MaxTrafficBurst 40960; UpstreamPeakTrafficRate 12000000;
                BufferControl { MinimumBuffer 8192; TargetBuffer 51200; MaximumBuffer 131072; }
                AQMEncodings { SFAQMDisable 0; SFAQMLatencyTarget 10; AQMAlgorithm 1; }
            }
            DsServiceFlow {
                DsServiceFlowRef 2; QosParamSetType 7; ServiceClassName "ds100";
                MaxRateSustained 100000000; MaxTrafficBurst 3044;
                DownstreamPeakTrafficRate 120000000;
                BufferControl { TargetBuffer 1048576; } /* 1 MiB */
                AQMEncodings { SFAQMDisable 0; SFAQMLatencyTarget 15; }
            }
            MaxCPE 4; DefaultUpstreamTargetBuffer 50; CMUpstreamAQMDisable 0;
        }
    "#;
    for config in [text::from_toml(toml), text::from_main(main)] {
        let mut config = config.unwrap();
        config.seal(Some(&secret())).unwrap();
        assert_eq!(config.encode().unwrap(), bytes(&[common::BUFFER_CONTROL]));
    }
}

#[test]
fn settings_have_their_names_units_and_values() {
    let config = Config::decode(&bytes(&[common::BUFFER_CONTROL])).unwrap();
    let description = config.describe();
    assert_eq!((description.bytes, description.end_marker, description.pads), (160, true, 1));
    let find = |tlvs: &[Setting], name: &str| {
        tlvs.iter().find(|setting| setting.name == name).cloned().unwrap()
    };
    let flow = find(&description.tlvs, "UpstreamServiceFlow");
    let buffer = find(&flow.tlvs, "BufferControl");
    let target = find(&buffer.tlvs, "TargetBuffer");
    assert_eq!(target.value, Some(Spelled::Number(51_200)));
    assert_eq!((target.unit, target.offset, target.length), ("bytes", 38, 4));
}

#[test]
fn service_flows_have_the_settings_of_the_file() {
    let config = Config::decode(&bytes(&[common::BUFFER_CONTROL])).unwrap();
    let flow = ServiceFlow::from_tlv(config.settings_of_type(24).next().unwrap()).unwrap();
    let mut expected = ServiceFlow::new(Direction::Upstream, 1);
    expected.rates = Rates {
        sustained_bit_per_s: Some(10_000_000),
        burst_bytes: Some(40_960),
        peak_bit_per_s: Some(12_000_000),
    };
    expected.buffer =
        Some(BufferControl { minimum: Some(8192), target: Some(51_200), maximum: Some(131_072) });
    expected.aqm = Some(AqmEncodings {
        disable: Some(false),
        latency_target_ms: Some(10),
        algorithm: Some(AqmAlgorithm::DocsisPie),
        ..AqmEncodings::default()
    });
    assert_eq!(flow, expected);
    assert_eq!(
        Config::new([flow.to_tlv()]).encode().unwrap()[..58],
        bytes(&[common::BUFFER_CONTROL])[3..61]
    );
}

#[test]
fn histograms_have_one_or_two_edges() {
    let aqm = |edges: &[u16]| AqmEncodings { histogram_edges: edges.to_vec(), ..<_>::default() };
    let encoded = |tlv: Tlv| Config::new([Tlv::nested(24, [tlv])]).encode().unwrap();
    assert_eq!(encoded(aqm(&[20, 40]).to_tlv()), bytes(&["1808 2806 0604 00140028 ff"]));
    let one = text::from_main(
        "Main { UsServiceFlow { AQMEncodings { LatencyHistogramEncodings 20; } } }",
    );
    assert_eq!(one.unwrap().encode().unwrap(), bytes(&["1806 2804 0602 0014 ff"]));
}
