//! The routes of devices and servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, Uri};
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router, middleware};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::timeout;
use underload_fleet::device::DeviceId;
use underload_fleet::message::{self, Enrol, Heartbeat, Move, Next, OpenSession, Release, Results};
use underload_fleet::orchestrator::HEARTBEAT_ENDED_MAX;
use underload_fleet::store::Needs;
use underload_probe::network::{CustomerNetwork, Places};

use super::batch::Turn;
use super::core::{Core, Limits};
use super::host::{Host, Rule, SMALL_MAX, SignedRule};
use super::metrics::{self, Metrics};
use super::problem::Failure;
use super::{openapi, operators};

pub(super) fn router(
    core: Arc<Core>,
    limits: Limits,
    places: Places<CustomerNetwork>,
    pages: Option<Router>,
) -> Router {
    let host = Arc::new(Host::new(core, limits, Metrics::new(places)));
    let description = Json(openapi::document());
    let api = devices()
        .merge(operators::router())
        .route("/v1/openapi.json", get(move || async { description }))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics::page))
        .route("/v1/{*rest}", any(unknown));
    let count = middleware::from_fn_with_state(Arc::clone(&host), metrics::count);
    let api = api.method_not_allowed_fallback(wrong_method).with_state(host);
    let api = match pages {
        Some(pages) => api.fallback_service(pages),
        None => api.fallback(unknown),
    };
    api.layer(count)
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
                // The rule rejects a request with more results than this.
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

/// Answers 200 if the store can be read.
async fn ready(
    State(host): State<Arc<Host>>,
    from: ConnectInfo<SocketAddr>,
) -> Result<&'static str, Failure> {
    host.admit_stranger(from.0)?;
    let read = |turn: &mut Turn<'_>| turn.tx.setting("ready").map(drop);
    host.core.writers.ask(0, Needs::default(), read).await?;
    Ok("ok\n")
}

async fn unknown(uri: Uri) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "not-found", format!("no such path: {}", uri.path()))
}

async fn wrong_method(uri: Uri) -> Failure {
    let message = format!("{} requires another method", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", message)
}

/// Maximum number of devices to settle in one transaction.
const SETTLED_MAX: usize = 256;
/// Interval of settling, unless more than [`SETTLED_MAX`] devices are overdue.
const SETTLE_PAUSE: Duration = Duration::from_secs(5);

/// Stores outcomes for the overdue runs of silent devices, until `stopping` is true.
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
        // After an error, retries at the next interval.
        overdue = core.writers.ask(0, needs, work).await.unwrap_or(0);
    }
}
