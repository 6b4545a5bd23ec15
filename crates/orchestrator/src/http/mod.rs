//! The HTTPS server of an orchestrator, and its defences against overload.
//!
//! - [`batch`]: many requests in one transaction, answered once it is on disk.
//! - `connection`, `read`, `frequency`: limits on each step of a request; `proxy`: the client behind
//!   a proxy, to whose address limits apply.
//! - `metrics`: counts of requests, for programs that watch the server.
//! - `signed`: authenticates the sender.
//! - `refusals`: refused tokens in the log of operators' actions.
//! - `core`: the rules, and the threads that write their state; `host`: calls rules for requests.
//! - `api`, `operators`: the routes of devices, servers and operators.

mod api;
pub mod batch;
mod connection;
mod core;
mod frequency;
mod host;
mod metrics;
pub mod openapi;
mod operators;
mod problem;
mod proxy;
mod read;
mod refusals;
mod secrets;
mod signed;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rustls::ServerConfig;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub use batch::{Clock, NotDone, Tell, Turn, Writers};
use connection::{GOODBYE_MAX, Listening, places};
pub use core::{Core, Limits, StartError, system_clock, system_ms};
pub(crate) use frequency::Frequency;
pub use proxy::{Cidr, NotACidr};

pub struct Config {
    /// Address and port; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// `None` for plain HTTP, which is served on loopback only.
    pub tls: Option<Arc<ServerConfig>>,
    pub limits: Limits,
    /// Routes in addition to the API.
    pub pages: Option<Router>,
}

/// A running server. Dropping it aborts the requests in flight.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    served: Option<tokio::task::JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// The rules and stores, for other code of the same program.
    pub core: Arc<Core>,
}

pub fn serve(core: Arc<Core>, config: Config) -> Result<Running, StartError> {
    let Config { listen, tls, limits, pages } = config;
    if tls.is_none() && !listen.ip().to_canonical().is_loopback() {
        return Err(StartError::Plain(listen));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    let failed = |source| StartError::Listen { address: listen, source };
    let listener = runtime.block_on(tokio::net::TcpListener::bind(listen)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (stop, stopping) = watch::channel(false);
    let places = places(&limits);
    let listening = Listening {
        router: api::router(Arc::clone(&core), limits, places.clone(), pages),
        tls: tls.map(TlsAcceptor::from),
        limits,
        places,
        stopping: stopping.clone(),
    };
    runtime.spawn(api::settle(Arc::clone(&core), stopping));
    let served = Some(runtime.spawn(Arc::new(listening).run(listener)));
    Ok(Running { address, stop, served, runtime: Some(runtime), core })
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting requests, and returns once those in flight are answered.
    pub fn stop(mut self) {
        let _ = self.stop.send(true);
        if let (Some(runtime), Some(served)) = (&self.runtime, self.served.take()) {
            // `served` ends once the timeouts of all connections have passed.
            let _ = runtime.block_on(async { tokio::time::timeout(GOODBYE_MAX * 2, served).await });
        }
        // Waits, so that the store is closed when this returns.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(GOODBYE_MAX);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
