//! The responsiveness client and server of this crate over loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{Domain, Socket, Type};
use underload_compat::nq::{NqClient, NqError, NqLimits, NqOptions, NqServer, NqTrust};
use underload_probe::control::Fingerprint;
use underload_record::schema::Direction;
use underload_service::{CompatLedger, Identity, Limits, Service, ServiceConfig};

fn server(limits: NqLimits) -> (NqServer, String, Fingerprint) {
    server_within(limits, CompatLedger::unlimited())
}

fn server_within(limits: NqLimits, ledger: CompatLedger) -> (NqServer, String, Fingerprint) {
    server_of(&Identity::generate().unwrap(), limits, ledger)
}

fn server_of(
    identity: &Identity,
    limits: NqLimits,
    ledger: CompatLedger,
) -> (NqServer, String, Fingerprint) {
    let fingerprint = identity.fingerprint();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server =
        NqServer::start(listener, &identity.server_config().unwrap(), limits, ledger).unwrap();
    let url = format!("https://{}", server.address());
    (server, url, fingerprint)
}

#[test]
fn both_directions_are_measured_with_both_formulas() {
    let (server, url, fingerprint) = server(NqLimits::default());
    let client = NqClient::open(&url, NqTrust::Pinned(fingerprint)).unwrap();
    for direction in [Direction::Down, Direction::Up] {
        let options = NqOptions {
            interval: Duration::from_millis(300),
            connections_max: 2,
            duration_max: Duration::from_millis(1_500),
            congestion_control: Some("reno".to_owned()),
            ..NqOptions::new(direction)
        };
        let result = client.measure(&options).unwrap();
        assert!(result.goodput_bit_per_s > 1e6, "{result:?}");
        assert!(result.responsiveness.is_some_and(|rpm| rpm.draft_09 > 1.0), "{result:?}");
        assert!((1..=2).contains(&result.connections), "{result:?}");
    }
    assert!(server.counts().requests > 10);
    let options = NqOptions {
        congestion_control: Some("no-such-thing".to_owned()),
        ..NqOptions::new(Direction::Up)
    };
    let error = client.measure(&options).unwrap_err();
    assert!(error.to_string().contains("no-such-thing"), "{error}");
}

/// Serves a configuration whose URLs are those of another server.
fn naming(other: &str) -> (String, Fingerprint) {
    let body = format!(
        r#"{{"version":1,"urls":{{"small_download_url":"{other}/small",
            "large_download_url":"{other}/large","upload_url":"{other}/upload"}}}}"#
    );
    naming_by(&Identity::generate().unwrap(), body)
}

/// Serves a configuration once.
fn naming_by(identity: &Identity, body: String) -> (String, Fingerprint) {
    let mut tls = identity.server_config().unwrap().as_ref().clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let stream = tokio_rustls::TlsAcceptor::from(Arc::new(tls)).accept(stream).await;
            let answer = hyper::service::service_fn(|_| {
                let body = http_body_util::Full::new(hyper::body::Bytes::from(body.clone()));
                async { Ok::<_, std::convert::Infallible>(hyper::Response::new(body)) }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = http.serve_connection(TokioIo::new(stream.unwrap()), answer).await;
        });
    });
    (url, identity.fingerprint())
}

#[test]
fn a_configuration_that_names_another_server_is_reported() {
    let (_server, other, _) = server(NqLimits::default());
    let (url, fingerprint) = naming(&other);
    let client = NqClient::open(&url, NqTrust::Pinned(fingerprint)).unwrap();
    assert_eq!(client.named().as_deref(), other.strip_prefix("https://"));
    let (url, fingerprint) = naming("https://192.168.9.9:1");
    let Err(error) = NqClient::open(&url, NqTrust::Pinned(fingerprint)) else {
        panic!("this machine's server named a host of a private network");
    };
    let shown = underload_probe::control::in_full(&error);
    assert!(shown.contains("192.168.9.9 is in a private network"), "{shown}");
}

/// The shapes of both companies' documents, each served by one host and naming another.
#[test]
fn the_host_that_a_public_servers_document_names_is_measured() {
    let identity = Identity::generate().unwrap();
    let limits = NqLimits::default();
    let (_server, other, _) = server_of(&identity, limits, CompatLedger::unlimited());
    let old = format!(
        r#"{{"version":1,"test_endpoint":"edge.example","urls":{{
            "small_https_download_url":"{other}/small","https_upload_url":"{other}/upload",
            "large_https_download_url":"{other}/large"}}}}"#
    );
    let both = format!(
        r#"{{"version":1,"urls":{{
            "small_download_url":"{other}/small?bytes=10","upload_url":"{other}/upload",
            "large_download_url":"{other}/large?bytes=1000","https_upload_url":"{other}/upload",
            "small_https_download_url":"{other}/small?bytes=10",
            "large_https_download_url":"{other}/large?bytes=1000"}}}}"#
    );
    for document in [old, both] {
        let (url, fingerprint) = naming_by(&identity, document);
        let client = NqClient::open(&url, NqTrust::Pinned(fingerprint)).unwrap();
        assert_eq!(client.named().as_deref(), other.strip_prefix("https://"));
        let options = NqOptions {
            interval: Duration::from_millis(300),
            duration_max: Duration::from_millis(600),
            ..NqOptions::new(Direction::Down)
        };
        let result = client.measure(&options).unwrap();
        let under_load_ns = result.round_trips.foreign_tcp_ns.iter().min().copied();
        assert!(result.smallest_tcp_ns <= under_load_ns.or(Some(u64::MAX)), "{result:?}");
        assert!(result.smallest_tcp_ns > Some(0), "{result:?}");
    }
}

#[test]
fn a_stranger_s_certificate_and_a_busy_server_are_refused_in_words() {
    let (_server, url, _) = server(NqLimits::default());
    let other: Fingerprint = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
    let Err(error) = NqClient::open(&url, NqTrust::Pinned(other)) else {
        panic!("a certificate that nobody knows was accepted");
    };
    assert!(matches!(error, NqError::Connect { step: "the TLS handshake with", .. }), "{error}");

    // The server has a single place, which the connection of the request occupies.
    let limits = NqLimits { connections_per_network_max: 1, ..NqLimits::default() };
    let (_server, url, fingerprint) = server(limits);
    let Err(error) = NqClient::open(&url, NqTrust::Pinned(fingerprint)) else {
        panic!("a server without places was used");
    };
    assert!(matches!(error, NqError::Status { status: 429, .. }), "{error}");
}

#[test]
fn incomplete_requests_do_not_hold_a_connection() {
    let (server, url, _) = server(NqLimits::default());
    let address = url.trim_start_matches("https://");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 64]] {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The peer reads an alert or nothing, and then the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    wait_until_closed(&server, Instant::now() + Duration::from_secs(10));
}

fn wait_until_closed(server: &NqServer, until: Instant) {
    while server.counts().open > 0 {
        assert!(Instant::now() < until, "{:?}", server.counts());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn load_stays_within_what_the_server_gives_to_clients_of_other_tools() {
    let limits = Limits { compat_bit_per_s: 8_000_000, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let windows = NqLimits { window_bytes: 128 << 10, ..NqLimits::default() };
    let (_server, url, fingerprint) = server_within(windows, service.compat());
    let client = NqClient::open(&url, NqTrust::Pinned(fingerprint)).unwrap();
    for direction in [Direction::Down, Direction::Up] {
        let options = NqOptions {
            interval: Duration::from_millis(500),
            connections_max: 4,
            duration_max: Duration::from_secs(4),
            ..NqOptions::new(direction)
        };
        let result = client.measure(&options).unwrap();
        // Without the limit, loopback carries hundreds of Mbit/s; windows and bursts add to the
        // limit.
        assert!(result.goodput_bit_per_s < 20e6, "{direction:?}: {}", result.goodput_bit_per_s);
        assert!(result.goodput_bit_per_s > 0.0, "{direction:?}");
    }
}

#[test]
fn silent_connections_of_other_networks_take_no_place_from_a_client() {
    let limits =
        NqLimits { connections_max: 64, connections_per_network_max: 16, ..NqLimits::default() };
    let (server, url, fingerprint) = server(limits);
    let address: std::net::SocketAddr = url.trim_start_matches("https://").parse().unwrap();
    let silent = |network: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, network, 1], 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        socket
    };
    let _silent: Vec<_> = (0..80).map(|number| silent(5 + number % 5)).collect();
    for _ in 0..10 {
        NqClient::open(&url, NqTrust::Pinned(fingerprint)).unwrap();
    }
    assert!(server.counts().busy > 0, "the premise: all places were taken");
}

/// A slow handshake is closed at its time limit, and at once when the server ends.
#[test]
fn slowly_sent_bytes_do_not_hold_a_connection() {
    let (server, url, _) = server(NqLimits::default());
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("https://")).unwrap();
    let mut hello = vec![0x16, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec, 3, 3];
    hello.resize(16_000, 0);
    let until = Instant::now() + Duration::from_mins(1);
    for byte in hello {
        assert!(Instant::now() < until, "open after a minute of 5 s");
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until_closed(&server, until);
}
