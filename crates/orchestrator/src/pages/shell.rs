//! The frame of every page.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use ring::digest::{SHA256, digest};

use super::page::Page;
use super::visitor::Visitor;

/// The visitor and the address of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) visitor: &'a Visitor,
    pub(super) path: &'a str,
}

pub(super) fn document(title: &str, around: Option<Around<'_>>, content: &Markup) -> Html<String> {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) ": underload fleet" }
                link rel="stylesheet" href={ "/assets/style.css?" (STYLE.version) };
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                @if around.is_some() {
                    script src={ "/assets/script.js?" (SCRIPT.version) } defer {}
                }
            }
            body {
                a.skip href="#content" { "To the content" }
                @if let Some(around) = around { (bar(around)) }
                main #content tabindex="-1" { (content) }
            }
        }
    };
    Html(document.into_string())
}

fn bar(around: Around<'_>) -> Markup {
    let Around { visitor, path } = around;
    let is_operator = visitor.is_operator();
    let address = |page: Page, path: &'static str| if page == Page::Overview { "/" } else { path };
    let here = |place: &str| if place == "/" { path == "/" } else { path.starts_with(place) };
    html! {
        header.bar {
            nav aria-label="Pages" {
                strong { "underload" }
                @for (page, path, name) in Page::ALL {
                    @if is_operator || !page.is_for_operators() {
                        @let place = address(page, path);
                        a href=(place) aria-current=[here(place).then_some("page")] { (name) }
                    }
                }
            }
            form method="post" action="/logout" {
                (visitor.form_field())
                span.who { (visitor.operator.name) }
                button type="submit" { "Log out" }
            }
        }
    }
}

struct Asset {
    kind: &'static str,
    text: String,
    /// Changes with the text, so that browsers may cache it for ever.
    version: String,
}

impl Asset {
    fn new(kind: &'static str, text: String) -> Self {
        let hash = digest(&SHA256, text.as_bytes());
        let version = data_encoding::HEXLOWER.encode(&hash.as_ref()[..6]);
        Self { kind, text, version }
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = underload_report::style_sheet() + include_str!("style.css");
    Asset::new("text/css; charset=utf-8", text)
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("text/javascript; charset=utf-8", include_str!("script.js").to_owned())
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("image/svg+xml", include_str!("icon.svg").to_owned()));

/// Serves a file that pages refer to.
pub(super) fn asset(name: &str) -> Response {
    let asset = match name {
        "style.css" => &STYLE,
        "script.js" => &SCRIPT,
        "icon.svg" => &ICON,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.text.clone()).into_response()
}

/// Restricts browsers to our own script, styles and connections.
const HEADERS: [(header::HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
         object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`, with which browsers send no `Origin` with forms.
    (header::REFERRER_POLICY, "same-origin"),
    (header::VARY, "cookie"),
];

pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
