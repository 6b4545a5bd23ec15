//! Attacks on the pages of an orchestrator.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use underload_fleet::plan::Plan;
use underload_fleet::store::{LogEntry, Memory, Needs, PlanRow, Store as _};

use super::synthetic::served::{Served, serve};
use super::synthetic::{self, PLAN, SMALL_REGION};
use super::{FORM, SIZE, Session, ask, column, glue, served};

/// Texts that a page must show as text and never execute.
const TEXTS: [&str; 5] = [
    "<script>hacked()</script>",
    "\"><img src=x onerror=hacked()>",
    "' onmouseover='hacked()",
    "\u{202e}drawkcab",
    "</select></textarea></title>]]>-->&amp;{{7*7}}",
];

/// A fleet whose devices, plan, servers and log contain these texts.
fn hostile() -> Served {
    let mut store = Memory::new();
    synthetic::fill(&mut store, SIZE).expect("memory keeps it");
    let mut tx = store.begin(&Needs::default()).expect("memory does");
    for (text, number) in TEXTS.into_iter().zip(0..) {
        let (device, mut result) = synthetic::measured(number, SIZE);
        let mut device = device;
        for value in [
            &mut device.attributes.model,
            &mut device.attributes.firmware,
            &mut device.attributes.region,
            &mut device.attributes.segment,
            &mut device.attributes.configured,
            &mut device.attributes.measured,
        ] {
            text.clone_into(value);
        }
        result.attributes = device.attributes.clone();
        for value in [
            &mut result.cohort, &mut result.result.reason, &mut result.result.server,
            &mut result.result.version,
        ] {
            text.clone_into(value);
        }
        tx.put_device(&device).expect("memory does");
        tx.append(&[result]).expect("memory does");
        let mut server = synthetic::server(&format!("{number}{text}"), 1);
        text.clone_into(&mut server.address.address);
        tx.put_server(&server).expect("memory does");
        let what = format!("said {text}");
        let entry = LogEntry { at_ms: synthetic::NOW_MS, who: text.to_owned(), what };
        tx.log(&entry).expect("memory does");
    }
    let text = Plan::built_in(PLAN).expect("it is built in");
    let title = |line: &str| {
        let is_title = line.starts_with("title = ");
        if is_title { format!("title = '''{}'''\n", TEXTS[1]) } else { format!("{line}\n") }
    };
    let text: String = text.lines().map(title).collect();
    assert_eq!(Plan::parse(&text).expect("a plan").title, TEXTS[1]);
    let plan = PlanRow { name: PLAN.to_owned(), text, applied_ms: 1, stopped_ms: None };
    tx.put_plan(&plan).expect("memory does");
    tx.commit().expect("memory does");
    let archives = (0..2).map(|_| Box::new(store.clone()) as _).collect();
    serve(store, archives, 0).expect("memory keeps it")
}

#[test]
fn foreign_text_is_escaped_on_every_page() {
    let served = hostile();
    let session = Session::new(&served, &served.operator);
    let mut shown = 0;
    let device = format!("/devices/{}", synthetic::id(1));
    for path in ["/", "/devices", "/servers", "/plans", "/rollouts", &device, "/study"] {
        let groups = ["cohort", "model", "region", "segment", "configured", "measured"];
        let groups = groups.map(|group| format!("{path}?by={group}&plan=*"));
        for path in std::iter::once(path.to_owned()).chain(groups) {
            for path in [path.clone(), format!("{path}{}fragment=1", glue(&path))] {
                let answer = session.get(&path);
                assert_eq!(answer.status, 200, "{path}: {}", answer.body);
                let body = &answer.body;
                for raw in ["<script>h", "<img", ">\u{202e}", "</select></t"] {
                    let at = body.find(raw).unwrap_or(0);
                    let around: String = body[at..].chars().take(80).collect();
                    assert!(!body.contains(raw), "{path} has {raw:?}: {around}");
                }
                shown += body.matches("hacked()").count();
            }
        }
    }
    assert!(shown > 50, "the texts are shown {shown} times only");
    let csv = session.get("/devices.csv").body;
    assert!(csv.contains("\"\"\"><img src=x"), "{csv}");
    let echoed = session.get("/study?model=%22%3E%3Cscript%3Ehacked()%3C/script%3E&plan=%3Cb%3E");
    assert!(!echoed.body.contains("<script>h") && !echoed.body.contains("<b>"), "{}", echoed.body);
    let refused = session.get("/study?%3Cscript%3Ehacked()=1").body;
    assert!(refused.contains("&lt;script&gt;") && !refused.contains("<script>h"), "{refused}");
}

#[test]
fn viewers_cannot_filter_down_to_few_homes() {
    let served = served();
    let viewer = Session::new(&served, &served.viewer);
    let (mut shown, mut refused) = (0, 0);
    for region in ["", "north", "south", SMALL_REGION] {
        for rest in ["", "&model=TG3482G", "&tier=10/300", "&firmware=6.5", "&measured=PIE-like"] {
            for last in ["", "&hour=7", "&from=2026-11-20&until=2026-11-20", "&hour=7&tier=35/800"]
            {
                // A filter that is given twice is refused to every visitor.
                if rest.contains("tier=") && last.contains("tier=") {
                    continue;
                }
                let filters = format!("region={region}{rest}{last}&plan=*");
                for page in ["study", "overview"] {
                    for by in ["cohort-dscp", "firmware", "region", "segment", "hour"] {
                        let path = format!("/{page}.json?{filters}&by={by}");
                        let answer = viewer.get(&path);
                        match answer.status {
                            403 => refused += 1,
                            200 => shown += at_least(&path, &answer.body),
                            status => panic!("{path}: {status} {}", answer.body),
                        }
                    }
                }
            }
        }
    }
    assert!(shown > 100 && refused > 100, "{shown} shown, {refused} refused");
}

/// Checks that every row counts at least as many devices as a viewer may see. Returns the number of
/// rows.
fn at_least(path: &str, body: &str) -> usize {
    let page: Value = serde_json::from_str(body).expect(path);
    let mut rows = 0;
    for name in ["groups", "days"] {
        if page["tables"][name].is_object() {
            for (row, devices) in column(&page, name, "devices") {
                rows += 1;
                assert!(devices.as_u64() >= Some(5), "{path}: {row} is of {devices} devices");
            }
        }
    }
    rows
}

#[test]
fn addresses_that_are_too_long_or_lead_elsewhere_are_refused() {
    let served = served();
    let session = Session::new(&served, &served.operator);
    let long = "x".repeat(60_000);
    for (path, statuses) in [
        (format!("/study?model={long}"), vec![400, 414, 431]),
        (format!("/study?{}", "model=x&".repeat(7_000)), vec![200, 400, 414, 431]),
        (format!("/{long}"), vec![404, 414, 431]),
        ("/assets/../../etc/passwd".to_owned(), vec![404]),
        ("/assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd".to_owned(), vec![404]),
        ("/assets/style.css%00".to_owned(), vec![404]),
        ("/devices/..%2fplans".to_owned(), vec![404]),
        ("/study.json.csv".to_owned(), vec![404]),
        ("/study?from=9999-12-31&until=9999-12-31".to_owned(), vec![200]),
        ("/study?from=99999-12-31".to_owned(), vec![400]),
        ("/study?low_ms=1e-300&high_ms=1e6&scale=log".to_owned(), vec![200]),
    ] {
        let answer = session.get(&path);
        let start: String = path.chars().take(60).collect();
        assert!(statuses.contains(&answer.status), "{start}: {}", answer.status);
    }
    assert_eq!(session.get("/").status, 200, "and it still answers");
}

#[test]
fn login_replaces_a_planted_session_cookie() {
    let served = served();
    let to = served.address;
    let form = ask(to, "GET", "/login", "", "");
    let planted = format!("Cookie: underload=planted; {}\r\n", form.cookie());
    let headers = format!("{FORM}{planted}Origin: http://{to}\r\n");
    let body = format!("form={}&next=%2Fstudy&token={}", form.field("form"), served.viewer);
    let answer = ask(to, "POST", "/login", &headers, &body);
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert!(!answer.cookie().contains("planted"), "{}", answer.cookie());
    let line = &answer.headers["set-cookie"];
    assert!(line.contains("HttpOnly") && line.contains("SameSite=Strict"), "{line}");
    // The cookie of the login form does not open a page either.
    let stranger = form.cookie().replacen("underload-login", "underload", 1);
    assert_eq!(ask(to, "GET", "/", &format!("Cookie: {stranger}\r\n"), "").status, 303);
}

#[test]
fn a_thousand_event_streams_do_not_block_readers() {
    let served = served();
    let session = Session::new(&served, &served.viewer);
    let mut waiting = Vec::new();
    let mut turned_away = 0;
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
        write!(stream, "GET /live HTTP/1.1\r\nHost: x\r\n{}\r\n", session.cookie)
            .expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("it answers");
        match &status {
            b"HTTP/1.1 200" => waiting.push(stream),
            b"HTTP/1.1 429" => turned_away += 1,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    assert!((1..=32).contains(&waiting.len()) && turned_away >= 968, "{}", waiting.len());
    assert_eq!(session.get("/study").status, 200);
    // The page of another visitor receives an event about the change.
    let other = Session::new(&served, &served.operator);
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    write!(stream, "GET /live HTTP/1.1\r\nHost: x\r\n{}\r\n", other.cookie).expect("it reads");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("it answers");
    assert_eq!(&status, b"HTTP/1.1 200");
    drop(waiting);
    // The server frees the clients' places as soon as it notices that they have disconnected.
    let ends = std::time::Instant::now() + Duration::from_mins(1);
    loop {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        write!(stream, "GET /live HTTP/1.1\r\nHost: x\r\n{}\r\n", session.cookie)
            .expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("it answers");
        if &status == b"HTTP/1.1 200" {
            return;
        }
        assert!(std::time::Instant::now() < ends, "no seat came free");
        std::thread::sleep(Duration::from_millis(100));
    }
}
