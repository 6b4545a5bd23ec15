//! `GET /metrics` on loopback, in the text form that Prometheus reads.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use underload_probe::network::is_temporary;
use underload_service::Service;

/// The listener; dropping it ends it.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A request longer than this is none of ours.
const REQUEST_MAX: usize = 4096;
/// From one look at the listener to the next, without clients and with some.
const IDLE_INTERVAL: Duration = Duration::from_millis(100);
const BUSY_INTERVAL: Duration = Duration::from_millis(5);
/// How long a client may take to ask and to read, all in all.
const CLIENT_MAX: Duration = Duration::from_secs(2);
/// Clients at once; one more takes the place of the oldest.
const CLIENTS_MAX: usize = 16;

impl Metrics {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers at `address` until dropped.
    pub fn start(address: SocketAddr, service: Arc<Service>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
        listener.set_nonblocking(true).context("--metrics")?;
        let address = listener.local_addr().context("--metrics")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            let page = || service.state().to_prometheus();
            let mut desk = Desk::default();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((client, _)) = listener.accept()
                    && client.set_nonblocking(true).is_ok()
                {
                    desk.admit(client, Instant::now());
                }
                desk.serve(Instant::now(), &page);
                let is_idle = desk.clients.is_empty();
                std::thread::sleep(if is_idle { IDLE_INTERVAL } else { BUSY_INTERVAL });
            }
        };
        let builder = std::thread::Builder::new().name("metrics".to_owned());
        let thread = Some(builder.spawn(body).context("--metrics")?);
        Ok(Self { address, stop, thread })
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The clients of the moment. None of them is waited for.
struct Desk<S> {
    clients: Vec<Client<S>>,
}

impl<S> Default for Desk<S> {
    fn default() -> Self {
        Self { clients: Vec::new() }
    }
}

struct Client<S> {
    /// Does not block.
    stream: S,
    until: Instant,
    request: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

impl<S: Read + Write> Desk<S> {
    fn admit(&mut self, stream: S, now: Instant) {
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.remove(0);
        }
        let (until, request, answer) = (now + CLIENT_MAX, Vec::new(), Vec::new());
        self.clients.push(Client { stream, until, request, answer, written: 0 });
    }

    /// Does what can be done without waiting, and lets go who is served, gone or too slow.
    fn serve(&mut self, now: Instant, page: &dyn Fn() -> String) {
        self.clients.retain_mut(|client| {
            now < client.until
                && match client.advance(page) {
                    Ok(()) => false,
                    Err(error) => is_temporary(&error),
                }
        });
    }
}

impl<S: Read + Write> Client<S> {
    fn advance(&mut self, page: &dyn Fn() -> String) -> io::Result<()> {
        let mut bytes = [0; 512];
        while self.answer.is_empty() {
            let count = self.stream.read(&mut bytes)?;
            self.request.extend_from_slice(&bytes[..count]);
            let is_whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if is_whole || count == 0 || self.request.len() >= REQUEST_MAX {
                self.answer = answer(&self.request, page);
            }
        }
        while self.written < self.answer.len() {
            match self.stream.write(&self.answer[self.written..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.written += count,
            }
        }
        Ok(())
    }
}

fn answer(request: &[u8], page: &dyn Fn() -> String) -> Vec<u8> {
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", page())
    } else {
        ("404 Not Found", "GET /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;

    /// One end of a connection: what arrives with each call, and what was answered.
    #[derive(Clone, Default)]
    struct Pipe {
        arrives: Rc<RefCell<VecDeque<&'static [u8]>>>,
        answered: Rc<RefCell<Vec<u8>>>,
    }

    impl Read for Pipe {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let Some(next) = self.arrives.borrow_mut().pop_front() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            bytes[..next.len()].copy_from_slice(next);
            Ok(next.len())
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.answered.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_trickles_is_let_go_in_time_and_keeps_nobody_waiting() {
        let (mut desk, start) = (Desk::default(), Instant::now());
        let page = || "underload_sessions 0\n".to_owned();
        for gap_ms in [10, 50, 99, 101] {
            let slow = Pipe::default();
            desk.admit(slow.clone(), start);
            let mut passed = Duration::ZERO;
            while !desk.clients.is_empty() {
                slow.arrives.borrow_mut().push_back(b"G");
                let quick = Pipe::default();
                quick.arrives.borrow_mut().push_back(b"GET /metrics HTTP/1.1\r\n\r\n");
                desk.admit(quick.clone(), start + passed);
                desk.serve(start + passed, &page);
                let answered = String::from_utf8(quick.answered.take()).unwrap();
                assert!(answered.ends_with("\r\n\r\nunderload_sessions 0\n"), "{answered}");
                assert!(desk.clients.len() <= 1 && passed <= CLIENT_MAX + IDLE_INTERVAL * 2);
                passed += Duration::from_millis(gap_ms);
            }
            assert!(passed > CLIENT_MAX, "the premise: it was there until its limit");
            assert!(slow.answered.borrow().is_empty());
        }
    }

    #[test]
    fn too_many_at_once_cost_the_oldest_its_place() {
        let (mut desk, now) = (Desk::default(), Instant::now());
        for _ in 0..1_000 {
            desk.admit(Pipe::default(), now);
        }
        assert_eq!(desk.clients.len(), CLIENTS_MAX);
        let quick = Pipe::default();
        quick.arrives.borrow_mut().push_back(b"GET / HTTP/1.1\r\n\r\n");
        desk.admit(quick.clone(), now);
        desk.serve(now, &String::new);
        assert!(quick.answered.borrow().starts_with(b"HTTP/1.1 404"));
    }
}
