//! The page that measures in a browser: its files, answers to strangers, and a browser that uses it
//! over loopback. Without Chromium the browser's part is skipped.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

#[allow(dead_code, reason = "it can do more than is needed here")]
#[path = "../../orchestrator/tests/browser/chromium.rs"]
mod chromium;
mod firefox;
mod links;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use underload_compat::channel::{ChannelCounts, ChannelLimits, ChannelServer};
use underload_compat::nq::{Channels, NqLimits, NqServer, OfferError};
use underload_probe::control::Fingerprint;
use underload_record::judgement::{
    HighPercentile, Judgement, LoadedStep, Sentences, UseJudgement, judge,
};
use underload_record::schema::{PerDirection, Quantile};
use underload_service::{CompatLedger, Identity, Limits, Service, ServiceConfig};

use chromium::{Browser, Screen};
use firefox::{Firefox, own_address};

/// Starts a server of the page, whose probes are requests.
fn server(ledger: CompatLedger) -> (NqServer, Fingerprint) {
    server_with(ledger, None)
}

fn server_with(
    ledger: CompatLedger,
    channels: Option<Arc<dyn Channels>>,
) -> (NqServer, Fingerprint) {
    server_at(IpAddr::V4(Ipv4Addr::LOCALHOST), ledger, channels)
}

fn server_at(
    address: IpAddr,
    ledger: CompatLedger,
    channels: Option<Arc<dyn Channels>>,
) -> (NqServer, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let fingerprint = identity.fingerprint();
    let listener = TcpListener::bind((address, 0)).unwrap();
    let limits = NqLimits::default();
    let tls = identity.server_config().unwrap();
    let server = NqServer::start_page(listener, &tls, limits, ledger, sentences, channels).unwrap();
    (server, fingerprint)
}

fn channels(ledger: CompatLedger) -> Arc<ChannelServer> {
    channels_at(IpAddr::V4(Ipv4Addr::LOCALHOST), ledger)
}

fn channels_at(address: IpAddr, ledger: CompatLedger) -> Arc<ChannelServer> {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    Arc::new(ChannelServer::start(socket, ChannelLimits::default(), ledger).unwrap())
}

fn tls_stream(
    address: SocketAddr,
    fingerprint: Fingerprint,
) -> StreamOwned<ClientConnection, TcpStream> {
    let tls = fingerprint.client_config().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(&tls), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(connection, stream)
}

/// Sends `words` and returns the server's answer.
fn ask(address: SocketAddr, fingerprint: Fingerprint, words: &str) -> String {
    let mut stream = tls_stream(address, fingerprint);
    stream.write_all(words.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A connection may end without a TLS close notification.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
}

#[test]
fn the_page_has_a_strict_policy_and_its_resources_refuse_other_origins() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let get = |path: &str, more: &str| {
        ask(server.address(), fingerprint, &request("GET", path, more)).to_lowercase()
    };
    let page = get("/", "");
    assert!(page.starts_with("http/1.1 200"), "{page}");
    assert!(page.contains("<script type=\"module\" src=\"page.js\""), "{page}");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'; worker-src 'self';",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(page.contains(header), "{header}: {page}");
    }
    let scripts = ["page", "channel", "draw", "history", "load", "picture", "present"]
        .into_iter()
        .chain(["probe", "share", "summary", "thread"]);
    for script in scripts.map(|name| format!("/{name}.js")) {
        let script = get(&script, "");
        assert!(script.contains("text/javascript"), "{script}");
        // A worker has the policy of the response with its script.
        assert!(script.contains("default-src 'none'; script-src 'self'"), "{script}");
    }
    assert!(get("/small?9", "").ends_with("\r\n\r\nu"));
    for path in ["/large", "/received?1", "/inside?1", "/page.js", "/load.js"] {
        assert!(get(path, "Sec-Fetch-Site: cross-site\r\n").contains(" 403 "), "{path}");
    }
    for path in ["/.well-known/nq", "/config", "/page.html", "/../Cargo.toml"] {
        assert!(get(path, "").starts_with("http/1.1 40"), "{path}");
    }
}

#[test]
fn uploads_are_counted_as_they_arrive() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let body = "x".repeat(100_000);
    let head = request("POST", "/upload?42", &format!("Content-Length: {}\r\n", body.len()));
    let answer = ask(server.address(), fingerprint, &(head + &body));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let count = |path: &str| ask(server.address(), fingerprint, &request("GET", path, ""));
    assert!(count("/received?42").ends_with("\r\n\r\n100000"));
    assert!(count("/received?43").ends_with("\r\n\r\n0"));
    assert!(count("/received").ends_with("\r\n\r\n0"));
    // An upload without payload is not counted and takes no place.
    let head = "Host: localhost\r\nContent-Length: 0\r\n\r\n";
    let empty = |number| format!("POST /upload?{number} HTTP/1.1\r\n{head}");
    let many: String = (1_000..2_100).map(empty).collect();
    let last = request("POST", "/upload?43", "Content-Length: 0\r\n");
    let answers = ask(server.address(), fingerprint, &(many + &last));
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1_101);
    assert!(count("/received?42").ends_with("\r\n\r\n100000"));
}

#[test]
fn round_trips_inside_a_load_are_those_of_its_connections() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let inside = |number: u64| -> Value {
        let path = format!("/inside?{number}");
        let answer = ask(server.address(), fingerprint, &request("GET", &path, ""));
        serde_json::from_str(answer.rsplit("\r\n\r\n").next().unwrap()).unwrap()
    };
    let none = json!({ "readings": [], "held_back": false, "in_order": null });
    assert_eq!(inside(7), none);
    let mut load = tls_stream(server.address(), fingerprint);
    load.write_all(request("GET", "/large?7", "").as_bytes()).unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    let mut buffer = vec![0; 1 << 16];
    let readings = loop {
        load.read_exact(&mut buffer).unwrap();
        let readings = inside(7)["readings"].as_array().unwrap().clone();
        if readings.len() >= 3 {
            break readings;
        }
        assert!(Instant::now() < until, "{readings:?}");
    };
    for pair in readings.windows(2) {
        let [(at, rtt_us), (next, _)] =
            [&pair[0], &pair[1]].map(|it| (it[0].as_u64().unwrap(), it[1].as_u64().unwrap()));
        assert!(at <= next && rtt_us > 0, "{pair:?}");
    }
    assert_eq!(inside(8), none, "no other load");
    // The readings of an upload depend on the time stamps of its TCP.
    let body = "x".repeat(1_000_000);
    let head = request("POST", "/upload?9", &format!("Content-Length: {}\r\n", body.len()));
    assert!(ask(server.address(), fingerprint, &(head + &body)).starts_with("HTTP/1.1 200"));
    assert_eq!(inside(9)["held_back"], false);
}

/// A client without quota gets the reason, which the page shows.
#[test]
fn load_beyond_the_quota_is_refused_with_the_reason() {
    let limits = Limits { anonymous_bytes_per_hour: 0, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let (server, fingerprint) = server(service.compat());
    for (method, path) in [("GET", "/large"), ("POST", "/upload?42")] {
        let answer = ask(server.address(), fingerprint, &request(method, path, ""));
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthe quota of this hour is used up"), "{answer}");
    }
}

const OFFER: &str = include_str!("offers/chromium.sdp");

#[test]
fn offers_of_channels_are_answered_within_limits() {
    let channels = channels(CompatLedger::unlimited());
    let (server, fingerprint) =
        server_with(CompatLedger::unlimited(), Some(Arc::clone(&channels) as Arc<dyn Channels>));
    let offer = |body: &str, more: &str| {
        let more = format!("{more}Content-Length: {}\r\n", body.len());
        ask(server.address(), fingerprint, &(request("POST", "/channel", &more) + body))
    };
    let answer = offer(OFFER, "");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("a=ice-lite\r\n"), "{answer}");
    let candidate = format!("127.0.0.1 {} typ host", channels.address().port());
    assert!(answer.contains(&candidate), "{answer}");
    for (body, more, status) in [
        ("", "", "400"),
        ("v=0\r\n", "", "400"),
        (OFFER, "Sec-Fetch-Site: cross-site\r\n", "403"),
        (&"x".repeat(20_000), "", "413"),
    ] {
        let answer = offer(body, more);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {answer}");
    }
    let get = ask(server.address(), fingerprint, &request("GET", "/channel", ""));
    assert!(get.starts_with("HTTP/1.1 404"), "{get}");
    // A network has eight places, regardless of its number of requests.
    let busy = (0..20).filter(|_| offer(OFFER, "").starts_with("HTTP/1.1 429")).count() as u64;
    let counts = channels.counts();
    assert_eq!((busy + counts.offers, counts.busy), (21, busy));
    wait_for_sessions(&channels, 8);
}

/// Waits until sessions that have lost their places have ended.
fn wait_for_sessions(channels: &ChannelServer, most: usize) {
    wait_for(channels, |counts| counts.sessions <= most);
}

/// Waits for a condition, at most a minute.
fn wait_for(channels: &ChannelServer, condition: impl Fn(&ChannelCounts) -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !condition(&channels.counts()) {
        assert!(Instant::now() < until, "{:?}", channels.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn offers_of_eight_networks_leave_channels_to_a_ninth() {
    let channels = channels(CompatLedger::unlimited());
    let answer = |network: u8| {
        let from = IpAddr::from([198, 51, network, 1]);
        channels.answer(OFFER, from, Ipv4Addr::LOCALHOST.into(), None)
    };
    for network in (0..8).flat_map(|network| [network; 8]) {
        answer(network).unwrap();
    }
    wait_for_sessions(&channels, 64);
    for network in 8..16 {
        answer(network).unwrap();
    }
    wait_for_sessions(&channels, 64);
    let counts = channels.counts();
    assert_eq!((counts.offers, counts.busy), (72, 0));
    // IPv6 networks are counted by their /56.
    let from = "2001:db8:0:100::1".parse().unwrap();
    channels.answer(OFFER, from, Ipv6Addr::LOCALHOST.into(), None).unwrap();
}

#[test]
fn datagrams_of_unknown_senders_get_no_answer() {
    let channels = channels(CompatLedger::unlimited());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(channels.address()).unwrap();
    let stun = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat();
    let hello = [&[22, 254, 253][..], &[0; 60]].concat();
    for datagram in [&stun[..], &hello, &[0; 1500], &[255; 9], &[]] {
        socket.send(datagram).unwrap();
    }
    wait_for(&channels, |counts| counts.ignored >= 5);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 2000]).is_err(), "an answer");
}

fn browser(test: &str) -> Option<Browser> {
    let mut browser = Browser::launch(test)?;
    // The server's certificate is self-signed.
    browser.call("Security.setIgnoreCertificateErrors", json!({ "ignore": true }));
    // Errors of the workers are reported, too.
    let attach = json!({ "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true });
    browser.call("Target.setAutoAttach", attach);
    Some(browser)
}

/// Clicks the button and waits for the result, a minute at most.
fn measured(browser: &mut Browser, address: &str) -> Value {
    browser.open(address);
    measured_here(browser)
}

fn measured_here(browser: &mut Browser) -> Value {
    // Before that the page's script does not listen.
    browser.until("document.readyState == 'complete'");
    browser.value("document.querySelector('#start').click()");
    browser.until("window.underloadResult");
    browser.value("window.underloadResult")
}

/// Asserts a complete result over loopback, with these kinds of probes and threads.
fn assert_whole(result: &Value, by: &str, [probes, load]: [&str; 2]) {
    assert_eq!(result["threads"], json!({ "probes": probes, "load": load }));
    assert_eq!(result["complete"], true, "{result}");
    let summary = result["summary"].as_array().unwrap();
    let phases: Vec<&str> = summary.iter().map(|row| row["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["idle", "down", "up"]);
    for row in summary {
        assert!(
            row["probes"].as_u64().unwrap() > 10 && row["p50"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        // The datagrams' schedule has enough slots even if they are late.
        let is_known = row["held_up_ms"]["p95"].as_f64().is_some_and(|held| held >= 0.0);
        assert!(is_known || by == "fetch", "{row}");
    }
    for row in &summary[1..] {
        // The server allows 50 Mbit/s; a busy machine reaches less.
        let rate = row["rate"].as_f64().unwrap();
        assert!(rate > 0.5 && rate < 60.0, "{row}");
        // Up, the values depend on the time stamps of TCP.
        let is_known = row["inside"]["p50"].as_f64().is_some_and(|ms| ms > 0.0);
        assert!(is_known || row["phase"] == "up", "{row}");
    }
    let probes = result["probes"].as_array().unwrap();
    assert!(
        probes.iter().all(|probe| probe["by"] == by),
        "not all by {by}: {}",
        result["no_channel"]
    );
}

/// Asserts that the time of a datagram within the machine is known, unless the browser cannot reach
/// the machine's own address.
fn assert_mirrored(test: &str, result: &Value) {
    let rows = result["summary"].as_array().unwrap();
    if rows.iter().all(|row| row["mirror_ms"]["p95"].is_null()) {
        eprintln!("SKIPPED {test} (mirror): no channel opened from this machine to itself");
        return;
    }
    for row in rows.iter().filter(|row| row["phase"] != "idle") {
        assert!(row["mirror_ms"]["p95"].as_f64().is_some_and(|ms| ms > 0.0), "{row}");
    }
}

/// Starts a server that allows browsers 50 Mbit/s, with channels.
fn limited_server(address: IpAddr) -> (Service, NqServer, Arc<ChannelServer>) {
    let limits = Limits { compat_bit_per_s: 50_000_000, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let channels = channels_at(address, service.compat());
    let offered = Arc::clone(&channels) as Arc<dyn Channels>;
    let (server, _) = server_at(address, service.compat(), Some(offered));
    (service, server, channels)
}

#[test]
fn a_browser_measures_with_datagrams() {
    let test = "a_browser_measures_with_datagrams";
    let Some(mut browser) = browser(test) else { return };
    let (_service, server, channels) = limited_server(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let result = measured(&mut browser, &format!("https://{}/?probes=channel", server.address()));
    assert_whole(&result, "channel", ["worker", "worker"]);
    assert!(channels.counts().answered > 100, "{:?}", channels.counts());
    assert_mirrored(test, &result);
    assert!(browser.text("document.querySelector('#how').textContent").contains("datagrams"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    // A page that is closed within a measurement frees its place.
    browser.open(&format!("https://{}/?probes=channel", server.address()));
    browser.value("document.querySelector('#start').click()");
    let waits_until = |sessions: usize| wait_for(&channels, |it| it.sessions == sessions);
    waits_until(1);
    browser.open("about:blank");
    waits_until(0);
}

/// Posts results to the page's server and returns its answer.
fn judged(address: SocketAddr, fingerprint: Fingerprint, body: &str) -> String {
    let head = request("POST", "/judgement", &format!("Content-Length: {}\r\n", body.len()));
    ask(address, fingerprint, &(head + body))
}

#[test]
fn results_are_judged_by_the_rules_of_the_program() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let percentile = |ms: Option<i64>| {
        let ns = ms.map(|ms| ms * 1_000_000);
        Some(HighPercentile { quantile: Quantile::P99, ns })
    };
    let step = |name: &str, beside, inside| LoadedStep {
        step: name.to_owned(),
        valid: true,
        loaded: true,
        idle_p50_ns: Some(20_000_000),
        beside,
        inside,
        lost_percent: 0.5,
        mbit_s: PerDirection::new(None, Some(38.5)),
        ..LoadedStep::default()
    };
    let results: Vec<Vec<LoadedStep>> = vec![
        vec![step("down", percentile(Some(25)), percentile(Some(90)))],
        vec![step("down", percentile(None), None), step("up", percentile(Some(700)), None)],
        Vec::new(),
    ];
    let body = serde_json::to_string(&results).unwrap();
    let answer = judged(server.address(), fingerprint, &body);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let answers: Value = serde_json::from_str(text).unwrap();
    for (index, steps) in results.iter().enumerate() {
        let judgement = judge(steps);
        assert_eq!(answers[index]["judgement"], serde_json::to_value(&judgement).unwrap());
        let sentences = serde_json::to_value(sentences(&judgement)).unwrap();
        assert_eq!(answers[index]["sentences"], sentences);
    }
    let refused = |body: &str, code: &str| {
        let answer = judged(server.address(), fingerprint, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{body:.60}: {answer:.60}");
    };
    let many_steps = serde_json::to_string(&[vec![LoadedStep::default(); 9]]).unwrap();
    let unknown = body.replace("lost_percent", "gained_percent");
    let many_results = format!("[{}]", vec!["[]"; 33].join(","));
    for wrong in ["", "{}", "[[{}]]", "[[\u{0}]]", &many_steps, &many_results, &unknown] {
        refused(wrong, "400");
    }
    refused(&format!("[{}]", " ".repeat(40_000)), "413");
}

#[test]
fn a_page_judges_by_the_percentile_that_has_enough_samples() {
    let test = "a_page_judges_by_the_percentile_that_has_enough_samples";
    let Some(mut browser) = browser(test) else { return };
    let (server, _) = server(CompatLedger::unlimited());
    browser.open(&format!("https://{}/", server.address()));
    let judged = "import('/summary.js').then((it) => [[0, 1000], [49, 1000], [480, 500], \
                  [499, 500], [995, 1000], [0, 40]].map((counts) => it.judged(...counts)))";
    let by = |quantile: &str, is_lost| json!({ "quantile": quantile, "isLost": is_lost });
    let lost = by("p99", true);
    let expected =
        json!([lost, lost, lost, by("p95", false), by("p99", false), Option::<bool>::None]);
    assert_eq!(browser.value(judged), expected);
}

/// Words of a judgement that are enough to recognise it.
fn sentences(judgement: &Judgement) -> Sentences {
    let use_words = |it: &UseJudgement| format!("{}: {}", it.name, it.suits);
    Sentences {
        opening: judgement.grade.map(|grade| format!("Grade {grade}.")),
        uses: judgement.uses.iter().map(use_words).collect(),
        advice: None,
        sender: judgement.steps.iter().any(|it| it.buffer_unfilled).then(|| "Empty.".to_owned()),
    }
}

/// Answers offers with an address at which nothing answers.
#[derive(Debug)]
struct Silent(ChannelServer, UdpSocket);

impl Channels for Silent {
    fn answer(
        &self,
        offer: &str,
        from: IpAddr,
        reached: IpAddr,
        authority: Option<&str>,
    ) -> Result<String, OfferError> {
        let ports = [&self.0.address(), &self.1.local_addr().unwrap()].map(SocketAddr::port);
        let answer = self.0.answer(offer, from, reached, authority)?;
        Ok(answer.replace(&format!(" {} typ", ports[0]), &format!(" {} typ", ports[1])))
    }
}

#[test]
fn a_channel_opens_over_ipv6_and_a_page_without_one_says_why() {
    let test = "a_channel_opens_over_ipv6_and_a_page_without_one_says_why";
    let Some(mut browser) = browser(test) else { return };
    let opening = "import('/channel.js').then((it) => it.openChannel((channel) => \
        new Promise((done, failed) => { channel.onopen = done; channel.onclose = failed; }))) \
        .then((it) => it.why ?? 'open')";
    let mut opened = |server: &NqServer, more: &str| {
        browser.open(&format!("https://{}/{more}", server.address()));
        browser.text(opening)
    };
    let unlimited = CompatLedger::unlimited;
    let (without, _) = server(unlimited());
    assert_eq!(opened(&without, ""), "the server has none");
    let silent = Silent(
        ChannelServer::start(
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            ChannelLimits::default(),
            unlimited(),
        )
        .unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let (silent, _) = server_with(unlimited(), Some(Arc::new(silent)));
    assert!(opened(&silent, "").contains("no answer within 3 s"));
    assert_eq!(opened(&silent, "?probes=fetch"), "as the address asks");
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if UdpSocket::bind((address, 0)).is_err() {
        eprintln!("SKIPPED {test}: there is no IPv6");
        return;
    }
    let (server, _) = server_at(address, unlimited(), Some(channels_at(address, unlimited())));
    assert_eq!(opened(&server, "?probes=channel"), "open");
}

/// A browser without workers, or with workers disabled.
#[test]
fn a_page_without_workers_measures_in_its_own_thread_and_says_so() {
    let test = "a_page_without_workers_measures_in_its_own_thread_and_says_so";
    let Some(mut browser) = browser(test) else { return };
    let (_service, server, _channels) = limited_server(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let page = format!("https://{}/?probes=channel", server.address());
    browser.open(&page);
    let started = "import('/thread.js').then((it) => it.inWorker('load.js', () => {})) \
        .then((it) => it ? it.where : 'none')";
    assert_eq!(browser.text(started), "worker");
    // A worker that throws, and one that never responds.
    for worker in ["class { constructor() { throw new Error('no'); } }", "class { terminate() {} }"]
    {
        assert_eq!(browser.text(&format!("window.Worker = {worker}; {started}")), "none");
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
    // A worker whose script does not load.
    browser.open(&page);
    browser.value(
        "const Real = window.Worker; \
         window.Worker = class extends Real { constructor() { super('missing.js'); } }; 0",
    );
    assert_whole(&measured_here(&mut browser), "channel", ["page", "page"]);
    let how = browser.text("document.querySelector('#how').textContent");
    assert!(how.contains("not in a worker: probes and load"), "{how}");
}

#[test]
fn workers_are_the_servers_own_and_one_that_fails_ends_the_measurement() {
    let test = "workers_are_the_servers_own_and_one_that_fails_ends_the_measurement";
    let Some(mut browser) = browser(test) else { return };
    let (server, _) = server(CompatLedger::unlimited());
    browser.open(&format!("https://{}/?probes=fetch", server.address()));
    let refused = "new Promise((done) => { \
        const address = URL.createObjectURL(new Blob(['postMessage(1)'])); \
        try { \
            const worker = new Worker(address); \
            worker.onmessage = () => done('it runs'); \
            worker.onerror = () => done('refused'); \
        } catch { done('refused'); } })";
    assert_eq!(browser.text(refused), "refused");
    browser.value(
        "window.all = []; const Real = window.Worker; \
         window.Worker = class extends Real { \
             constructor(...its) { super(...its); window.all.push(this); } }; 0",
    );
    browser.value("document.querySelector('#start').click()");
    let state = "document.querySelector('#state').textContent";
    browser.until(&format!("{state} === 'idle …'"));
    browser.value("all[0].dispatchEvent(new ErrorEvent('error', { message: 'out of memory' }))");
    browser.until("window.underloadResult");
    assert_eq!(browser.text(state), "stopped: out of memory");
    assert_eq!(browser.value("window.underloadResult.complete"), false);
}

/// A browser that allows no channel in a worker. A thread that computes for half of the time delays
/// its probes, and the page says so.
#[test]
fn a_page_without_workers_reports_delays_of_its_thread() {
    let test = "a_page_without_workers_reports_delays_of_its_thread";
    let Some(mut browser) = browser(test) else { return };
    let (_service, server, _channels) = limited_server(IpAddr::V4(Ipv4Addr::LOCALHOST));
    browser.open(&format!("https://{}/?probes=channel", server.address()));
    browser.value(
        "const post = Worker.prototype.postMessage; \
         Worker.prototype.postMessage = function (words, given = []) { \
             if (given.length) throw new DOMException('it stays', 'DataCloneError'); \
             post.call(this, words); }; \
         setInterval(() => { \
             for (const until = performance.now() + 60; performance.now() < until;); }, 120); 0",
    );
    let result = measured_here(&mut browser);
    assert_whole(&result, "channel", ["page", "worker"]);
    for row in result["summary"].as_array().unwrap() {
        assert!(row["held_up_ms"]["p95"].as_f64().unwrap() > 20.0, "{row}");
    }
    let busy = text_of(&mut browser, "busy");
    assert!(busy.starts_with("This device was busy") && busy.contains("up "), "{busy}");
    let how = browser.text("document.querySelector('#how').textContent");
    assert!(how.contains("not in a worker: probes."), "{how}");
}

#[test]
fn firefox_measures_with_datagrams() {
    let test = "firefox_measures_with_datagrams";
    // Firefox opens no channels over loopback.
    let Some(address) = own_address() else {
        eprintln!("SKIPPED {test}: this machine has no address but loopback's");
        return;
    };
    let Some(mut firefox) = Firefox::start(test) else { return };
    let (_service, server, channels) = limited_server(address);
    let result = firefox.measured(&format!("https://{}/?probes=channel", server.address()));
    assert_whole(&result, "channel", ["worker", "worker"]);
    assert!(channels.counts().answered > 100, "{:?}", channels.counts());
    assert_mirrored(test, &result);
}

#[test]
fn a_browser_measures_both_directions() {
    let Some(mut browser) = browser("a_browser_measures_both_directions") else { return };
    let limits = Limits { compat_bit_per_s: 50_000_000, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let (server, _) = server(service.compat());
    browser.screen(Screen::Phone, false);
    let address = format!("https://{}/", server.address());
    browser.open(&address);
    let is_empty = browser.value("document.querySelector('#results').hidden");
    assert_eq!(is_empty, true, "blank plots before the start");
    let result = measured(&mut browser, &address);
    assert_whole(&result, "fetch", ["worker", "worker"]);
    assert!(browser.text("document.querySelector('#how').textContent").contains("No data channel"));
    let wide = "[document.documentElement, ...document.querySelectorAll('.scroll')] \
                .filter((it) => it.scrollWidth > it.clientWidth).length";
    assert_eq!(browser.value(wide), 0, "the page or a table is wider than a phone");
    let (verdict, grade) = (text_of(&mut browser, "verdict"), text_of(&mut browser, "grade"));
    assert!(verdict.contains(&format!("Grade {grade}")), "{grade}: {verdict}");
    let kept = browser.text("document.querySelector('#keep').download");
    assert_eq!(kept, "underload-result.json");
    assert_shared(&mut browser);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Returns the text of an element once the page's scripts have run and it has its judgement.
fn text_of(browser: &mut Browser, id: &str) -> String {
    browser.text(&format!(
        "new Promise((done) => {{ \
             const isBusy = () => document.readyState !== 'complete' \
                 || document.querySelector('[aria-busy=true]'); \
             const look = () => (isBusy() ? setTimeout(look, 20) \
                 : done(document.querySelector('#{id}').textContent)); \
             look(); }})"
    ))
}

/// Opens an address afresh: a change of the fragment alone loads no page.
fn open_afresh(browser: &mut Browser, address: &str) {
    browser.open("about:blank");
    browser.open(address);
}

const STORED: &str = "document.querySelectorAll('#history-rows tr').length";

/// Asserts that the history has the measured result, and that the result's link shows the same
/// words: first as a result of this browser, and after deletion of the history as a foreign result.
fn assert_shared(browser: &mut Browser) {
    let verdict = text_of(browser, "verdict");
    let uses = text_of(browser, "uses");
    let rows = text_of(browser, "rows");
    assert_eq!(browser.value(STORED), 1);
    browser.value("document.querySelector('#share').click()");
    let link = browser.text("document.querySelector('#link').value");
    let (_, fragment) = link.split_once("/#result=").unwrap();
    assert!(fragment.len() < 2_500, "{} characters: {link}", fragment.len());
    let size = browser.value(
        "import('/picture.js').then((it) => it.picture({ started_s: 1.8e9 })) \
         .then(createImageBitmap).then((it) => [it.width, it.height])",
    );
    assert_eq!(size[0], 1520);
    assert!(size[1].as_u64().unwrap() > 1000, "{size}");
    for origin in ["A result of this browser of ", "A result from a link, of "] {
        open_afresh(browser, &link);
        let shown = text_of(browser, "origin");
        assert!(shown.starts_with(origin), "{shown}");
        for (id, measured) in [("verdict", &verdict), ("uses", &uses), ("rows", &rows)] {
            assert_eq!(text_of(browser, id), *measured, "{id}");
        }
        let curves = "document.querySelectorAll('#latency polyline[points*=\",\"]').length";
        assert!(browser.value(curves).as_u64().unwrap() >= 4);
        browser.value("document.querySelector('#forget').click()");
        assert_eq!(browser.value("document.querySelector('#history').hidden"), true);
    }
}

/// A line that was never loaded gets no grade, however fast its probes were.
#[test]
fn a_line_that_the_server_gives_no_load_gets_no_grade() {
    let Some(mut browser) = browser("a_line_that_the_server_gives_no_load_gets_no_grade") else {
        return;
    };
    let (anonymous_bytes_per_hour, compat_bit_per_s) = (0, 50_000_000);
    let limits = Limits { anonymous_bytes_per_hour, compat_bit_per_s, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let (server, _) = server(service.compat());
    browser.screen(Screen::Desktop, false);
    let result = measured(&mut browser, &format!("https://{}/?probes=fetch", server.address()));
    let used_up = "the quota of this hour is used up";
    for row in &result["summary"].as_array().unwrap()[1..] {
        assert!(row["probes"].as_u64().unwrap() > 10, "{row}");
        assert_eq!((row["rate"].as_f64(), &row["refused"]), (Some(0.0), &json!(used_up)), "{row}");
    }
    let verdict = text_of(&mut browser, "verdict");
    let no_grade =
        |way| format!("Loaded {way}: no grade, because the server gave no load: {used_up}.");
    assert_eq!(verdict, format!("{} {}", no_grade("down"), no_grade("up")));
    if let Some(path) = std::env::var_os("UNDERLOAD_PICTURE") {
        std::fs::write(path, browser.picture(true)).unwrap();
    }
}

/// Measures an emulated line with Chromium, or with the Firefox in `UNDERLOAD_FIREFOX`;
/// `docs/contributing/measure.md` describes how to run it.
#[test]
#[ignore = "needs a page at UNDERLOAD_WEB_URL"]
fn a_browser_measures_the_page_at_an_address() {
    let address = std::env::var("UNDERLOAD_WEB_URL").expect("UNDERLOAD_WEB_URL=https://HOST:4863/");
    let name = "a_browser_measures_the_page_at_an_address";
    let tell = |result: &Value| {
        eprintln!("{}\n{}", result["probe"], result["lost_up_down"]);
        eprintln!("{}", serde_json::to_string_pretty(&result["summary"]).unwrap());
        if let Some(path) = std::env::var_os("UNDERLOAD_WEB_RESULT") {
            std::fs::write(path, result.to_string()).unwrap();
        }
    };
    if std::env::var_os("UNDERLOAD_FIREFOX").is_some() {
        let Some(mut firefox) = Firefox::start(name) else { return };
        return tell(&firefox.measured(&address));
    }
    let Some(mut browser) = browser(name) else { return };
    browser.screen(Screen::Desktop, false);
    tell(&measured(&mut browser, &address));
    if let Some(path) = std::env::var_os("UNDERLOAD_PICTURE") {
        std::fs::write(path, browser.picture(true)).unwrap();
    }
}
