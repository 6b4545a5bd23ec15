//! State shared by all handlers, and the extractor that authenticates the visitor of a request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{Archive, Result, StoreError};

use super::attempts::Attempts;
use super::live::Live;
use super::options::Options;
use super::page::Page;
use super::problem::Problem;
use super::readers::Readers;
use super::sessions::{Cookie, Sessions};
use super::visitor::Visitor;
use crate::operator::Operator;

/// An interface that authenticates operators and carries out their actions. Each call may block on
/// the store.
pub trait Operate: Send + Sync + 'static {
    /// Returns the operator whose token has this name and this SHA-256, in hexadecimal digits;
    /// `None` if no token matches, or if the token was revoked or has expired by `now_ms`.
    fn who_has(&self, now_ms: u64, name: &str, sha256: &str) -> Result<Option<Operator>>;

    /// Counts a log-in that was refused before its token was checked.
    fn count_refusal(&self) {}

    /// Executes an action and logs it. The inner error is the reason why it was rejected.
    fn act(&self, now_ms: u64, operator: &Operator, action: &Action) -> Result<Result<(), String>>;
}

/// An action that an operator triggers on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    ApplyPlan(String),
    StopPlan(String),
    /// Removes a device for good.
    RemoveDevice(DeviceId),
    LogIn,
    /// Reads the page of a single device.
    LookAtDevice(DeviceId),
}

pub struct Settings {
    /// Connections for concurrent queries; at least one.
    pub archives: Vec<Box<dyn Archive>>,
    pub operate: Arc<dyn Operate>,
    /// A secret that all orchestrators of a fleet share.
    pub secret: [u8; 32],
    pub is_tls: bool,
    /// Minimum number of devices in a group that viewers may see; see [`LEAST_DEVICES`].
    pub least_devices: u64,
    /// Returns the current time, in milliseconds since the Unix epoch.
    pub clock: fn() -> u64,
}

/// Minimum number of devices in a group that viewers may see, so that they cannot learn about a
/// single home.
pub const LEAST_DEVICES: u64 = 5;

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
            && Page::from_uri(&parts.uri).is_some_and(|(_, f)| {
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

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let broken = |_| StoreError::broken("a request to the store panicked");
    Ok(tokio::task::spawn_blocking(work).await.map_err(broken)??)
}
