//! Which request goes to which rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::timeout;
use underload_fleet::device::DeviceId;
use underload_fleet::message::{self, Enrol, Heartbeat, Move, Next, OpenSession, Release, Results};
use underload_fleet::orchestrator::{Answer, HEARTBEAT_ENDED_MAX, Orchestrator, Rejection};
use underload_fleet::store::Needs;
use underload_probe::network::CustomerNetwork;

use super::batch::Turn;
use super::frequency::Frequency;
use super::problem::Failure;
use super::read::{Bodies, BodySender, message};
use super::signed::Signed;
use super::{Core, Limits, openapi, operators};

/// What the handlers share.
pub(super) struct Host {
    pub core: Arc<Core>,
    bodies: Bodies,
    devices: Frequency,
    strangers: Frequency,
}

/// A rule for messages of strangers.
type Rule<M, A> = fn(&Orchestrator, &mut Turn<'_>, &M) -> Answer<A>;
/// A rule for messages of devices.
type SignedRule<M, A> = fn(&Orchestrator, &mut Turn<'_>, DeviceId, &M) -> Answer<A>;

/// Bytes of a message that holds no list at most.
const SMALL_MAX: usize = 16 << 10;

/// All requests.
pub(super) fn router(core: Arc<Core>, limits: Limits, pages: Option<Router>) -> Router {
    let host = Arc::new(Host {
        core,
        bodies: Bodies::new(limits.body_bytes, limits.body_max),
        devices: Frequency::new(limits.device_per_minute),
        strangers: Frequency::new(limits.strangers_per_minute),
    });
    let description = Json(openapi::document());
    let api = devices()
        .merge(operators::router())
        .route("/v1/openapi.json", get(move || async { description }))
        .route("/v1/{*rest}", any(unknown));
    let api = api.method_not_allowed_fallback(wrong_method).with_state(host);
    match pages {
        Some(pages) => api.fallback_service(pages),
        None => api.fallback(unknown),
    }
}

fn devices() -> Router<Arc<Host>> {
    Router::new()
        .route(
            "/v1/enrol",
            stranger(|rules, turn, it: &Enrol| rules.enrol(turn.tx, turn.now_ms, it)),
        )
        .route(
            "/v1/session",
            stranger(|rules, turn, it: &OpenSession| rules.open_session(turn.tx, turn.now_ms, it)),
        )
        .route(
            "/v1/next",
            signed(
                SMALL_MAX,
                |sender, _: &Next| Needs { devices: vec![sender], leases: vec![], admits: true },
                |rules, turn, sender, it| rules.next(turn.tx, turn.now_ms, turn.rng, sender, it),
            ),
        )
        .route(
            "/v1/move",
            signed(
                SMALL_MAX,
                |sender, it: &Move| admits(sender, it.lease_id),
                |rules, turn, sender, it| {
                    rules.move_lease(turn.tx, turn.now_ms, turn.rng, sender, it)
                },
            ),
        )
        .route(
            "/v1/release",
            signed(
                SMALL_MAX,
                |sender, it: &Release| admits(sender, it.lease_id),
                |rules, turn, sender, it| rules.release(turn.tx, sender, it),
            ),
        )
        .route(
            "/v1/results",
            signed(
                message::REQUEST_MAX,
                |sender, _: &Results| Needs { devices: vec![sender], ..Needs::default() },
                |rules, turn, sender, it| rules.results(turn.tx, turn.now_ms, sender, it),
            ),
        )
        .route(
            "/v1/heartbeat",
            signed(
                message::REQUEST_MAX,
                // A request with more is refused.
                |_, it: &Heartbeat| Needs {
                    leases: it.ended.iter().take(HEARTBEAT_ENDED_MAX).copied().collect(),
                    admits: true,
                    ..Needs::default()
                },
                |rules, turn, sender, it| rules.heartbeat(turn.tx, turn.now_ms, sender, it),
            ),
        )
}

fn admits(sender: DeviceId, lease: u64) -> Needs {
    Needs { devices: vec![sender], leases: vec![lease], admits: true }
}

fn stranger<M, A>(rule: Rule<M, A>) -> MethodRouter<Arc<Host>>
where
    M: DeserializeOwned + Send + Sync + 'static,
    A: Serialize + Send + 'static,
{
    type From = ConnectInfo<SocketAddr>;
    let answer = move |State(host): State<Arc<Host>>, from: From, request| async move {
        host.stranger(from.0, request, rule).await
    };
    post(answer)
}

fn signed<M, A>(
    max: usize,
    needs: fn(DeviceId, &M) -> Needs,
    rule: SignedRule<M, A>,
) -> MethodRouter<Arc<Host>>
where
    M: DeserializeOwned + Send + Sync + 'static,
    A: Serialize + Send + 'static,
{
    post(move |State(host): State<Arc<Host>>, request| async move {
        host.signed(request, max, needs, rule).await
    })
}

impl Host {
    async fn stranger<M, A>(
        &self,
        from: SocketAddr,
        request: Request,
        rule: Rule<M, A>,
    ) -> Result<Response, Failure>
    where
        M: DeserializeOwned + Send + Sync + 'static,
        A: Serialize + Send + 'static,
    {
        self.admit_stranger(from)?;
        let (head, body) = request.into_parts();
        let whose = BodySender::Stranger(CustomerNetwork::of_host(from.ip()));
        let (body, room) = self.bodies.read(whose, &head.headers, body, SMALL_MAX).await?;
        let message: M = message(&body)?;
        drop((body, room));
        let core = Arc::clone(&self.core);
        let work = move |turn: &mut Turn<'_>| rule(&core.rules, turn, &message);
        let sender = u64::from(from.port());
        let ruled = self.core.writers.ask(sender, Needs::default(), work).await?;
        Ok(Json(ruled.map_err(|rejection| self.rejected(rejection))?).into_response())
    }

    async fn signed<M, A>(
        &self,
        request: Request,
        max: usize,
        needs: fn(DeviceId, &M) -> Needs,
        rule: SignedRule<M, A>,
    ) -> Result<Response, Failure>
    where
        M: DeserializeOwned + Send + Sync + 'static,
        A: Serialize + Send + 'static,
    {
        let (head, body) = request.into_parts();
        let (now_ms, secret) = (self.core.now_ms(), &self.core.fleet_secret);
        let signed = Signed::read(&head.headers)?;
        let sender = signed.holder(secret, now_ms)?;
        self.devices.admit(sender, now_ms).map_err(too_often)?;
        let whose = BodySender::Device(sender);
        let (body, room) = self.bodies.read(whose, &head.headers, body, max).await?;
        let target = head.uri.path_and_query().map_or(head.uri.path(), PathAndQuery::as_str);
        let line = (head.method.as_str(), target);
        signed.verify(secret, self.core.now_ms(), line, &body)?;
        let message: M = message(&body)?;
        drop((body, room));
        let needs = needs(sender, &message);
        let core = Arc::clone(&self.core);
        let work = move |turn: &mut Turn<'_>| rule(&core.rules, turn, sender, &message);
        let ruled = self.core.writers.ask(place_of(sender), needs, work).await?;
        Ok(Json(ruled.map_err(|rejection| self.rejected(rejection))?).into_response())
    }

    /// What a rule refused to a device or a server.
    fn rejected(&self, rejection: Rejection) -> Failure {
        let now_ms = self.core.now_ms();
        let removal = rejection.removed.map(|it| self.core.rules.sign_removal(it, now_ms));
        rejected(rejection).with_removal(removal)
    }

    /// Counts a request of somebody who has no session.
    pub fn admit_stranger(&self, from: SocketAddr) -> Result<(), Failure> {
        let network = CustomerNetwork::of_host(from.ip());
        self.strangers.admit(network, self.core.now_ms()).map_err(too_often)
    }

    /// Reads the body of an operator's request.
    pub async fn read<M: DeserializeOwned>(
        &self,
        from: SocketAddr,
        request: Request,
        max: usize,
    ) -> Result<M, Failure> {
        let (head, body) = request.into_parts();
        let whose = BodySender::Stranger(CustomerNetwork::of_host(from.ip()));
        let (body, _room) = self.bodies.read(whose, &head.headers, body, max).await?;
        message(&body)
    }
}

/// Requests of one device follow each other.
fn place_of(device: DeviceId) -> u64 {
    device.0.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn too_often(seconds: u64) -> Failure {
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "too-often", "too many requests in this minute")
        .after(seconds)
}

/// What a rule refused.
pub(super) fn rejected(rejection: Rejection) -> Failure {
    let Rejection { kind, code, message, retry_after_s, .. } = rejection;
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let failure = Failure::new(status, code, message);
    match retry_after_s {
        Some(seconds) => failure.after(seconds),
        None => failure,
    }
}

async fn unknown(uri: Uri) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "not-found", format!("there is no {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> Failure {
    let message = format!("{} takes another method", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", message)
}

/// Devices that are settled in one transaction at most.
const SETTLED_MAX: usize = 256;
/// From one settling to the next, while few are overdue.
const SETTLE_PAUSE: Duration = Duration::from_secs(5);

/// Speaks for devices that are silent, until it is told to stop.
pub(super) async fn settle(core: Arc<Core>, mut stopping: watch::Receiver<bool>) {
    let mut overdue = 0;
    loop {
        let pause = if overdue < SETTLED_MAX { SETTLE_PAUSE } else { Duration::ZERO };
        if timeout(pause, stopping.wait_for(|stop| *stop)).await.is_ok() {
            return;
        }
        let needs = Needs { admits: true, ..Needs::default() };
        let rules = Arc::clone(&core);
        let work = move |turn: &mut Turn<'_>| {
            rules.rules.settle(turn.tx, turn.now_ms, turn.rng, SETTLED_MAX)
        };
        // A store that is away is asked again with the next turn.
        overdue = core.writers.ask(0, needs, work).await.unwrap_or(0);
    }
}
