//! Requests to orchestrators: sessions, authentication, and the classification of failures.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::agent::Trouble;
use underload_fleet::device::Attributes;
use underload_fleet::message::{Enrolled, Problem, ServerAddress, Session};
use underload_fleet::operator;
use underload_fleet::removal::Removal;
use underload_fleet::request::authenticate;
use underload_probe::control::ServiceError;
use underload_probe::network::Reach;
use underload_record::text::one_line;
use ureq::http::{Response, header};
use ureq::unversioned::transport::{Connector as _, TcpConnector};
use ureq::{Agent, Body};

use crate::address::{Address, Connected, Finder};
use crate::identity::Identity;
use crate::tls::{TlsConnector, Trust};

/// A client of the orchestrators for a device or a server.
#[derive(Debug)]
pub struct Client {
    http: Agent,
    orchestrators: Vec<Address>,
    reaches: Vec<Reach>,
    connected: Connected,
    session: Option<CurrentSession>,
    /// A reading of the orchestrator's clock, milliseconds since 1970, and when it was taken.
    clock: Option<(Instant, u64)>,
}

#[derive(Debug)]
struct CurrentSession {
    text: String,
    key: [u8; 32],
    expires_ms: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Failure {
    /// How the device reacts.
    pub trouble: Trouble,
    pub words: String,
    /// The orchestrator's name for the problem, such as `session-over`; empty if the answer is not
    /// an orchestrator's.
    pub code: String,
    /// The removal in the answer, not verified yet.
    removal: Option<Box<Removal>>,
}

impl Failure {
    fn no_answer(words: String) -> Self {
        Self { trouble: Trouble::NoAnswer, words, code: String::new(), removal: None }
    }

    /// Turns a removal that is signed for this enrolment into [`Trouble::Removed`].
    fn verified(mut self, identity: &Identity) -> Self {
        if let Some(removal) = self.removal.take()
            && identity.is_ended_by(&removal)
        {
            self.trouble = Trouble::Removed { at_ms: removal.at_ms };
        }
        self
    }
}

/// Longest time of a request with its answer.
const REQUEST_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
pub(crate) const ANSWER_MAX: u64 = 1 << 20;
/// A session that expires sooner than this is renewed before a request.
const SESSION_LEAST_MS: u64 = 60_000;
/// The delay of "later" without `Retry-After`.
const LATER_MS: u64 = 60_000;

impl Client {
    /// A client of these orchestrators, which follows no redirects.
    pub fn new(orchestrators: Vec<Address>, trust: Trust) -> Result<Self, ServiceError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would send the credentials to another host.
            .max_redirects(0)
            .proxy(None)
            .user_agent(VERSION)
            .timeout_global(Some(REQUEST_MAX))
            .timeout_connect(Some(CONNECT_MAX))
            // The orchestrator closes a connection that is idle for 30 s.
            .max_idle_age(Duration::from_secs(20))
            .max_idle_connections(1)
            .build();
        let connected = Connected::default();
        let connector = ().chain(TcpConnector::default()).chain(connected.clone());
        let connector = connector.chain(TlsConnector(trust.config()?));
        let http = Agent::with_parts(config, connector, Finder::default());
        let reaches = orchestrators.iter().map(Address::reach).collect();
        Ok(Self { http, orchestrators, reaches, connected, session: None, clock: None })
    }

    /// Returns the network of an orchestrator, by the connection that it last answered on.
    pub fn reach(&self, orchestrator: usize) -> Reach {
        self.reaches.get(orchestrator).copied().unwrap_or(Reach::Global)
    }

    pub fn orchestrators(&self) -> usize {
        self.orchestrators.len()
    }

    /// Returns the orchestrator's clock, milliseconds since 1970; the system's if it is unknown.
    pub fn now_ms(&self) -> u64 {
        match self.clock {
            Some((then, now_ms)) => now_ms.saturating_add(then.elapsed().as_millis() as u64),
            None => system_ms(),
        }
    }

    /// Enrols a device or a server.
    ///
    /// # Errors
    /// [`Trouble::Refused`] if the code is not valid.
    pub fn enrol(
        &mut self,
        orchestrator: usize,
        identity: &Identity,
        code: &str,
        attributes: Attributes,
        server: Option<ServerAddress>,
    ) -> Result<Enrolled, Failure> {
        let body = written(&identity.enrol(code, attributes, server))?;
        read(&self.send(orchestrator, "/v1/enrol", &body, &[])?)
    }

    /// Sends a message in the current session.
    pub fn ask<M: Serialize, A: DeserializeOwned>(
        &mut self,
        orchestrator: usize,
        identity: &Identity,
        path: &str,
        message: &M,
    ) -> Result<A, Failure> {
        self.ask_text(orchestrator, identity, path, &written(message)?)
    }

    /// Sends a message in JSON in the current session.
    pub fn ask_text<A: DeserializeOwned>(
        &mut self,
        orchestrator: usize,
        identity: &Identity,
        path: &str,
        body: &str,
    ) -> Result<A, Failure> {
        let first = self.authenticated(orchestrator, identity, path, body);
        let answer = match first {
            // The session ended or the clock was set: tries once more with a new session.
            Err(failure) if SESSION_CODES.contains(&&*failure.code) => {
                self.session = None;
                self.authenticated(orchestrator, identity, path, body)
            }
            other => other,
        };
        read(&answer.map_err(|failure| failure.verified(identity))?)
    }

    /// Sends a message with an operator's token to the first orchestrator.
    pub fn ask_as_operator<M: operator::Message>(
        &mut self,
        token: &str,
        message: &M,
    ) -> Result<M::Answer, Failure> {
        let shown = format!("Bearer {token}");
        let headers = [(header::AUTHORIZATION.as_str(), &*shown)];
        read(&self.send(0, M::PATH, &written(message)?, &headers)?)
    }

    /// Sends a JSON document to the first address, which need not be an orchestrator, and ignores
    /// the body of the answer.
    ///
    /// # Errors
    /// If the answer's status is not 2xx.
    pub fn post(&mut self, path: &str, body: &str) -> Result<(), Failure> {
        self.send(0, path, body, &[]).map(drop)
    }

    fn authenticated(
        &mut self,
        orchestrator: usize,
        identity: &Identity,
        path: &str,
        body: &str,
    ) -> Result<Vec<u8>, Failure> {
        let session = match self.session.take() {
            Some(session) if session.expires_ms > self.now_ms() + SESSION_LEAST_MS => session,
            _ => self.open_session(orchestrator, identity)?,
        };
        let at_ms = self.now_ms();
        let tag = authenticate(&session.key, "POST", path, at_ms, body.as_bytes());
        let at = at_ms.to_string();
        let headers = [(SESSION, &*session.text), (TIME, &*at), (TAG, &*tag)];
        let answer = self.send(orchestrator, path, body, &headers);
        self.session = Some(session);
        answer
    }

    fn open_session(
        &mut self,
        orchestrator: usize,
        identity: &Identity,
    ) -> Result<CurrentSession, Failure> {
        let open = |client: &mut Self| {
            let body = written(&identity.open_session(client.now_ms()))?;
            client.send(orchestrator, "/v1/session", &body, &[])
        };
        let before = self.now_ms();
        let answer = match open(self) {
            // The refusal contained the orchestrator's time.
            Err(failure)
                if failure.trouble == Trouble::Refused
                    && before.abs_diff(self.now_ms()) > SESSION_LEAST_MS =>
            {
                open(self)?
            }
            // The known time is wrong once the orchestrator's clock is set back, and the `Date`
            // header may repeat the old time until the clock has caught up.
            Err(failure) if failure.code == "stale" && self.clock.take().is_some() => open(self)?,
            other => other?,
        };
        let session: Session = read(&answer)?;
        self.clock = Some((Instant::now(), session.now_ms));
        let key = HEXLOWER.decode(session.key.as_bytes()).ok();
        let key = key.and_then(|key| key.try_into().ok());
        let key = key.ok_or_else(|| not_understood("the session's key is malformed"))?;
        Ok(CurrentSession { text: session.session, key, expires_ms: session.expires_ms })
    }

    fn send(
        &mut self,
        orchestrator: usize,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Result<Vec<u8>, Failure> {
        let unknown =
            || Failure::no_answer(format!("there is no orchestrator {}", orchestrator + 1));
        let base = self.orchestrators.get(orchestrator).ok_or_else(unknown)?;
        let mut request =
            self.http.post(format!("{base}{path}")).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = request.send(body);
        let error = |error: ureq::Error| Failure::no_answer(format!("{base}: {error}"));
        let mut response = sent.map_err(error)?;
        let status = response.status().as_u16();
        let date = date_ms(&response);
        let after_s = header_of(&response, header::RETRY_AFTER.as_str());
        let after_s = after_s.and_then(|text| text.parse::<u64>().ok());
        let bytes = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let bytes = bytes.map_err(error)?;
        if (200..300).contains(&status) {
            if let Some(reach) = self.connected.reach_of(base) {
                self.reaches[orchestrator] = reach;
            }
            return Ok(bytes);
        }
        let Problem { code, message, removal } =
            serde_json::from_slice(&bytes).unwrap_or_else(|_| Problem {
                code: String::new(),
                message: String::new(),
                removal: None,
            });
        let is_other = |date: &u64| date.abs_diff(self.now_ms()) > SESSION_LEAST_MS;
        // A request with a wrong time is refused, and the answer contains the right time.
        let has_wrong_time = status == 401 && !code.is_empty();
        if let Some(date) = date.filter(|date| has_wrong_time && is_other(date)) {
            self.clock = Some((Instant::now(), date));
        }
        let words = format!("{base} answered {status}: {}", one_line(&message));
        let trouble = meaning(status, &code, after_s);
        Err(Failure { trouble, words, code, removal })
    }
}

pub const VERSION: &str = concat!("underload ", env!("CARGO_PKG_VERSION"));

/// Headers of a request, see [`underload_fleet::request`].
const SESSION: &str = "underload-session";
const TIME: &str = "underload-time";
const TAG: &str = "underload-tag";
/// Codes of failures that a new session resolves.
const SESSION_CODES: [&str; 4] = ["no-session", "session-over", "stale", "forged"];

/// Classifies a status. A proxy may answer with any status, so a status without an orchestrator's
/// `code` has no effect that outlasts the next attempt. A 410 has no effect until its removal is
/// verified; see [`Failure::verified`].
fn meaning(status: u16, code: &str, after_s: Option<u64>) -> Trouble {
    let is_orchestrators = !code.is_empty();
    match status {
        429 | 503 => {
            let after_ms = after_s.map_or(LATER_MS, |seconds| seconds.saturating_mul(1_000));
            Trouble::Later { after_ms }
        }
        400 | 413 | 422 if is_orchestrators => Trouble::Unfit,
        409 if code == "outdated" => Trouble::Outdated,
        401 | 403 | 404 | 409 if is_orchestrators => Trouble::Refused,
        _ => Trouble::NoAnswer,
    }
}

fn header_of<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Parses the header `Date` (RFC 9110 section 5.6.7), milliseconds since 1970.
fn date_ms(response: &Response<Body>) -> Option<u64> {
    read_date(header_of(response, header::DATE.as_str())?)
}

fn read_date(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    u64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn written(message: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(message).map_err(|error| not_understood(&error.to_string()))
}

fn read<A: DeserializeOwned>(answer: &[u8]) -> Result<A, Failure> {
    serde_json::from_slice(answer).map_err(|error| not_understood(&error.to_string()))
}

fn not_understood(why: &str) -> Failure {
    Failure::no_answer(format!("the answer is not an orchestrator's: {why}"))
}

pub(crate) fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpListener;

    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use underload_fleet::removal::Removed;

    use super::*;

    /// Serves one answer per connection, in this order.
    fn serve(answers: Vec<(u16, String)>) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("the rest of the request");
                    request.push(byte[0]);
                }
                let head = format!(
                    "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).expect("the answer is sent");
            }
        });
        address.parse().expect("it is this machine")
    }

    #[test]
    fn only_a_signed_removal_of_this_enrolment_removes() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let mut identity = Identity::load_or_create(directory.path()).expect("a key");
        let pair = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key");
        let lease_key = HEXLOWER.encode(pair(1).public_key().as_ref());
        let (device, enrolled_ms) = (identity.device(), Some(7));
        let enrolled = Enrolled { device, lease_key, enrolled_ms };
        identity.note_enrolled(enrolled).expect("written");
        let gone = |removal: Option<Removal>| {
            let (code, message) = ("removed".to_owned(), String::new());
            let removal = removal.map(Box::new);
            serde_json::to_string(&Problem { code, message, removal }).expect("JSON")
        };
        let stated = |enrolled_ms, key| gone(Some(Removed { device, enrolled_ms }.sign(key, 99)));
        let removed = Trouble::Removed { at_ms: 99 };
        for (body, trouble) in [
            ("<html>410 Gone: this site has moved</html>".to_owned(), Trouble::NoAnswer),
            (gone(None), Trouble::NoAnswer),
            (stated(7, &pair(2)), Trouble::NoAnswer),
            (stated(6, &pair(1)), Trouble::NoAnswer),
            (stated(7, &pair(1)), removed),
        ] {
            let now_ms = system_ms();
            let session = Session {
                session: "a session".to_owned(),
                key: "22".repeat(32),
                expires_ms: now_ms + 3_600_000,
                now_ms,
            };
            let session = serde_json::to_string(&session).expect("JSON");
            let asked = serve(vec![(200, session), (410, body.clone())]);
            let mut client = Client::new(vec![asked], Trust::Authorities).expect("a client");
            let message = serde_json::json!({});
            let answer = client.ask::<_, ()>(0, &identity, "/v1/next", &message);
            assert_eq!(answer.expect_err("it is no answer").trouble, trouble, "{body}");
            // A body equal to the answer to the request that opens a session.
            let asked = serve(vec![(410, body.clone())]);
            let mut client = Client::new(vec![asked], Trust::Authorities).expect("a client");
            let answer = client.ask::<_, ()>(0, &identity, "/v1/next", &message);
            assert_eq!(answer.expect_err("it is no answer").trouble, trouble, "{body}");
        }
    }

    #[test]
    fn an_orchestrators_clock_that_was_set_back_does_not_lock_a_device_out() {
        let directory = underload_disk::faults::private_tempdir().expect("a directory");
        let identity = Identity::load_or_create(directory.path()).expect("a key");
        let (code, message) = ("stale".to_owned(), String::new());
        let stale = Problem { code, message, removal: None };
        let stale = serde_json::to_string(&stale).expect("JSON");
        let (now_ms, key) = (system_ms(), "22".repeat(32));
        let expires_ms = now_ms + 3_600_000;
        let session = Session { session: "a session".to_owned(), key, expires_ms, now_ms };
        let session = serde_json::to_string(&session).expect("JSON");
        let asked = serve(vec![(401, stale), (200, session), (200, "null".to_owned())]);
        let mut client = Client::new(vec![asked], Trust::Authorities).expect("a client");
        // Three days ahead, as the orchestrator's clock was at the first request.
        client.clock = Some((Instant::now(), now_ms + 3 * 86_400_000));
        let message = serde_json::json!({});
        assert_eq!(client.ask::<_, ()>(0, &identity, "/v1/next", &message), Ok(()));
        assert!(client.now_ms().abs_diff(system_ms()) < 60_000, "its own clock is right");
    }

    #[test]
    fn redirects_of_an_orchestrator_are_not_followed() {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (here, there) = (bind(), bind());
        let address = |of: &TcpListener| format!("http://{}", of.local_addr().expect("bound"));
        let location = address(&there);
        let asked: Address = address(&here).parse().expect("it is this machine");
        let redirects = std::thread::spawn(move || {
            let (mut stream, _) = here.accept().expect("a client");
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("the rest of the request");
                request.push(byte[0]);
            }
            let head = format!(
                "HTTP/1.1 307 Elsewhere\r\nLocation: {location}/\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("the answer is sent");
            request
        });
        let mut client = Client::new(vec![asked], Trust::Authorities).expect("a client");
        let message = operator::StopPlan { name: String::new() };
        let answer = client.ask_as_operator("secret", &message);
        let failure = answer.expect_err("it is no answer");
        assert!(failure.words.contains("answered 307"), "{failure}");
        let request = redirects.join().expect("it ended");
        assert!(String::from_utf8_lossy(&request).contains("secret"), "the right one was asked");
        there.set_nonblocking(true).expect("as asked");
        let waiting = there.accept().map(drop).expect_err("no client connected");
        assert_eq!(waiting.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn formatted_dates_parse_to_the_same_time() {
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
        ] {
            assert_eq!(read_date(text), Some(seconds * 1_000), "{text}");
        }
        for none in ["", "yesterday", "Sun, 06 Nov 1994 08:49:37 CET", "a b c d e f g GMT"] {
            assert_eq!(read_date(none), None, "{none}");
        }
    }

    #[test]
    fn a_status_without_an_orchestrators_error_code_is_no_verdict() {
        for status in (300..600).filter(|status| ![429, 503].contains(status)) {
            assert_eq!(meaning(status, "", Some(7)), Trouble::NoAnswer, "{status}");
        }
        for code in ["", "busy"] {
            assert_eq!(meaning(429, code, Some(7)), Trouble::Later { after_ms: 7_000 });
            assert_eq!(meaning(503, code, None), Trouble::Later { after_ms: LATER_MS });
        }
        assert_eq!(meaning(413, "too-large", None), Trouble::Unfit);
        assert_eq!(meaning(403, "not-a-device", None), Trouble::Refused);
        assert_eq!(meaning(409, "outdated", None), Trouble::Outdated);
        assert_eq!(meaning(409, "name-taken", None), Trouble::Refused);
        assert_eq!(meaning(410, "removed", None), Trouble::NoAnswer, "until it is verified");
    }
}
