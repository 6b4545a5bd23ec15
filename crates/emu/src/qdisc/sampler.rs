//! Reads the counters of both queues at fixed times, and where a phase begins.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use underload_aqm::time::Span;
use underload_record::link::LinkName;
use underload_record::schema::Phase;
use underload_tc::printed::{Reading, parse_readings};

use super::Routers;
use super::plan::{Hop, QUEUE, TO_CLIENT, TO_SERVER, WIRE};
use super::report::{Link, QueuesReport};
use super::statistics::QueueCounters;
use crate::machine::{Clock, Network};

/// Time between two readings.
const INTERVAL: Span = Span::from_millis(10);
/// Maximum size of one answer of `tc`, bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// Why the counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    #[error("starting `tc` in the {router} router")]
    Start { router: String, source: io::Error },
    #[error("reading the counters of the {router} router's queues by `tc`")]
    Read { router: String, source: io::Error },
    #[error("the {router} router has no queue with handle {handle}")]
    Missing { router: String, handle: &'static str },
    #[error("reading the queues' counters failed (a bug): the thread panicked")]
    Panicked,
}

enum Order {
    Begin(Phase),
    Stop,
}

/// A thread that reads the counters. Dropping it ends the thread.
#[derive(Debug)]
pub struct Sampler {
    orders: Sender<Order>,
    thread: Option<JoinHandle<Result<QueuesReport, SamplerError>>>,
}

impl Sampler {
    /// Starts to read the counters of both directions. All times are of `clock`. `names` are the
    /// links' names in records, `up` first.
    ///
    /// # Errors
    /// Returns [`SamplerError`] if a program or the thread cannot be started.
    pub fn start(
        routers: &Routers,
        hops: [&Hop; 2],
        names: [LinkName; 2],
        clock: Clock,
    ) -> Result<Self, SamplerError> {
        let [up, down] = hops;
        let [up_name, down_name] = names;
        let now = clock.now();
        let links = [Link::new(up, up_name, now), Link::new(down, down_name, now)];
        let tools =
            [Tool::start(&routers.tool, &routers.near)?, Tool::start(&routers.tool, &routers.far)?];
        let (orders, inbox) = channel();
        let mut worker = Worker { clock, tools, links };
        let thread = std::thread::Builder::new()
            .name("queues".to_owned())
            .spawn(move || worker.run(&inbox).map(|()| worker.finish()))
            .map_err(|source| SamplerError::Start { router: "near".to_owned(), source })?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Begins a phase of the trial now.
    pub fn begin(&self, phase: Phase) {
        // If the thread has ended, `stop` reports its error.
        let _ = self.orders.send(Order::Begin(phase));
    }

    /// Stops and returns the report.
    ///
    /// # Errors
    /// Returns the [`SamplerError`] that ended the thread.
    pub fn stop(mut self) -> Result<QueuesReport, SamplerError> {
        let _ = self.orders.send(Order::Stop);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(report)) => report,
            _ => Err(SamplerError::Panicked),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    clock: Clock,
    /// The `tc` processes of the near and of the far router.
    tools: [Tool; 2],
    /// The upstream and the downstream link.
    links: [Link; 2],
}

impl Worker {
    fn run(&mut self, orders: &Receiver<Order>) -> Result<(), SamplerError> {
        let mut next = self.clock.now() + INTERVAL;
        loop {
            let wait = Duration::from_nanos(next.since(self.clock.now()).as_nanos());
            match orders.recv_timeout(wait) {
                Ok(Order::Begin(phase)) => self.read(Some(phase))?,
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.read(Some(Phase::Whole));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.read(None)?;
                    while next <= self.clock.now() {
                        next += INTERVAL;
                    }
                }
            }
        }
    }

    /// Reads all counters, for a row of the curves or for the begin of a phase.
    fn read(&mut self, phase: Option<Phase>) -> Result<(), SamplerError> {
        let now = self.clock.now();
        let [near, far] = &mut self.tools;
        let (at_near, at_far) = (near.ask()?, far.ask()?);
        let readings = [
            (&at_near, &*near, TO_SERVER, &at_far, TO_SERVER),
            (&at_far, &*far, TO_CLIENT, &at_near, TO_CLIENT),
        ];
        for (link, (queues, tool, device, wires, wire)) in self.links.iter_mut().zip(readings) {
            if !link.is_shaped() {
                continue;
            }
            let queue =
                QueueCounters::find(queues, device, QUEUE).ok_or_else(|| tool.missing(QUEUE))?;
            // Without delay, rate and loss there is no wire.
            let lost = QueueCounters::find(wires, wire, WIRE).map_or(0, |wire| wire.dropped());
            match phase {
                Some(phase) => link.begin(phase, now, queue, lost),
                None => link.row(now, &queue, lost),
            }
        }
        Ok(())
    }

    fn finish(self) -> QueuesReport {
        QueuesReport::new(self.links)
    }
}

/// A `tc` that answers until its input is closed.
struct Tool {
    router: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Tool {
    fn start(tool: &Path, router: &Network) -> Result<Self, SamplerError> {
        let error = |source| SamplerError::Start { router: router.name().to_owned(), source };
        let mut command = Command::new(tool);
        command
            .args(["-s", "-j", "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = router.open(|| command.spawn()).map_err(error)?;
        let output = child.stdout.take().ok_or_else(|| error(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self {
            router: router.name().to_owned(),
            input: child.stdin.take(),
            output: BufReader::new(output),
            child,
        })
    }

    fn ask(&mut self) -> Result<Vec<Reading>, SamplerError> {
        self.answer().map_err(|source| SamplerError::Read { router: self.router.clone(), source })
    }

    fn answer(&mut self) -> io::Result<Vec<Reading>> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(b"qdisc show\n")?;
        let mut line = String::new();
        (&mut self.output).take(ANSWER_MAX).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        parse_readings(&line).map_err(io::Error::other)
    }

    fn missing(&self, handle: &'static str) -> SamplerError {
        SamplerError::Missing { router: self.router.clone(), handle }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
