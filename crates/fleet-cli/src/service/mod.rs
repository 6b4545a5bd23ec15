//! A whole orchestrator: its store, API, pages and background work.

mod background;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use underload_disk::{self as disk, Access};
use underload_fleet::retention::Retention;
use underload_fleet::store::{Needs, Result, Store, StoreError};
use underload_orchestrator::desk::Desk;
use underload_orchestrator::http::{
    self, Config, Core, Limits, Running, StartError, Tell, system_clock, system_ms,
};
use underload_orchestrator::operator::{self, Role, TokenName};
use underload_orchestrator::pages::{self, LEAST_DEVICES};
use underload_orchestrator::store::{Connections, Place};
use underload_probe::network::raise_descriptor_limit;

use background::Background;

pub struct Setup {
    pub store: Place,
    /// Directory for past days; `None` for the default of [`Place::open`].
    pub archive: Option<PathBuf>,
    pub retention: Retention,
    /// Address and port; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// `None` for plain HTTP, which is served on loopback only.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether browsers use TLS, which a proxy may terminate.
    pub is_public_tls: bool,
    /// With fewer connections if the process has fewer descriptors.
    pub limits: Limits,
    /// Directory for the first operator's token.
    pub state: PathBuf,
    pub tell: Tell,
}

#[derive(Debug)]
pub struct Service {
    // Dropped in this order: background work ends after the last request.
    running: Running,
    background: Background,
}

const FIRST_OPERATOR: &str = "admin";
const FIRST_TOKEN: &str = "admin.token";
const DAY_MS: u64 = 86_400_000;
const FIRST_TOKEN_DAYS: u64 = 365;

impl Service {
    /// Opens the store and starts the server. If the store has no operator yet, creates a token for
    /// one in the state directory.
    pub fn start(setup: Setup) -> Result<Self, StartError> {
        let opened = setup.store.open(setup.archive.as_deref(), setup.retention)?;
        let Connections { mut stores, archives, housekeeping } = opened;
        let clock = system_clock();
        let limits = setup.limits.within(raise_descriptor_limit(setup.limits.descriptors()));
        if let Some(store) = stores.first_mut() {
            first_operator(store.as_mut(), clock(), &setup.state, &setup.tell)?;
        }
        let core = Core::start(stores, Arc::clone(&clock), &limits, &setup.tell)?;
        let pages = pages::router(pages::Settings {
            archives,
            operate: Arc::new(Desk::new(Arc::clone(&core))),
            secret: core.pages_secret(),
            is_tls: setup.tls.is_some() || setup.is_public_tls,
            least_devices: LEAST_DEVICES,
            clock: system_ms,
        });
        let config = Config { listen: setup.listen, tls: setup.tls, limits, pages: Some(pages) };
        let running = http::serve(core, config)?;
        let background = Background::start(housekeeping, clock, setup.tell);
        let background = background.map_err(StartError::Threads)?;
        Ok(Self { running, background })
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// The rules and stores, for other code of the same program.
    pub fn core(&self) -> &Arc<Core> {
        &self.running.core
    }

    /// Stops accepting requests, and returns once those in flight are answered.
    pub fn stop(self) {
        self.running.stop();
        drop(self.background);
    }
}

/// The file of the first operator's token.
pub fn first_token(state: &Path) -> PathBuf {
    state.join(FIRST_TOKEN)
}

fn first_operator(store: &mut dyn Store, now_ms: u64, state: &Path, tell: &Tell) -> Result<()> {
    let broken = |error: &dyn std::fmt::Display| StoreError::broken(error.to_string());
    let name = TokenName::new(FIRST_OPERATOR).map_err(|error| broken(&error))?;
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
    if operator::is_known(&mut *tx, &name)? {
        return Ok(());
    }
    let until_ms = now_ms + FIRST_TOKEN_DAYS * DAY_MS;
    let token =
        operator::new_token(&mut *tx, &name, Role::Operator, until_ms, operator::new_secret()?)?;
    let path = first_token(state);
    let written = disk::private_directory(state)
        .and_then(|()| disk::write_whole(&path, format!("{token}\n").as_bytes(), Access::Owner));
    // Written before the commit: if that fails, the next start replaces the token in the file,
    // while a committed token without a file would be lost.
    written.map_err(|error| StoreError::temporary(path.display().to_string()).because(error))?;
    tx.commit()?;
    tell(&format!("a token for the operator `{name}`, good for a year: {}", path.display()));
    Ok(())
}
