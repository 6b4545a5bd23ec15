//! Repeats the requests of the other tests over TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, version};
use underload_fleet::store::Memory;
use underload_orchestrator::http::{Config, Core, Limits, Running, serve, system_clock};

use super::client::{nobody, request};

#[test]
fn slow_tls_handshakes_are_disconnected() {
    let brief = Duration::from_millis(300);
    let limits = Limits { idle_max: brief, ..Limits::default() };
    let (running, client) = served(limits);
    // One client sends the beginning of a handshake and then nothing; the other sends nothing at
    // all.
    let hello: [&[u8]; 2] = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""];
    for bytes in hello {
        let mut stream = TcpStream::connect(running.address()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
        stream.write_all(bytes).expect("it is sent");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let is_closed = ended.is_ok_and(|read| read == 0);
        assert!(is_closed, "{rest:?}");
    }
    // A client that sends its head slowly within TLS gets the same time.
    let mut slow = connected(&running, client);
    slow.write_all(b"GET /v1/openapi.json HT").expect("it is sent");
    let mut text = String::new();
    let _ = slow.read_to_string(&mut text);
    assert!(!text.contains("200 OK"), "{text}");
    running.stop();
}

fn served(limits: Limits) -> (Running, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate");
    let store = Box::new(Memory::new());
    let core = Core::start(vec![store], system_clock(), &limits, &nobody()).expect("it starts");
    let listen = "127.0.0.1:0".parse().expect("an address");
    let config = Config { listen, tls: Some(Arc::new(server)), limits, pages: None };
    let running = serve(core, config).expect("it serves");

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("it is one");
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (running, client)
}

fn connected(running: &Running, client: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(client), name).expect("a client");
    let stream = TcpStream::connect(running.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
    StreamOwned::new(connection, stream)
}

#[test]
fn requests_go_over_tls_and_plain_ones_do_not() {
    let (running, client) = served(Limits::default());
    let mut stream = connected(&running, client);
    stream.write_all(&request("GET", "/v1/openapi.json", &[], "")).expect("it is sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");

    let mut plain = TcpStream::connect(running.address()).expect("it listens");
    plain.write_all(&request("GET", "/v1/openapi.json", &[], "")).expect("it is sent");
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
    running.stop();
}
