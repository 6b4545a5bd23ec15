//! `GET /metrics` on loopback, in the text form that Prometheus reads.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use underload_probe::service::Service;

/// The listener; dropping it ends it.
#[derive(Debug)]
pub struct Metrics {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A request longer than this is none of ours.
const REQUEST_MAX: usize = 4096;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a client may take to ask, and to read.
const CLIENT_MAX: Duration = Duration::from_secs(2);

impl Metrics {
    /// Answers at `address` until dropped, one client after the other.
    pub fn start(address: SocketAddr, service: Arc<Service>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
        listener.set_nonblocking(true).context("--metrics")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client that does not listen is its own loss.
                    Ok((client, _)) => drop(answer(client, &service)),
                    Err(_) => std::thread::sleep(LOOK_INTERVAL),
                }
            }
        };
        let builder = std::thread::Builder::new().name("metrics".to_owned());
        let thread = Some(builder.spawn(body).context("--metrics")?);
        Ok(Self { stop, thread })
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

fn answer(mut client: TcpStream, service: &Service) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_MAX))?;
    client.set_write_timeout(Some(CLIENT_MAX))?;
    let mut request = Vec::new();
    let mut octets = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_MAX {
        match client.read(&mut octets)? {
            0 => break,
            count => request.extend_from_slice(&octets[..count]),
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", service.state().to_prometheus())
    } else {
        ("404 Not Found", "GET /metrics\n".to_owned())
    };
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
