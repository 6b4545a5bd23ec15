//! What all handlers share, and how a request becomes that of a visitor.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{Archive, StoreError};

use super::attempts::Attempts;
use super::live::Live;
use super::options::Options;
use super::page::Page;
use super::problem::Problem;
use super::readers::Readers;
use super::sessions::{Cookie, Sessions};
use super::visitor::Visitor;
use crate::operator::Operator;

/// What operators do, and who they are. Each call may wait for the store.
pub trait Operate: Send + Sync + 'static {
    /// Whose token has that name and that SHA-256, in hexadecimal digits; `None` where there is
    /// no such token, or it is good no more.
    ///
    /// # Errors
    /// [`StoreError`].
    fn who_has(
        &self,
        now_ms: u64,
        name: &str,
        sha256: &str,
    ) -> Result<Option<Operator>, StoreError>;

    /// Does it, and writes it down. The inner error says why not.
    ///
    /// # Errors
    /// [`StoreError`].
    fn act(
        &self,
        now_ms: u64,
        operator: &Operator,
        action: &Action,
    ) -> Result<Result<(), String>, StoreError>;
}

/// What an operator does from a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Applies the plan that this text is.
    ApplyPlan(String),
    /// Stops the plan of that name.
    StopPlan(String),
    /// Tells a device to stop for good.
    RemoveDevice(DeviceId),
}

/// What pages stand on.
pub struct Settings {
    /// As many questions are answered at once; at least one.
    pub archives: Vec<Box<dyn Archive>>,
    /// For operators.
    pub operate: Arc<dyn Operate>,
    /// All orchestrators of a fleet have the same.
    pub secret: [u8; 32],
    /// Whether browsers reach them over TLS.
    pub is_tls: bool,
    /// What fewer devices have in common is not shown to viewers; see [`LEAST_DEVICES`].
    pub least_devices: u64,
    /// Milliseconds since 1970.
    pub clock: fn() -> u64,
}

/// A group of so many devices may be shown to a viewer, who is not to find out about one home.
pub const LEAST_DEVICES: u64 = 5;

/// What all handlers share.
pub(super) struct Pages {
    pub(super) readers: Arc<Readers>,
    pub(super) operate: Arc<dyn Operate>,
    pub(super) sessions: Sessions,
    pub(super) attempts: Attempts,
    pub(super) options: Options,
    pub(super) live: Arc<Live>,
    pub(super) least_devices: u64,
    pub(super) clock: fn() -> u64,
}

pub(super) type Shared = Arc<Pages>;

impl Pages {
    pub(super) fn new(settings: Settings) -> Shared {
        Arc::new(Self {
            readers: Readers::new(settings.archives),
            operate: settings.operate,
            sessions: Sessions::new(&settings.secret, settings.is_tls),
            attempts: Attempts::default(),
            options: Options::default(),
            live: Arc::default(),
            least_devices: settings.least_devices,
            clock: settings.clock,
        })
    }
}

impl FromRequestParts<Shared> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, pages: &Shared) -> Result<Self, Problem> {
        let there = parts.uri.path_and_query().map(ToString::to_string);
        let is_page = parts.method == Method::GET
            && Page::of(&parts.uri).is_some_and(|(_, f)| {
                f.is_none() && !there.as_deref().unwrap_or_default().contains("format=")
            });
        let stranger = || Problem::Stranger(there.clone().filter(|_| is_page));
        let session = pages.sessions.cookie_of(&parts.headers, Cookie::Session);
        let session = session.ok_or_else(stranger)?.to_owned();
        let now_ms = (pages.clock)();
        let claim = pages.sessions.claim(&session, now_ms).ok_or_else(stranger)?;
        let operator = match pages.sessions.remembered(&claim, now_ms) {
            Some(seen) => seen.operator,
            None => {
                let (operate, asked) = (Arc::clone(&pages.operate), claim.clone());
                let found = blocking(move || operate.who_has(now_ms, &asked.name, &asked.sha256));
                let found = found.await?;
                pages.sessions.remember(claim, found.clone(), now_ms);
                found
            }
        };
        let operator = operator.ok_or_else(stranger)?;
        Ok(Self { operator, form_token: pages.sessions.form_token(&session) })
    }
}

/// Waits for the store on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let broken = |_| StoreError::broken("a request to the store panicked");
    Ok(tokio::task::spawn_blocking(work).await.map_err(broken)??)
}
