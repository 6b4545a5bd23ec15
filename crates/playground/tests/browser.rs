//! The playground's page in a real browser: under a policy that forbids foreign scripts, on a large
//! and a small screen, with a light and a dark theme, with every queue.
//!
//! Skipped with a message without Chromium or without the module (`cargo xtask book`).
//! Accessibility is checked with `axe` if `UNDERLOAD_AXE` names its `axe.min.js`, or after
//! `npm install --prefix ~/.cache/underload axe-core`.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

#[expect(dead_code, reason = "shared with the fleet's pages, which need more of it")]
#[path = "../../orchestrator/tests/browser/chromium.rs"]
mod chromium;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use chromium::{Browser, Screen};

/// The strictest content security policy that a site with the book could use.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; \
    style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'";
/// The colours that the book's theme gives the page.
const THEME: &str = ":root { color-scheme: light dark; --bg: #fff; --fg: #222; --links: #1a5fb4; }
@media (prefers-color-scheme: dark) { :root { --bg: #161923; --fg: #d0d4dc; --links: #7aa8ff; } }
body { background: var(--bg); color: var(--fg); margin: 1rem; font: 16px sans-serif; }";

/// The directory to which `cargo xtask book` writes the module.
fn module() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("playground/playground.wasm")
}

/// The page as the book shows it, without the rest of the book: address, kind, content.
fn files(module: &[u8]) -> Vec<(&'static str, &'static str, String)> {
    let page = include_str!("../../../docs/playground.md");
    // The page contains its markup verbatim; of the text the first heading is enough.
    let markup: Vec<&str> = page
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with('<'))
        .collect();
    let markup = markup.join("\n");
    assert!(markup.contains("pg-root") && markup.contains("playground/playground.js"), "{markup}");
    let page = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Playground</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"stylesheet\" href=\"theme.css\"></head><body><main><h1>Playground</h1>\
         {markup}</main></body></html>"
    );
    let text = data_encoding::BASE64.encode(module);
    vec![
        ("/", "text/html", page),
        ("/theme.css", "text/css", THEME.to_owned()),
        (
            "/playground/playground.css",
            "text/css",
            include_str!("../page/playground.css").to_owned(),
        ),
        (
            "/playground/playground.js",
            "text/javascript",
            include_str!("../page/playground.js").to_owned(),
        ),
        (
            "/playground/playground-module.js",
            "text/javascript",
            format!("window.UNDERLOAD_PLAYGROUND = \"{text}\";\n"),
        ),
    ]
}

/// Serves the files until the test's process exits.
fn serve(files: Vec<(&'static str, &'static str, String)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = Arc::clone(&files);
            // A browser opens connections that it does not use yet.
            std::thread::spawn(move || answer(&stream, &files));
        }
    });
    address
}

fn answer(stream: &TcpStream, files: &[(&'static str, &'static str, String)]) {
    let mut reader = BufReader::new(stream);
    let (mut request, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
        if request.is_empty() {
            request.clone_from(&line);
        }
        line.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    // Browsers always request an icon.
    let found = files.iter().find(|(name, ..)| *name == path);
    let (status, kind, content) = match found {
        Some((_, kind, content)) => ("200 OK", *kind, content.as_str()),
        None if path == "/favicon.ico" => ("204 No Content", "image/png", ""),
        None => ("404 Not Found", "text/plain", ""),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n",
        content.len()
    );
    let mut stream = stream;
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content.as_bytes()));
}

/// Returns Chromium and the address of the page; prints what is missing and returns `None`.
fn opened(test: &str) -> Option<(Browser, SocketAddr)> {
    let Ok(bytes) = std::fs::read(module()) else {
        let module = module();
        eprintln!("SKIPPED {test}: no {}; cargo xtask book", module.display());
        return None;
    };
    let browser = Browser::launch(test)?;
    Some((browser, serve(files(&bytes))))
}

#[test]
fn the_playground_has_no_faults_on_desktops_and_phones_in_light_and_dark_mode() {
    let test = "the_playground_has_no_faults_on_desktops_and_phones_in_light_and_dark_mode";
    let Some((mut browser, address)) = opened(test) else { return };
    let axe = chromium::axe(test);
    let mut faults = Vec::new();
    for (screen, is_dark) in [(Screen::Desktop, false), (Screen::Phone, true)] {
        browser.screen(screen, is_dark);
        browser.open(&format!("http://{address}/"));
        browser.until("document.querySelector('#pg-root').dataset.took");
        assert_eq!(browser.value("document.querySelectorAll('.pg-charts svg').length"), 4);
        browser.value("document.querySelector('details').open = true");
        let what = format!("{screen:?} dark: {is_dark}");
        let found = browser.faults(axe.as_deref());
        faults.extend(found.iter().map(|fault| format!("{what}: {fault}")));
        if let Some(folder) = std::env::var_os("UNDERLOAD_PICTURES_OF_ALL") {
            let file = format!("playground-{screen:?}.png").to_lowercase();
            std::fs::write(PathBuf::from(folder).join(file), browser.picture(true)).expect(test);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_queue_and_every_slider_gives_another_trial() {
    let test = "every_queue_and_every_slider_gives_another_trial";
    let Some((mut browser, address)) = opened(test) else { return };
    browser.screen(Screen::Phone, false);
    browser.open(&format!("http://{address}/"));
    browser.until("document.querySelector('#pg-root').dataset.took");
    let queues = browser
        .value("[...document.querySelector('#pg-queue').options].map((option) => option.value)");
    let queues: Vec<&str> = queues.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(queues.contains(&"codel") && queues.contains(&"dualpi2"), "{queues:?}");
    let scenario = "document.querySelector('.pg-scenario pre code').textContent";
    for queue in &queues {
        browser.value(&format!(
            "(() => {{ const it = document.querySelector('#pg-queue'); it.value = '{queue}';
                it.dispatchEvent(new Event('change')); }})()"
        ));
        browser.until(&format!("{scenario}.includes('\"{queue}')"));
    }
    let sliders = browser.value("document.querySelectorAll('#pg-root input[type=range]').length");
    let sliders = sliders.as_u64().expect("a number");
    assert!(sliders >= 4, "{sliders}");
    for slider in 0..sliders {
        let before = browser.text(scenario);
        browser.value(&format!(
            "(() => {{ const it = document.querySelectorAll('#pg-root input[type=range]')[{slider}];
                it.value = Number(it.value) < Number(it.max) ? Number(it.value) + 1 : 0;
                it.dispatchEvent(new Event('input')); }})()"
        ));
        browser.until(&format!("{scenario} !== {}", Value::from(before)));
    }
    let told = browser.text("document.querySelector('.pg-told').textContent");
    assert!(told.contains("packets dropped"), "{told}");
    assert_eq!(browser.complaints, Vec::<String>::new());
}
