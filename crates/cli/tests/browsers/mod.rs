//! Pages, films and calls of real browsers in live trials: what is recorded, and that no process is
//! left.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use underload_record::schema::FlowDirection;
use underload_sim::application::video::chunk_bytes;
use underload_store::RunDir;

use super::{PATIENCE, folder, is_skipped, stderr};

/// A live trial in which a browser loads one page over each protocol.
const PAGES: &str = r#"
title = "Pages"
[path]
up = "50mbit"
down = "50mbit"
rtt = "10ms"
[phases]
idle = "200ms"
ramp = "200ms"
load = "4s"
drain = "100ms"
[[flow]]
kind = "probe"
[[flow]]
name = "page"
kind = "browser"
keep_alive = false
script = "fetched"
loads = 1
[[flow]]
name = "secure"
kind = "browser"
protocol = "http2"
loads = 1
"#;

/// A live trial with a film of which a part is loaded.
const FILM: &str = r#"
title = "A film"
[path]
up = "50mbit"
down = "50mbit"
rtt = "10ms"
[phases]
idle = "200ms"
ramp = "200ms"
load = "3s"
drain = "100ms"
[[flow]]
kind = "probe"
[[flow]]
name = "film"
kind = "dash"
protocol = "http2"
player = "bola"
"#;

/// A live trial with a call from the server to the client.
const CALL: &str = r#"
title = "A call"
[path]
up = "50mbit"
down = "50mbit"
rtt = "20ms"
[phases]
idle = "200ms"
ramp = "200ms"
load = "4s"
drain = "100ms"
[[flow]]
kind = "probe"
[[flow]]
name = "call"
kind = "webrtc"
direction = "down"
max_rate = "300kbit"
"#;

/// Returns the command of a run, with a mark in the environment that all of its processes inherit.
fn marked_run(arguments: &[&str], folder: &Path, mark: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload"));
    command.args(arguments).current_dir(folder).env("UNDERLOAD_TEST_MARK", mark);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Counts the processes of a run's browsers.
fn browsers_of(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("the processes");
    let is_browser = |process: &std::path::PathBuf| {
        let read = |file: &str| std::fs::read(process.join(file)).unwrap_or_default();
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        environment.contains(&format!("UNDERLOAD_TEST_MARK={mark}"))
            && String::from_utf8_lossy(&read("cmdline")).contains("--user-data-dir=/tmp/profile")
    };
    processes.flatten().map(|entry| entry.path()).filter(is_browser).count()
}

/// Waits until `condition` holds; `false` after [`PATIENCE`].
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Returns whether a run was skipped because this machine has no Chromium, no dash.js or no
/// namespaces.
fn is_skipped_without_browser(test: &str, output: &Output) -> bool {
    for (missing, remedy) in [
        ("no Chromium", "apt install chromium, or UNDERLOAD_CHROMIUM"),
        ("no dash.js", "./setup --tests, or UNDERLOAD_DASHJS"),
    ] {
        if stderr(output).contains(missing) {
            eprintln!("SKIPPED {test}: {missing} ({remedy})");
            return true;
        }
    }
    is_skipped(test, output)
}

/// Checks the stored times of a browser's loads. Returns how many pages it loaded.
fn checked_loads(text: &str, objects: u64, protocol: &str) -> usize {
    let mut lines = text
        .lines()
        .map(|line| -> serde_json::Value { serde_json::from_str(line).expect("a line of JSON") });
    let version = lines.next().expect("the browser");
    assert!(version["browser"].as_str().is_some_and(|it| it.contains("Chrom")), "{version}");
    let check = |load: serde_json::Value| {
        let times = ["connectStart", "connectEnd", "responseStart", "responseEnd", "loadEventEnd"];
        let times = times.map(|name| load[name].as_f64().expect("a time"));
        assert!(times.is_sorted() && times[4] > 0.0, "{load}");
        assert_eq!(
            (load["objects"].as_u64(), &load["nextHopProtocol"]),
            (Some(objects), &protocol.into())
        );
        assert_eq!(
            load["secureConnectionStart"].as_f64() > Some(0.0),
            protocol != "http/1.1",
            "{load}"
        );
    };
    lines.map(check).count()
}

/// Runs a scenario up to three times, until `has_measured` says so of the run in a directory: on a
/// machine that is too busy, no page or frame may arrive within the load phase. No browser is left
/// after any of them.
fn run_until(name: &str, scenario: &str, has_measured: impl Fn(&Path, &Output) -> bool) {
    let folder = folder();
    std::fs::write(folder.path().join("scenario.toml"), scenario).expect("writing the scenario");
    let has_measured = ["first", "second", "third"].iter().any(|attempt| {
        let mark = format!("{name}-{}-{attempt}", std::process::id());
        let arguments = ["run", "scenario.toml", "--world", "live", "--out", attempt];
        let run = marked_run(&arguments, folder.path(), &mark).output().expect("it starts");
        assert_eq!(browsers_of(&mark), 0);
        is_skipped_without_browser(name, &run) || has_measured(&folder.path().join(attempt), &run)
    });
    assert!(has_measured, "{name}: nothing arrived in three runs");
}

#[test]
fn a_browser_loads_whole_pages_and_leaves_nothing() {
    const NAME: &str = "a_browser_loads_whole_pages_and_leaves_nothing";
    run_until(NAME, PAGES, |directory, run| {
        let data = RunDir::read(directory).expect("the record can be read");
        let [trial] = data.record.trials.as_slice() else { panic!("{}", stderr(run)) };
        let value = |flow: &str, name: &str| {
            let flow = trial.flows.iter().find(|it| it.name == flow).expect("the flow");
            assert_eq!(flow.kind, "browser");
            flow.metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        };
        let mut finished = 0;
        for (flow, objects, protocol) in [("page", 101, "http/1.1"), ("secure", 100, "h2")] {
            let path = directory.join(format!("flows/0000000-{flow}.txt"));
            let text = std::fs::read_to_string(path).expect("the times");
            let loaded = checked_loads(&text, objects, protocol);
            assert_eq!(value(flow, "pages_loaded"), Some(loaded as f64));
            assert_eq!(value(flow, "pages_unfinished"), Some(1.0 - loaded as f64));
            finished += loaded;
        }
        // Chromium may open the page's connection ahead of the load, which then has no handshake.
        if finished < 2 || value("secure", "tls") == Some(0.0) {
            return false;
        }
        // Each object and the HTML use a separate connection; Chromium may open one more.
        assert!(value("page", "connections") >= Some(102.0));
        // HTTP/2 transfers all objects over one connection. Chromium opens more if a handshake is
        // slow, as on a busy machine; one for the page and for each object shares nothing.
        let connections = value("secure", "connections");
        assert!(connections < Some(101.0), "{connections:?}");
        assert!(value("secure", "tls") > Some(0.0));
        true
    });
}

#[test]
fn pages_over_http3_need_caddy() {
    const NAME: &str = "pages_over_http3_need_caddy";
    let (before, secure) = PAGES.split_at(PAGES.find("[[flow]]\nname = \"page\"").expect("a page"));
    let secure = &secure[secure.find("[[flow]]\nname = \"secure\"").expect("a second page")..];
    let quic = format!("{before}{}", secure.replace("http2", "http3"));
    run_until(NAME, &quic, |directory, run| {
        if stderr(run).contains("flow.secure: protocol: no caddy") {
            assert_eq!(run.status.code(), Some(2), "{}", stderr(run));
            eprintln!("SKIPPED {NAME}: no caddy (apt install caddy)");
            return true;
        }
        let path = directory.join("flows/0000000-secure.txt");
        let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("{}", stderr(run)));
        checked_loads(&text, 100, "h3") > 0
    });
}

#[test]
fn a_player_loads_chunks_of_the_models_sizes_and_leaves_nothing() {
    const NAME: &str = "a_player_loads_chunks_of_the_models_sizes_and_leaves_nothing";
    run_until(NAME, FILM, |directory, run| {
        let data = RunDir::read(directory).expect("the record can be read");
        let [trial] = data.record.trials.as_slice() else { panic!("{}", stderr(run)) };
        let film = trial.flows.iter().find(|flow| flow.name == "film").expect("the flow");
        assert_eq!(film.kind, "dash");
        let value = |name: &str| {
            film.metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        };
        if value("startup").is_none() {
            return false;
        }
        let path = directory.join("flows/0000000-film.txt");
        let text = std::fs::read_to_string(path).expect("the chunks");
        let parse = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("JSON") };
        let lines: Vec<_> = text.lines().map(parse).collect();
        assert!(lines[0]["dash.js"].as_str().is_some_and(|it| it.starts_with('5')), "{text}");
        let chunks: Vec<_> = lines.iter().filter_map(|line| line.get("chunk")).collect();
        // The first chunk has the lowest rate, and each has the bytes of its rate.
        assert_eq!((&chunks[0]["number"], &chunks[0]["level"]), (&0.into(), &0.into()), "{text}");
        for chunk in &chunks {
            let level = chunk["level"].as_u64().expect("a level") as usize;
            assert_eq!(chunk["bytes"].as_u64(), Some(chunk_bytes(level)), "{chunk}");
            assert!(chunk["requested"].as_f64() < chunk["arrived"].as_f64(), "{chunk}");
        }
        let replaced = value("chunks_replaced").expect("a count");
        assert_eq!(value("chunks_loaded"), Some(chunks.len() as f64 - replaced));
        assert_eq!((value("qoe"), value("bit_rate") > Some(0.0)), (None, true));
        true
    });
}

#[test]
fn a_file_that_is_not_dash_js_is_named() {
    const NAME: &str = "a_file_that_is_not_dash_js_is_named";
    let folder = folder();
    std::fs::write(folder.path().join("film.toml"), FILM).expect("writing the scenario");
    std::fs::write(folder.path().join("other.js"), "let other = 1;").expect("writing a script");
    std::fs::write(folder.path().join("broken.js"), "let let;").expect("writing a script");
    for (file, status, message) in [
        ("missing.js", 2, "flow.film: no dash.js"),
        ("other.js", 1, "the file defines no `dashjs.MediaPlayer`"),
        ("broken.js", 1, "dash.js: {"),
    ] {
        let out = file.trim_end_matches(".js");
        let arguments = ["run", "film.toml", "--world", "live", "--out", out];
        let mut command = marked_run(&arguments, folder.path(), "none");
        let output = command.env("UNDERLOAD_DASHJS", file).output().expect("it starts");
        let text = stderr(&output);
        let is_named = text.contains(message);
        if !is_named && is_skipped_without_browser(NAME, &output) {
            return;
        }
        assert_eq!((output.status.code(), is_named), (Some(status), true), "{text}");
    }
}

/// Checks the stored statistics of a call that only the server sends video in. Returns the number
/// of lines of each end.
fn checked_statistics(text: &str) -> [usize; 2] {
    let parse = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("JSON") };
    let lines: Vec<_> = text.lines().skip(1).map(parse).collect();
    ["client", "server"].map(|end| {
        let of_end: Vec<_> = lines.iter().filter(|line| line["end"] == end).collect();
        let receives =
            of_end.iter().any(|line| line["video"]["framesDecoded"].as_f64() > Some(0.0));
        assert_eq!(receives, end == "client", "{text}");
        of_end.len()
    })
}

#[test]
fn a_call_between_two_browsers_has_its_statistics_and_leaves_nothing() {
    const NAME: &str = "a_call_between_two_browsers_has_its_statistics_and_leaves_nothing";
    run_until(NAME, CALL, |directory, run| {
        let data = RunDir::read(directory).expect("the record can be read");
        let [trial] = data.record.trials.as_slice() else { panic!("{}", stderr(run)) };
        let call = trial.flows.iter().find(|flow| flow.name == "call").expect("the flow");
        assert_eq!((&*call.kind, call.direction), ("webrtc", FlowDirection::Down));
        let value = |name: &str| {
            call.metrics.iter().find(|metric| metric.name == name).expect("a metric").value
        };
        if value("freezes").is_none() {
            return false;
        }
        let path = directory.join("flows/0000000-call.txt");
        let text = std::fs::read_to_string(path).expect("the statistics");
        let [client, server] = checked_statistics(&text);
        assert!(client > 0 && client == server);
        // The path delays every packet by 10 ms; clocks of browsers have steps of 1 ms.
        assert!(value("frame_delay_p50").is_none_or(|delay| delay >= 9.0), "{call:?}");
        assert!(value("frame_height") > Some(0.0) && value("jitter_buffer") > Some(0.0));
        true
    });
}

#[test]
fn a_killed_or_interrupted_run_leaves_no_browser() {
    const NAME: &str = "a_killed_or_interrupted_run_leaves_no_browser";
    let folder = folder();
    let long = PAGES.replace("load = \"4s\"", "load = \"100s\"");
    std::fs::write(folder.path().join("pages.toml"), long).expect("writing the scenario");
    for signal in ["-KILL", "-INT"] {
        let mark = format!("{}{signal}", std::process::id());
        let out = signal.trim_start_matches('-');
        let arguments = ["run", "pages.toml", "--world", "live", "--out", out];
        let mut child = marked_run(&arguments, folder.path(), &mark).spawn().expect("it starts");
        let mut has_ended = false;
        assert!(comes_true(|| {
            has_ended = child.try_wait().expect("its state").is_some();
            has_ended || browsers_of(&mark) > 0
        }));
        if !has_ended {
            let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
        }
        let output = child.wait_with_output().expect("it ends");
        if is_skipped_without_browser(NAME, &output) {
            return;
        }
        assert!(!has_ended, "{}", stderr(&output));
        assert!(comes_true(|| browsers_of(&mark) == 0), "after {signal}: {}", stderr(&output));
    }
    assert!(!Path::new("/tmp/profile").exists());
}

#[test]
fn a_program_that_is_no_browser_is_named() {
    const NAME: &str = "a_program_that_is_no_browser_is_named";
    let folder = folder();
    std::fs::write(folder.path().join("pages.toml"), PAGES).expect("writing the scenario");
    let fake = folder.path().join("fake");
    std::fs::write(&fake, "#!/bin/sh\necho Fake 1.0\n").expect("writing the program");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&fake, executable).expect("making it executable");
    let with = |program: &Path, world: &str| {
        let arguments = ["run", "pages.toml", "--world", world, "--out", "out"];
        let mut command = marked_run(&arguments, folder.path(), "none");
        command.env("UNDERLOAD_CHROMIUM", program).output().expect("it starts")
    };
    for world in ["live", "auto"] {
        let missing = with(Path::new("/nowhere/chromium"), world);
        if is_skipped(NAME, &missing) {
            return;
        }
        assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
        assert!(stderr(&missing).contains("flow.page: no Chromium"), "{}", stderr(&missing));
    }
    let ended = with(&fake, "live");
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("starting Chromium (Fake 1.0): "), "{}", stderr(&ended));
}
