//! An orchestrator on the network: HTTPS, and what keeps it up when strangers come.
//!
//! - [`batch`]: many requests in one transaction, answered once it is on disk.
//! - [`certificate`]: TLS with a certificate in files.
//! - `connection`, `read`, `frequency`: a limit on each step of a request.
//! - `signed`: who sent it.
//! - `core`: the rules with the threads that keep their state; `host`: from a request to a rule.
//! - `api`, `operators`: which request goes to which rule of the fleet.

mod api;
pub mod batch;
pub mod certificate;
mod connection;
mod core;
mod frequency;
mod host;
pub mod openapi;
mod operators;
mod problem;
mod read;
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
pub use core::{Core, Limits, StartError, system_clock};
pub(crate) use frequency::Frequency;
pub use operators::{
    AppliedPlan, ApplyPlan, Codes, Done, NewCodes, RemoveDevice, SetServerAddress, StopPlan,
};

/// Where and how to serve.
pub struct Config {
    /// Address and port; port 0 for any.
    pub listen: SocketAddr,
    /// The certificate; `None` for plain HTTP, on loopback alone.
    pub tls: Option<Arc<ServerConfig>>,
    /// What is allowed.
    pub limits: Limits,
    /// What answers beside the fleet's own requests.
    pub pages: Option<Router>,
}

/// A running orchestrator. Dropping it breaks off what is in flight.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    served: Option<tokio::task::JoinHandle<()>>,
    runtime: Option<Runtime>,
    core: Arc<Core>,
}

/// Starts to serve.
///
/// # Errors
/// [`StartError`].
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
    let listening = Listening {
        router: api::router(Arc::clone(&core), limits, pages),
        tls: tls.map(TlsAcceptor::from),
        limits,
        places: places(&limits),
        stopping: stopping.clone(),
    };
    runtime.spawn(api::settle(Arc::clone(&core), stopping));
    let served = Some(runtime.spawn(Arc::new(listening).run(listener)));
    Ok(Running { address, stop, served, runtime: Some(runtime), core })
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its rules and stores, for whoever runs in the same program.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Takes no more requests, and returns once those in flight are answered.
    pub fn stop(mut self) {
        let _ = self.stop.send(true);
        if let (Some(runtime), Some(served)) = (&self.runtime, self.served.take()) {
            // It ends by itself, some time after the last patience of a connection.
            let _ = runtime.block_on(async { tokio::time::timeout(GOODBYE_MAX * 2, served).await });
        }
        // So that the store is free when this returns.
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
