//! The page that measures in a browser: what it is made of, what strangers get, and a browser that
//! uses it, all over loopback. Where Chromium is missing that part is skipped.

#[allow(dead_code, reason = "it can do more than is needed here")]
#[path = "../../orchestrator/tests/browser/chromium.rs"]
mod chromium;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use underload_compat::nq::{NqLimits, NqServer};
use underload_probe::service::{
    CompatLedger, Fingerprint, Identity, Limits, Service, ServiceConfig,
};

use chromium::{Browser, Screen};

fn server(ledger: CompatLedger) -> (NqServer, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let fingerprint = identity.fingerprint();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = NqLimits::default();
    (NqServer::start_page(listener, identity, limits, ledger).unwrap(), fingerprint)
}

/// What the server answers to these words, until it closes.
fn ask(address: SocketAddr, fingerprint: Fingerprint, words: &str) -> String {
    let tls = fingerprint.client_config().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(&tls), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(words.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A connection may end without TLS's goodbye.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
}

#[test]
fn the_page_is_strict_and_its_resources_are_for_it_alone() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let get = |path: &str, more: &str| {
        ask(server.address(), fingerprint, &request("GET", path, more)).to_lowercase()
    };
    let page = get("/", "");
    assert!(page.starts_with("http/1.1 200") && page.contains("<script src=\"page.js\""), "{page}");
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(page.contains(header), "{header}: {page}");
    }
    assert!(get("/page.js", "").contains("text/javascript"));
    assert!(get("/small?9", "").ends_with("\r\n\r\nu"));
    for path in ["/large", "/received?1", "/page.js"] {
        assert!(get(path, "Sec-Fetch-Site: cross-site\r\n").contains(" 403 "), "{path}");
    }
    for path in ["/.well-known/nq", "/config", "/page.html", "/../Cargo.toml"] {
        assert!(get(path, "").starts_with("http/1.1 40"), "{path}");
    }
}

#[test]
fn uploads_are_counted_as_they_arrive() {
    let (server, fingerprint) = server(CompatLedger::unlimited());
    let body = "x".repeat(100_000);
    let head = request("POST", "/upload?42", &format!("Content-Length: {}\r\n", body.len()));
    let answer = ask(server.address(), fingerprint, &(head + &body));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let count = |path: &str| ask(server.address(), fingerprint, &request("GET", path, ""));
    assert!(count("/received?42").ends_with("\r\n\r\n100000"));
    assert!(count("/received?43").ends_with("\r\n\r\n0"));
    assert!(count("/received").ends_with("\r\n\r\n0"));
}

fn browser(test: &str) -> Option<Browser> {
    let program = chromium::program();
    if program.is_none() {
        eprintln!("SKIPPED {test}: no Chromium (apt install chromium, or UNDERLOAD_CHROMIUM)");
    }
    let mut browser = Browser::start(&program?);
    // The server's certificate is its own.
    browser.call("Security.setIgnoreCertificateErrors", json!({ "ignore": true }));
    Some(browser)
}

/// Presses the button and waits for the result, a minute at most.
fn measured(browser: &mut Browser, address: &str) -> Value {
    browser.open(address);
    browser.value("document.querySelector('#start').click()");
    browser.until("window.underloadResult");
    browser.value("window.underloadResult")
}

#[test]
fn a_browser_measures_both_directions() {
    let Some(mut browser) = browser("a_browser_measures_both_directions") else { return };
    let limits = Limits { compat_bit_per_s: 50_000_000, ..Limits::generous() };
    let config = ServiceConfig::on_loopback(Identity::generate().unwrap());
    let config = ServiceConfig { tcp_port: 0, udp_port: 0, limits, ..config };
    let service = Service::start(config).unwrap();
    let (server, _) = server(service.compat());
    browser.screen(Screen::Phone, false);
    let result = measured(&mut browser, &format!("https://{}/", server.address()));
    assert_eq!(result["complete"], true, "{result}");
    let summary = result["summary"].as_array().unwrap();
    let phases: Vec<&str> = summary.iter().map(|row| row["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["idle", "down", "up"]);
    for row in summary {
        assert!(
            row["probes"].as_u64().unwrap() > 10 && row["p50"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    for row in &summary[1..] {
        // The server gives 50 Mbit/s; a busy machine takes less.
        let rate = row["rate"].as_f64().unwrap();
        assert!(rate > 0.5 && rate < 60.0, "{row}");
    }
    let width = browser.value("document.documentElement.scrollWidth - window.innerWidth");
    assert!(width.as_i64().unwrap() <= 0, "the page is wider than a phone: {width}");
    let kept = browser.text("document.querySelector('#keep').download");
    assert_eq!(kept, "underload-result.json");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// What a browser finds of a line that somebody else emulates: `docs/web.md` says how it is run.
#[test]
#[ignore = "needs a page at UNDERLOAD_WEB_URL"]
fn a_browser_measures_the_page_at_an_address() {
    let address = std::env::var("UNDERLOAD_WEB_URL").expect("UNDERLOAD_WEB_URL=https://HOST:4863/");
    let Some(mut browser) = browser("a_browser_measures_the_page_at_an_address") else { return };
    browser.screen(Screen::Desktop, false);
    let result = measured(&mut browser, &address);
    eprintln!("{}", serde_json::to_string_pretty(&result["summary"]).unwrap());
    if let Some(path) = std::env::var_os("UNDERLOAD_PICTURE") {
        std::fs::write(path, browser.picture(true)).unwrap();
    }
}
