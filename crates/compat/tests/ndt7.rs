//! The ndt7 client with a small server of the protocol, and with malicious servers, over loopback.

mod ndt7_server;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underload_compat::ndt7::{End, Ndt7Error, Ndt7Result, Ndt7Target, Ndt7Test, locate};
use underload_compat::nq::NqTrust;
use underload_record::schema::Direction;

use ndt7_server::{Manner, server};

fn run(
    manner: Manner,
    direction: Direction,
    duration_max: Duration,
) -> Result<Ndt7Result, Ndt7Error> {
    let (address, fingerprint) = server(manner);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let trust = NqTrust::Pinned(fingerprint);
    let congestion_control = Some("reno".to_owned());
    let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
    let mut watched = 0;
    let result = test.run(&mut |_, bytes| watched = bytes, &Arc::default());
    if let Ok(result) = &result {
        assert!(
            watched as f64 * 8.0 <= result.goodput_bit_per_s * result.elapsed.as_secs_f64() + 1.0
        );
    }
    result
}

#[test]
fn both_directions_are_measured_with_the_servers_counters() {
    let down = run(Manner::Honest, Direction::Down, Duration::from_secs(10)).unwrap();
    assert_eq!(down.end, End::Server, "{down:?}");
    assert!(down.elapsed >= Duration::from_secs(2), "{down:?}");
    assert!(down.goodput_bit_per_s > 1e6, "{down:?}");
    assert_eq!((down.rtt_min_us, down.sent_again_percent), (Some(20_000.0), Some(2.0)));
    assert!(
        !down.loaded_rtt_us().is_empty()
            && down.loaded_rtt_us().iter().all(|us| (us - 42_000.0).abs() < 1.0)
    );
    assert!(down.messages.0 > 3 && down.messages.1 == 0, "{down:?}");
    let told = down.server.unwrap().goodput_bit_per_s;
    assert!(told > 0.2 * down.goodput_bit_per_s, "{down:?}");

    let up = run(Manner::Honest, Direction::Up, Duration::from_millis(2_500)).unwrap();
    assert_eq!(up.end, End::Time, "{up:?}");
    assert!(up.goodput_bit_per_s > 1e6, "{up:?}");
    // Readings of this kernel, not of the server.
    assert!(
        up.loaded_rtt_us().len() > 3 && up.loaded_rtt_us().iter().all(|us| (us - 9.0).abs() > 1e-6),
        "{up:?}"
    );
    assert!(up.server.is_some(), "{up:?}");
    assert_eq!((down.congestion_control, up.congestion_control), (None, Some("reno".to_owned())));
}

#[test]
fn an_unavailable_congestion_control_is_reported() {
    let (address, fingerprint) = server(Manner::Honest);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let test = Ndt7Test {
        target,
        trust: NqTrust::Pinned(fingerprint),
        direction: Direction::Up,
        duration_max: Duration::from_secs(1),
        congestion_control: Some("no-such-thing".to_owned()),
    };
    let error = test.run(&mut |_, _| {}, &Arc::default()).unwrap_err();
    assert!(error.to_string().contains("no-such-thing"), "{error}");
}

#[test]
fn a_server_without_counters_is_measured() {
    for direction in [Direction::Down, Direction::Up] {
        let result = run(Manner::Silent, direction, Duration::from_secs(1)).unwrap();
        assert!(result.goodput_bit_per_s > 1e6, "{result:?}");
        assert_eq!(result.sent_again_percent, None);
    }
}

/// The client's buffers are full most of the time, which must not end the connection.
#[test]
fn a_narrow_line_is_loaded_to_the_end() {
    let result = run(Manner::Slow, Direction::Up, Duration::from_secs(4)).unwrap();
    assert_eq!(result.end, End::Time, "{result:?}");
    assert!(result.elapsed >= Duration::from_secs(4), "{result:?}");
}

#[test]
fn hostile_servers_are_reported_and_cost_little() {
    let second = Duration::from_secs(1);
    let (down, up) = (Direction::Down, Direction::Up);
    let error = run(Manner::LoadsInstead, up, second).unwrap_err();
    assert!(error.to_string().contains("sends load although"), "{error}");
    let error = run(Manner::TooLarge, down, second).unwrap_err();
    assert!(error.to_string().contains("larger message than the protocol allows"), "{error}");
    let result = run(Manner::Babbles, down, second).unwrap();
    assert!(result.messages.0 == 0 && result.messages.1 > 10, "{result:?}");
    let error = run(Manner::Closes, down, second).unwrap_err();
    assert!(matches!(error, Ndt7Error::Nothing { .. }), "{error}");
    let result = run(Manner::Breaks, down, Duration::from_secs(5)).unwrap();
    assert_eq!(result.end, End::Broken, "{result:?}");
    for manner in [Manner::Forbids, Manner::OtherProtocol] {
        let error = run(manner, down, second).unwrap_err();
        assert!(matches!(error, Ndt7Error::WebSocket { .. }), "{error}");
    }
}

/// The library for WebSocket reads on by itself while fragments without content arrive.
#[test]
fn empty_fragments_hold_neither_the_time_limit_nor_a_cancellation() {
    let result = run(Manner::Fragments, Direction::Down, Duration::from_secs(1)).unwrap();
    assert_eq!(result.end, End::Time, "{result:?}");
    let (address, fingerprint) = server(Manner::Fragments);
    let test = Ndt7Test {
        target: Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap(),
        trust: NqTrust::Pinned(fingerprint),
        direction: Direction::Down,
        duration_max: Duration::from_secs(10),
        congestion_control: None,
    };
    let cancelled: Arc<AtomicBool> = Arc::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            cancelled.store(true, Ordering::Relaxed);
        });
        let ended = test.run(&mut |_, _| {}, &cancelled).map(|result| result.end);
        assert!(matches!(ended, Ok(End::Cancelled)), "{ended:?}");
    });
}

#[test]
fn pings_of_a_server_that_reads_no_answer_end_the_test() {
    let error = run(Manner::Pings, Direction::Down, Duration::from_secs(10)).unwrap_err();
    assert!(error.to_string().contains("1,000 pings"), "{error}");
}

#[test]
fn a_server_that_never_answers_is_abandoned_after_ten_seconds() {
    let start = Instant::now();
    let error = run(Manner::Stalls, Direction::Down, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, Ndt7Error::Connect { step: "opening", .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_stranger_s_certificate_is_not_believed() {
    let (address, _) = server(Manner::Honest);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let trust = NqTrust::Pinned(format!("sha256:{}", "ab".repeat(32)).parse().unwrap());
    let direction = Direction::Down;
    let (duration_max, congestion_control) = (Duration::from_secs(1), None);
    let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
    let error = test.run(&mut |_, _| {}, &Arc::default()).unwrap_err();
    assert!(matches!(error, Ndt7Error::Connect { step: "the TLS handshake with", .. }), "{error}");
}

/// Answers every request with `answer`.
fn locate_service(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v2/nearest/ndt/ndt7", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it > 0) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn http(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
    )
}

#[test]
fn the_locate_service_names_servers_or_says_why_not() {
    if rustls_native_certs::load_native_certs().certs.is_empty() {
        eprintln!("SKIPPED the_locate_service_names_servers_or_says_why_not: no authorities here");
        return;
    }
    let body = r#"{"results":[{"location":{"city":"Here"},"urls":{
        "wss:///ndt/v7/download":"wss://a.example:4443/ndt/v7/download?access_token=t",
        "wss:///ndt/v7/upload":"wss://a.example:4443/ndt/v7/upload?access_token=t"}}]}"#;
    let good = locate_service(http("200 OK", "", body));
    let found = locate(&good).unwrap();
    assert_eq!(
        (found[0].target.name.as_str(), found[0].place.as_str()),
        ("a.example:4443", "Here")
    );
    let moved = locate_service(http("302 Found", &format!("Location: {good}\r\n"), ""));
    assert_eq!(locate(&moved).unwrap(), found);

    let full = locate(&locate_service(http("204 No Content", "", ""))).unwrap_err();
    assert!(full.to_string().contains("no server has room"), "{full}");
    let failed = locate(&locate_service(http("500 No", "", ""))).unwrap_err();
    assert!(failed.to_string().contains("answers 500"), "{failed}");
    let long = format!("{{\"results\":[],\"x\":\"{}\"}}", "a".repeat(1 << 20));
    assert!(locate(&locate_service(http("200 OK", "", &long))).is_err());
    // A circular redirect ends.
    let circle = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let loops = locate_service(http("302 Found", &format!("Location: http://{circle}/\r\n"), ""));
    assert!(locate(&loops).is_err());
}
