//! A whole orchestrator: a store, requests, pages, and what goes on in the background.

mod background;
mod desk;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::hmac;
use rustls::ServerConfig;
use underload_disk::{self as disk, Access};
use underload_fleet::retention::Retention;
use underload_fleet::store::{Needs, Store, StoreError};
use underload_probe::network::raise_descriptor_limit;

use crate::http::{self, Config, Core, Limits, Running, StartError, Tell, system_clock};
use crate::operator::{self, Role, TokenName};
use crate::pages::{self, LEAST_DEVICES};
use crate::random;
use crate::store::{Opened, Place};
use background::Background;
use desk::Desk;

/// What an orchestrator is told.
pub struct Setup {
    /// Where it keeps what it knows.
    pub store: Place,
    /// Where days go that are past, if not to the usual place.
    pub archive: Option<PathBuf>,
    /// How long what is kept.
    pub retention: Retention,
    /// Address and port; port 0 for any.
    pub listen: SocketAddr,
    /// Its certificate; `None` for plain HTTP, on loopback alone.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether browsers come over TLS, which somebody in front of it may end.
    pub is_public_tls: bool,
    /// Limits of what may come in; fewer connections where descriptors are fewer.
    pub limits: Limits,
    /// Where the first operator's token is put.
    pub state: PathBuf,
    /// Hears what an operator may want to know.
    pub tell: Tell,
}

/// A running orchestrator.
#[derive(Debug)]
pub struct Service {
    // In this order: who works in the background ends after the last request.
    running: Running,
    background: Background,
}

/// Who acts first.
const FIRST_OPERATOR: &str = "admin";
const FIRST_TOKEN: &str = "admin.token";
const DAY_MS: u64 = 86_400_000;
/// The first token is good for so long.
const FIRST_TOKEN_DAYS: u64 = 365;

impl Service {
    /// Opens the store and starts to serve. Where the store knows no operator yet, a token for one
    /// is put into the state directory.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(setup: Setup) -> Result<Self, StartError> {
        let opened = setup.store.open(setup.archive.as_deref(), setup.retention)?;
        let Opened { mut stores, archives, housekeeping } = opened;
        let clock = system_clock();
        let limits = setup.limits.within(raise_descriptor_limit(setup.limits.descriptors()));
        if let Some(store) = stores.first_mut() {
            first_operator(store.as_mut(), clock(), &setup.state, &setup.tell)?;
        }
        let core = Core::start(stores, Arc::clone(&clock), &limits, &setup.tell)?;
        let pages = pages::router(pages::Settings {
            archives,
            operate: Arc::new(Desk::new(Arc::clone(&core))),
            secret: for_pages(core.fleet_secret()),
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Its rules and stores, for whoever runs in the same program.
    pub fn core(&self) -> &Arc<Core> {
        self.running.core()
    }

    /// Takes no more requests, and returns once those in flight are answered.
    pub fn stop(self) {
        self.running.stop();
        drop(self.background);
    }
}

/// Where the first operator's token is put.
pub fn first_token(state: &Path) -> PathBuf {
    state.join(FIRST_TOKEN)
}

fn first_operator(
    store: &mut dyn Store,
    now_ms: u64,
    state: &Path,
    tell: &Tell,
) -> Result<(), StoreError> {
    let broken = |error: &dyn std::fmt::Display| StoreError::broken(error.to_string());
    let name = TokenName::new(FIRST_OPERATOR).map_err(|error| broken(&error))?;
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() })?;
    if operator::is_known(&mut *tx, &name)? {
        return Ok(());
    }
    let until_ms = now_ms + FIRST_TOKEN_DAYS * DAY_MS;
    let token = operator::new_token(&mut *tx, &name, Role::Operator, until_ms, random::bytes()?)?;
    let path = first_token(state);
    let written = disk::private_directory(state)
        .and_then(|()| disk::write_whole(&path, format!("{token}\n").as_bytes(), Access::Owner));
    // A token in a file that is not good yet is made again; one that nobody has could not be.
    written.map_err(|error| StoreError::temporary(path.display().to_string()).because(error))?;
    tx.commit()?;
    tell(&format!("a token for the operator `{name}`, good for a year: {}", path.display()));
    Ok(())
}

/// Pages and devices have secrets that do not tell of each other.
fn for_pages(fleet_secret: &[u8; 32]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, fleet_secret), b"pages");
    let mut secret = [0; 32];
    secret.copy_from_slice(tag.as_ref());
    secret
}

fn system_ms() -> u64 {
    system_clock()()
}
