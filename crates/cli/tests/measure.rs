//! `underload serve` and `underload measure` over loopback, as a user runs them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use underload_store::{RunDir, Table, table_columns, table_groups};

const PROGRAM: &str = env!("CARGO_BIN_EXE_underload");

/// A server that ends with its test.
struct Server {
    child: Child,
    /// `ADDRESS:PORT`
    address: String,
    fingerprint: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn underload(home: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("XDG_DATA_HOME", home).current_dir(home);
    command
}

fn serve(home: &Path, arguments: &[&str]) -> Server {
    let mut child = underload(home)
        .args(["serve", "--bind", "127.0.0.1", "--port", "0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["listening", address, "udp", _, fingerprint] = words.as_slice() else {
        panic!("{line:?}");
    };
    Server { child, address: (*address).to_owned(), fingerprint: (*fingerprint).to_owned() }
}

fn measure(home: &Path, server: &Server, arguments: &[&str]) -> Output {
    underload(home)
        .args(["measure", &server.address, "--idle", "200ms", "--duration", "400ms", "--up"])
        .args(["--udp", "2mbit", "--flows", "1"])
        .args(arguments)
        .output()
        .unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_measurement_leaves_a_run_and_one_document() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[]);
    let mut arguments =
        "--json --out run --tier 20mbit/4mbit --class 45/ect1".split(' ').collect::<Vec<_>>();
    // A hundred probes of the load are enough for a grade.
    arguments.extend(["--interval", "4ms"]);
    let output = measure(home.path(), &server, &arguments);
    let said = words(&output.stderr);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    let finding = &document["findings"][0];
    assert_eq!(finding["step"], "up");
    assert_eq!(document["run"]["world"], "measured");
    // On a busy machine the step may be uncertain; the verdict then says so.
    let is_answered = finding["valid"] == true || finding["uncertain"] == true;
    assert_eq!(output.status.code(), Some(i32::from(!is_answered)), "{said}");
    let rate = finding["goodput_up_mbit_s"].as_f64().unwrap();
    let percent = finding["tier_up_percent"].as_f64().unwrap();
    assert!((percent - rate * 25.0).abs() < 0.01, "{rate} Mbit/s, {percent} %");
    let fate = &finding["markings"][0];
    assert_eq!(fate["sent"], "dscp 45 ect1");
    assert!(fate["up_became"].is_null() && fate["down_became"].is_null(), "{fate}");
    assert!(said.contains("seen for the first time"), "{said}");
    for file in ["run.json", "samples.parquet", "series.parquet", "report.html", "findings.json"] {
        assert!(home.path().join("run").join(file).is_file(), "{file}");
    }
    // The judgement decides one grade, which every form of the run has.
    let judged = &document["run"]["judgement"]["steps"][0]["grade"];
    assert_eq!(judged.is_string(), finding["valid"] == true, "{document:#}");
    for file in ["run.json", "findings.json"] {
        let text = std::fs::read_to_string(home.path().join("run").join(file)).unwrap();
        let stored: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(&stored["judgement"]["steps"][0]["grade"], judged, "{file}");
    }
    let data = RunDir::read(home.path().join("run")).unwrap();
    let mut columns = table_columns(Table::Trials).iter();
    let position = columns.position(|(name, _)| *name == "grade").unwrap();
    let rows = table_groups(Table::Trials, &data).next().unwrap().unwrap();
    assert_eq!(rows[position].text(0), judged.as_str(), "trials.parquet and Python");
    // The printed verdict is also on the page and in what `report` prints.
    let page = std::fs::read_to_string(home.path().join("run/report.html")).unwrap();
    let shown = underload(home.path()).args(["report", "run"]).output().unwrap();
    let verdict = document["verdict"].as_array().unwrap();
    assert!(!verdict.is_empty());
    for line in verdict.iter().map(|line| line.as_str().unwrap()) {
        // The page shows the rating of a use as a coloured mark before its line.
        let ratings = [": good (", ": fair (", ": poor ("];
        let rated = ratings.into_iter().find(|rating| line.contains(rating));
        let item = |rating| line.replacen(rating, ": ", 1).trim_end_matches(").").to_owned();
        let on_page = rated.map_or(line.to_owned(), item);
        assert!(page.contains(&on_page), "{line}");
        assert!(words(&shown.stdout).contains(line), "{line}");
    }
    let again = measure(home.path(), &server, &["--out", "run"]);
    assert_eq!(again.status.code(), Some(2), "{}", words(&again.stderr));

    let other = serve(home.path(), &["--identity", "other"]);
    let output = underload(home.path())
        .args(["measure", &other.address, "--trust", &server.fingerprint])
        .output()
        .unwrap();
    let said = words(&output.stderr);
    assert!(said.contains(&server.fingerprint) && said.contains(&other.fingerprint), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn clients_beyond_loopback_need_a_token() {
    let home = tempfile::tempdir().unwrap();
    let open = underload(home.path()).args(["serve", "--bind", "0.0.0.0"]).output().unwrap();
    assert_eq!(open.status.code(), Some(2));
    assert!(words(&open.stderr).contains("--token-keys"), "{}", words(&open.stderr));

    let run = |arguments: &[&str]| underload(home.path()).args(arguments).output().unwrap();
    assert!(run(&["serve", "token", "rotate", "--keys", "keys"]).status.success());
    // Tokens with such limits could never be used.
    for never in [["--uses", "0"], ["--lifetime", "0s"], ["--session-time", "999ms"]] {
        let output = run(&[&["serve", "token", "new", "--keys", "keys"], &never[..]].concat());
        assert_eq!((output.status.code(), words(&output.stdout).as_str()), (Some(2), ""));
        assert!(words(&output.stderr).contains(never[0]), "{}", words(&output.stderr));
    }
    for never in [["--sessions", "0"], ["--session-time", "999ms"]] {
        let output = run(&[&["serve"], &never[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", words(&output.stderr));
        assert!(words(&output.stderr).contains(never[0]), "{}", words(&output.stderr));
    }
    let server = serve(home.path(), &["--token-keys", "keys", "--sessions", "1"]);
    let refused = measure(home.path(), &server, &[]);
    assert!(words(&refused.stderr).contains("a token is needed"), "{}", words(&refused.stderr));
    // The server's certificate is in another folder, so it would reject the token.
    let stray = run(&["serve", "token", "new", "--keys", "keys", "--identity", "elsewhere"]);
    assert!(words(&stray.stderr).contains("elsewhere had no certificate"));
    let token = run(&["serve", "token", "new", "--keys", "keys"]);
    assert_eq!(words(&token.stderr), "");
    std::fs::write(home.path().join("token"), &token.stdout).unwrap();
    let exposed = measure(home.path(), &server, &["--token-file", "token"]);
    assert!(words(&exposed.stderr).contains("others can read it: chmod 600 token"), "{exposed:?}");
    // A token that is written to a file is readable only for its owner.
    let into = std::fs::File::create(home.path().join("token")).unwrap();
    let printed = underload(home.path())
        .args(["serve", "token", "new", "--keys", "keys"])
        .stdout(into)
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let arguments = ["--token-file", "token", "--out", "run"];
    let output = measure(home.path(), &server, &arguments);
    assert!(home.path().join("run/run.json").is_file(), "{}", words(&output.stderr));
    let used = measure(home.path(), &server, &arguments[..2]);
    assert!(words(&used.stderr).contains("used already"), "{}", words(&used.stderr));
}

#[test]
fn a_slow_metrics_client_delays_neither_readers_nor_shutdown() {
    let home = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = serve(home.path(), &["--metrics", &port.to_string()]);
    // Keeps a few connections open that send one byte at a time, until the server closes them.
    let trickle = move || {
        while let Ok(mut client) = TcpStream::connect(port) {
            while client.write_all(b"G").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    let tricklers: Vec<_> = (0..4).map(|_| std::thread::spawn(trickle)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let mut reader = TcpStream::connect(port).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    reader.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let stop = Command::new("kill").args(["-INT", &server.child.id().to_string()]).status();
    assert!(stop.unwrap().success());
    let until = Instant::now() + Duration::from_secs(20);
    while server.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the server does not stop");
        std::thread::sleep(Duration::from_millis(50));
    }
    for trickler in tricklers {
        trickler.join().unwrap();
    }
}

#[test]
fn a_stopped_server_prints_its_totals() {
    let home = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = serve(home.path(), &["--metrics", &port.to_string()]);
    let mut client = TcpStream::connect(port).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("underload_sessions 0"));
    let stop = Command::new("kill").arg(server.child.id().to_string()).status().unwrap();
    assert!(stop.success());
    assert!(server.child.wait().unwrap().success());
    let nobody = measure(home.path(), &server, &[]);
    assert_eq!(nobody.status.code(), Some(1));
    let said = words(&nobody.stderr);
    assert!(said.contains("no answer from") && said.contains("serve` running"), "{said}");
}

/// A program that starts a server learns from one line where it is.
#[test]
fn a_server_says_where_it_listens_as_one_document() {
    let home = tempfile::tempdir().unwrap();
    let listeners = ["--json", "--metrics", "127.0.0.1:0", "--compat", "nq:0,stamp:0"];
    let child = underload(home.path())
        .args(["serve", "--bind", "127.0.0.1", "--port", "0"])
        .args(listeners)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server { child, address: String::new(), fingerprint: String::new() };
    let mut line = String::new();
    BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    server.address = told["addresses"][0].as_str().unwrap().to_owned();
    server.fingerprint = told["fingerprint"].as_str().unwrap().to_owned();
    assert!(told["udp_port"].as_u64().unwrap() > 0, "{told}");
    let tools = told["other_tools"].as_array().unwrap();
    let of: Vec<&str> = tools.iter().map(|tool| tool["tool"].as_str().unwrap()).collect();
    assert_eq!(of, ["nq", "stamp"]);
    // The printed addresses answer.
    for at in [&told["metrics"], &tools[0]["address"]] {
        TcpStream::connect(at.as_str().unwrap()).unwrap();
    }
    let trust = ["--trust", &server.fingerprint, "--json"];
    let output = measure(home.path(), &server, &trust);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["findings"][0]["step"], "up", "{document}");
}

#[test]
fn a_quiet_server_prints_only_its_addresses() {
    let home = tempfile::tempdir().unwrap();
    let mut child = underload(home.path())
        .args(["serve", "--quiet", "--port", "0", "--web", "0", "--compat", "nq:0,stamp:0"])
        .args(["--bind", "127.0.0.1", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let stop = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(stop.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && line.contains("\"addresses\""), "{line}");
    assert_eq!(words(&output.stderr), "");
}

#[test]
fn a_port_of_another_service_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let refused = underload(home.path()).args(["measure", &address.to_string()]).output().unwrap();
    let said = words(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("no underload server"), "{said}");
}

/// A series of one measurement in `runs/history`.
fn series(home: &Path, server: &Server, arguments: &[&str]) -> Output {
    let every = ["--every", "1min", "--times", "1"];
    measure(home, server, &[&every, arguments].concat())
}

#[test]
fn labels_and_marks_are_kept_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[]);
    let mark = |arguments: &[&str]| {
        let zone = ("TZ", "<+10>-10");
        let mut program = underload(home.path());
        program.args(["history", "mark"]).args(arguments).env(zone.0, zone.1).output().unwrap()
    };
    let none = mark(&["new router"]);
    assert_eq!(none.status.code(), Some(2), "{}", words(&none.stderr));
    let done = series(home.path(), &server, &["--label", "wifi <kitchen>"]);
    let said = words(&done.stderr);
    let run = std::fs::read_dir(home.path().join("runs/history")).unwrap().flatten();
    let run = run.map(|it| it.path()).find(|path| path.join("run.json").is_file()).expect(&said);
    let record = std::fs::read_to_string(run.join("run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["label"], "wifi <kitchen>");
    let title = record["scenario"]["title"].as_str().unwrap();
    assert!(title.ends_with(", wifi <kitchen>"), "{title}");
    for (arguments, status, told) in [
        (&["new router"][..], 0, "marked \"new router\" at "),
        (&["older", "--at", "2026-02-03 14:00"], 0, "at 2026-02-03 14:00, local time"),
        (&["\u{1b}[2J"], 2, "without control characters"),
        (&["x", "--at", "2999-01-01"], 2, "in the future"),
        (&["x", "--at", "noon"], 2, "expected a date and time"),
        (&["x", "elsewhere"], 2, "elsewhere"),
    ] {
        let output = mark(arguments);
        let said = words(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
    let shown = underload(home.path()).args(["history", "--json", "--metric", "idle-p50"]).output();
    let shown = shown.unwrap();
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&shown.stdout) else {
        // A machine that is too busy has no valid run.
        assert!(words(&shown.stderr).contains("valid"), "{}", words(&shown.stderr));
        return;
    };
    let texts: Vec<&str> = document["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["older", "new router"]);
    let grades = [&document["runs"][0], &record["judgement"]].map(|it| it["grade"].clone());
    assert_eq!(grades[0], grades[1]);
    assert_eq!(document["labels"][0]["label"], "wifi <kitchen>");
    let page = std::fs::read_to_string(home.path().join("runs/history/history.html")).unwrap();
    assert!(page.contains("wifi &lt;kitchen&gt;") && !page.contains("wifi <kitchen>"));
}

#[test]
fn a_mark_says_at_once_that_no_run_can_be_compared() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("runs/history/holiday")).unwrap();
    let output = underload(home.path()).args(["history", "mark", "new router"]).output().unwrap();
    let said = words(&output.stderr);
    assert!(output.status.success() && said.contains("none of the runs can be used yet"), "{said}");
}

#[test]
fn a_load_stops_at_the_budget_and_the_next_measurement_waits() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[]);
    // At 20 Mbit/s a minute of load would be 150 MB.
    let load = ["--udp", "20mbit", "--flows", "1", "--up", "--idle", "200ms", "--duration", "1min"];
    let budget = ["--every", "1min", "--times", "1", "--per-day", "12MB"];
    let arguments = [&["measure", &server.address][..], &load, &budget].concat();
    let start = Instant::now();
    let done = underload(home.path()).args(&arguments).output().unwrap();
    let said = words(&done.stderr);
    assert!(start.elapsed() < Duration::from_secs(45), "{said}");
    let account = std::fs::read_to_string(home.path().join("runs/history/account.json")).unwrap();
    let account: serde_json::Value = serde_json::from_str(&account).unwrap();
    let used = account["day_bytes"].as_u64().unwrap();
    assert!((9_000_000..13_500_000).contains(&used), "{used}: {said}");
    let told = words(&done.stdout);
    assert!(told.contains("the bytes that the budget leaves were spent"), "{told}{said}");
    let mut waiting = underload(home.path())
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("budget: "));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert!(line.is_some_and(|line| line.contains("the next one is after")));
}

#[test]
fn an_interface_that_does_not_exist_is_refused_and_loopback_is_bound_to() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[]);
    let wrong = measure(home.path(), &server, &["--dev", "no-such-dev0"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(words(&wrong.stderr).contains("no network interface \"no-such-dev0\""));
    let through = measure(home.path(), &server, &["--dev", "lo", "--out", "run"]);
    let record = std::fs::read_to_string(home.path().join("run/run.json"));
    let record = record.unwrap_or_else(|_| panic!("{}", words(&through.stderr)));
    assert!(record.contains("--dev lo"), "{record}");
}

/// Runs in a separate network namespace, whose loopback carries only the traffic of the test.
#[test]
fn a_series_waits_for_a_quiet_line() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"
        ip link set lo up || exit 77
        if [ "$2" = busy ]; then
            (while :; do head -c 1400 /dev/zero > /dev/udp/127.0.0.1/9; done) 2>/dev/null &
        fi
        "$1" serve --bind 127.0.0.1 --port 5001 --json > serve.json &
        until [ -s serve.json ]; do sleep 0.1; done
        exec "$1" measure 127.0.0.1:5001 --udp 2mbit --flows 1 --up --idle 200ms \
            --duration 400ms --every 1min --times 1 --dev lo --when-quiet
    "#;
    for (line, waits) in [("busy", true), ("quiet", false)] {
        let mut child = Command::new("unshare")
            .args(["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "bash", "-c"])
            .args([script, "bash", PROGRAM, line])
            .env("XDG_DATA_HOME", home.path())
            .current_dir(home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare of util-linux");
        let mut said = String::new();
        for text in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
            said += &text;
            said.push('\n');
            if text.contains("the line is in use") || text.contains("report: ") {
                break;
            }
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.code() == Some(77) || said.contains("unshare") {
            eprintln!("SKIPPED a_series_waits_for_a_quiet_line: no network namespace: {said}");
            return;
        }
        assert_eq!(said.contains("the line is in use"), waits, "{line}: {said}");
        let _ = std::fs::remove_file(home.path().join("serve.json"));
    }
}

/// Connects a client to one server by two uplinks; client and server have a network namespace each.
/// The default route is by the first uplink. `$1` is the program.
const TWO_UPLINKS: &str = r#"
    ip link set lo up || exit 77
    unshare --net sleep 1000 & far=$!
    own=$(readlink /proc/self/ns/net)
    until [ "$(readlink /proc/$far/ns/net)" != "$own" ]; do sleep 0.05; done
    there() { nsenter --net=/proc/$far/ns/net -- "$@"; }
    there ip link set lo up && there ip addr add 203.0.113.9/32 dev lo || exit 77
    for uplink in 1 2; do
        ip link add wan$uplink type veth peer name far$uplink netns $far || exit 77
        ip addr add 10.0.$uplink.1/24 dev wan$uplink && ip link set wan$uplink up || exit 77
        there ip addr add 10.0.$uplink.2/24 dev far$uplink && there ip link set far$uplink up
        ip route add default via 10.0.$uplink.2 dev wan$uplink metric $uplink || exit 77
    done
    there "$1" serve --anonymous --bind 203.0.113.9 --port 5001 --json > serve.json &
    until [ -s serve.json ]; do sleep 0.05; done
    for uplink in wan1 wan2; do
        "$1" measure 203.0.113.9:5001 --dev $uplink --where --udp 2mbit --flows 1 --up \
            --idle 1s --duration 1s --interval 5ms --class 0 --out line/$uplink || exit 1
        grep $uplink: /proc/self/net/dev > $uplink.counters
    done
    "$1" measure 203.0.113.9:5001 --dev wan1 --dev wan2 --udp 2mbit --flows 1 --up --idle 1s \
        --duration 1s --interval 5ms --class 0 --out both > both.table 2> both.notes || exit 1
    # A line that is down does not keep the others from being measured.
    ip link add wan3 type veth peer name far3 || exit 77
    "$1" measure 203.0.113.9:5001 --dev wan3 --dev wan1 --udp 2mbit --flows 1 --up --idle 1s \
        --duration 1s --interval 5ms --class 0 --out half --json > half.json 2> half.notes && exit 1
    # Without IPv4, over a line with the MTU of PPPoE.
    ip link set wan2 mtu 1492 && there ip link set far2 mtu 1492
    ip -6 addr add 2001:db8:2::1/64 dev wan2 nodad
    there ip -6 addr add 2001:db8:2::2/64 dev far2 nodad
    ip -4 addr flush dev wan1 && ip -4 addr flush dev wan2
    there ip -6 addr add 2001:db8:9::9/128 dev lo nodad
    ip -6 route add default via 2001:db8:2::2 dev wan2
    there "$1" serve --anonymous --bind 2001:db8:9::9 --port 5002 --json > six.json &
    until [ -s six.json ]; do sleep 0.05; done
    exec "$1" measure [2001:db8:9::9]:5002 --where --flows 1 --down --class 0 --idle 1s \
        --duration 1s --interval 5ms --out six
"#;

#[test]
fn two_uplinks_are_measured_each_by_itself_and_also_without_ipv4() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", TWO_UPLINKS, "bash", PROGRAM])
        .env("XDG_DATA_HOME", home.path())
        .current_dir(home.path())
        .output()
        .expect("unshare of util-linux");
    let said = words(&output.stderr);
    if output.status.code() == Some(77) || said.contains("unshare") {
        eprintln!("SKIPPED two_uplinks_are_measured_each_by_itself_and_also_without_ipv4: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    for uplink in ["wan1", "wan2"] {
        let read = |file: String| std::fs::read_to_string(home.path().join(file)).unwrap();
        let run: serde_json::Value =
            serde_json::from_str(&read(format!("line/{uplink}/run.json"))).unwrap();
        assert_eq!(run["host"]["device"], uplink);
        let title = run["scenario"]["title"].as_str().unwrap();
        assert!(title.ends_with(&format!("through {uplink}")), "{title}");
        // The load is 250 kB or more, and all of it is sent through this interface.
        let counters = read(format!("{uplink}.counters"));
        let sent = counters.split_whitespace().nth(9).unwrap().parse::<u64>().unwrap();
        assert!(sent > 200_000, "{counters}");
        let findings: serde_json::Value =
            serde_json::from_str(&read(format!("line/{uplink}/findings.json"))).unwrap();
        let hops = findings["findings"][0]["location"]["hops"].as_array().unwrap();
        assert_eq!(hops.len(), 3, "{hops:?}");
        let answers = |hop: &serde_json::Value| hop["answered"].as_u64().unwrap();
        assert!(answers(&hops[2]) > 0, "{hops:?}");
    }
    let read = |file: &str| std::fs::read_to_string(home.path().join(file)).unwrap();
    let (table, notes) = (read("both.table"), read("both.notes"));
    for uplink in ["wan1", "wan2"] {
        assert!(table.contains(&format!(" ({uplink})")), "one table has both lines: {table}");
        assert!(table.contains(&format!("\n{uplink}: ")), "each has a verdict: {table}");
        assert!(notes.contains(&format!("report: both/{uplink}/report.html")), "{notes}");
    }
    let (half, notes) = (read("half.json"), read("half.notes"));
    let half: serde_json::Value = serde_json::from_str(&half).expect("a list of one line");
    assert_eq!(half[0]["run"]["host"]["device"], "wan1");
    assert!(
        notes.contains("wan3: ") && notes.contains("1 of 2 lines were not measured"),
        "{notes}"
    );
    let six = std::fs::read_to_string(home.path().join("six/findings.json")).unwrap();
    let six: serde_json::Value = serde_json::from_str(&six).unwrap();
    assert!(six["findings"][0]["goodput_down_mbit_s"].as_f64().unwrap() > 1.0, "{six}");
    assert!(six["findings"][0]["location"]["hops"][2]["answered"].as_u64().unwrap() > 0, "{six}");
}

/// `nmcli` of the test says that every connection is metered.
#[test]
fn a_metered_connection_is_measured_only_with_consent() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[]);
    let nmcli = home.path().join("nmcli");
    let script = "#!/bin/sh\n[ \"$*\" = \"-g GENERAL.METERED device show lo\" ] || exit 1\n\
                  echo \"yes (guessed)\"\n";
    std::fs::write(&nmcli, script).unwrap();
    std::fs::set_permissions(&nmcli, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let metered = "lo: the connection is metered, by NetworkManager";
    let measured = |more: &[&str]| {
        let output = underload(home.path())
            .args(["measure", &server.address, "--idle", "200ms", "--duration", "400ms", "--up"])
            .args(["--udp", "2mbit", "--flows", "1", "--dev", "lo"])
            .args(more)
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), words(&output.stderr))
    };
    let (status, said) = measured(&["--every", "1min", "--times", "1"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains(metered) && said.contains("expected --yes"), "{said}");
    let (status, said) = measured(&["--every", "1min", "--times", "1", "--yes", "--watch"]);
    assert!(status == Some(0) && !said.contains(metered), "{said}");
    let page = std::fs::read_to_string(home.path().join("runs/history/history.html")).unwrap();
    assert!(
        page.contains("<head>\n<meta http-equiv=\"refresh\" content=\"60\">"),
        "--watch: {page}"
    );
    // A single measurement warns; on a terminal it would also ask.
    let (status, said) = measured(&["--out", "once"]);
    assert!(status == Some(0) && said.contains(metered), "{said}");
    let command = format!(
        "{PROGRAM} measure {} --idle 200ms --duration 400ms --up --udp 2mbit --flows 1 --dev lo \
         --out never",
        server.address
    );
    let mut asked = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(home.path())
        .env("XDG_DATA_HOME", home.path())
        .env("PATH", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script of util-linux");
    std::io::Write::write_all(asked.stdin.as_mut().unwrap(), b"n\n").unwrap();
    let output = asked.wait_with_output().unwrap();
    let said = words(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Measure? [y/N]") && said.contains("not measured: lo"), "{said}");
    assert!(!home.path().join("never").exists());
}

/// Beside a router in a namespace of its own, which answers for itself and forwards the rest.
#[test]
fn the_router_alone_is_measured() {
    const HOME: &str = r#"
        ip link set lo up || exit 77
        unshare --net sleep 1000 & far=$!
        own=$(readlink /proc/self/ns/net)
        until [ "$(readlink /proc/$far/ns/net)" != "$own" ]; do sleep 0.05; done
        there() { nsenter --net=/proc/$far/ns/net -- "$@"; }
        ip link add wifi type veth peer name lan netns $far || exit 77
        ip addr add 192.168.7.2/24 dev wifi && ip link set wifi up || exit 77
        there ip addr add 192.168.7.1/24 dev lan && there ip link set lan up || exit 77
        there sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward' || exit 77
        there ip route add default via 192.168.7.2 && ip route add default via 192.168.7.1 || exit 77
        "$1" measure router --up --preset quick && exit 1
        exec "$1" measure gateway --dev wifi --duration 2s --out run
    "#;
    let home = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", HOME, "bash", PROGRAM])
        .env("XDG_DATA_HOME", home.path())
        .current_dir(home.path())
        .output()
        .expect("unshare of util-linux");
    let (told, said) = (words(&output.stdout), words(&output.stderr));
    if output.status.code() == Some(77) || said.contains("unshare") {
        eprintln!("SKIPPED the_router_alone_is_measured: no network namespace: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("--preset: only accepted for `underload serve`"), "{said}");
    assert!(said.contains("probing the router 192.168.7.1 for 2 s"), "{said}");
    assert!(told.contains("router: idle latency p50 "), "{told}");
    assert!(home.path().join("run/report.html").is_file());
}
