//! Errors of pages, shown as pages.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use underload_fleet::store::StoreError;

use super::shell;

/// The result of making a page.
pub(super) type Result<T, E = Problem> = std::result::Result<T, E>;

#[derive(Debug)]
pub(super) enum Problem {
    /// The visitor is not logged in. The address is the one to open after the login.
    Stranger(Option<String>),
    NotAllowed(&'static str),
    NotFound(&'static str),
    Bad(String),
    /// Too many queries; retry after this many seconds.
    Busy(&'static str, u64),
    Store(StoreError),
}

impl Problem {
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::Bad(why.into())
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Stranger(_) => StatusCode::UNAUTHORIZED,
            Self::NotAllowed(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Busy(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Store(StoreError::Temporary { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Store(StoreError::Broken { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn words(&self) -> (&'static str, String) {
        match self {
            Self::Stranger(_) => ("Please log in", "This page requires a token.".into()),
            Self::NotAllowed(what) => ("Not for viewers", (*what).to_owned()),
            Self::NotFound(what) => ("Not here", (*what).to_owned()),
            Self::Bad(why) => ("This cannot be answered", why.clone()),
            Self::Busy(why, _) => ("Too many at once", (*why).to_owned()),
            // A database's error may name its address or tables, which only its operator may see.
            Self::Store(StoreError::Temporary { .. }) => (
                "The store does not answer",
                "Nothing is lost: agents store their results. Try again in a moment.".into(),
            ),
            Self::Store(StoreError::Broken { .. }) => (
                "The store cannot be read",
                "Its data is damaged or of another version: see what the orchestrator prints."
                    .into(),
            ),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Self::Stranger(Some(there)) = &self {
            let next = form_urlencoded::byte_serialize(there.as_bytes()).collect::<String>();
            return Redirect::to(&format!("/login?next={next}")).into_response();
        }
        let (title, words) = self.words();
        let content =
            html! { h1 { (title) } p.verdict { (words) } p { a href="/" { "Overview" } } };
        let page = shell::document(title, None, &content);
        let mut response = (self.status(), page).into_response();
        let retry_s = match self {
            Self::Busy(_, seconds) => Some(seconds),
            Self::Store(StoreError::Temporary { .. }) => Some(5),
            _ => None,
        };
        if let Some(seconds) = retry_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
