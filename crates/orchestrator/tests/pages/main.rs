//! The pages, as a browser without a script requests them.

mod attacks;
mod little;
#[path = "../synthetic/mod.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use underload_fleet::store::Memory;
use underload_orchestrator::pages::Action;

use synthetic::served::{Served, serve};
use synthetic::{PLAN, SMALL_REGION, Size};

const SIZE: Size = Size { devices: 60, days: 4, probes: 30 };

fn served() -> Served {
    let mut store = Memory::new();
    synthetic::fill(&mut store, SIZE).expect("memory keeps it");
    let archives = (0..2).map(|_| Box::new(store.clone()) as _).collect();
    serve(store, archives, 0).expect("memory keeps it")
}

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// Sends a request on a separate connection. Each of `headers` ends with a line break.
fn ask(to: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!("{headers}Content-Length: {length}\r\n");
    send(to, &format!("{method} {path} HTTP/1.1\r\n{head}"), body)
}

fn send(to: SocketAddr, head: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
    let request = format!("{head}Host: {to}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Answer {
        status: status.parse().expect("a number"),
        headers: headers.collect(),
        body: body.to_owned(),
    }
}

impl Answer {
    fn cookie(&self) -> String {
        let line = self.headers.get("set-cookie").expect("a cookie");
        line.split(';').next().expect("a value").to_owned()
    }

    /// Returns the value of a hidden field.
    fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&start).expect("the field");
        rest.split('"').next().expect("its value").to_owned()
    }
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

fn log_in(to: SocketAddr, token: &str) -> Answer {
    let form = ask(to, "GET", "/login", "", "");
    let headers = format!("{FORM}Cookie: {}\r\nOrigin: http://{to}\r\n", form.cookie());
    let body = format!("form={}&next=%2Fstudy&token={token}", form.field("form"));
    ask(to, "POST", "/login", &headers, &body)
}

/// Requests a page as a logged-in visitor.
struct Session<'a> {
    served: &'a Served,
    cookie: String,
}

impl<'a> Session<'a> {
    fn new(served: &'a Served, token: &str) -> Self {
        let answer = log_in(served.address, token);
        assert_eq!((answer.status, answer.headers["location"].as_str()), (303, "/study"));
        Self { served, cookie: format!("Cookie: {}\r\n", answer.cookie()) }
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.served.address, "GET", path, &self.cookie, "")
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let headers = format!("{}{FORM}{headers}", self.cookie);
        ask(self.served.address, "POST", path, &headers, body)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect(path)
    }
}

/// Returns the values of a column of a table, by the value of the row's first column.
fn column(page: &Value, table: &str, name: &str) -> Vec<(String, Value)> {
    let table = &page["tables"][table];
    let columns = table["columns"].as_array().expect("columns");
    let at = columns.iter().position(|column| column["name"] == name).expect(name);
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().map(|row| (row[0].as_str().expect("a name").to_owned(), row[at].clone())).collect()
}

#[test]
fn every_page_shows_what_was_collected_with_units_and_counts() {
    let served = served();
    let session = Session::new(&served, &served.operator);
    let device = format!("/devices/{}", synthetic::id(0));
    for (path, words) in [
        ("/", "99 of 100 round trips took at most"),
        ("/overview?by=cohort", "series of up to"),
        ("/study", "series of "),
        ("/study?by=tier&model=CGM4140COM&region=north&hour=7&scale=linear", "35/800 Mbit/s"),
        ("/study?low_ms=10&high_ms=30", "Bars of "),
        ("/devices", "60 devices enrolled"),
        ("/devices?region=island", "3 devices with region island"),
        (&device, "dual queue"),
        ("/servers", "2 of 2 servers answer"),
        ("/plans", "2 of 2 plans are running"),
        ("/rollouts", "pie is paused in stage 1 of 4 (1 %)"),
        ("/rollouts", "p99 0.549 times"),
    ] {
        let answer = session.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.body.contains(words), "{path} does not say {words}: {}", answer.body);
        let figures = answer.body.matches("<figure>").count();
        let counted = answer.body.matches("<figcaption>").count();
        assert_eq!(figures, counted, "{path}: a chart without a caption");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        for inline in ["style=\"", "<style", "onclick", "<script>", "javascript:"] {
            assert!(!answer.body.contains(inline), "{path} has {inline}");
        }
        let fragment = session.get(&format!("{path}{}fragment=1", glue(path)));
        let is_part = !fragment.body.contains("<html") && answer.body.contains(&fragment.body);
        assert!(is_part, "{path}: the fragment is not what the page shows");
    }
}

fn glue(path: &str) -> &str {
    if path.contains('?') { "&" } else { "?" }
}

#[test]
fn the_same_filters_give_the_same_numbers_as_page_json_and_csv() {
    let served = served();
    let session = Session::new(&served, &served.operator);
    let all = session.json("/study.json?by=cohort&load=upload&dscp=0&plan=comcast-study");
    let p99 = column(&all, "groups", "p99_ms");
    let of = |name: &str| {
        let found = p99.iter().find(|(group, _)| group == name).expect(name);
        found.1.as_f64().expect("a number")
    };
    assert!(of("with-aqm") > 25.0 && of("with-aqm") < 80.0, "{p99:?}");
    assert!(of("without-aqm") > 240.0 && of("without-aqm") < 700.0, "{p99:?}");
    let path = "/study?by=cohort&load=upload&dscp=0&plan=comcast-study";
    assert_eq!(session.json(&format!("{path}&format=json")), all);
    let csv = session.get(&format!("{path}&format=csv&table=groups"));
    let lines: Vec<&str> = csv.body.lines().collect();
    assert_eq!(lines.len(), 1 + p99.len());
    assert!(lines[0].starts_with("group,p50_ms (ms),p95_ms (ms),p99_ms (ms),"), "{}", lines[0]);
    assert!(
        lines[1..].iter().any(|line| line.contains(&of("without-aqm").to_string())),
        "{lines:?}"
    );
    assert!(session.get(path).body.contains("without-aqm"));
    let one_hour =
        session.json("/study.json?by=cohort&load=upload&dscp=0&plan=comcast-study&hour=7");
    let series = |page| -> u64 {
        column(page, "groups", "series").iter().filter_map(|(_, count)| count.as_u64()).sum()
    };
    assert!(series(&one_hour) < series(&all) && series(&one_hour) > 0);
    let runs: u64 = column(&session.json("/overview.json?plan=*"), "outcomes", "runs")
        .iter()
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    assert_eq!(runs, u64::from(2 * SIZE.devices * SIZE.days), "every run has one outcome");
}

#[test]
fn a_list_of_devices_continues_after_its_last_row() {
    let served = served();
    let session = Session::new(&served, &served.operator);
    let first = session.get("/devices");
    let (_, rest) = first.body.split_once("rel=\"next\" href=\"").expect("there are more");
    let next = rest.split('"').next().expect("an address").replace("&amp;", "&");
    let second = session.get(&next);
    let shows = |page: &Answer, number| {
        page.body.contains(&format!("href=\"/devices/{}\"", synthetic::id(number)))
    };
    let count = |page| (0..SIZE.devices).filter(|number| shows(page, *number)).count();
    assert_eq!((count(&first), count(&second)), (50, 10));
    assert!(!second.body.contains("rel=\"next\""));
    let file = session.json("/devices.json");
    assert_eq!(file["tables"]["devices"]["rows"].as_array().map(Vec::len), Some(60));
}

#[test]
fn a_viewer_sees_groups_and_no_single_home() {
    let served = served();
    let (viewer, operator) =
        (Session::new(&served, &served.viewer), Session::new(&served, &served.operator));
    let device = format!("/devices/{}", synthetic::id(0));
    for path in ["/devices", "/devices.csv", &device] {
        assert_eq!(viewer.get(path).status, 403, "{path}");
    }
    let island = format!("/study?region={SMALL_REGION}");
    assert_eq!((viewer.get(&island).status, operator.get(&island).status), (403, 200));
    let regions = |session: &Session<'_>| {
        let page = session.json("/study.json?by=region&dscp=45");
        let groups = column(&page, "groups", "devices");
        groups.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert!(regions(&operator).contains(&SMALL_REGION.to_owned()));
    let seen = regions(&viewer);
    assert!(!seen.contains(&SMALL_REGION.to_owned()) && seen.len() == 3, "{seen:?}");
    let page = viewer.get("/study?by=region").body;
    assert!(!page.contains(SMALL_REGION), "nor is it offered as a filter");
    let plans = viewer.get("/plans").body;
    assert!(plans.contains(PLAN) && !plans.contains("/plans/apply"), "{plans}");
}

#[test]
fn missing_tokens_and_forged_cookies_are_refused() {
    let served = served();
    let to = served.address;
    let stranger = ask(to, "GET", "/study?by=tier", "", "");
    assert_eq!(stranger.status, 303);
    assert_eq!(stranger.headers["location"], "/login?next=%2Fstudy%3Fby%3Dtier");
    for path in
        ["/study.json", "/overview.csv", "/live", "/study?fragment=1", "/devices?format=csv"]
    {
        let answer = ask(to, "GET", path, "", "");
        assert!([303, 401].contains(&answer.status), "{path}: {}", answer.status);
        assert!(!answer.body.contains("series"), "{path}");
    }
    for token in ["", "ulo1.ana.00", "ulo1.nobody.00", &"x".repeat(5_000)] {
        let answer = log_in(to, token);
        assert!([400, 401].contains(&answer.status), "{token}: {}", answer.status);
    }
    let good = log_in(to, &served.operator);
    let cookie = good.cookie();
    for forged in [format!("{cookie}0"), cookie.replacen("ana", "vic", 1), "underload=".to_owned()]
    {
        let answer = ask(to, "GET", "/", &format!("Cookie: {forged}\r\n"), "");
        assert_eq!(answer.status, 303, "{forged}");
    }
    // Forms that another page made: without the cookie that belongs to the form, or from another
    // origin.
    let form = ask(to, "GET", "/login", "", "");
    let body = format!("form={}&token={}", form.field("form"), served.operator);
    assert_eq!(ask(to, "POST", "/login", FORM, &body).status, 401);
    let headers = format!("{FORM}Cookie: {}\r\nOrigin: http://evil.example\r\n", form.cookie());
    assert_eq!(ask(to, "POST", "/login", &headers, &body).status, 403);
    let headers = format!("{FORM}Cookie: {}\r\nOrigin: http://{to}\r\n", form.cookie());
    let body = format!("form={}&token=ulo1.ana.00", form.field("form"));
    let last = (0..20).fold(0, |_, _| ask(to, "POST", "/login", &headers, &body).status);
    assert_eq!(last, 429, "ten attempts a minute of one form");
    assert_eq!(log_in(to, &served.operator).status, 303, "another form of the address");
}

#[test]
fn forms_of_other_sites_use_no_login_attempts() {
    let served = served();
    let to = served.address;
    let form = ask(to, "GET", "/login", "", "");
    let elsewhere = format!("{FORM}Origin: https://evil.example\r\n");
    // A thousand attempts from another origin, and a thousand without a form.
    for headers in [elsewhere.as_str(), FORM] {
        let statuses = (0..1_000).map(|_| ask(to, "POST", "/login", headers, "token=x").status);
        assert!(statuses.into_iter().all(|status| [401, 403].contains(&status)));
    }
    let headers = format!("{FORM}Cookie: {}\r\nOrigin: http://{to}\r\n", form.cookie());
    let body = format!("form={}&token={}", form.field("form"), served.operator);
    assert_eq!(ask(to, "POST", "/login", &headers, &body).status, 303);
}

#[test]
fn an_action_needs_an_operator_and_a_form_issued_to_the_same_session() {
    let served = served();
    let operator = Session::new(&served, &served.operator);
    let viewer = Session::new(&served, &served.viewer);
    let form = operator.get("/plans").field("form");
    let stop = format!("form={form}&plan={PLAN}");
    let elsewhere = "Origin: https://evil.example\r\n";
    for (session, headers, body) in [
        (&operator, "", "plan=x".to_owned()),
        (&operator, "", format!("form={}&plan={PLAN}", "0".repeat(64))),
        (&operator, elsewhere, stop.clone()),
        (&viewer, "", stop.clone()),
        (&viewer, "", format!("form={}&plan={PLAN}", viewer.get("/plans").field("form"))),
    ] {
        assert_eq!(session.post("/plans/stop", headers, &body).status, 403, "{body}");
    }
    let logged_in = |who: &str| (who.to_owned(), Action::LogIn);
    let done = std::mem::take(&mut *served.done.lock().expect("no thread panicked"));
    assert_eq!(done, [logged_in("ana"), logged_in("vic")]);
    let id = synthetic::id(1);
    for (path, field) in [
        ("/plans/stop", format!("plan={PLAN}")),
        ("/plans/apply", "text=title+%3D+%22x%22".to_owned()),
        ("/devices/remove", format!("device={id}")),
    ] {
        let answer = operator.post(path, "", &format!("form={form}&{field}"));
        assert_eq!(answer.status, 303, "{path}: {}", answer.body);
    }
    let done = served.done.lock().expect("no thread panicked").clone();
    let ana = |action| ("ana".to_owned(), action);
    assert_eq!(
        done,
        [
            ana(Action::StopPlan(PLAN.to_owned())),
            ana(Action::ApplyPlan("title = \"x\"".to_owned())),
            ana(Action::RemoveDevice(id)),
        ]
    );
    let refused = operator.post("/plans/stop", "", &format!("form={form}&plan=no-such-plan"));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("there is no plan `no-such-plan`"), "{}", refused.body);
    // The server answers before it has read everything, and closes: a client may see the answer or
    // a reset.
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    let head = format!("POST /plans/apply HTTP/1.1\r\nHost: x\r\n{}{FORM}", operator.cookie);
    let text = format!("form={form}&text={}", "x".repeat(4 << 20));
    let sent = write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len());
    let mut status = [0; 12];
    let read = stream.read_exact(&mut status);
    assert!(sent.is_err() || read.is_err() || &status == b"HTTP/1.1 413", "{status:?}");
    assert_eq!(served.done.lock().expect("no thread panicked").len(), 3, "nothing was applied");
    let out = operator.post("/logout", "", &format!("form={form}"));
    assert!(out.headers["set-cookie"].contains("Max-Age=0"), "{:?}", out.headers);
}

#[test]
fn a_plan_with_mistakes_keeps_its_text_and_a_check_applies_nothing() {
    let served = served();
    let operator = Session::new(&served, &served.operator);
    let form = operator.get("/plans").field("form");
    let send = |text: &str, what: &str| {
        let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        operator.post("/plans/apply", "", &format!("form={form}&do={what}&text={text}"))
    };
    let mistaken = "titel = \"<x>\"\nruns_per_day = \"six\"\n[servers]\ncount = 0\n";
    let refused = send(mistaken, "check");
    assert_eq!(refused.status, 400);
    for words in [
        "line 1: unknown key `titel`; did you mean `title`?",
        "line 2: invalid type",
        "titel = &quot;&lt;x&gt;&quot;\nruns_per_day = &quot;six&quot;\n[servers]\ncount = 0",
        "name=\"form\"",
    ] {
        assert!(refused.body.contains(words), "{words}: {}", refused.body);
    }
    let good = underload_fleet::plan::Plan::built_in(PLAN).expect("it is built in");
    let checked = send(good, "check");
    assert_eq!(checked.status, 200, "{}", checked.body);
    assert!(checked.body.contains("It is not applied yet"), "{}", checked.body);
    let done = served.done.lock().expect("no thread panicked").clone();
    assert_eq!(done, [("ana".to_owned(), Action::LogIn)], "nothing is applied");
    assert_eq!(send(good, "apply").status, 303);
    assert_eq!(served.done.lock().expect("no thread panicked").len(), 2);
}

#[test]
fn questions_that_make_no_sense_are_refused_with_the_reason() {
    let served = served();
    let session = Session::new(&served, &served.operator);
    for (path, status) in [
        ("/study?by=mood", 400),
        ("/study?modell=x", 400),
        ("/devices?after=x", 400),
        ("/devices/zz", 404),
        ("/devices/00000000000000000000000000000000", 404),
        ("/devices/ffffffffffffffffffffffffffffffff", 404),
        ("/study.csv?table=none", 404),
        ("/assets/secret", 404),
        ("/study?plan=none", 200),
        ("/study?low_ms=9000&high_ms=9001", 200),
        ("/study?low_ms=0.00001&high_ms=0.00002", 200),
        ("/study?from=2030-01-01&until=2030-01-01", 200),
    ] {
        let answer = session.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

#[test]
fn an_empty_fleet_has_pages() {
    let store = Memory::new();
    let served = serve(store.clone(), vec![Box::new(store)], 0).expect("memory keeps it");
    let session = Session::new(&served, &served.viewer);
    for (path, words) in [
        ("/", "No run was due"),
        ("/study", "Nothing was measured"),
        ("/servers", "No server has enrolled yet"),
        ("/plans", "No plan has been applied yet"),
        ("/rollouts", "No rollout has been started"),
    ] {
        let answer = session.get(path);
        assert!(answer.status == 200 && answer.body.contains(words), "{path}: {}", answer.body);
    }
}
