//! `GET /metrics`: numbers in the text form that Prometheus reads.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The listener; dropping it stops it.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    _runtime: Runtime,
}

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Longest head of a request; hyper's minimum.
const REQUEST_MAX: usize = 8 << 10;
/// Time for a client to send its request and read the answer.
const CLIENT_MAX: Duration = Duration::from_secs(2);
/// Simultaneous clients; a new one replaces the oldest.
const CLIENTS_MAX: usize = 16;
/// Pause after a failed accept, such as without free descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Metrics {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with the text that `page` returns.
    ///
    /// # Errors
    /// Returns the error of the system, for example if the port is taken.
    pub fn start(address: SocketAddr, page: Page) -> io::Result<Self> {
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("metrics").enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, page));
        Ok(Self { address, _runtime: runtime })
    }
}

async fn serve(listener: TcpListener, page: Page) {
    let mut clients: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        clients.retain(|client| !client.is_finished());
        if clients.len() >= CLIENTS_MAX {
            clients.pop_front().iter().for_each(JoinHandle::abort);
        }
        let page = Arc::clone(&page);
        let answer =
            service_fn(move |request| future::ready(Ok::<_, Infallible>(answer(&request, &page))));
        let mut http = Builder::new();
        http.keep_alive(false).max_buf_size(REQUEST_MAX);
        let served = http.serve_connection(TokioIo::new(stream), answer);
        // A client that disconnects or is too slow gets no answer.
        clients.push_back(tokio::spawn(async { drop(timeout(CLIENT_MAX, served).await) }));
    }
}

fn answer(request: &Request<Incoming>, page: &Page) -> Response<String> {
    let is_known = *request.method() == Method::GET && request.uri().path() == "/metrics";
    let mut response = Response::new(if is_known { page() } else { "GET /metrics\n".to_owned() });
    if !is_known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    let text = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn silent_clients_block_no_reader_and_the_oldest_is_disconnected() {
        let page: Page = Arc::new(|| "underload_sessions 0\n".to_owned());
        let metrics = Metrics::start((Ipv4Addr::LOCALHOST, 0).into(), page).unwrap();
        let connect = || TcpStream::connect(metrics.address()).unwrap();
        let mut silent: Vec<TcpStream> = (0..CLIENTS_MAX + 20).map(|_| connect()).collect();
        let ask = |request: &[u8]| {
            let mut client = connect();
            client.write_all(request).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let known = ask(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(known.starts_with("HTTP/1.1 200 OK\r\n"), "{known}");
        assert!(known.contains("\r\ncontent-type: text/plain; version=0.0.4\r\n"), "{known}");
        assert!(known.ends_with("\r\n\r\nunderload_sessions 0\n"), "{known}");
        for unknown in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"POST /metrics HTTP/1.1\r\n\r\n"] {
            assert!(ask(unknown).starts_with("HTTP/1.1 404 Not Found\r\n"));
        }
        // Closed without an answer: replaced by a newer client, or after `CLIENT_MAX`.
        for client in &mut silent {
            assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);
        }
    }
}
