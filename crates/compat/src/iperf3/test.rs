//! A test, from its parameters to its results.

use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use socket2::SockRef;
use underload_probe::RunClock;
use underload_probe::load::{
    TcpInfo, check_present, congestion_control_of, keep_little_unsent, set_congestion_control,
};
use underload_probe::network::POLL_INTERVAL;
use underload_record::schema::Direction;
use underload_service::CompatShare;

use super::control::{Control, Ended};
use super::parameters::{Parameters, Protocol, Refusal};
use super::results::{self, Results, StreamResult, check_results, output, stream_id};
use super::stream::{Allowance, Amount, Counters, Pacer, receive_tcp, send_tcp, send_udp};
use super::udp::{UdpClaim, UdpHub, UdpStream};
use super::{Iperf3Limits, STEP_MAX, state};

/// A data connection with the test's cookie.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Order of acceptance over all connections, which numbers the streams.
    pub index: u64,
    pub stream: TcpStream,
}

pub(super) struct Test {
    pub id: u64,
    pub address: IpAddr,
    pub control: Control,
    pub share: CompatShare,
    pub limits: Iperf3Limits,
    pub arrivals: Receiver<Arrived>,
    pub hub: Arc<UdpHub>,
}

/// The streams of a test, in the order of opening.
enum Streams {
    Tcp(Vec<TcpStream>),
    Udp(UdpClaim),
}

impl Streams {
    fn udp(&self) -> &[Arc<UdpStream>] {
        match self {
            Self::Udp(claim) => &claim.streams,
            Self::Tcp(_) => &[],
        }
    }

    /// Returns the bytes that arrived as datagrams, which cannot be delayed.
    fn arrived_bytes(&self) -> u64 {
        self.udp().iter().map(|stream| stream.reception().bytes).sum()
    }

    fn run_udp(&self, is_running: bool) {
        self.udp().iter().for_each(|stream| stream.run(is_running));
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    bytes: u64,
    packets: u64,
    errors: u64,
    retransmits: u64,
}

const PARAMETERS_BYTES_MAX: usize = 8 << 10;
const RESULTS_BYTES_MAX: usize = 256 << 10;
/// How long a test may run after its declared end: its start may be late, and its last bytes may
/// wait in a queue.
const LEASE_GRACE: Duration = Duration::from_secs(5);
/// Time over which UDP from the client, which cannot be paced, may exceed the rate limit.
const RATE_WINDOW: Duration = Duration::from_secs(2);

impl Test {
    /// Runs the conversation after the cookie, and notifies the client if it ends early.
    pub(super) fn run(mut self) -> Result<(), Ended> {
        let outcome = self.converse();
        // The client may have left.
        let _ = match &outcome {
            Err(Ended::Refused(refusal)) => self.control.refuse(*refusal),
            Err(Ended::Lease | Ended::Stopped | Ended::Overloaded) => {
                self.control.send_state(state::SERVER_TERMINATE)
            }
            Err(Ended::Client) | Ok(()) => Ok(()),
        };
        outcome
    }

    fn converse(&mut self) -> Result<(), Ended> {
        self.control.send_state(state::PARAM_EXCHANGE)?;
        let json = self.control.read_json(PARAMETERS_BYTES_MAX, Instant::now() + STEP_MAX)?;
        let parameters = Parameters::decode(&json, &self.limits).map_err(Ended::Refused)?;
        let mut streams = self.open_streams(&parameters)?;
        self.control.send_state(state::TEST_START)?;
        self.control.send_state(state::TEST_RUNNING)?;
        let results = self.transfer(&parameters, &mut streams)?;
        self.control.send_state(state::EXCHANGE_RESULTS)?;
        let theirs = self.control.read_json(RESULTS_BYTES_MAX, Instant::now() + STEP_MAX)?;
        if !check_results(&theirs) {
            return Err(Ended::Client);
        }
        let ours = serde_json::to_vec(&results).map_err(|_| Ended::Client)?;
        self.control.write_json(&ours)?;
        self.control.send_state(state::DISPLAY_RESULTS)?;
        // The client sends that it is done, or just closes the connection.
        let mut last = [0];
        let _ = self.control.read(&mut last, Instant::now() + STEP_MAX);
        Ok(())
    }

    fn open_streams(&mut self, parameters: &Parameters) -> Result<Streams, Ended> {
        let until = Instant::now() + STEP_MAX;
        let wanted = parameters.streams_in_all();
        let streams = match parameters.protocol {
            Protocol::Tcp => {
                self.control.send_state(state::CREATE_STREAMS)?;
                Streams::Tcp(self.accept_streams(wanted, until)?)
            }
            Protocol::Udp => Streams::Udp(self.welcome_streams(parameters, wanted, until)?),
        };
        self.prepare_streams(parameters, &streams)?;
        Ok(streams)
    }

    fn accept_streams(&mut self, wanted: usize, until: Instant) -> Result<Vec<TcpStream>, Ended> {
        let mut arrived = Vec::with_capacity(wanted);
        while arrived.len() < wanted {
            self.check_progress(until)?;
            arrived.extend(self.arrivals.recv_timeout(POLL_INTERVAL));
        }
        arrived.sort_by_key(|arrived| arrived.index);
        Ok(arrived.into_iter().map(|arrived| arrived.stream).collect())
    }

    fn welcome_streams(
        &mut self,
        parameters: &Parameters,
        wanted: usize,
        until: Instant,
    ) -> Result<UdpClaim, Ended> {
        let mut claim = loop {
            let is_wide = parameters.counters_64bit;
            if let Some(claim) = self.hub.claim(self.id, self.address, is_wide, wanted) {
                break claim;
            }
            self.check_progress(until)?;
            std::thread::sleep(POLL_INTERVAL);
        };
        self.control.send_state(state::CREATE_STREAMS)?;
        while claim.streams.len() < wanted {
            self.check_progress(until)?;
            std::thread::sleep(Duration::from_millis(1));
            claim.collect();
        }
        Ok(claim)
    }

    /// Fails if the client has left or `until` has passed.
    fn check_progress(&mut self, until: Instant) -> Result<(), Ended> {
        self.control.check()?;
        if Instant::now() >= until { Err(Ended::Lease) } else { Ok(()) }
    }

    fn prepare_streams(&self, parameters: &Parameters, streams: &Streams) -> Result<(), Ended> {
        let Streams::Tcp(connections) = streams else { return Ok(()) };
        for (place, stream) in connections.iter().enumerate() {
            // Timeouts instead of blocking, so that every thread notices the end.
            stream.set_read_timeout(Some(POLL_INTERVAL))?;
            stream.set_write_timeout(Some(POLL_INTERVAL))?;
            let options = SockRef::from(stream);
            if let Some(window) = parameters.window {
                // Best effort, as in iperf3: the kernel has limits.
                let _ = options.set_send_buffer_size(window);
                let _ = options.set_recv_buffer_size(window);
            }
            if !parameters.server_sends_on(place) {
                continue;
            }
            options.set_tcp_nodelay(parameters.no_delay)?;
            // Little unsent data, so that the load ends with the test.
            let _ = keep_little_unsent(&options);
            if let Some(name) = &parameters.congestion {
                check_present(name).map_err(|_| Ended::Refused(Refusal::CONGESTION))?;
                set_congestion_control(&options, name)
                    .map_err(|_| Ended::Refused(Refusal::CONGESTION))?;
            }
            mark(&options, self.address, parameters.traffic_class)?;
        }
        Ok(())
    }

    fn transfer(
        &mut self,
        parameters: &Parameters,
        streams: &mut Streams,
    ) -> Result<Results, Ended> {
        let wanted = parameters.streams_in_all();
        let counters: Vec<Arc<Counters>> = (0..wanted).map(|_| Arc::default()).collect();
        let over = AtomicBool::new(false);
        let limit_of_one =
            self.limits.bit_per_s_max.map(|limit| limit / u64::from(parameters.streams));
        let clock = RunClock::start();
        let amount = Amount::new(parameters.amount, !parameters.omit.is_zero());
        let share = self.share.clone();
        let transfer = Transfer { parameters, streams, counters: &counters, share, amount, clock };
        transfer.streams.run_udp(true);
        let watched = std::thread::scope(|scope| {
            let (transfer, over) = (&transfer, &over);
            let started = (0..wanted).try_for_each(|place| {
                let worker = Builder::new().name("iperf3-stream".to_owned());
                start(scope, worker, move || transfer.work(place, limit_of_one, over))
            });
            let watched = started.and_then(|()| self.watch(transfer));
            over.store(true, Ordering::Relaxed);
            watched
        });
        transfer.streams.run_udp(false);
        transfer.end_streams();
        // Results are read after all threads have ended: a client may end the test before the
        // thread that wrote the last bytes has counted them.
        watched.map(|watched| transfer.results(watched))
    }

    /// Waits until the client ends the test.
    fn watch(&mut self, transfer: &Transfer<'_>) -> Result<Watched, Ended> {
        let parameters = transfer.parameters;
        let start = Instant::now();
        let declared = if parameters.duration.is_zero() {
            self.limits.duration_max
        } else {
            parameters.omit + parameters.duration
        };
        let end = start + declared.min(self.limits.duration_max) + LEASE_GRACE;
        let mut marks = vec![Mark::default(); transfer.counters.len()];
        let mut counted_from = start;
        let mut processor_before = results::processor_time();
        let mut is_omitting = !parameters.omit.is_zero();
        let mut progress = (0, start);
        let mut charged = 0;
        loop {
            match self.control.poll_state()? {
                Some(state::TEST_END) => break,
                // The client leaves, or sends a state that is invalid now.
                Some(_) => return Err(Ended::Client),
                None => {}
            }
            let now = Instant::now();
            if is_omitting && now >= start + parameters.omit {
                is_omitting = false;
                counted_from = now;
                processor_before = results::processor_time();
                marks = (0..marks.len()).map(|place| transfer.mark(place)).collect();
                transfer
                    .streams
                    .udp()
                    .iter()
                    .for_each(|stream| stream.reception().restart_jitter());
                transfer.amount.count();
            }
            let moved: u64 = (0..marks.len()).map(|place| transfer.mark(place).bytes).sum();
            if moved != progress.0 {
                progress = (moved, now);
            }
            let arrived = transfer.streams.arrived_bytes();
            let is_beyond = self.share.charge(Direction::Up, arrived - charged).is_err();
            charged = arrived;
            let is_idle = now > progress.1 + self.limits.idle_timeout;
            let is_over = now >= end || is_beyond || self.share.is_over();
            if is_over || is_idle || self.is_too_fast(transfer, now - start) {
                return Err(Ended::Lease);
            }
        }
        let lasted = counted_from.elapsed();
        let before = if is_omitting { None } else { Some(marks) };
        Ok(Watched { before, lasted, processor_before })
    }

    /// Returns true if UDP from the client exceeds the limit; pacing cannot delay it.
    fn is_too_fast(&self, transfer: &Transfer<'_>, lasted: Duration) -> bool {
        let Some(limit) = self.limits.bit_per_s_max else { return false };
        let allowed = u128::from(limit) * (lasted + RATE_WINDOW).as_millis() / 8_000;
        u128::from(transfer.streams.arrived_bytes()) > allowed
    }
}

/// A test that its client has ended.
struct Watched {
    /// Counters at the end of the omitted time; `None` if the test ended within it.
    before: Option<Vec<Mark>>,
    /// Without the omitted time.
    lasted: Duration,
    /// User and system time of the process at the end of the omitted time.
    processor_before: [Duration; 2],
}

/// A test while payload is transferred.
struct Transfer<'a> {
    parameters: &'a Parameters,
    streams: &'a Streams,
    counters: &'a [Arc<Counters>],
    share: CompatShare,
    amount: Amount,
    clock: RunClock,
}

/// Starts a thread of a test; fails if the machine cannot start another one.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    thread: Builder,
    body: impl FnOnce() + Send + 'scope,
) -> Result<(), Ended> {
    thread.spawn_scoped(scope, body).map(drop).map_err(|_| Ended::Overloaded)
}

impl Transfer<'_> {
    /// The body of the thread of one stream.
    fn work(&self, place: usize, limit: Option<u64>, over: &AtomicBool) {
        let counters = &self.counters[place];
        let sends = self.parameters.server_sends_on(place);
        let asked = self.parameters.bit_per_s.filter(|_| sends);
        let rate = [asked, limit].into_iter().flatten().min();
        let pacer = Pacer::new(self.clock, rate);
        let allowance = Allowance { share: &self.share, over };
        let len = self.parameters.len;
        match (self.streams, sends) {
            (Streams::Tcp(streams), true) => {
                send_tcp(&streams[place], (len, &self.amount), counters, pacer, allowance);
            }
            (Streams::Tcp(streams), false) => {
                receive_tcp(&streams[place], counters, pacer, allowance);
            }
            (Streams::Udp(claim), true) => {
                let shape = (len, self.parameters.counters_64bit);
                send_udp(&claim.hub, &claim.streams[place], shape, counters, pacer, allowance);
            }
            // The hub counts what arrives.
            (Streams::Udp(_), false) => {}
        }
    }

    /// Ends the server's streams: a client that waits for the rest of a block reads the end and
    /// continues with the results.
    fn end_streams(&self) {
        let Streams::Tcp(streams) = self.streams else { return };
        for (place, stream) in streams.iter().enumerate() {
            if self.parameters.server_sends_on(place) {
                // The client may have left.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }

    fn mark(&self, place: usize) -> Mark {
        let sends = self.parameters.server_sends_on(place);
        match self.streams {
            Streams::Udp(claim) if !sends => {
                let reception = *claim.streams[place].reception();
                let (packets, errors) = (reception.packets, reception.lost);
                Mark { bytes: reception.bytes, packets, errors, retransmits: 0 }
            }
            streams => {
                let counters = &self.counters[place];
                let info = match streams {
                    Streams::Tcp(streams) => TcpInfo::read(&streams[place]).unwrap_or_default(),
                    Streams::Udp(_) => TcpInfo::default(),
                };
                Mark {
                    bytes: counters.bytes.load(Ordering::Relaxed),
                    packets: counters.packets.load(Ordering::Relaxed),
                    errors: 0,
                    retransmits: u64::from(info.retransmits),
                }
            }
        }
    }

    fn results(&self, watched: Watched) -> Results {
        let Watched { before, lasted, processor_before } = watched;
        let wanted = self.counters.len();
        let before = before.unwrap_or_else(|| (0..wanted).map(|place| self.mark(place)).collect());
        let sends: Vec<bool> = (0..wanted).map(|n| self.parameters.server_sends_on(n)).collect();
        let streams: Vec<StreamResult> =
            (0..wanted).map(|place| self.stream_result(place, before[place], lasted)).collect();
        let is_tcp = self.parameters.protocol == Protocol::Tcp;
        let share = |now: Duration, then: Duration| {
            now.saturating_sub(then).as_secs_f64() / lasted.as_secs_f64().max(1e-9) * 100.0
        };
        let [user, system] = results::processor_time();
        let user = share(user, processor_before[0]);
        let system = share(system, processor_before[1]);
        let wants_output = self.parameters.wants_output;
        Results {
            cpu_util_total: user + system,
            cpu_util_user: user,
            cpu_util_system: system,
            sender_has_retransmits: if sends.contains(&true) { i8::from(is_tcp) } else { -1 },
            congestion_used: self.congestion_used(),
            server_output_text: wants_output.then(|| output(&sends, &streams, lasted)),
            streams,
        }
    }

    fn stream_result(&self, place: usize, before: Mark, lasted: Duration) -> StreamResult {
        let mark = self.mark(place);
        let sends = self.parameters.server_sends_on(place);
        let is_tcp = self.parameters.protocol == Protocol::Tcp;
        let jitter = match self.streams {
            Streams::Udp(claim) if !sends => claim.streams[place].reception().jitter_s,
            _ => 0.0,
        };
        let resent = mark.retransmits.saturating_sub(before.retransmits);
        StreamResult {
            id: stream_id(place),
            bytes: mark.bytes.saturating_sub(before.bytes),
            retransmits: if sends && is_tcp { resent as i64 } else { -1 },
            jitter,
            errors: mark.errors,
            omitted_errors: before.errors,
            packets: mark.packets,
            omitted_packets: before.packets,
            start_time: 0.0,
            end_time: lasted.as_secs_f64(),
        }
    }

    fn congestion_used(&self) -> Option<String> {
        let Streams::Tcp(streams) = self.streams else { return None };
        congestion_control_of(&SockRef::from(streams.first()?)).ok()
    }
}

fn mark(options: &SockRef<'_>, address: IpAddr, traffic_class: u8) -> std::io::Result<()> {
    if traffic_class == 0 {
        return Ok(());
    }
    let class = u32::from(traffic_class);
    match address.to_canonical() {
        IpAddr::V4(_) => options.set_tos_v4(class),
        IpAddr::V6(_) => options.set_tclass_v6(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_threads_ends_a_test_and_not_the_server() {
        std::thread::scope(|scope| {
            // No machine has memory for such a stack.
            let impossible = Builder::new().stack_size(1 << 60);
            assert!(matches!(start(scope, impossible, || {}), Err(Ended::Overloaded)));
            assert!(start(scope, Builder::new(), || {}).is_ok());
        });
    }
}
