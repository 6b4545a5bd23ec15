//! The ndt7 client against a small server that speaks the protocol, and against servers that do not
//! mean well; all over loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};
use underload_compat::ndt7::{
    End, Ndt7Error, Ndt7Result, Ndt7Target, Ndt7Test, SUBPROTOCOL, locate,
};
use underload_compat::nq::{LoadDirection, NqTrust};
use underload_probe::service::{Fingerprint, Identity};

type Web = WebSocket<StreamOwned<ServerConnection, TcpStream>>;

/// How a server behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// Load and nothing beside it.
    Silent,
    /// Reads uploads as slowly as a narrow line carries them.
    Slow,
    /// Sends load where it is asked to take some.
    LoadsInstead,
    /// One message that is larger than any may be.
    TooLarge,
    /// Text that is no measurement, without end.
    Babbles,
    /// Closes at once.
    Closes,
    /// Ends the connection in the middle of a message.
    Breaks,
    /// No WebSocket: 403.
    Forbids,
    /// A WebSocket of something else.
    OtherProtocol,
    /// TLS, and then nothing.
    Stalls,
}

const LENGTH: Duration = Duration::from_millis(2_500);

/// Starts a server whose threads end with its tests' connections.
fn server(manner: Manner) -> (SocketAddr, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let fingerprint = identity.fingerprint();
    let tls = identity.server_config().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let tls = Arc::clone(&tls);
            std::thread::spawn(move || serve(manner, stream, tls));
        }
    });
    (address, fingerprint)
}

fn serve(manner: Manner, stream: TcpStream, tls: Arc<ServerConfig>) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
    if manner == Manner::Stalls {
        let _ = stream.read(&mut [0; 1]);
        std::thread::sleep(Duration::from_secs(15));
        return;
    }
    let mut path = String::new();
    // The library wants this type back.
    #[expect(clippy::result_large_err, reason = "the signature is the library's")]
    let upgrade = |request: &Request, mut response: Response| {
        request.uri().path().clone_into(&mut path);
        let named = request.headers().get("Sec-WebSocket-Protocol");
        assert_eq!(named.unwrap().to_str().unwrap(), SUBPROTOCOL);
        assert!(request.uri().query().unwrap().contains("client_name=underload"));
        assert!(request.headers().contains_key("User-Agent"));
        if manner == Manner::Forbids {
            let mut refusal = ErrorResponse::new(Some("not you".to_owned()));
            *refusal.status_mut() = tungstenite::http::StatusCode::FORBIDDEN;
            return Err(refusal);
        }
        let agreed = if manner == Manner::OtherProtocol { "chat" } else { SUBPROTOCOL };
        response.headers_mut().insert("Sec-WebSocket-Protocol", agreed.parse().unwrap());
        Ok(response)
    };
    let config = WebSocketConfig::default().write_buffer_size(0);
    let Ok(mut web) = tungstenite::accept_hdr_with_config(stream, upgrade, Some(config)) else {
        return;
    };
    // Whatever ends the conversation, the client is asked.
    let _ = match (manner, path.as_str()) {
        (Manner::Closes, _) => web.close(None).and_then(|()| drain(&mut web)),
        (Manner::LoadsInstead, _) | (_, "/ndt/v7/download") => load(&mut web, manner),
        (_, "/ndt/v7/upload") => take(&mut web, manner),
        _ => Ok(()),
    };
}

fn load(web: &mut Web, manner: Manner) -> tungstenite::Result<()> {
    let start = Instant::now();
    let (mut sent, mut told) = (0_u64, Instant::now());
    if manner == Manner::TooLarge {
        web.send(Message::binary(vec![0; (1 << 24) + 1]))?;
    }
    if manner == Manner::Breaks {
        web.send(Message::binary(vec![0; 1 << 16]))?;
        // The head of a frame of 64 KiB, and a part of it.
        web.get_mut().write_all(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3])?;
        std::thread::sleep(Duration::from_millis(400));
        return Ok(());
    }
    while start.elapsed() < LENGTH {
        if manner == Manner::Babbles {
            web.send(Message::text("{\"TCPInfo\":".repeat(20)))?;
        }
        web.send(Message::binary(vec![0; 1 << 13]))?;
        sent += 1 << 13;
        if manner == Manner::Honest && told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            web.send(Message::Ping(vec![1, 2, 3].into()))?;
            let us = start.elapsed().as_micros();
            web.send(Message::text(format!(
                "{{\"AppInfo\":{{\"NumBytes\":{sent},\"ElapsedTime\":{us}}},\"TCPInfo\":{{\
                 \"RTT\":42000,\"MinRTT\":20000,\"BytesSent\":1000,\"BytesRetrans\":20}}}}"
            )))?;
        }
    }
    web.close(None)?;
    drain(web)
}

fn take(web: &mut Web, manner: Manner) -> tungstenite::Result<()> {
    let (start, mut told, mut taken) = (Instant::now(), Instant::now(), 0);
    loop {
        let message = web.read()?;
        assert!(!message.is_text(), "a client that only loads sends no text");
        taken += message.len();
        if manner == Manner::Slow {
            std::thread::sleep(Duration::from_millis(30));
        }
        if told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            let us = start.elapsed().as_micros();
            web.send(Message::text(format!(
                "{{\"TCPInfo\":{{\"BytesReceived\":{taken},\"ElapsedTime\":{us},\"RTT\":9}}}}"
            )))?;
        }
    }
}

fn drain(web: &mut Web) -> tungstenite::Result<()> {
    loop {
        web.read()?;
    }
}

fn run(
    manner: Manner,
    direction: LoadDirection,
    duration_max: Duration,
) -> Result<Ndt7Result, Ndt7Error> {
    let (address, fingerprint) = server(manner);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let trust = NqTrust::Pinned(fingerprint);
    let congestion_control = Some("reno".to_owned());
    let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
    let mut watched = 0;
    let result = test.run(&mut |_, bytes| watched = bytes, &AtomicBool::new(false));
    if let Ok(result) = &result {
        assert!(
            watched as f64 * 8.0 <= result.goodput_bit_per_s * result.elapsed.as_secs_f64() + 1.0
        );
    }
    result
}

#[test]
fn both_directions_are_measured_with_what_the_server_tells() {
    let down = run(Manner::Honest, LoadDirection::Down, Duration::from_secs(10)).unwrap();
    assert_eq!(down.end, End::Server, "{down:?}");
    assert!(down.elapsed >= Duration::from_secs(2), "{down:?}");
    assert!(down.goodput_bit_per_s > 1e6, "{down:?}");
    assert_eq!((down.rtt_min_us, down.sent_again_percent), (Some(20_000.0), Some(2.0)));
    assert!(
        !down.loaded_rtt_us.is_empty()
            && down.loaded_rtt_us.iter().all(|us| (us - 42_000.0).abs() < 1.0)
    );
    assert!(down.messages.0 > 3 && down.messages.1 == 0, "{down:?}");
    let told = down.server.unwrap().goodput_bit_per_s;
    assert!(told > 0.2 * down.goodput_bit_per_s, "{down:?}");

    let up = run(Manner::Honest, LoadDirection::Up, Duration::from_millis(2_500)).unwrap();
    assert_eq!(up.end, End::Time, "{up:?}");
    assert!(up.goodput_bit_per_s > 1e6, "{up:?}");
    // This kernel's readings, not the server's.
    assert!(
        up.loaded_rtt_us.len() > 3 && up.loaded_rtt_us.iter().all(|us| (us - 9.0).abs() > 1e-6),
        "{up:?}"
    );
    assert!(up.server.is_some(), "{up:?}");
    assert_eq!((down.congestion_control, up.congestion_control), (None, Some("reno".to_owned())));
}

#[test]
fn what_this_kernel_cannot_send_with_is_told_and_not_passed_over() {
    let (address, fingerprint) = server(Manner::Honest);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let test = Ndt7Test {
        target,
        trust: NqTrust::Pinned(fingerprint),
        direction: LoadDirection::Up,
        duration_max: Duration::from_secs(1),
        congestion_control: Some("no-such-thing".to_owned()),
    };
    let error = test.run(&mut |_, _| {}, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("no-such-thing"), "{error}");
}

#[test]
fn a_server_that_tells_nothing_is_measured_all_the_same() {
    for direction in [LoadDirection::Down, LoadDirection::Up] {
        let result = run(Manner::Silent, direction, Duration::from_secs(1)).unwrap();
        assert!(result.goodput_bit_per_s > 1e6, "{result:?}");
        assert_eq!(result.sent_again_percent, None);
    }
}

/// The client's buffers are full nearly all the time, and that is no end of the connection.
#[test]
fn a_narrow_line_is_loaded_to_the_end() {
    let result = run(Manner::Slow, LoadDirection::Up, Duration::from_secs(4)).unwrap();
    assert_eq!(result.end, End::Time, "{result:?}");
    assert!(result.elapsed >= Duration::from_secs(4), "{result:?}");
}

#[test]
fn servers_that_do_not_mean_well_are_told_and_cost_little() {
    let second = Duration::from_secs(1);
    let (down, up) = (LoadDirection::Down, LoadDirection::Up);
    let error = run(Manner::LoadsInstead, up, second).unwrap_err();
    assert!(error.to_string().contains("sends load although"), "{error}");
    let error = run(Manner::TooLarge, down, second).unwrap_err();
    assert!(error.to_string().contains("larger than the protocol allows"), "{error}");
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

#[test]
fn a_server_that_never_answers_is_left_after_ten_seconds() {
    let start = Instant::now();
    let error = run(Manner::Stalls, LoadDirection::Down, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, Ndt7Error::Connect { step: "opening", .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_stranger_s_certificate_is_not_believed() {
    let (address, _) = server(Manner::Honest);
    let target = Ndt7Target::of_host(&format!("ndt7://{address}")).unwrap();
    let trust = NqTrust::Pinned(format!("sha256:{}", "ab".repeat(32)).parse().unwrap());
    let direction = LoadDirection::Down;
    let (duration_max, congestion_control) = (Duration::from_secs(1), None);
    let test = Ndt7Test { target, trust, direction, duration_max, congestion_control };
    let error = test.run(&mut |_, _| {}, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, Ndt7Error::Connect { step: "the TLS handshake with", .. }), "{error}");
}

/// Answers every request with this.
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
    // A redirect in a circle ends.
    let circle = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let loops = locate_service(http("302 Found", &format!("Location: http://{circle}/\r\n"), ""));
    assert!(locate(&loops).is_err());
}
