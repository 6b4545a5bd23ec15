//! `GET /metrics`: what the server answered, in the text form of OpenMetrics 1.0, for a viewer's
//! token.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use underload_probe::network::{CustomerNetwork, Places};

use super::host::Host;
use super::operators::bearer;
use super::problem::Failure;
use crate::operator::Role;

/// Answers since the start, by the API's path and the status.
pub(super) struct Metrics {
    answers: Mutex<BTreeMap<(String, u16), Answers>>,
    places: Places<CustomerNetwork>,
}

#[derive(Clone, Copy, Default)]
struct Answers {
    count: u64,
    /// Time from a request's head to its answer's, in all.
    seconds: f64,
}

/// The `path` of pages and of unknown paths, of which there are too many to count each.
const OTHER: &str = "other";
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    pub fn new(places: Places<CustomerNetwork>) -> Self {
        Self { answers: Mutex::default(), places }
    }

    fn add(&self, path: String, status: u16, seconds: f64) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = answers.entry((path, status)).or_default();
        answers.count += 1;
        answers.seconds += seconds;
    }

    fn page(&self, waiting: usize) -> String {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connections = self.places.taken();
        let mut page = format!(
            "# HELP underload_fleet_connections Open connections.\n\
             # TYPE underload_fleet_connections gauge\n\
             underload_fleet_connections {connections}\n\
             # HELP underload_fleet_waiting Requests that wait for the store.\n\
             # TYPE underload_fleet_waiting gauge\n\
             underload_fleet_waiting {waiting}\n\
             # HELP underload_fleet_answer_seconds Answers by path and status, and the time that \
             they took.\n\
             # TYPE underload_fleet_answer_seconds summary\n\
             # UNIT underload_fleet_answer_seconds seconds\n"
        );
        for ((path, status), Answers { count, seconds }) in answers {
            let labels = format!("{{path=\"{path}\",status=\"{status}\"}}");
            let _ = writeln!(page, "underload_fleet_answer_seconds_count{labels} {count}");
            let _ = writeln!(page, "underload_fleet_answer_seconds_sum{labels} {seconds:.6}");
        }
        page + "# EOF\n"
    }
}

/// Passes a request on, and counts its answer.
pub(super) async fn count(host: State<Arc<Host>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or(OTHER, MatchedPath::as_str).to_owned();
    let begun = Instant::now();
    let answer = next.run(request).await;
    host.metrics.add(path, answer.status().as_u16(), begun.elapsed().as_secs_f64());
    answer
}

pub(super) async fn page(
    host: State<Arc<Host>>,
    from: ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<impl IntoResponse, Failure> {
    host.admit_stranger(from.0)?;
    let token = bearer(request.headers())?;
    host.transact(token, Role::Viewer, |_, _| Ok(Ok(()))).await?;
    Ok(([(CONTENT_TYPE, TEXT)], host.metrics.page(host.core.writers.waiting())))
}
