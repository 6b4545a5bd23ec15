//! Pages about what was collected, for people with a browser; the same as JSON and CSV.
//!
//! - [`router`]: everything below `/` but the requests of devices and servers.
//! - `question`: what an address asks; `readers`: who answers it from the store.
//! - `overview`, `study`, `devices`, `servers`, `plans`: each makes a `sheet` of tables and charts,
//!   which is then written as HTML, JSON or CSV.
//! - `sessions`, `login`: who looks; `live`: tells a page that something has changed.
//!
//! Every page is whole without a script. The script reads values off charts, zooms, and fetches
//! the part of a page that changes with a filter.

mod devices;
mod live;
mod login;
mod options;
mod overview;
mod plans;
mod problem;
mod question;
mod readers;
mod servers;
mod sessions;
mod sheet;
mod shell;
mod study;
mod summary;
mod table;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use underload_fleet::device::DeviceId;
use underload_fleet::plan;
use underload_fleet::store::{Archive, StoreError};

use crate::operator::{Operator, Role};
use live::Live;
use login::Attempts;
use options::Options;
use problem::Problem;
use question::{Format, Question};
use readers::Readers;
use sessions::{Cookie, Sessions};
use sheet::Sheet;

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
struct Pages {
    readers: Arc<Readers>,
    operate: Arc<dyn Operate>,
    sessions: Sessions,
    attempts: Attempts,
    options: Options,
    live: Live,
    least_devices: u64,
    clock: fn() -> u64,
}

type Shared = Arc<Pages>;

/// Bytes of a form at most: a plan, of which each byte may have become three.
const FORM_MAX: usize = 3 * plan::BYTES_MAX + 4_096;

/// All pages.
pub fn router(settings: Settings) -> Router {
    let pages = Arc::new(Pages {
        readers: Readers::new(settings.archives),
        operate: settings.operate,
        sessions: Sessions::new(&settings.secret, settings.is_tls),
        attempts: Attempts::default(),
        options: Options::default(),
        live: Live::default(),
        least_devices: settings.least_devices,
        clock: settings.clock,
    });
    let mut router = Router::new().route("/", get(show));
    for place in ["overview", "study", "devices", "servers", "plans"] {
        for ending in ["", ".json", ".csv"] {
            router = router.route(&format!("/{place}{ending}"), get(show));
        }
    }
    router
        .route("/devices/{id}", get(show))
        .route("/plans/apply", post(login::act))
        .route("/plans/stop", post(login::act))
        .route("/devices/remove", post(login::act))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/live", get(live::stream))
        .route("/assets/{name}", get(async |Path(name): Path<String>| shell::asset(&name)))
        .layer(DefaultBodyLimit::max(FORM_MAX))
        .layer(middleware::from_fn(shell::guard))
        .with_state(pages)
}

/// Somebody who has logged in.
#[derive(Debug, Clone)]
struct Visitor {
    operator: Operator,
    form_token: String,
}

impl Visitor {
    /// What shows that a form is of this session.
    fn form_field(&self) -> Markup {
        html! { input type="hidden" name="form" value=(self.form_token); }
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
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let broken = |_| StoreError::Broken { what: "a request to the store panicked".into() };
    Ok(tokio::task::spawn_blocking(work).await.map_err(broken)??)
}

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Overview,
    Study,
    Devices,
    Device(DeviceId),
    Servers,
    Plans,
}

impl Page {
    /// The page of a path, and the form that its ending asks for.
    fn of(uri: &Uri) -> Option<(Self, Option<Format>)> {
        let path = uri.path().strip_prefix('/')?;
        let endings = [(".json", Format::Json), (".csv", Format::Csv)];
        let ended = endings.into_iter().find_map(|(ending, format)| {
            path.strip_suffix(ending).map(|path| (path, Some(format)))
        });
        let (path, format) = ended.unwrap_or((path, None));
        let page = match path {
            "" | "overview" => Self::Overview,
            "study" => Self::Study,
            "devices" => Self::Devices,
            "servers" => Self::Servers,
            "plans" => Self::Plans,
            _ => Self::Device(path.strip_prefix("devices/")?.parse().ok()?),
        };
        Some((page, format))
    }

    /// Its address.
    fn path(self) -> String {
        match self {
            Self::Overview => "/overview".to_owned(),
            Self::Study => "/study".to_owned(),
            Self::Devices => "/devices".to_owned(),
            Self::Device(id) => format!("/devices/{id}"),
            Self::Servers => "/servers".to_owned(),
            Self::Plans => "/plans".to_owned(),
        }
    }

    /// Whether it shows single homes.
    const fn is_for_operators(self) -> bool {
        matches!(self, Self::Devices | Self::Device(_))
    }

    /// Whether its charts are of one plan.
    const fn is_of_a_plan(self) -> bool {
        matches!(self, Self::Overview | Self::Study)
    }

    fn sheet(self, archive: &mut dyn Archive, ask: &Ask) -> Result<Sheet, Problem> {
        match self {
            Self::Overview => overview::sheet(archive, ask),
            Self::Study => study::sheet(archive, ask),
            Self::Devices => devices::list(archive, ask),
            Self::Device(id) => devices::one(archive, ask, id),
            Self::Servers => servers::sheet(archive, ask),
            Self::Plans => plans::sheet(archive, ask),
        }
    }

    /// The form of its filters; empty where it has none.
    fn filters(self, ask: &Ask, options: &options::Known) -> Result<Markup, Problem> {
        match self {
            Self::Overview => options.form(ask, "/", &options::OVERVIEW),
            Self::Study => options.form(ask, "/study", &options::STUDY),
            Self::Devices => options.form(ask, "/devices", &options::DEVICES),
            Self::Device(_) | Self::Servers | Self::Plans => Ok(html! {}),
        }
    }
}

/// Who asks what, when.
#[derive(Debug, Clone)]
struct Ask {
    question: Question,
    visitor: Visitor,
    now_ms: u64,
    /// Of fewer devices nothing is shown.
    least_devices: u64,
}

impl Ask {
    fn is_operator(&self) -> bool {
        self.visitor.operator.role == Role::Operator
    }

    /// Today, days since 1970.
    fn today(&self) -> u32 {
        (self.now_ms / question::DAY_MS) as u32
    }
}

/// Every page.
async fn show(
    State(pages): State<Shared>,
    visitor: Visitor,
    uri: Uri,
) -> Result<Response, Problem> {
    let (page, format) = Page::of(&uri).ok_or(Problem::NotFound("There is no such page."))?;
    let is_operator = visitor.operator.role == Role::Operator;
    if page.is_for_operators() && !is_operator {
        return Err(Problem::NotAllowed("Single devices are shown to operators only."));
    }
    let question = Question::read(uri.query().unwrap_or_default(), format)?;
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
            None if is_whole => Some(Arc::new(options::Known::read(archive)?)),
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
            Ok(Html(sheet.html(&ask.question, &path)?.into_string()).into_response())
        }
        Format::Html => {
            let options = options.unwrap_or_default();
            pages.options.remember(Arc::clone(&options), now_ms);
            let content = html! {
                (page.filters(&ask, &options)?)
                div #answer data-live[page != Page::Plans] { (sheet.html(&ask.question, &path)?) }
            };
            let around = shell::Around { visitor: &ask.visitor, path: uri.path() };
            Ok(shell::document(&sheet.title, Some(around), &content).into_response())
        }
    }
}
