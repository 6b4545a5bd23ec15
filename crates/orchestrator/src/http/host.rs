//! Calls the rule for a request: checks limits and signatures, reads the body, and executes the
//! rule in a transaction.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::uri::PathAndQuery;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::device::DeviceId;
use underload_fleet::orchestrator::{Answer, Orchestrator, Rejection};
use underload_fleet::store::Needs;
use underload_probe::network::CustomerNetwork;

use super::batch::Turn;
use super::core::{Core, Limits};
use super::frequency::Frequency;
use super::metrics::Metrics;
use super::problem::Failure;
use super::read::{Bodies, BodySender, message};
use super::signed::Signed;

/// State shared by the handlers: the core, limits on bodies and request rates, and counts of
/// answers.
pub(super) struct Host {
    pub core: Arc<Core>,
    bodies: Bodies,
    devices: Frequency,
    strangers: Frequency,
    pub metrics: Metrics,
}

/// A rule for messages without a session.
pub(super) type Rule<M, A> = fn(&Orchestrator, &mut Turn<'_>, &M) -> Answer<A>;
pub(super) type SignedRule<M, A> = fn(&Orchestrator, &mut Turn<'_>, DeviceId, &M) -> Answer<A>;

/// Maximum number of bytes of a message without lists.
pub(super) const SMALL_MAX: usize = 16 << 10;

impl Host {
    pub fn new(core: Arc<Core>, limits: Limits, metrics: Metrics) -> Self {
        Self {
            core,
            bodies: Bodies::new(limits.body_bytes, limits.body_max),
            devices: Frequency::new(limits.device_per_minute),
            strangers: Frequency::new(limits.strangers_per_minute),
            metrics,
        }
    }

    /// Answers a request without a session by applying `rule` to its message.
    pub async fn stranger<M, A>(
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

    /// Answers a message of a device or a server.
    pub async fn signed<M, A>(
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

    /// Converts a rule's rejection into an HTTP failure, with a signed removal if the rejection
    /// names a removed device.
    fn rejected(&self, rejection: Rejection) -> Failure {
        let now_ms = self.core.now_ms();
        let removal = rejection.removed.map(|it| self.core.rules.sign_removal(it, now_ms));
        rejected(rejection).with_removal(removal)
    }

    /// Counts a request without a session against the rate limit of its network.
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

/// The `sender` of a device, which keeps its requests in order.
fn place_of(device: DeviceId) -> u64 {
    device.0.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn too_often(seconds: u64) -> Failure {
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "too-often", "too many requests in this minute")
        .after(seconds)
}

/// Converts a rule's rejection into an HTTP failure, with `Retry-After` if the rejection has a
/// delay.
pub(super) fn rejected(rejection: Rejection) -> Failure {
    let Rejection { kind, code, message, retry_after_s, .. } = rejection;
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let failure = Failure::new(status, code, message);
    match retry_after_s {
        Some(seconds) => failure.after(seconds),
        None => failure,
    }
}
