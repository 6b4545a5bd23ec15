//! The server's side of one control connection: question, answer, and the session that lasts as
//! long as the connection. This module opens no socket and reads no clock, so that its time limits
//! are tested in virtual time.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use underload_probe::control::{
    Answer, CONVERSATION_MAX, Lease, Limited, Notice, Question, ServiceError, Watch, read_message,
    write_message,
};
use underload_probe::network::is_temporary;

/// Longest time for the client to receive a notice; then the connection is closed.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// Longest time for the last message. Short, because a server must stop within a second.
const FAREWELL_MAX: Duration = Duration::from_millis(300);

/// A control connection. Each call of `S` must end within the look interval.
pub(crate) struct Conversation<S: Read + Write, W: Watch, L: Lease> {
    stream: StreamOwned<ServerConnection, Limited<S, W, L>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client closed the connection, sent a message, or is gone.
    Closed,
    /// The granted time or volume is used up.
    Expired,
    Stopped,
}

impl<S: Read + Write, W: Watch, L: Lease> Conversation<S, W, L> {
    /// Begins a conversation. The client has [`CONVERSATION_MAX`] for handshake, question and
    /// answer.
    pub(crate) fn begin(tls: Arc<ServerConfig>, stream: S, watch: W) -> Result<Self, ServiceError> {
        let connection = ServerConnection::new(tls).map_err(ServiceError::Tls)?;
        let limited = Limited::new(stream, watch, CONVERSATION_MAX);
        Ok(Self { stream: StreamOwned::new(connection, limited) })
    }

    pub(crate) fn question(&mut self) -> Result<Question, ServiceError> {
        read_message(&mut self.stream)
    }

    pub(crate) fn answer(&mut self, answer: &Answer) -> Result<(), ServiceError> {
        write_message(&mut self.stream, answer)
    }

    /// Waits until the client closes the connection, the session ends, or the server stops.
    /// Notifies the client when the session is throttled, and why it ends.
    pub(crate) fn hold(&mut self, lease: L) -> Ended {
        self.stream.sock.hold(lease);
        let mut reported = (false, false);
        loop {
            if self.stream.sock.is_stopped() {
                self.farewell("the server was stopped");
                return Ended::Stopped;
            }
            if let Some(reason) = self.stream.sock.lease().and_then(Lease::end) {
                self.farewell(reason);
                return Ended::Expired;
            }
            let throttled = self.stream.sock.lease().map_or(reported, Lease::throttled);
            if throttled != reported {
                reported = throttled;
                let (up, down) = throttled;
                self.stream.sock.allow(NOTICE_MAX);
                let written = write_message(&mut self.stream, &Notice::Throttled { up, down });
                self.stream.sock.allow(Duration::MAX);
                if written.is_err() && !self.stream.sock.is_over() {
                    return Ended::Closed;
                }
                continue;
            }
            match self.stream.read(&mut [0; 64]) {
                Err(error) if is_temporary(&error) || self.stream.sock.is_over() => {}
                Ok(_) | Err(_) => return Ended::Closed,
            }
        }
    }

    fn farewell(&mut self, reason: &str) {
        self.stream.sock.say_farewell(FAREWELL_MAX);
        // The client may be gone.
        let _ = write_message(&mut self.stream, &Notice::Ended { reason: reason.to_owned() });
    }

    /// Sends the end of the TLS stream. Does not wait for the client's, which may never come.
    pub(crate) fn close(mut self) {
        self.stream.sock.say_farewell(FAREWELL_MAX);
        self.stream.conn.send_close_notify();
        while self.stream.conn.wants_write() {
            match self.stream.conn.write_tls(&mut self.stream.sock) {
                Ok(1..) => {}
                Err(error) if is_temporary(&error) => {}
                Ok(0) | Err(_) => return,
            }
        }
        let _ = io::Write::flush(&mut self.stream.sock);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::time::Instant;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use rustls::ClientConnection;

    use underload_probe::control::{LOOK_INTERVAL, PROTOCOL, Pin, encode};

    use super::*;
    use crate::identity::Identity;

    /// Virtual time, and the times of events.
    #[derive(Clone, Debug)]
    struct World {
        now: Rc<Cell<Duration>>,
        stop_at: Duration,
        lease_end: Duration,
        throttled_from: Duration,
    }

    impl Watch for World {
        fn now(&self) -> Duration {
            self.now.get()
        }

        fn is_stopped(&self) -> bool {
            self.now() >= self.stop_at
        }
    }

    impl Lease for World {
        fn end(&self) -> Option<&'static str> {
            (self.now() >= self.lease_end).then_some("its time is up")
        }

        fn throttled(&self) -> (bool, bool) {
            (self.now() >= self.throttled_from, false)
        }
    }

    /// The phase from which on the client is slow; the phase never ends by itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Phase {
        /// A long first record.
        Hello,
        /// A question of 4096 bytes, each in a separate record.
        Question,
        /// Records of 16,000 bytes during the session.
        Held,
    }

    /// The behaviour of a client.
    #[derive(Clone, Debug)]
    struct Plan {
        slow_from: Phase,
        /// Bytes, and the pause in ms before they arrive; repeated from the start.
        sends: Vec<(usize, u64)>,
        /// Bytes of the server that the client receives, and the pause in ms before it reads them.
        takes: Vec<(usize, u64)>,
        stop_ms: u64,
        lease_ms: u64,
        throttled_ms: u64,
    }

    const NEVER: u64 = u64::MAX / 1_000_000;

    impl Plan {
        fn even(slow_from: Phase, pause_ms: u64) -> Self {
            Self {
                slow_from,
                sends: vec![(1, pause_ms)],
                takes: vec![(1 << 16, 0)],
                stop_ms: NEVER,
                lease_ms: 20_000,
                throttled_ms: NEVER,
            }
        }
    }

    /// The client, behind the server's socket.
    struct Client {
        world: World,
        tls: Rc<RefCell<ClientConnection>>,
        plan: Plan,
        phase: Phase,
        outgoing: VecDeque<u8>,
        /// When the next bytes are sent and received.
        due: [Option<Duration>; 2],
        turns: [usize; 2],
        calls: u64,
    }

    impl Client {
        fn new(plan: Plan, world: World) -> Self {
            let name = rustls::pki_types::ServerName::try_from("a.example").unwrap();
            let config = Pin::new(&[]).client_config().unwrap();
            let tls = Rc::new(RefCell::new(ClientConnection::new(config, name).unwrap()));
            let (phase, outgoing) = (Phase::Hello, VecDeque::new());
            let (due, turns) = ([None; 2], [0; 2]);
            Self { world, tls, plan, phase, outgoing, due, turns, calls: 0 }
        }

        /// Queues the client's next bytes.
        fn refill(&mut self) {
            if !self.outgoing.is_empty() {
                return;
            }
            let is_slow = self.phase >= self.plan.slow_from;
            let mut tls = self.tls.borrow_mut();
            match self.phase {
                Phase::Hello if is_slow => {
                    self.outgoing.extend([22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec, 3, 3]);
                    self.outgoing.extend([0; 0x3fe0]);
                }
                Phase::Hello if !tls.is_handshaking() => {
                    self.phase = Phase::Question;
                    let bytes = if self.plan.slow_from == Phase::Question {
                        vec![0x10, 0]
                    } else {
                        encode(&question()).unwrap()
                    };
                    tls.writer().write_all(&bytes).unwrap();
                }
                Phase::Question if is_slow => tls.writer().write_all(b" ").unwrap(),
                Phase::Question => self.phase = Phase::Held,
                Phase::Held if is_slow => tls.writer().write_all(&[b'x'; 16_000]).unwrap(),
                Phase::Hello | Phase::Held => {}
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.outgoing).unwrap();
            }
        }

        /// Returns how many bytes pass now, in virtual time, like a socket with a short timeout.
        fn pass(&mut self, way: usize, script: &[(usize, u64)]) -> io::Result<usize> {
            self.calls += 1;
            let now = self.world.now();
            let (bytes, pause_ms) = script[self.turns[way] % script.len()];
            let due = *self.due[way].get_or_insert(now + Duration::from_millis(pause_ms));
            if due > now + LOOK_INTERVAL {
                self.world.now.set(now + LOOK_INTERVAL);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.world.now.set(now.max(due));
            self.due[way] = None;
            self.turns[way] += 1;
            Ok(bytes)
        }
    }

    impl Read for Client {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.refill();
            if self.outgoing.is_empty() {
                self.world.now.set(self.world.now() + LOOK_INTERVAL);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let most = if self.phase >= self.plan.slow_from {
                self.pass(0, &self.plan.sends.clone())?
            } else {
                usize::MAX
            };
            let count = most.min(bytes.len()).min(self.outgoing.len());
            self.outgoing.read_exact(&mut bytes[..count]).map(|()| count)
        }
    }

    impl Write for Client {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = self.pass(1, &self.plan.takes.clone())?;
            let mut taken = &bytes[..most.min(bytes.len())];
            let count = taken.len();
            let mut tls = self.tls.borrow_mut();
            while !taken.is_empty() && tls.read_tls(&mut taken).is_ok_and(|read| read > 0) {
                let _ = tls.process_new_packets();
            }
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn question() -> Question {
        Question {
            protocol: PROTOCOL,
            token: None,
            up_bit_per_s: None,
            down_bit_per_s: None,
            duration_ms: 1,
        }
    }

    /// The outcome of a conversation, and its times.
    #[derive(Debug)]
    struct Seen {
        asked: Result<Duration, Duration>,
        held: Option<(Ended, Duration)>,
        end: Duration,
        said: String,
        calls: u64,
    }

    fn played(tls: &Arc<ServerConfig>, plan: &Plan) -> Seen {
        let world = World {
            now: Rc::default(),
            stop_at: Duration::from_millis(plan.stop_ms),
            lease_end: Duration::from_millis(plan.lease_ms),
            throttled_from: Duration::from_millis(plan.throttled_ms),
        };
        let client = Client::new(plan.clone(), world.clone());
        let client_tls = Rc::clone(&client.tls);
        let mut conversation = Conversation::begin(Arc::clone(tls), client, world.clone()).unwrap();
        let question = conversation.question();
        let asked = question.is_ok().then(|| world.now()).ok_or_else(|| world.now());
        let mut held = None;
        if question.is_ok() {
            let answer = Answer::Refused { reason: "only a test".to_owned() };
            if conversation.answer(&answer).is_ok() {
                let ended = conversation.hold(world.clone());
                held = Some((ended, world.now()));
            }
        }
        let calls = conversation.stream.sock.stream().calls;
        conversation.close();
        // The client may wait for more: read what has arrived.
        let mut plain = Vec::new();
        let _ = client_tls.borrow_mut().reader().read_to_end(&mut plain);
        let said = String::from_utf8_lossy(&plain).into_owned();
        Seen { asked, held, end: world.now(), said, calls }
    }

    fn tls() -> Arc<ServerConfig> {
        Identity::generate().unwrap().server_config().unwrap()
    }

    /// A call that began in time may end this much later, and rustls then writes an alert.
    const SLACK: Duration = Duration::from_millis(200);

    #[test]
    fn an_even_drip_ends_each_phase_at_its_limit() {
        let tls = tls();
        for pause_ms in [10, 50, 99, 101] {
            for phase in [Phase::Hello, Phase::Question] {
                let seen = played(&tls, &Plan::even(phase, pause_ms));
                let at = seen.asked.unwrap_err();
                assert!(at >= CONVERSATION_MAX, "{phase:?} {pause_ms} ms: {seen:?}");
                assert!(at <= CONVERSATION_MAX + SLACK, "{phase:?} {pause_ms} ms: {seen:?}");
            }
            let plan = Plan::even(Phase::Held, pause_ms);
            let seen = played(&tls, &plan);
            let lease_end = Duration::from_millis(plan.lease_ms);
            let (ended, at) = seen.held.unwrap();
            assert_eq!(ended, Ended::Expired);
            assert!(at >= lease_end && at <= lease_end + SLACK, "{pause_ms} ms: {seen:?}");
            assert!(seen.said.contains("its time is up"), "{seen:?}");
            let stopped = Plan { stop_ms: 3_333, ..plan };
            let seen = played(&tls, &stopped);
            let (ended, at) = seen.held.unwrap();
            assert_eq!(ended, Ended::Stopped);
            let stop = Duration::from_millis(3_333);
            assert!(at >= stop && at <= stop + SLACK, "{pause_ms} ms: {seen:?}");
            assert!(seen.said.contains("the server was stopped"), "{seen:?}");
        }
    }

    #[test]
    fn a_client_that_reads_nothing_does_not_delay_shutdown() {
        // The question arrives at once; the client receives the server's bytes at one per 99 ms.
        let takes = vec![(1, 99)];
        let plan = Plan { takes, stop_ms: 60_000, ..Plan::even(Phase::Held, 0) };
        let seen = played(&tls(), &plan);
        assert!(seen.asked.unwrap_err() <= CONVERSATION_MAX + SLACK, "{seen:?}");
        let mut handshake = vec![(1 << 16, 0); 8];
        handshake.extend(vec![(1, 99); 10_000]);
        let plan = Plan {
            takes: handshake,
            sends: vec![(1, 90)],
            throttled_ms: 1_000,
            stop_ms: 5_000,
            ..Plan::even(Phase::Held, 0)
        };
        let seen = played(&tls(), &plan);
        assert!(seen.held.is_some(), "the premise: a session is held: {seen:?}");
        assert!(seen.end <= Duration::from_secs(6), "{seen:?}");
    }

    fn plans() -> impl Strategy<Value = Plan> {
        let pause = prop_oneof![0u64..3, 5u64..30, 40u64..70, 95u64..105, 0u64..400];
        let step = (prop_oneof![Just(1usize), 1usize..64, 1usize..4096], pause);
        let late = || prop_oneof![Just(NEVER), 0u64..30_000];
        (
            prop_oneof![Just(Phase::Hello), Just(Phase::Question), Just(Phase::Held)],
            prop::collection::vec(step.clone(), 1..6),
            prop_oneof![Just(vec![(1 << 16, 0)]), prop::collection::vec(step, 1..6),],
            late(),
            0u64..30_000,
            late(),
        )
            .prop_map(|(slow_from, sends, takes, stop_ms, lease_ms, throttled_ms)| Plan {
                slow_from,
                sends,
                takes,
                stop_ms,
                lease_ms,
                throttled_ms,
            })
    }

    fn holds(tls: &Arc<ServerConfig>, plan: &Plan) -> Result<(), TestCaseError> {
        let seen = played(tls, plan);
        let stop = Duration::from_millis(plan.stop_ms);
        let (Ok(asked) | Err(asked)) = seen.asked;
        let limit = CONVERSATION_MAX.min(stop) + SLACK;
        prop_assert!(asked <= limit, "the question: {seen:?}");
        if let Some((_, ended)) = seen.held {
            let limit = stop.min(Duration::from_millis(plan.lease_ms).max(asked) + SLACK);
            // The answer may take until the conversation's limit, the last notice a little longer.
            let limit = limit.max(CONVERSATION_MAX) + SLACK + FAREWELL_MAX + SLACK;
            prop_assert!(ended <= limit, "the session: {seen:?}");
        }
        let second = Duration::from_secs(1);
        prop_assert!(seen.end <= stop.saturating_add(second), "the stop: {seen:?}");
        // Every call transfers bytes or takes time.
        prop_assert!(seen.calls < 200_000, "{seen:?}");
        Ok(())
    }

    /// `UNDERLOAD_FUZZ_SECONDS=60` continues with other seeds for that time; CI sets it.
    #[test]
    fn pauses_between_bytes_do_not_extend_a_limit() {
        let seconds = std::env::var("UNDERLOAD_FUZZ_SECONDS").ok();
        let seconds = seconds.map_or(0, |text| text.parse().expect("a number of seconds"));
        let (tls, start) = (tls(), Instant::now());
        let mut cases = 0;
        for seed in 0u64.. {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
            let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
            let mut runner = TestRunner::new_with_rng(config, rng);
            runner.run(&plans(), |plan| holds(&tls, &plan)).unwrap();
            cases += 64;
            if start.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
        }
        assert!(cases >= 64);
    }
}
