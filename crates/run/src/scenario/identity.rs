//! What an arm says, however it is written: `10mbit` and `10000kbit` are one thing.
//!
//! Everything is written out of what was understood, not of the text: a value that is given counts
//! as much as one that holds by default. Types of other crates are taken apart without `..`, so
//! that what one of them gains cannot be forgotten here.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;
use underload_sim::application::ApplicationConfig;
use underload_sim::application::cloud_game::CloudGameConfig;
use underload_sim::application::game::GameConfig;
use underload_sim::application::interactive_video::InteractiveVideoConfig;
use underload_sim::application::video::VideoConfig;
use underload_sim::application::voip::{JitterBuffer, VoipConfig};
use underload_sim::application::web::WebConfig;

use super::flow::Flow;
use super::path::{Lane, Path};
use super::phases::Phases;

/// An arm as JSON, with a digest of each file that it names.
pub(super) fn identity(
    path: &Path,
    phases: &Phases,
    flows: &[Flow],
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<String, serde_json::Error> {
    let Path { up, down } = path;
    let lanes = |lanes: &[Lane]| lanes.iter().map(lane).collect::<Vec<_>>();
    serde_json::to_string(&(lanes(up), lanes(down), phases, flows, files))
}

fn lane(lane: &Lane) -> impl Serialize + use<> {
    let Lane { name, link, queue, is_wide } = lane;
    (name.clone(), link.meaning().to_owned(), queue.meaning(), *is_wide)
}

/// A length of time as nanoseconds.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) fn span<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    span.as_nanos().serialize(serializer)
}

/// The same where there may be none.
#[expect(clippy::ref_option, reason = "serde hands out references")]
pub(super) fn optional_span<S: Serializer>(
    span: &Option<Span>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(Span::as_nanos).serialize(serializer)
}

/// A rate as bits per second.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) fn rate<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    rate.bits_per_second().serialize(serializer)
}

/// An application with what it is set to.
pub(super) fn application<S: Serializer>(
    config: &ApplicationConfig,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let name = config.name();
    match config {
        ApplicationConfig::Voip(VoipConfig { jitter_buffer, concealment }) => {
            let (kind, length) = match jitter_buffer {
                JitterBuffer::Fixed { delay } => ("fixed", delay),
                JitterBuffer::Adaptive { max } => ("adaptive", max),
            };
            (name, kind, length.as_nanos(), concealment).serialize(serializer)
        }
        ApplicationConfig::Web(web) => {
            let WebConfig { browser, loads, pause, fetches_script, algorithm, initial_window } =
                web;
            let transport = (algorithm.name(), initial_window);
            (name, browser, loads, pause.as_nanos(), fetches_script, transport)
                .serialize(serializer)
        }
        ApplicationConfig::Game(GameConfig) => name.serialize(serializer),
        ApplicationConfig::CloudGame(CloudGameConfig { rate, least_rate, processing }) => {
            let least = least_rate.map(Rate::bits_per_second);
            (name, rate.bits_per_second(), least, processing.as_nanos()).serialize(serializer)
        }
        ApplicationConfig::Video(VideoConfig { player, buffer, algorithm }) => {
            (name, player, buffer.as_nanos(), algorithm.name()).serialize(serializer)
        }
        ApplicationConfig::InteractiveVideo(call) => {
            let InteractiveVideoConfig { direction, control, max_rate } = call;
            (name, direction, control, max_rate.bits_per_second()).serialize(serializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    /// A scenario whose two arms differ in these lines alone.
    fn of_two(one: &str, other: &str) -> Result<Scenario, String> {
        let text = format!(
            r#"
            [path]
            up = "10mbit"
            up_queue = "codel"
            [phases]
            load = "7s"
            [[flow]]
            kind = "tcp"
            congestion_control = "cubic"
            [[flow]]
            kind = "udp"
            rate = "1mbit"
            [[flow]]
            kind = "probe"
            interval = "10ms"
            [[flow]]
            kind = "voip"
            [[flow]]
            kind = "web"
            [[arm]]
            name = "one"
            path.down = "100mbit"
            path.down_queue = "fifo"
            {one}
            [[arm]]
            name = "other"
            path.down = "100mbit"
            path.down_queue = "fifo"
            {other}
            "#
        );
        Scenario::parse(&text, "case").map_err(|error| error.to_string())
    }

    /// An arm that changes nothing more.
    const NOTHING: &str = "";

    #[test]
    fn arms_that_mean_the_same_are_refused_however_they_are_written() {
        for (one, other) in [
            ("path.up = \"10mbit\"", "path.up = \"10000kbit\""),
            ("path.up = \"10mbit\"", "path.up = { name = \"rate\", rate = \"0.01gbit\" }"),
            ("path.up_queue = \"codel\"", "path.up_queue = \"codel:profile=linux\""),
            ("path.up_queue = \"codel\"", "path.up_queue = \"codel:interval=0.1s,target=5000us\""),
            ("path.up_queue = \"fifo:limit=1KiB\"", "path.up_queue = \"fifo:limit=1024B\""),
            (
                "path.up_queue = \"diffserv:low=[codel]\"",
                "path.up_queue = \"diffserv:low=[codel:profile=linux]\"",
            ),
            ("path.rtt = \"20ms\"", "path.up_delay = \"10ms\"\npath.down_delay = \"10000us\""),
            ("path.up_loss = \"1%\"", "path.up_loss = \"0.01\""),
            (NOTHING, "phases.load = \"7000ms\""),
            (NOTHING, "phases.drain = \"1s\"\nphases.ramp = \"steady\""),
            (NOTHING, "flow.tcp.count = 1\nflow.tcp.ecn = false\nflow.tcp.start = \"0s\""),
            (NOTHING, "flow.udp.rate = \"1000kbit\"\nflow.udp.packet = \"1200B\""),
            (NOTHING, "flow.probe.classes = [{ dscp = 0, ecn = \"not-ect\" }]"),
            (NOTHING, "flow.voip.jitter_buffer = \"fixed\"\nflow.voip.delay = \"40ms\""),
            (NOTHING, "flow.web.loads = 10\nflow.web.congestion_control = \"cubic\""),
        ] {
            let error = of_two(one, other).expect_err(other);
            assert!(error.contains("`one` and `other` are the same"), "{other}: {error}");
        }
    }

    #[test]
    fn arms_that_differ_in_one_value_are_two() {
        for other in [
            "path.up = \"10001kbit\"",
            "path.up_queue = \"codel:profile=rfc\"",
            "path.up_loss = \"0.0000001\"",
            "path.up_loss = \"0.0000002\"",
            "path.rtt = \"1ms\"",
            "phases.load = \"7001ms\"",
            "phases.ramp_limit = \"14s\"",
            "flow.tcp.congestion_control = \"reno\"",
            "flow.tcp.extra_rtt = \"1ns\"",
            "flow.udp.ecn = \"ect1\"",
            "flow.probe.timeout = \"4s\"",
            "flow.voip.delay = \"41ms\"",
            "flow.voip.start = \"0s\"",
            "flow.web.browser = \"firefox\"",
        ] {
            of_two(NOTHING, other).expect(other);
        }
    }

    #[test]
    fn what_is_written_otherwise_leaves_a_record_of_its_own() {
        let queue = |text: &str| {
            let arms = of_two("path.up = \"1mbit\"", &format!("path.up_queue = \"{text}\""));
            arms.expect("two arms").arms.remove(1)
        };
        let (one, other) = (queue("codel:profile=linux"), queue("codel:profile=linux,target=5ms"));
        assert_eq!(one.identity(), other.identity());
        assert_ne!(one.label(), other.label(), "the premise");
        assert_ne!(one.wording(), other.wording());
    }
}
