//! The server's side of one control connection, from its first byte to its last: question, answer,
//! and the session that hangs on it. No socket and no clock of its own in here, so that its time
//! limits are tested in virtual time.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use underload_probe::control::{
    Answer, CONVERSATION_MAX, Lease, Limited, Notice, Question, ServiceError, Watch, read_message,
    write_message,
};
use underload_probe::network::is_temporary;

/// How long the client may take to receive a notice before it is given up.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// How long the last words may take, when the server stops as well: it is to stop within a second.
const FAREWELL_MAX: Duration = Duration::from_millis(300);

/// A control connection. `S` must end each of its calls within the look interval.
pub(crate) struct Conversation<S: Read + Write, W: Watch, L: Lease> {
    stream: StreamOwned<ServerConnection, Limited<S, W, L>>,
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client closed, said something, or is gone.
    Closed,
    /// The time that was granted is over.
    Expired,
    /// The server stops.
    Stopped,
}

impl<S: Read + Write, W: Watch, L: Lease> Conversation<S, W, L> {
    /// From now on the client has [`CONVERSATION_MAX`] for handshake, question and answer.
    pub(crate) fn begin(tls: Arc<ServerConfig>, stream: S, watch: W) -> Result<Self, ServiceError> {
        let connection = ServerConnection::new(tls).map_err(ServiceError::Tls)?;
        let limited = Limited::new(stream, watch, CONVERSATION_MAX);
        Ok(Self { stream: StreamOwned::new(connection, limited) })
    }

    /// Reads the client's next message.
    pub(crate) fn question(&mut self) -> Result<Question, ServiceError> {
        read_message(&mut self.stream)
    }

    /// Tells it.
    pub(crate) fn answer(&mut self, answer: &Answer) -> Result<(), ServiceError> {
        write_message(&mut self.stream, answer)
    }

    /// Until the client closes, the session is over, or the server stops. The client has nothing
    /// more to say; the server says why it ends the session, and when it holds it up.
    pub(crate) fn hold(&mut self, lease: L) -> Ended {
        self.stream.sock.hold(lease);
        let mut told = (false, false);
        loop {
            if self.stream.sock.is_stopped() {
                self.farewell("the server was stopped");
                return Ended::Stopped;
            }
            if let Some(reason) = self.stream.sock.lease().and_then(Lease::end) {
                self.farewell(reason);
                return Ended::Expired;
            }
            let throttled = self.stream.sock.lease().map_or(told, Lease::throttled);
            if throttled != told {
                told = throttled;
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

    /// Says that nothing more comes. Only writes: whoever waits for the other end here can be kept
    /// waiting.
    pub(crate) fn close(mut self) {
        self.close_in_place();
    }

    fn close_in_place(&mut self) {
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
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::time::Instant;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use rustls::ClientConnection;

    use underload_probe::control::{LOOK_INTERVAL, PROTOCOL, Pin, encode};

    use super::*;
    use crate::identity::Identity;

    /// Virtual time, and what happens when.
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

    /// From when on the client is slow; each goes on for ever, where the server lets it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Phase {
        /// A first record that is long.
        Hello,
        /// A question of 4096 bytes, each a record of its own.
        Question,
        /// Records of 16,000 bytes while the session is held.
        Held,
    }

    /// What a client does.
    #[derive(Clone, Debug)]
    struct Plan {
        slow_from: Phase,
        /// Bytes, and the pause in ms before they arrive; again from the front at the end.
        sends: Vec<(usize, u64)>,
        /// The same for what it takes of the server's bytes.
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

    /// The client, as the server's socket shows it.
    struct Client {
        world: World,
        tls: ClientConnection,
        plan: Plan,
        phase: Phase,
        outgoing: VecDeque<u8>,
        /// When the next bytes arrive, and the next are taken.
        due: [Option<Duration>; 2],
        turns: [usize; 2],
        calls: u64,
    }

    impl Client {
        fn new(plan: Plan, world: World) -> Self {
            let name = rustls::pki_types::ServerName::try_from("a.example").unwrap();
            let config = Pin::new(&[]).client_config().unwrap();
            let tls = ClientConnection::new(config, name).unwrap();
            let (phase, outgoing) = (Phase::Hello, VecDeque::new());
            let (due, turns) = ([None; 2], [0; 2]);
            Self { world, tls, plan, phase, outgoing, due, turns, calls: 0 }
        }

        /// Puts on the way what the client has to say next.
        fn refill(&mut self) {
            if !self.outgoing.is_empty() {
                return;
            }
            let is_slow = self.phase >= self.plan.slow_from;
            match self.phase {
                Phase::Hello if is_slow => {
                    self.outgoing.extend([22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec, 3, 3]);
                    self.outgoing.extend([0; 0x3fe0]);
                }
                Phase::Hello if !self.tls.is_handshaking() => {
                    self.phase = Phase::Question;
                    let bytes = if self.plan.slow_from == Phase::Question {
                        vec![0x10, 0]
                    } else {
                        encode(&question()).unwrap()
                    };
                    self.tls.writer().write_all(&bytes).unwrap();
                }
                Phase::Question if is_slow => self.tls.writer().write_all(b" ").unwrap(),
                Phase::Question => self.phase = Phase::Held,
                Phase::Held if is_slow => self.tls.writer().write_all(&[b'x'; 16_000]).unwrap(),
                Phase::Hello | Phase::Held => {}
            }
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.outgoing).unwrap();
            }
        }

        /// How many bytes pass now, in virtual time; as a socket whose waits are short has it.
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
            while !taken.is_empty() && self.tls.read_tls(&mut taken).is_ok_and(|read| read > 0) {
                let _ = self.tls.process_new_packets();
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

    /// What became of a conversation, and when.
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
        let mut said = String::new();
        // What the client understood of it; there is always more that it could wait for.
        let calls = conversation.stream.sock.stream().calls;
        conversation.close_in_place();
        let mut plain = Vec::new();
        let _ = conversation.stream.sock.stream_mut().tls.reader().read_to_end(&mut plain);
        said.push_str(&String::from_utf8_lossy(&plain));
        Seen { asked, held, end: world.now(), said, calls }
    }

    fn tls() -> Arc<ServerConfig> {
        Identity::generate().unwrap().server_config().unwrap()
    }

    /// One call that began in time may end this much later, and rustls writes an alert after it.
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
    fn who_takes_nothing_does_not_hold_up_the_end() {
        // Everything is asked at once; what the server says is taken a byte per 99 ms.
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
            // The answer may take until the limit of the conversation, the last notice a little.
            let limit = limit.max(CONVERSATION_MAX) + SLACK + FAREWELL_MAX + SLACK;
            prop_assert!(ended <= limit, "the session: {seen:?}");
        }
        let second = Duration::from_secs(1);
        prop_assert!(seen.end <= stop.saturating_add(second), "the stop: {seen:?}");
        // No call without bytes or time passing.
        prop_assert!(seen.calls < 200_000, "{seen:?}");
        Ok(())
    }

    /// `UNDERLOAD_FUZZ_SECONDS=60` goes on with other seeds for so long; CI does.
    #[test]
    fn no_pauses_between_bytes_stretch_a_limit() {
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
