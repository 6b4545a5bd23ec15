//! The API of operators, authenticated by a token: `Authorization: Bearer ulo1...`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use underload_fleet::operator::{
    AppliedPlan, ApplyPlan, Codes, ListLines, Message, NewCodes, PutLines, RemoveDevice,
    SetServerAddress, StopPlan,
};
use underload_fleet::orchestrator::{Answer, Kind, NewCode, Orchestrator, Rejection};
use underload_fleet::plan::{BYTES_MAX, Load, Plan};
use underload_fleet::store::{Needs, StoreError};

use super::batch::Turn;
use super::host::{Host, rejected};
use super::problem::Failure;
use crate::operator::{Operator, Role, who_shows};
use crate::random;

const CODES_MAX: usize = 1_000;
const VALID_DAYS_MAX: u16 = 366;
const DAY_MS: u64 = 86_400_000;
/// Maximum number of bytes of a request: a plan, with its characters escaped as JSON.
const MAX: usize = 2 * BYTES_MAX;

pub(super) fn router() -> Router<Arc<Host>> {
    let stop_plan = acts(|rules, turn, who, it: &StopPlan| {
        Ok(rules.stop_plan(turn.tx, turn.now_ms, who, &it.name)?.map(drop))
    });
    let remove_device = acts(|rules, turn, who, it: &RemoveDevice| {
        rules.remove_device(turn.tx, turn.now_ms, turn.rng, who, it.device)
    });
    let set_server_address = acts(|rules, turn, who, it: &SetServerAddress| {
        rules.set_server_address(turn.tx, turn.now_ms, who, &it.name, &it.address)
    });
    let put_lines = acts(|rules, turn, who, it: &PutLines| {
        rules.put_lines(turn.tx, turn.now_ms, turn.rng, who, it)
    });
    let list_lines =
        acts(|rules, turn, who, it: &ListLines| rules.list_lines(turn.tx, turn.now_ms, who, it));
    Router::new()
        .route(NewCodes::PATH, acts(new_codes))
        .route(ApplyPlan::PATH, acts(apply_plan))
        .route(StopPlan::PATH, stop_plan)
        .route(RemoveDevice::PATH, remove_device)
        .route(SetServerAddress::PATH, set_server_address)
        .route(PutLines::PATH, put_lines)
        .route(ListLines::PATH, list_lines)
}

type From = ConnectInfo<SocketAddr>;

fn new_codes(rules: &Orchestrator, turn: &mut Turn<'_>, who: &str, it: &NewCodes) -> Answer<Codes> {
    let checks = [
        ((1..=CODES_MAX).contains(&it.attributes.len()), "1 to 1000 codes at once"),
        ((1..=VALID_DAYS_MAX).contains(&it.valid_days), "codes are valid for 1 to 366 days"),
        (
            it.lines.is_empty() || it.lines.len() == it.attributes.len(),
            "as many lines as attributes, or none",
        ),
    ];
    if let Some((_, wrong)) = checks.into_iter().find(|(is_good, _)| !is_good) {
        return Ok(Err(Rejection::new(Kind::BadRequest, "bad-codes", wrong)));
    }
    let mut codes = Vec::with_capacity(it.attributes.len());
    for (place, attributes) in it.attributes.iter().cloned().enumerate() {
        let line = it.lines.get(place).cloned().unwrap_or_default();
        let (valid_ms, secret) = (u64::from(it.valid_days) * DAY_MS, random::bytes()?);
        codes.push(NewCode { makes: it.makes, attributes, line, valid_ms, secret });
    }
    let made = rules.new_codes(turn.tx, turn.now_ms, who, &codes)?;
    Ok(made.map(|codes| Codes { codes }))
}

fn apply_plan(
    rules: &Orchestrator,
    turn: &mut Turn<'_>,
    who: &str,
    it: &ApplyPlan,
) -> Answer<AppliedPlan> {
    let secret = random::bytes()?;
    let row = match rules.apply_plan(turn.tx, turn.now_ms, who, &it.text, &secret)? {
        Ok(row) => row,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let plan = Plan::parse(&row.text).map_err(|error| StoreError::broken("plan").because(error))?;
    Ok(Ok(AppliedPlan { name: row.name, load: Load::of(&plan) }))
}

/// A rule for messages of operators, with the sender's name.
type OperatorRule<M, A> = fn(&Orchestrator, &mut Turn<'_>, &str, &M) -> Answer<A>;

fn acts<M, A: Into<M::Answer> + 'static>(rule: OperatorRule<M, A>) -> MethodRouter<Arc<Host>>
where
    M: Message<Answer: Send> + Send + 'static,
{
    post(move |host: State<Arc<Host>>, from: From, request: Request| async move {
        let (token, it): (_, M) = host.shown(&from, request).await?;
        let core = Arc::clone(&host.core);
        let act = move |operator: &Operator, turn: &mut Turn<'_>| {
            Ok(rule(&core.rules, turn, &operator.name, &it)?.map(Into::into))
        };
        host.transact(token, Role::Operator, act).await.map(Json::<M::Answer>)
    })
}

impl Host {
    /// Returns the token and the message of a request.
    async fn shown<M: Message>(
        &self,
        from: &From,
        request: Request,
    ) -> Result<(String, M), Failure> {
        self.admit_stranger(from.0)?;
        let token = bearer(request.headers())?;
        // Checks the token first, so that only operators can send large bodies.
        self.transact(token.clone(), Role::Operator, |_, _| Ok(Ok(()))).await?;
        Ok((token, self.read(from.0, request, MAX).await?))
    }

    /// Executes `act` for the owner of the token, who needs at least the role `least`.
    pub(super) async fn transact<A: Send + 'static>(
        &self,
        token: String,
        least: Role,
        mut act: impl FnMut(&Operator, &mut Turn<'_>) -> Answer<A> + Send + 'static,
    ) -> Result<A, Failure> {
        let core = Arc::clone(&self.core);
        let work = move |turn: &mut Turn<'_>| {
            let Some(operator) = who_shows(turn.tx, turn.now_ms, &token)? else {
                core.refusals.log(turn.tx, turn.now_ms, "refused a request")?;
                return Ok(Err(unauthorized("the token is not valid")));
            };
            if operator.role < least {
                let message = "viewers may look only";
                return Ok(Err(Failure::new(StatusCode::FORBIDDEN, "viewer", message)));
            }
            Ok(act(&operator, turn)?.map_err(rejected))
        };
        let needs = Needs { admits: true, ..Needs::default() };
        self.core.writers.ask(0, needs, work).await?
    }
}

/// Returns the token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Result<String, Failure> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer "));
    Ok(token.ok_or_else(|| unauthorized("a token is required"))?.trim().to_owned())
}

fn unauthorized(message: &str) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "no-token", message)
}
