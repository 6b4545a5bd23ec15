//! `underload path` through the emulator's own link that changes markings, and over two routers of
//! the test, of which the second rewrites markings:
//!
//! ```text
//!   client ── first router ── second router ── server
//!          10.77.1.0/24    10.77.2.0/24     10.77.3.0/24, and fd77:N::/64 likewise
//! ```

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_emu::gateway::{Gateway, GatewayConfig, LaneConfig};
use underload_emu::machine::privilege::can_create_namespaces;
use underload_emu::machine::{
    Clock, Lab, LabConfig, Namespace, NamespaceError, Process, SERVER_V4, SERVER_V6,
};

/// A program that has not ended after this time counts as hung.
const PATIENCE: Duration = Duration::from_mins(1);
const CHAIN_V4: &str = "10.77.3.2";
const CHAIN_V6: &str = "fd77:3::2";

/// The second router takes DSCP 45 off IPv4 and ECT(1) off IPv6 on the way up.
const RULES: &str = "\
table inet rewrite {
  chain arrival {
    type filter hook prerouting priority mangle;
    iifname first ip dscp 45 ip dscp set 0
    iifname first ip6 ecn ect1 ip6 ecn set not-ect
  }
}
";

struct Chain {
    client: Namespace,
    server: Namespace,
    /// The router at the client, and the router at the server.
    routers: [Namespace; 2],
}

impl Chain {
    fn create() -> Result<Self, NamespaceError> {
        let [client, first, second, server] =
            ["client", "first", "second", "server"].map(Namespace::create);
        let (client, first, second, server) = (client?, first?, second?, server?);
        wire(&client, "first", &first, "client")?;
        wire(&first, "second", &second, "first")?;
        wire(&second, "server", &server, "second")?;
        address(&client, "first", 1, 1)?;
        address(&first, "client", 1, 2)?;
        address(&first, "second", 2, 1)?;
        address(&second, "first", 2, 2)?;
        address(&second, "server", 3, 1)?;
        address(&server, "second", 3, 2)?;
        for router in [&first, &second] {
            router.set_parameter("net/ipv4/ip_forward", "1")?;
            router.set_parameter("net/ipv6/conf/all/forwarding", "1")?;
        }
        route(&client, "default", "10.77.1.2", "fd77:1::2")?;
        route(&first, "default", "10.77.2.2", "fd77:2::2")?;
        route(&second, "default", "10.77.2.1", "fd77:2::1")?;
        route(&server, "default", "10.77.3.1", "fd77:3::1")?;
        let mut rules = Command::new("nft");
        rules.args(["-f", "-"]);
        second.run(rules, RULES)?;
        Ok(Self { client, server, routers: [first, second] })
    }
}

/// A pair of devices, each named after what is at the other end.
fn wire(
    near: &Namespace,
    near_device: &str,
    far: &Namespace,
    far_device: &str,
) -> Result<(), NamespaceError> {
    far.enter(|| {
        // A namespace without a name is called by a thread that is in it.
        let thread = fs::read_link("/proc/thread-self").expect("/proc");
        let thread = thread.file_name().expect("a number").to_string_lossy().into_owned();
        near.configure(&format!(
            "link add {near_device} type veth peer name {far_device} netns {thread}\n"
        ))
    })?
}

fn address(place: &Namespace, device: &str, network: u8, host: u8) -> Result<(), NamespaceError> {
    place.configure(&format!(
        "link set {device} up\n\
         addr add 10.77.{network}.{host}/24 dev {device}\n\
         addr add fd77:{network}::{host}/64 dev {device} nodad\n"
    ))
}

fn route(place: &Namespace, to: &str, v4: &str, v6: &str) -> Result<(), NamespaceError> {
    place.configure(&format!("route add {to} via {v4}\nroute add {to} via {v6}\n"))
}

fn underload(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).env("XDG_DATA_HOME", folder).env("HOME", folder).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of the program and reads its output.
fn finish(mut process: Process, name: &str) -> Output {
    let start = Instant::now();
    let status = process.wait_for(PATIENCE).expect("waiting");
    let read = |pipe: Option<&mut dyn std::io::Read>| {
        let mut bytes = Vec::new();
        pipe.map(|pipe| pipe.read_to_end(&mut bytes));
        bytes
    };
    let child = process.child();
    let stdout = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
    let stderr = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
    let said = String::from_utf8_lossy(&stderr);
    let status =
        status.unwrap_or_else(|| panic!("{name} hangs after {:?}: {said}", start.elapsed()));
    assert!(status.success(), "{name}: {status}: {said}");
    Output { status, stdout, stderr }
}

/// Starts a server without tokens, which other tests cover.
fn serve(place: &Namespace, folder: &Path) -> (Process, std::process::ChildStdout) {
    let arguments = ["serve", "--bind", "0.0.0.0", "--bind", "::", "--anonymous"];
    let mut server = place.spawn(underload(&arguments, folder)).expect("serve");
    let mut pipe = server.child().stdout.take().expect("piped");
    let mut line = [0; 9];
    std::io::Read::read_exact(&mut pipe, &mut line).expect("the server says that it listens");
    (server, pipe)
}

/// Returns the output of `path` for each host. Runs the commands in parallel, because they mostly
/// wait.
fn examined(place: &Namespace, folder: &Path, hosts: [&str; 2]) -> [Value; 2] {
    let client = |host: &str| {
        let arguments = ["path", host, "--no-load", "--json"];
        let home = folder.join(host.replace(':', "-"));
        fs::create_dir(&home).expect("a folder");
        place.spawn(underload(&arguments, &home)).expect("path")
    };
    hosts.map(|host| (client(host), host)).map(|(process, host)| {
        let output = finish(process, host);
        serde_json::from_slice::<Value>(&output.stdout).expect("one JSON document")
    })
}

/// The policies that were found, as `DIRECTION POLICY`.
fn verdicts(findings: &Value) -> Vec<String> {
    let found = findings["marks"][0]["policies"].as_array().expect("policies");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found.iter().map(|it| format!("{} {}", text(&it["direction"]), text(&it["policy"]))).collect()
}

/// The row of a marking.
fn row<'a>(findings: &'a Value, dscp: u8, ecn: &str) -> &'a Value {
    let rows = findings["marks"][0]["survey"]["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["sent"]["dscp"] == dscp && row["sent"]["ecn"] == ecn);
    found.unwrap_or_else(|| panic!("no row for {dscp} {ecn}"))
}

fn changes(row: &Value, way: &str) -> (String, String) {
    let name = |field: &str| {
        row[way][field]["change"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned()
    };
    (name("dscp"), name("ecn"))
}

fn both(dscp: &str, ecn: &str) -> (String, String) {
    (dscp.to_owned(), ecn.to_owned())
}

#[test]
fn rewritten_markings_are_found_and_the_router_is_named() {
    const NAME: &str = "rewritten_markings_are_found_and_the_router_is_named";
    if !can_create_namespaces() {
        eprintln!("SKIPPED {NAME}: this process may not create network namespaces (run as root)");
        return;
    }
    if !Command::new("nft").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED {NAME}: nft is not installed");
        return;
    }
    let chain = Chain::create().expect("a chain of routers");
    let folder = tempfile::tempdir().expect("a folder");
    let _server = serve(&chain.server, folder.path());
    let [v4, v6] = examined(&chain.client, folder.path(), [CHAIN_V4, CHAIN_V6]);

    assert_eq!(changes(row(&v4, 0, "ect1"), "up"), both("kept", "kept"));
    assert_eq!(changes(row(&v4, 0, "ce"), "up"), both("kept", "kept"));
    assert_eq!(changes(row(&v4, 45, "not-ect"), "up"), both("bleached", "kept"));
    assert_eq!(changes(row(&v4, 45, "not-ect"), "down"), both("kept", "kept"));
    assert_eq!(changes(row(&v4, 46, "not-ect"), "up"), both("kept", "kept"));
    assert_eq!(changes(row(&v4, 46, "not-ect"), "down"), both("not-asked", "kept"));
    assert_eq!(changes(row(&v6, 0, "ect1"), "up"), both("kept", "bleached"));
    assert_eq!(changes(row(&v6, 45, "ect1"), "up"), both("kept", "bleached"));
    assert_eq!(changes(row(&v6, 45, "ect1"), "down"), both("kept", "kept"));
    assert_eq!(changes(row(&v6, 0, "ect0"), "up"), both("kept", "kept"));

    for (findings, before, router) in
        [(&v4, "10.77.1.2", "10.77.2.2"), (&v6, "fd77:1::2", "fd77:2::2")]
    {
        let change = &findings["marks"][0]["changes"][0];
        assert_eq!((&change["after_ttl"], &change["seen_at_ttl"]), (&1.into(), &2.into()));
        assert_eq!(change["after"].as_str(), Some(before));
        assert_eq!(change["seen_at"].as_str(), Some(router));
        assert_eq!(findings["marks"][0]["hops"]["target_at"], 3);
    }
    // The verdicts, and the router that causes them.
    assert_eq!(verdicts(&v4), ["up nqb-bleached"]);
    assert_eq!(verdicts(&v6), ["up ecn-changed"]);
    for (findings, router) in [(&v4, "10.77.2.2"), (&v6, "fd77:2::2")] {
        let place = &findings["marks"][0]["policies"][0]["place"];
        assert_eq!((&place["after_ttl"], place["seen_at"].as_str()), (&1.into(), Some(router)));
    }
    let said = |findings: &Value, word: &str| findings["advice"].to_string().contains(word);
    assert!(said(&v4, "DSCP 45 does not survive up") && !said(&v4, "ECN"), "{}", v4["advice"]);
    assert!(said(&v6, "ECN does not survive up") && !said(&v6, "DSCP 45"), "{}", v6["advice"]);
}

/// The line between the two routers has a buffer of 200 ms on the way up. On a machine that is too
/// busy the step is not valid, and then has no verdict.
#[test]
fn measure_finds_the_hops_and_where_the_delay_is() {
    const NAME: &str = "measure_finds_the_hops_and_where_the_delay_is";
    let missing = |program: &str, option: &str| {
        let output = Command::new(program).arg(option).output();
        !output.is_ok_and(|output| output.status.success())
    };
    if !can_create_namespaces() || missing("nft", "--version") || missing("tc", "-V") {
        eprintln!("SKIPPED {NAME}: needs network namespaces (run as root), nft and tc");
        return;
    }
    let chain = Chain::create().expect("a chain of routers");
    let mut bloat = Command::new("tc");
    bloat.args(["qdisc", "add", "dev", "second", "root"]);
    bloat.args(["tbf", "rate", "8mbit", "burst", "4kb", "limit", "200kb"]);
    chain.routers[0].run(bloat, "").expect("a queue");
    let folder = tempfile::tempdir().expect("a folder");
    let _server = serve(&chain.server, folder.path());
    for (host, router, provider) in
        [(CHAIN_V4, "10.77.1.2", "10.77.2.0/24"), (CHAIN_V6, "fd77:1::2", "fd77:2::/48")]
    {
        let options = "--where --up --flows 1 --idle 500ms --duration 2s --out run";
        let mut arguments = vec!["measure", host];
        arguments.extend(options.split(' '));
        let home = folder.path().join(host.replace(':', "-"));
        fs::create_dir(&home).expect("a folder");
        let process = chain.client.spawn(underload(&arguments, &home)).expect("measure");
        let printed = String::from_utf8(finish(process, host).stdout).expect("text");
        let findings = fs::read(home.join("run/findings.json")).expect("findings");
        let document: Value = serde_json::from_slice(&findings).expect("JSON");
        let location = &document["findings"][0]["location"];
        let hops = location["hops"].as_array().expect("hops");
        let found: Vec<(&Value, &Value, &Value)> =
            hops.iter().map(|it| (&it["hop"], &it["address"], &it["distance"])).collect();
        let expected = [
            ("router".into(), router.into(), 1.into()),
            ("provider".into(), provider.into(), 2.into()),
        ];
        let expected: Vec<(&Value, &Value, &Value)> =
            expected.iter().map(|(hop, address, distance)| (hop, address, distance)).collect();
        assert_eq!(found[..2], expected, "{location}");
        assert_eq!((found[2].0, found[2].2), (&"far-end".into(), &3.into()), "{location}");
        assert!(hops.iter().all(|it| it["answered"].as_u64() > Some(0)), "{location}");
        match location["verdict"].as_str() {
            Some(segment) => assert_eq!(segment, "access", "{location}"),
            None => assert!(location["not_known_because"].is_string(), "{location}"),
        }
        let said = document["verdict"].to_string();
        // On a busy machine the step is uncertain, and no place is said.
        let places = [
            "the delay is on the access line",
            "is not known",
            "too little delay to say",
            "UNCERTAIN, no grade",
            "INVALID, no verdict",
        ];
        assert!(places.iter().any(|words| said.contains(words)), "{said}");
        assert!(printed.contains("up: delay that the load adds, ms"), "{printed}");
        let page = fs::read_to_string(home.join("run/report.html")).expect("a page");
        assert!(page.contains("Where the delay is") && page.contains(router));
    }
}

/// Each profile of `remark=` on one way of an emulated link, on real packets of both IP versions.
#[test]
fn every_profile_of_a_link_is_named_with_its_direction() {
    const NAME: &str = "every_profile_of_a_link_is_named_with_its_direction";
    if !can_create_namespaces() {
        eprintln!("SKIPPED {NAME}: this process may not create network namespaces (run as root)");
        return;
    }
    // Markings that the far end refuses to send (40, 46, 56 and CE) are unknown on the way down.
    for (up, down, expected) in [
        ("comcast-edge", "peer-45", &["up translated-to-nqb", "down nqb-bleached"][..]),
        ("wifi", "wifi", &["up class-only", "down class-only"]),
        ("home-bleach", "home-bleach", &["up byte-cleared", "down byte-cleared"]),
        ("peer-45+ecn:ect1>ect0", "comcast-edge", &["up nqb-bleached", "up ecn-changed"]),
    ] {
        let lane = |rules: &str| {
            let link = LinkSetup::parse(&format!("100mbit:delay=1ms,remark={rules}"));
            let link = link.expect("a link");
            let queue = QueueSetup::parse("fifo", &link.facts()).expect("a queue");
            LaneConfig { link, queue }
        };
        let lab = Lab::create(&LabConfig::default()).expect("a lab");
        let config = GatewayConfig { realtime: false, ..GatewayConfig::new(lane(up), lane(down)) };
        let gateway = Gateway::start(config, lab.devices(), Clock::start()).expect("a gateway");
        let folder = tempfile::tempdir().expect("a folder");
        let _server = serve(lab.server(), folder.path());
        let hosts = [SERVER_V4.to_string(), SERVER_V6.to_string()];
        let found = examined(lab.client(), folder.path(), hosts.each_ref().map(String::as_str));
        for findings in &found {
            assert_eq!(verdicts(findings), expected, "{up} up, {down} down: {findings}");
        }
        let report = gateway.stop().expect("a report");
        let changed = report
            .lanes
            .iter()
            .map(|(_, lane)| lane.recording.whole.link.counts.remarks().iter().sum::<u64>());
        let changed: Vec<u64> = changed.collect();
        // Twenty packets of each marking and IP version, and the hops' probes.
        assert!(changed[0] >= 40, "{up}: {changed:?}");
    }
}

#[test]
fn bad_input_and_failure_have_different_statuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let status = |arguments: &[&str]| {
        let output = underload(arguments, folder.path()).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = status(&["path", "host:notaport"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("notaport"), "{said}");
    let (code, said) = status(&["path", "127.0.0.1", "--congestion-control"]);
    assert_eq!(code, Some(2), "{said}");
    // Port 9 of loopback has no server.
    let (code, said) = status(&["path", "127.0.0.1:9", "--no-load"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("127.0.0.1:9"), "{said}");
}
