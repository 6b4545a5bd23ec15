//! Peers that send one byte at a time, in every phase of a connection, neither exceed a time limit
//! nor delay the end of the server. This test has a process for itself, so that its threads and
//! descriptors are the server's.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use socket2::{Domain, Socket, Type};
use underload_service::{Identity, Limits, Service, ServiceConfig};

/// Accepts every certificate; this test does not check the server's identity.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
    }
}

/// The phase from which the peer sends one byte at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    FirstBytes,
    /// The request of a load flow.
    Flow,
    Hello,
    Question,
    Held,
}

/// A connection on which one byte is sent per turn.
struct Drip {
    phase: Phase,
    gap: Duration,
    next: Instant,
    socket: TcpStream,
    bytes: Vec<u8>,
    sent: usize,
}

impl Drip {
    /// Connects from an address in 127.0.0.0/8 and sends everything before `phase` at full speed.
    fn begin(server: SocketAddr, from: [u8; 4], phase: Phase, gap_ms: u64) -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&server.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true).unwrap();
        let (socket, bytes) = match phase {
            // Too few bytes to distinguish the kinds of connections.
            Phase::FirstBytes => (socket, vec![22, 3, 1]),
            Phase::Flow => {
                let mut bytes = b"ULD1".to_vec();
                // A byte less than a request.
                bytes.resize(63, 0);
                (socket, bytes)
            }
            Phase::Hello => {
                let mut bytes = vec![22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec, 3, 3];
                bytes.resize(0x3ff0, 0);
                (socket, bytes)
            }
            Phase::Question => Self::secure(socket, &[0x10, 0], false)?,
            Phase::Held => {
                let question = b"{\"protocol\":2,\"token\":null,\"up_bit_per_s\":1000,\
                    \"down_bit_per_s\":1000,\"duration_ms\":1500}";
                let mut message = (question.len() as u16).to_be_bytes().to_vec();
                message.extend(question);
                Self::secure(socket, &message, true)?
            }
        };
        socket.set_nonblocking(true).unwrap();
        let gap = Duration::from_millis(gap_ms);
        Some(Self { phase, gap, next: Instant::now(), socket, bytes, sent: 0 })
    }

    /// Sends `first` over TLS and waits for an answer if `is_answered`. The connection then has a
    /// record of 16,000 bytes to send slowly.
    fn secure(socket: TcpStream, first: &[u8], is_answered: bool) -> Option<(TcpStream, Vec<u8>)> {
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(first).unwrap();
        stream.flush().unwrap();
        if is_answered {
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            let mut body = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            if !body.contains("granted") {
                return None;
            }
        }
        stream.conn.writer().write_all(&[b' '; 16_000]).unwrap();
        let mut bytes = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut bytes).unwrap();
        }
        Some((stream.sock, bytes))
    }

    /// Sends one more byte if it is time. Returns false once the server has closed.
    fn turn(&mut self) -> bool {
        if Instant::now() >= self.next {
            self.next += self.gap;
            if let Some(byte) = self.bytes.get(self.sent) {
                match self.socket.write(&[*byte]) {
                    Ok(_) => self.sent += 1,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
        }
        loop {
            match self.socket.read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Returns the number of this process's threads that serve a connection.
fn serving_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("comm"));
    tasks
        .flatten()
        .map(name)
        .filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "connection"))
        .count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Continues until the server has closed all connections, at most a minute. Returns how many are
/// still open.
fn drip_out(drips: &mut Vec<Drip>) -> usize {
    let until = Instant::now() + Duration::from_mins(1);
    while !drips.is_empty() && Instant::now() < until {
        drips.retain_mut(Drip::turn);
        std::thread::sleep(Duration::from_millis(1));
    }
    drips.len()
}

const SESSIONS: usize = 4;

fn service() -> Service {
    let limits = Limits {
        sessions_max: SESSIONS,
        duration_max: Duration::from_secs(2),
        ..Limits::generous()
    };
    let identity = Identity::generate().unwrap();
    let base = ServiceConfig::on_loopback(identity);
    Service::start(ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..base }).unwrap()
}

const GAPS_MS: [u64; 4] = [10, 50, 99, 101];

fn all_kinds(server: SocketAddr) -> Vec<Drip> {
    let phases = [Phase::FirstBytes, Phase::Flow, Phase::Hello, Phase::Question, Phase::Held];
    let kinds = phases.iter().flat_map(|phase| GAPS_MS.map(|gap_ms| (*phase, gap_ms)));
    let begun = kinds.enumerate().map(|(index, (phase, gap_ms))| {
        // Each connection is from another network.
        Drip::begin(server, [127, 1, index as u8, 1], phase, gap_ms)
    });
    begun.map(|drip| drip.expect("a session is granted")).collect()
}

#[test]
fn slow_clients_are_disconnected_and_delay_no_other() {
    let baseline = descriptors();
    let service = service();
    let own = descriptors() - baseline;

    let mut drips = all_kinds(service.address());
    assert_eq!(drips.iter().filter(|drip| drip.phase == Phase::Held).count(), SESSIONS);
    let left = drip_out(&mut drips);
    assert_eq!(left, 0, "limits are 5 s, 10 s and 2 s, and this took a minute");

    // Slow sessions leave nothing behind: four at a time, five times.
    for wave in 0..5u8 {
        for number in 0..SESSIONS as u8 {
            let from = [127, 2 + wave, number, 1];
            let drip = Drip::begin(service.address(), from, Phase::Held, 50);
            drips.push(drip.expect("a place is free: the last ones are over"));
        }
        assert!(service.sessions() <= SESSIONS);
        assert_eq!(drip_out(&mut drips), 0, "a session of 2 s, after a minute");
        // The server's side is closed; its thread may still run for a moment.
        let until = Instant::now() + Duration::from_secs(30);
        while (service.sessions() > 0 || serving_threads() > 0) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!((service.sessions(), serving_threads()), (0, 0));
        assert_eq!(descriptors() - baseline, own);
    }
    assert_eq!(service.counts().expired, (SESSIONS * 6) as u64);

    // The server also stops, in a separate thread, while all these connections are open.
    let mut drips = all_kinds(service.address());
    let dripping = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(30);
        while drips.iter_mut().any(Drip::turn) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(service);
        send.send(()).unwrap();
    });
    // A second is the promise on an idle machine; the connections would take minutes.
    receive.recv_timeout(Duration::from_secs(20)).expect("the server stops");
    dripping.join().unwrap();
}
