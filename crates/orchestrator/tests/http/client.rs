//! A fleet for tests, and a client that can be as careless or as hostile as a test needs.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::message::{Enrol, Enrolled, OpenSession, Problem, ServerAddress, Session};
use underload_fleet::orchestrator::NewCode;
use underload_fleet::request::authenticate;
use underload_fleet::store::{CodeFor, Memory, Needs, Store};
use underload_orchestrator::http::{Config, Core, Limits, Running, Tell, serve};
use underload_orchestrator::operator::{Role, TokenName, new_token};

/// An orchestrator whose clock and store the test controls.
pub struct Fleet {
    pub running: Running,
    pub memory: Memory,
    clock: Arc<AtomicU64>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// A device or a server with a session.
pub struct Sender {
    pub id: DeviceId,
    pub key: Ed25519KeyPair,
    pub session: Session,
}

pub const NOW_MS: u64 = 1_800_000_000_000;
/// Timeout that no step of these tests reaches, even with every core busy.
const PATIENCE: Duration = Duration::from_mins(1);

pub fn nobody() -> Tell {
    Arc::new(|_| {})
}

impl Fleet {
    pub fn new(limits: Limits) -> Self {
        let memory = Memory::new();
        Self::with(memory.clone(), Box::new(memory), limits)
    }

    pub fn with(memory: Memory, store: Box<dyn Store>, limits: Limits) -> Self {
        let clock = Arc::new(AtomicU64::new(NOW_MS));
        let shown = Arc::clone(&clock);
        let shown = Arc::new(move || shown.load(Ordering::SeqCst));
        let core = Core::start(vec![store], shown, &limits, &nobody()).expect("it starts");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let config = Config { listen, tls: None, limits, pages: None };
        let running = serve(core, config).expect("it serves");
        Self { running, memory, clock }
    }

    pub fn pass(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    pub fn code(&self, makes: CodeFor, secret: u8, valid_ms: u64) -> String {
        let (attributes, secret) = (Attributes::default(), [secret; 16]);
        let code = NewCode { makes, attributes, line: String::new(), valid_ms, secret };
        let mut store = self.memory.clone();
        let mut tx = store.begin(&Needs::default()).expect("it begins");
        let rules = &self.running.core.rules;
        let made = rules.new_codes(&mut *tx, self.now_ms(), "test", &[code]);
        let made = made.expect("it is kept").expect("it is made").remove(0);
        tx.commit().expect("it is committed");
        made
    }

    pub fn token(&self, name: &str, role: Role) -> String {
        let mut store = self.memory.clone();
        let mut tx = store.begin(&Needs::default()).expect("it begins");
        let name = TokenName::new(name).expect("a name");
        let expires_ms = self.now_ms() + 86_400_000;
        let token = new_token(&mut *tx, &name, role, expires_ms, [7; 32]).expect("it is kept");
        tx.commit().expect("it is committed");
        token
    }

    /// Sends bytes on a separate connection, and reads until its end.
    pub fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may refuse the request before all of it is sent.
        let _ = stream.write_all(bytes);
        read(&mut stream)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(&request("POST", path, headers, body))
    }

    pub fn ask<M: Serialize>(&self, path: &str, message: &M) -> Answer {
        self.post(path, &[], &json(message))
    }

    /// Builds a request that is signed with its session's key.
    pub fn signed(&self, sender: &Sender, path: &str, message: &impl Serialize) -> Answer {
        let body = json(message);
        let headers = sender.headers(self.now_ms(), path, &body);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.post(path, &headers, &body)
    }

    pub fn operator(&self, token: &str, path: &str, message: &impl Serialize) -> Answer {
        self.post(path, &[("authorization", &format!("Bearer {token}"))], &json(message))
    }

    /// Enrols a device, or the server of the given name.
    pub fn enrolled(&self, seed: u8, server: Option<&str>) -> Sender {
        let makes = if server.is_some() { CodeFor::Server } else { CodeFor::Device };
        let key = key(seed);
        let enrol = enrol(&self.code(makes, seed, 3_600_000), &key, server);
        let enrolled: Enrolled = self.ask("/v1/enrol", &enrol).good();
        let session = self.ask("/v1/session", &open(&key, self.now_ms())).good();
        Sender { id: enrolled.device, key, session }
    }
}

pub fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed is a key")
}

pub fn enrol(code: &str, key: &Ed25519KeyPair, server: Option<&str>) -> Enrol {
    Enrol {
        code: code.to_owned(),
        public_key: HEXLOWER.encode(key.public_key().as_ref()),
        proof: HEXLOWER.encode(key.sign(code.as_bytes()).as_ref()),
        attributes: Attributes::default(),
        server: server.map(address),
    }
}

pub fn address(name: &str) -> ServerAddress {
    ServerAddress {
        name: name.to_owned(),
        address: "192.0.2.1:4433".to_owned(),
        fingerprint: format!("sha256:{}", "0".repeat(64)),
    }
}

pub fn open(key: &Ed25519KeyPair, at_ms: u64) -> OpenSession {
    let public: [u8; 32] = key.public_key().as_ref().try_into().expect("32 bytes");
    let device = DeviceId::of_key(&public);
    let signature = key.sign(OpenSession::signed(device, at_ms).as_bytes());
    OpenSession { device, at_ms, signature: HEXLOWER.encode(signature.as_ref()) }
}

impl Sender {
    pub fn headers(&self, at_ms: u64, path: &str, body: &str) -> [(&'static str, String); 3] {
        let key = HEXLOWER.decode(self.session.key.as_bytes()).expect("it is hexadecimal");
        let key: [u8; 32] = key.try_into().expect("32 bytes");
        let tag = authenticate(&key, "POST", path, at_ms, body.as_bytes());
        [
            ("underload-session", self.session.session.clone()),
            ("underload-time", at_ms.to_string()),
            ("underload-tag", tag),
        ]
    }
}

pub fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("it can be written")
}

pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let length = body.len();
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n"
    );
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    [text.as_bytes(), b"\r\n", body.as_bytes()].concat()
}

/// Reads until the peer closes; the status is 0 if nothing was read.
pub fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // The peer may reset the connection after its answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

impl Answer {
    #[track_caller]
    pub fn good<A: DeserializeOwned>(&self) -> A {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status, and the problem's code.
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        let problem: Result<Problem, _> = serde_json::from_str(&self.body);
        let problem = problem.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        (self.status, problem.code)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        let mut found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.next()
    }
}
