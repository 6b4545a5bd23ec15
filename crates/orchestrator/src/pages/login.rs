//! The login, and the actions of operators.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use data_encoding::HEXLOWER;
use maud::{Markup, html};
use ring::digest::{SHA256, digest};
use tokio::time::timeout;

use super::problem::{Problem, Result};
use super::sessions::{Claim, Cookie, FORM_MS, SESSION_MS};
use super::state::{Action, Shared, blocking};
use super::visitor::Visitor;
use super::{plans, shell};
use crate::random;

const TOKEN_MAX: usize = 256;

struct Fields(HashMap<String, String>);

impl Fields {
    fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_form =
            kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        if !is_form {
            return Err(Problem::bad("The request is not a form."));
        }
        Ok(Self(form_urlencoded::parse(body).into_owned().collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Rejects a form that a page of another origin sent.
fn check_origin(headers: &HeaderMap) -> Result<()> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let is_ours = origin.is_some_and(|(_, origin)| Some(origin) == host);
    if is_ours {
        Ok(())
    } else {
        Err(Problem::NotAllowed("A page of another site sent this form."))
    }
}

pub(super) async fn form(State(pages): State<Shared>, uri: Uri) -> Result<Response> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let next = pairs.into_owned().find(|(name, _)| name == "next").map(|(_, next)| next);
    login_page(&pages, next.as_deref().unwrap_or("/"), "")
}

fn login_page(pages: &Shared, next: &str, fault: &str) -> Result<Response> {
    let stranger = pages.sessions.stranger(random::bytes()?, (pages.clock)());
    let content = login_form(&pages.sessions.form_token(&stranger), next, fault);
    let status = if fault.is_empty() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
    let cookie = pages.sessions.cookie(Cookie::Stranger, &stranger, FORM_MS);
    let page = shell::document("Log in", None, &content);
    Ok((status, [(header::SET_COOKIE, cookie)], page).into_response())
}

fn login_form(form_token: &str, next: &str, fault: &str) -> Markup {
    html! {
        h1 { "underload fleet" }
        @if !fault.is_empty() { p.warning role="alert" { (fault) } }
        form.login method="post" action="/login" {
            input type="hidden" name="form" value=(form_token);
            input type="hidden" name="next" value=(next);
            // Password managers need a label.
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus
                autocomplete="current-password" spellcheck="false" maxlength=(TOKEN_MAX);
            button type="submit" { "Log in" }
        }
        p.note {
            "Make one on the orchestrator's host: "
            code { "underload fleet token new" }
        }
    }
}

/// Checks a token, and sets the session's cookie.
pub(super) async fn log_in(State(pages): State<Shared>, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let from = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|from| from.0.ip());
    let now_ms = (pages.clock)();
    // First, so that pages of other origins cannot use up the visitor's attempts.
    check_origin(&parts.headers)?;
    let body = timeout(LOGIN_TIME_MAX, axum::body::to_bytes(body, LOGIN_MAX)).await;
    let body = body.map_err(|_| Problem::bad("The form took too long to arrive."))?;
    let body = body.map_err(|_| Problem::bad("The form is too long."))?;
    let fields = Fields::read(&parts.headers, &body)?;
    let next = here_only(fields.get("next"));
    let stranger = pages.sessions.cookie_of(&parts.headers, Cookie::Stranger);
    let stranger = stranger.filter(|text| {
        pages.sessions.is_stranger(text, now_ms)
            && pages.sessions.is_form_token(text, fields.get("form"))
    });
    let Some(stranger) = stranger else {
        return login_page(&pages, next, "The form was too old, or cookies are off: try again.");
    };
    let admitted = pages.attempts.admit(stranger, from, now_ms);
    admitted.inspect_err(|_| pages.operate.count_refusal())?;
    let token = fields.get("token").trim().to_owned();
    let name = token.split('.').nth(1).unwrap_or_default().to_owned();
    let sha256 = HEXLOWER.encode(digest(&SHA256, token.as_bytes()).as_ref());
    let claim = Claim { name, sha256, expires_ms: now_ms.saturating_add(SESSION_MS) };
    let (operate, asked) = (Arc::clone(&pages.operate), claim.clone());
    let is_name = !claim.name.is_empty() && token.len() <= TOKEN_MAX;
    let found = blocking(move || {
        if is_name { operate.who_has(now_ms, &asked.name, &asked.sha256) } else { Ok(None) }
    });
    let Some(operator) = found.await? else {
        return login_page(&pages, next, "This token is not valid or has expired.");
    };
    let (operate, who) = (Arc::clone(&pages.operate), operator.clone());
    // Nobody logs in without an entry in the log.
    let logged = blocking(move || operate.act(now_ms, &who, &Action::LogIn)).await?;
    logged.map_err(Problem::bad)?;
    let session = pages.sessions.text(&claim);
    pages.sessions.remember(claim, Some(operator), now_ms);
    let cookie = pages.sessions.cookie(Cookie::Session, &session, SESSION_MS);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(next)).into_response())
}

const LOGIN_MAX: usize = 8_192;
const LOGIN_TIME_MAX: Duration = Duration::from_secs(20);

/// Returns `next` if it is a path on this host, and `/` otherwise.
fn here_only(next: &str) -> &str {
    let is_path = next.starts_with('/') && !next.starts_with("//");
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path && is_plain { next } else { "/" }
}

/// Deletes the session's cookie.
pub(super) async fn log_out(
    State(pages): State<Shared>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response> {
    check_form(&visitor, &headers, &body)?;
    let cookie = pages.sessions.cookie(Cookie::Session, "", 0);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}

/// Returns the fields of a form after checking that the visitor's session sent it.
fn check_form(visitor: &Visitor, headers: &HeaderMap, body: &[u8]) -> Result<Fields> {
    use subtle::ConstantTimeEq as _;
    check_origin(headers)?;
    let fields = Fields::read(headers, body)?;
    let token = fields.get("form").as_bytes();
    if bool::from(token.ct_eq(visitor.form_token.as_bytes())) {
        return Ok(fields);
    }
    Err(Problem::NotAllowed("This form is not of your session: reload the page."))
}

pub(super) async fn act(
    State(pages): State<Shared>,
    visitor: Visitor,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response> {
    let fields = check_form(&visitor, &headers, &body)?;
    if !visitor.is_operator() {
        return Err(Problem::NotAllowed("Only operators may make changes."));
    }
    let (text, now_ms) = (fields.get("text"), (pages.clock)());
    if uri.path() == "/plans/apply" && fields.get("do") == "check" {
        return Ok(plans::answer(&visitor, text, &plans::check(text, now_ms)));
    }
    let (action, next) = match uri.path() {
        "/plans/apply" => (Action::ApplyPlan(text.to_owned()), "/plans"),
        "/plans/stop" => (Action::StopPlan(fields.get("plan").to_owned()), "/plans"),
        _ => {
            let id = fields.get("device").parse();
            let id = id.map_err(|_| Problem::bad("This is not the identifier of a device."))?;
            (Action::RemoveDevice(id), "/devices")
        }
    };
    let (operate, operator) = (Arc::clone(&pages.operate), visitor.operator.clone());
    let is_plan = matches!(action, Action::ApplyPlan(_));
    let done = blocking(move || operate.act(now_ms, &operator, &action));
    match done.await? {
        Err(refused) if is_plan => {
            return Ok(plans::answer(&visitor, text, &plans::Verdict::Refused(refused)));
        }
        done => done.map_err(Problem::bad)?,
    }
    let mut response = Redirect::to(next).into_response();
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_no_other_host() {
        for there in ["//evil.example/", "https://evil.example", "/\\evil", "/a\r\nb", "", "a"] {
            assert_eq!(here_only(there), "/", "{there:?}");
        }
        assert_eq!(here_only("/study?by=tier"), "/study?by=tier");
    }

    #[test]
    fn a_form_of_another_origin_is_refused() {
        let headers = |origin: &str| {
            let host = [(header::HOST, "fleet.example:8443"), (header::ORIGIN, origin)];
            let pairs =
                host.map(|(name, value)| (name, HeaderValue::from_str(value).expect("one")));
            HeaderMap::from_iter(pairs)
        };
        assert!(check_origin(&headers("https://fleet.example:8443")).is_ok());
        for other in ["https://evil.example", "null", "https://fleet.example:8443.evil.example"] {
            assert!(check_origin(&headers(other)).is_err(), "{other}");
        }
    }
}
