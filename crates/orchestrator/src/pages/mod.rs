//! Pages about the results for browsers, also as JSON and CSV.
//!
//! Layers, each of which uses those below it:
//!
//! - [`router`]: all paths except those of the API.
//! - `login`: the login, and the actions of operators.
//! - `state`: the state that all handlers share.
//! - `page`: the pages; `overview`, `study`, `devices`, `servers`, `plans`, `rollouts` create a
//!   `sheet` of tables and charts, which is written as HTML, JSON or CSV; `options`: their filters.
//! - `summary`: quantiles and descriptions of sums; `live`: notifies pages of changes; `readers`:
//!   queries the store; `sessions`, `attempts`: authenticate visitors.
//! - `sheet`, `table`, `question`: the content of a page, and the query in an address.
//! - `problem`, `shell`, `visitor`: errors, the frame of every page, and the visitor.
//!
//! Every page is complete without its script, which reads values off charts, zooms, and fetches the
//! part of a page that depends on a filter.

mod attempts;
mod devices;
mod live;
mod login;
mod options;
mod overview;
mod page;
mod plans;
mod problem;
mod question;
mod readers;
mod rollouts;
mod servers;
mod sessions;
mod sheet;
mod shell;
mod state;
mod study;
mod summary;
mod table;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::Uri;
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use maud::html;
use options::OfferedValues;
use page::Page;
use problem::{Problem, Result};
use question::{Ask, Format, Question};
use state::{Pages, Shared, blocking};
use underload_fleet::plan;
use visitor::Visitor;

pub(crate) use question::date_text;
pub use state::{Action, LEAST_DEVICES, Operate, Settings};
pub use summary::quantile_ms;

/// Maximum number of bytes of a form: a plan, of which each byte may be encoded as three.
const FORM_MAX: usize = 3 * plan::BYTES_MAX + 4_096;

pub fn router(settings: Settings) -> Router {
    let mut router = Router::new().route("/", get(show));
    for (_, path, _) in Page::ALL {
        for ending in ["", ".json", ".csv"] {
            router = router.route(&format!("{path}{ending}"), get(show));
        }
    }
    router
        .route("/devices/{id}", get(show))
        .route("/plans/apply", post(login::act))
        .route("/plans/stop", post(login::act))
        .route("/devices/remove", post(login::act))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/live", get(events))
        .route("/assets/{name}", get(async |Path(name): Path<String>| shell::asset(&name)))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .layer(middleware::from_fn(shell::guard))
        .with_state(Pages::new(settings))
}

async fn events(State(pages): State<Shared>, visitor: Visitor) -> Result<Response> {
    pages.live.stream(visitor.operator.name, &pages.readers, pages.clock)
}

async fn show(State(pages): State<Shared>, visitor: Visitor, uri: Uri) -> Result<Response> {
    let (page, format) = Page::from_uri(&uri).ok_or(Problem::NotFound("There is no such page."))?;
    let is_operator = visitor.is_operator();
    if page.is_for_operators() && !is_operator {
        return Err(Problem::NotAllowed("Single devices are shown to operators only."));
    }
    let question = Question::read(uri.query().unwrap_or_default(), format)?;
    // A fragment renews a page that is open.
    if let Page::Device(id) = page
        && question.format != Format::Fragment
    {
        let (operate, operator, now_ms) =
            (Arc::clone(&pages.operate), visitor.operator.clone(), (pages.clock)());
        let look = move || operate.act(now_ms, &operator, &Action::LookAtDevice(id));
        let _ = blocking(look).await?;
    }
    let (now_ms, format) = ((pages.clock)(), question.format);
    let least_devices = if is_operator { 1 } else { pages.least_devices };
    let ask = Ask { question, visitor, now_ms, least_devices };
    let is_whole = format == Format::Html;
    let known = is_whole.then(|| pages.options.remembered(now_ms)).flatten();
    let who = ask.visitor.operator.name.clone();
    let answer = pages.readers.ask(&who, move |archive| {
        let mut asked = ask;
        if page.is_of_a_plan() {
            asked.question.choose_plan(&archive.plans()?);
        }
        let sheet = page.sheet(archive, &asked)?;
        let options = match known {
            None if is_whole => Some(Arc::new(OfferedValues::read(archive)?)),
            known => known,
        };
        Ok((sheet, options, asked))
    });
    let (sheet, options, ask) = answer.await?;
    let path = page.path();
    match format {
        Format::Json => Ok(sheet.json(now_ms)),
        Format::Csv => sheet.csv(&ask.question),
        Format::Fragment => {
            Ok(Html(sheet.html(&ask.question, &path).into_string()).into_response())
        }
        Format::Html => {
            let options = options.unwrap_or_default();
            pages.options.remember(Arc::clone(&options), now_ms);
            let content = html! {
                (page.filters(&ask, &options)?)
                div #answer data-live[page != Page::Plans] { (sheet.html(&ask.question, &path)) }
            };
            let around = shell::Around { visitor: &ask.visitor, path: uri.path() };
            Ok(shell::document(&sheet.title, Some(around), &content).into_response())
        }
    }
}
