//! A device from its enrolment to its removal, with a measurement server on this machine and a mock
//! orchestrator that refuses what a real one refuses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use underload_agent::Trust;
use underload_agent::device::{AgentError, Config, End, run};
use underload_agent::measure::Measurer;
use underload_agent::spool::BYTES_DEFAULT;
use underload_aqm::time::{Span, Time};
use underload_fleet::agent::{Began, Limits, Ran, RunTask};
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{
    AssignedStep, Assignment, Enrol, Enrolled, Moved, Next, NextAnswer, OpenSession, Problem,
    Released, Results, ServerAddress, Session, Stored,
};
use underload_fleet::outcome::Outcome;
use underload_fleet::plan::Kind;
use underload_fleet::removal::Removed;
use underload_fleet::request::{Authenticated, open_session, sender};
use underload_probe::network::{Line, Reach, current_network};
use underload_record::schema::ValidityLimits;
use underload_service::{Identity, Service, ServiceConfig};

const SECRET: [u8; 32] = [9; 32];
const HOUR_MS: u64 = 3_600_000;
const ENROLLED_MS: u64 = 1_800_000_000_000;

/// The requests that the mock received.
#[derive(Debug, Default)]
struct Seen {
    paths: Vec<String>,
    stored: Vec<Results>,
    device: Option<DeviceId>,
}

struct StandIn {
    address: String,
    seen: Arc<Mutex<Seen>>,
}

/// The mock's clock is an hour ahead of this machine's.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_millis() as u64 + HOUR_MS
}

fn step(name: &str, kind: Kind) -> AssignedStep {
    AssignedStep {
        name: name.to_owned(),
        kind,
        duration_ms: 600,
        warm_up_ms: 200,
        classes: vec![0, 45],
        interval_ms: 20,
        probe_bytes: 100,
    }
}

impl StandIn {
    fn start(server: ServerAddress) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        let seen = Arc::<Mutex<Seen>>::default();
        let state = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                while answer(&stream, &server, &state).is_some() {}
            }
        });
        Self { address, seen }
    }
}

/// Answers one request; `None` at the end of the connection.
fn answer(stream: &TcpStream, server: &ServerAddress, seen: &Mutex<Seen>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = std::collections::BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let mut seen = seen.lock().expect("no thread panicked");
    seen.paths.push(path.clone());
    let header = |name: &str| headers.get(name).map_or("", String::as_str);
    let request = Authenticated {
        session: header("underload-session"),
        tag: header("underload-tag"),
        at_ms: header("underload-time").parse().unwrap_or(0),
        method: &method,
        target: &path,
        body: &body,
    };
    let (status, text) = match &*path {
        "/v1/enrol" | "/v1/session" => stranger(&path, &body, &mut seen),
        _ => match sender(&SECRET, now_ms(), &request) {
            Ok(device) if Some(device) == seen.device => signed(&path, &body, server, &mut seen),
            other => problem(401, "forged", &format!("{other:?}")),
        },
    };
    drop(seen);
    let date = "Date: Wed, 21 Oct 2015 07:28:00 GMT\r\n";
    // The `Date` of a success is ignored; this one is years old.
    let now = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now_ms()));
    let date = if status == 401 { format!("Date: {now}\r\n") } else { date.to_owned() };
    let mut stream = stream;
    let head = format!("HTTP/1.1 {status} X\r\n{date}Content-Length: {}\r\n\r\n", text.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(text.as_bytes()).ok()
}

fn said(answer: &impl Serialize) -> (u16, String) {
    (200, serde_json::to_string(answer).expect("an answer"))
}

fn problem(status: u16, code: &str, message: &str) -> (u16, String) {
    let (code, message) = (code.to_owned(), message.to_owned());
    let problem = Problem { code, message, removal: None };
    (status, serde_json::to_string(&problem).expect("a problem"))
}

/// The key that signs leases and removals.
fn lease_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any seed is a key")
}

fn removed(device: DeviceId) -> (u16, String) {
    let removal = Removed { device, enrolled_ms: ENROLLED_MS }.sign(&lease_key(), now_ms());
    let (code, message) = ("removed".to_owned(), "the device was removed".to_owned());
    let problem = Problem { code, message, removal: Some(Box::new(removal)) };
    (410, serde_json::to_string(&problem).expect("a problem"))
}

fn stranger(path: &str, body: &[u8], seen: &mut Seen) -> (u16, String) {
    if path == "/v1/enrol" {
        let enrol: Enrol = serde_json::from_slice(body).expect("a message");
        if enrol.code != "good" {
            return problem(403, "code", "the code is not good");
        }
        let key = HEXLOWER.decode(enrol.public_key.as_bytes()).expect("digits");
        let device = DeviceId::of_key(&key.try_into().expect("32 bytes"));
        seen.device = Some(device);
        let lease_key = HEXLOWER.encode(lease_key().public_key().as_ref());
        return said(&Enrolled { device, lease_key, enrolled_ms: Some(ENROLLED_MS) });
    }
    let open: OpenSession = serde_json::from_slice(body).expect("a message");
    if open.at_ms.abs_diff(now_ms()) > 300_000 {
        return problem(401, "stale", "five minutes off");
    }
    let expires_ms = now_ms() + HOUR_MS;
    let opened = open_session(&SECRET, open.device, expires_ms);
    let key = HEXLOWER.encode(&opened.key);
    said(&Session { session: opened.session, key, expires_ms, now_ms: now_ms() })
}

fn signed(path: &str, body: &[u8], server: &ServerAddress, seen: &mut Seen) -> (u16, String) {
    match path {
        "/v1/next" => {
            let next: Next = serde_json::from_slice(body).expect("a message");
            if next.request > 2 {
                return removed(seen.device.expect("it enrolled"));
            }
            let steps = vec![step("idle", Kind::Latency), step("up", Kind::Upload)];
            let nobody = ServerAddress { address: "127.0.0.1:1".to_owned(), ..server.clone() };
            let run = Assignment {
                plan: "a-plan".to_owned(),
                run: next.request,
                not_before_ms: now_ms(),
                not_after_ms: now_ms() + 60_000,
                steps,
                lease: "of no use here".to_owned(),
                lease_id: next.request,
                // The server is absent at the second attempt.
                servers: vec![if next.request == 1 { server.clone() } else { nobody }],
            };
            said(&NextAnswer {
                now_ms: now_ms(),
                next_poll_ms: now_ms(),
                run: Some(run),
                refusal: None,
                alone: None,
            })
        }
        "/v1/move" => said(&Moved { lease: None, server: None }),
        "/v1/release" => said(&Released { was_held: true }),
        "/v1/results" => {
            let results: Results = serde_json::from_slice(body).expect("a message");
            let new = results.results.len() as u32;
            seen.stored.push(results);
            said(&Stored { new, known: 0, refused: 0 })
        }
        _ => problem(404, "not-found", path),
    }
}

fn measurer() -> Measurer {
    Measurer {
        network: current_network(),
        line: Line::Ignored,
        busy_bit_per_s: 0,
        tier_bit_per_s: (1_000_000_000, 0),
        // A busy machine must not make runs invalid.
        limits: ValidityLimits {
            lateness_p99_ns: u64::MAX,
            slots_missed_percent: 100.0,
            cpu_pressure_percent: 100.0,
        },
        cancel: Arc::default(),
        carrier: None,
    }
}

fn config(stand_in: &StandIn, state: &std::path::Path, code: &str) -> Config {
    let any = u64::MAX;
    Config {
        // The first orchestrator is absent.
        orchestrators: ["http://127.0.0.1:1", &*stand_in.address]
            .map(|url| url.parse().expect("this machine"))
            .to_vec(),
        trust: Trust::Pinned(format!("sha256:{}", "00".repeat(32)).parse().expect("a key")),
        state: state.to_owned(),
        code: Some(code.to_owned()),
        attributes: Attributes::default(),
        measurer: measurer(),
        spool_bytes: BYTES_DEFAULT,
        start_within: Span::ZERO,
        confirm_removal: Span::from_millis(100),
        // Loopback transfers gigabytes in a second.
        limits: Limits { bytes_per_day: any, bytes_per_month: any, ..Limits::default() },
    }
}

fn server() -> (Service, ServerAddress) {
    let identity = Identity::generate().expect("a certificate");
    let ports = ServiceConfig { tcp_port: 0, udp_port: 0, ..ServiceConfig::on_loopback(identity) };
    let service = Service::start(ports).expect("a server");
    let address = ServerAddress {
        name: "east".to_owned(),
        address: service.address().to_string(),
        fingerprint: service.fingerprint().to_string(),
    };
    (service, address)
}

#[test]
fn a_device_from_its_enrolment_to_its_removal() {
    let (_service, address) = server();
    let stand_in = StandIn::start(address);
    let directory = underload_disk::faults::private_tempdir().expect("a directory");
    let stop = Arc::new(AtomicBool::new(false));
    let refused = run(config(&stand_in, directory.path(), "bad"), &stop, &|_| {});
    assert!(matches!(refused, Err(AgentError::Enrolment(_))), "{refused:?}");
    let watched = Arc::clone(&stop);
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(100) {
            std::thread::sleep(Duration::from_millis(100));
        }
        watched.store(true, Ordering::Relaxed);
    });
    let words = Mutex::new(Vec::new());
    let tell = |text: &str| words.lock().expect("no thread panicked").push(text.to_owned());
    let end = run(config(&stand_in, directory.path(), "good"), &stop, &tell);
    let words = words.into_inner().expect("no thread panicked");
    let seen = stand_in.seen.lock().expect("no thread panicked");
    assert_eq!(end.expect("it ran"), End::Removed, "{words:?} {seen:?}");
    let results: Vec<_> = seen.stored.iter().flat_map(|it| &it.results).collect();
    let [first, second] = results[..] else { panic!("{results:?} {words:?}") };
    assert_eq!([first.sequence, second.sequence], [1, 2]);
    assert_eq!(first.result.outcome, Outcome::Measured, "{first:?}");
    assert_eq!(first.result.fault(), None);
    assert!(first.result.at_ms.abs_diff(now_ms()) < 100_000, "by the orchestrator's clock");
    let [idle, up] = &first.result.steps[..] else { panic!("{first:?}") };
    for step in [idle, up] {
        assert!(step.series.iter().all(|series| series.sent >= 20), "{step:?}");
        assert!(step.series.iter().all(|series| series.lost * 2 < series.sent), "{step:?}");
    }
    assert_eq!((idle.goodput_bit_per_s, idle.grade), (None, None));
    assert!(idle.inside.is_none() && up.inside.as_ref().is_some_and(|it| it.sent > 0), "{up:?}");
    assert!(up.goodput_bit_per_s > Some(1_000_000) && up.tier_percent > Some(0.0), "{up:?}");
    assert_eq!((second.result.outcome, second.result.steps.len()), (Outcome::Refused, 0));
    assert!(second.result.reason.contains("no answer"), "{second:?}");
    // The result is stored and the lease released before the result is sent; a session is opened
    // once.
    let count = |path: &str| seen.paths.iter().filter(|it| *it == path).count();
    assert_eq!((count("/v1/release"), count("/v1/move")), (1, 1), "{:?}", seen.paths);
    assert_eq!((count("/v1/enrol"), count("/v1/session")), (2, 2), "one at the wrong time");
    let again = run(config(&stand_in, directory.path(), "good"), &stop, &|_| {});
    assert_eq!(again.expect("it ran"), End::Removed, "for good");
    assert_eq!(count("/v1/next"), 4, "its removal was confirmed, and nobody was asked again");
}

fn task(server: ServerAddress, bytes_max: u64) -> RunTask {
    let began = Began {
        request: 1,
        plan: "a-plan".to_owned(),
        run: 1,
        at_ms: now_ms(),
        lease_id: None,
        server: server.name.clone(),
    };
    let load = AssignedStep { duration_ms: 60_000, ..step("up", Kind::Upload) };
    RunTask { began, steps: vec![load.clone(), load], server, lease: None, bytes_max }
}

#[test]
fn a_run_ends_at_the_bytes_that_the_home_allows() {
    let (_service, address) = server();
    let start = Instant::now();
    let now = || Time::from_nanos(start.elapsed().as_nanos() as u64);
    let bytes_max = 20_000_000;
    let ran = measurer().run(&task(address, bytes_max), Reach::Loopback, &now);
    let Ran::Over { outcome, reason, bytes, steps, .. } = ran else { panic!("{ran:?}") };
    assert_eq!((outcome, steps.len()), (Outcome::Failed, 0), "{reason}");
    assert!(reason.contains("limit of bytes"), "{reason}");
    assert!(bytes >= bytes_max, "they are counted: {bytes}");
}

/// Forwards connections to `server`, without its reports of the received load.
fn without_reports(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(server).expect("it listens");
            std::thread::spawn(move || forward_without_reports(client, server));
        }
    });
    address
}

fn forward_without_reports(mut client: TcpStream, mut server: TcpStream) {
    let mut first = [0];
    let is_tls = client.peek(&mut first).is_ok() && first == [0x16];
    let (mut from, mut to) = (client.try_clone().expect("up"), server.try_clone().expect("up"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    if is_tls {
        let _ = std::io::copy(&mut server, &mut client);
    } else {
        let mut accepted = [0; 4_096];
        let count = server.read(&mut accepted).unwrap_or(0);
        let _ = client.write_all(&accepted[..count]);
        let _ = std::io::copy(&mut server, &mut std::io::sink());
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn a_server_that_reports_nothing_gets_no_more_bytes_than_the_home_allows() {
    let (service, direct) = server();
    let address = without_reports(service.address()).to_string();
    let address = ServerAddress { address, ..direct };
    let start = Instant::now();
    let now = || Time::from_nanos(start.elapsed().as_nanos() as u64);
    let bytes_max = 20_000_000;
    let mut task = task(address, bytes_max);
    task.steps.iter_mut().for_each(|step| step.duration_ms = 3_000);
    let ran = measurer().run(&task, Reach::Loopback, &now);
    let Ran::Over { outcome, reason, bytes, steps, .. } = ran else { panic!("{ran:?}") };
    assert_eq!((outcome, steps.len()), (Outcome::Failed, 0), "{reason}");
    assert!(reason.contains("limit of bytes"), "{reason}");
    assert!(bytes >= bytes_max, "they are counted: {bytes}");
}

#[test]
fn only_servers_in_the_orchestrators_network_are_contacted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("as asked");
    let now = || Time::ZERO;
    for address in [at.to_string(), format!("localhost:{}", at.port())] {
        let fingerprint = format!("sha256:{}", "ab".repeat(32));
        let server = ServerAddress { name: "east".to_owned(), address, fingerprint };
        for reach in [Reach::Global, Reach::Private] {
            let ran = measurer().run(&task(server.clone(), 1_000), reach, &now);
            let Ran::TurnedAway { reason } = ran else { panic!("{ran:?}") };
            assert_eq!(reason, "east: no address that this agent measures to");
        }
    }
    let waiting = listener.accept().map(drop).expect_err("no connection was made");
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock);
}
