//! One resolved variant of a scenario.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use underload_aqm::registry::LoadFile;
use underload_record::schema::Direction;

use super::flow::{Flow, FlowKind, TcpFlow};
use super::path::{Lane, LaneQueue, Path};
use super::phases::Phases;
use super::tables::Base;
use crate::keys::{Fault, Faults};

/// A resolved variant, which a world runs once per repeat.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Unique in the scenario: the names of its variants joined by `/`, or `default`.
    pub name: String,
    pub path: Path,
    pub phases: Phases,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Keys whose values differ between the scenario's variants, with this variant's values as in the file.
    pub factors: BTreeMap<String, String>,
    /// Everything that a trial depends on besides its seed: path, phases and flows, and a digest of
    /// each file that they name. Variants with the same identity are the same experiment, whatever
    /// their names and however they are written: `10mbit` equals `10000kbit`, and a default equals
    /// the same value given.
    pub identity: String,
    /// The identity in the words of the scenario. Variants with the same wording make the same records,
    /// which repeat SPECs and names as written.
    pub wording: String,
}

/// Approximate time to start and stop the namespaces.
const SET_UP_SECONDS: f64 = 0.5;

impl Variant {
    /// Describes the links of the directions that have one: `docsis-pie before 35mbit up`.
    pub fn label(&self) -> String {
        let lane = |lane: &Lane, direction: Direction| {
            let queue = lane.queue.label();
            let at = if lane.name.is_empty() { "" } else { " at " };
            format!("{queue} before {} {direction}{at}{}", lane.link_label(), lane.name)
        };
        let lanes = self.path.lanes().filter(|(_, lane)| !lane.is_wide);
        let labels: Vec<String> = lanes.map(|(direction, it)| lane(it, direction)).collect();
        labels.join("; ")
    }

    /// Returns the SPEC of the first algorithm that the caller has to provide.
    pub fn own(&self) -> Option<String> {
        let queue = |lane: &Lane| match &lane.queue {
            LaneQueue::Own(own) => Some(own.label.to_string()),
            LaneQueue::Known(_) => None,
        };
        let control = |flow: &Flow| match &flow.kind {
            FlowKind::Tcp(tcp) if tcp.is_own() => Some(tcp.congestion_control.clone()),
            _ => None,
        };
        let in_path = self.path.lanes().find_map(|(_, lane)| queue(lane));
        in_path.or_else(|| self.flows.iter().find_map(control))
    }

    /// Returns whether its TCP flows request ECN because the host's setting says so; `None` if some
    /// do and some do not. Flows that request it by themselves (DCTCP) do not count.
    pub fn ecn(&self) -> Option<bool> {
        let by_setting = self.tcp_flows().filter(|tcp| !tcp.always_uses_ecn());
        let mut uses = by_setting.map(|tcp| tcp.ecn);
        let first = uses.next().unwrap_or_default();
        uses.all(|other| other == first).then_some(first)
    }

    pub fn tcp_flows(&self) -> impl Iterator<Item = &TcpFlow> {
        self.flows.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Tcp(tcp) => Some(tcp),
            _ => None,
        })
    }

    pub(super) fn estimate_seconds(&self) -> f64 {
        self.phases.estimate().as_secs_f64() + SET_UP_SECONDS
    }
}

pub(super) fn read_variant(
    name: &str,
    tables: &Base,
    load: &mut LoadFile<'_>,
    faults: &mut Faults,
) -> Option<Variant> {
    let flows: Vec<Option<Flow>> =
        tables.flows.iter().map(|(name, table)| Flow::read(name, table, faults)).collect();
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let load = &mut |file: &str| {
        let bytes = load(file)?;
        files.insert(file.to_owned(), digest(&SHA256, &bytes).as_ref().to_vec());
        Ok(bytes)
    };
    let path = Path::read(&tables.path, &tables.hops, load, faults);
    let phases = Phases::read(&tables.phases, faults)?;
    let (path, flows) = (path?, flows.into_iter().collect::<Option<Vec<Flow>>>()?);
    for flow in &flows {
        faults.accept(flow.check_start(&phases));
    }
    let said = (&tables.path, &tables.hops, &tables.phases, &tables.flows, &files);
    let wording = serde_json::to_string(&said);
    let wording = wording.map_err(|error| Fault::new("", format!("not a JSON value: {error}")));
    let wording = faults.accept(wording)?;
    let lane = |(direction, lane): (Direction, &Lane)| {
        let Lane { name, link, queue, rule, is_wide } = lane;
        format!("{:?}", (direction, name, link.meaning(), queue.meaning(), rule, is_wide))
    };
    let lanes: Vec<String> = path.lanes().map(lane).collect();
    let identity = format!("{:?}", (lanes, &phases, &flows, &files));
    let (name, factors) = (name.to_owned(), BTreeMap::new());
    Some(Variant { name, path, phases, flows, factors, identity, wording })
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    /// Parses a scenario whose two variants differ in these lines alone.
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
            [[variant]]
            name = "one"
            path.down = "100mbit"
            path.down_queue = "fifo"
            {one}
            [[variant]]
            name = "other"
            path.down = "100mbit"
            path.down_queue = "fifo"
            {other}
            "#
        );
        Scenario::parse(&text, "case").map_err(|error| error.to_string())
    }

    const NOTHING: &str = "";

    #[test]
    fn variants_that_mean_the_same_are_refused_however_they_are_written() {
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
    fn variants_that_differ_in_one_value_are_two() {
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
    fn equal_queues_written_differently_have_one_identity_and_separate_records() {
        let queue = |text: &str| {
            let variants = of_two("path.up = \"1mbit\"", &format!("path.up_queue = \"{text}\""));
            variants.expect("two variants").variants.remove(1)
        };
        let (one, other) = (queue("codel:profile=linux"), queue("codel:profile=linux,target=5ms"));
        assert_eq!(one.identity, other.identity);
        assert_ne!(one.label(), other.label(), "the premise");
        assert_ne!(one.wording, other.wording);
    }
}
