//! A fleet on this machine, controlled by the commands of an operator.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The program beside `underload-fleet`, which it starts.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let beside = Path::new(env!("CARGO_BIN_EXE_underload-fleet")).with_file_name("underload");
    beside.display().to_string()
});

/// A program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs with a umask that removes no permissions: private files must be created as private.
fn underload(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" \"$@\"", &PROGRAM]).args(arguments);
    command.env("XDG_DATA_HOME", home).current_dir(home);
    command
}

/// Writes a file that only its owner can read.
fn private(home: &Path, name: &str, text: &str) {
    let access = underload_disk::Access::Owner;
    underload_disk::write_new(&home.join(name), text.as_bytes(), access).unwrap();
}

/// Returns the entries of a folder, including the folder itself, that users other than its owner
/// can access.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = waiting.pop() {
        if mode(&path) & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), mode(&path)));
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Starts the program. Returns the first line that it prints.
fn start(home: &Path, arguments: &[&str]) -> (Running, String) {
    let mut command = underload(home, arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let running = Running(child);
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).unwrap();
    (running, line)
}

fn done(home: &Path, arguments: &[&str]) -> Output {
    underload(home, arguments).output().unwrap()
}

/// Runs a command that must succeed, and returns its trimmed standard output.
fn good(home: &Path, arguments: &[&str]) -> String {
    let output = done(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a command that must reject its input (exit status 2), and returns its standard error.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = done(home, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    said
}

fn orchestrator(home: &Path) -> (Running, String) {
    let arguments = ["fleet", "orchestrator", "--store", "sqlite:store", "--listen", "127.0.0.1:0"];
    let (running, line) = start(home, &arguments);
    let url = line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}"));
    (running, url.to_owned())
}

/// Returns the options of an operator's command for that orchestrator.
fn reach(url: &str) -> [&str; 4] {
    ["--orchestrator", url, "--token", "store/admin.token"]
}

const PLAN: &str = r#"
name = "first"
title = "A first try"
runs_per_day = 5000
[lines]
count = 100
[[tier]]
up = "10mbit"
down = "100mbit"
[[step]]
name = "idle"
kind = "latency"
duration = "1s"
[servers]
count = 1
capacity = "1gbit"
"#;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a device, with its code in an argument or in the environment.
fn agent(home: &Path, url: &str, number: usize, code: &str) -> Running {
    let state = format!("device-{number}");
    let agent = ["fleet", "agent", "--orchestrator", url, "--state", &state];
    let mut command = underload(home, &agent);
    if number == 0 {
        command.args(["--enrol", code]);
    } else {
        command.env("UNDERLOAD_CODE", code);
    }
    command.args(["--interface", "none", "--start-within", "0"]).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

#[test]
fn lines_are_recorded_changed_and_found_by_commands() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let (_orchestrator, url) = orchestrator(home);
    let reach = reach(&url);
    let command = |words: &[&'static str]| [&["fleet"], words, &reach].concat();
    let write = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
    let text = "external_id,name,configured\nACC-1,Mrs. Miller,fifo\nACC-2,Jones,fifo\n";
    write("lines.csv", text);
    let codes = good(home, &command(&["code", "--lines", "lines.csv"]));
    let start = "external_id,name,configured,code\nACC-1,Mrs. Miller,fifo,";
    assert!(codes.starts_with(start) && codes.lines().count() == 3, "{codes}");
    let set = ["lines", "set", "ACC-1", "configured=docsis-pie", "--from", "2026-11-02"];
    good(home, &command(&set));
    let shown = good(home, &command(&["lines", "show", "ACC-1"]));
    for expected in ["from always", "from 2026-11-02 00:00", "configured=docsis-pie", "no device"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let listed = good(home, &command(&["lines", "list", "miller"]));
    assert!(listed.starts_with("ACC-1 ") && listed.lines().count() == 1, "{listed}");
    write("bad.csv", "external_id,tier_up_bit_per_s\nACC-3,35mbit\n,1\nACC-4,1\n");
    let told = refused(home, &command(&["lines", "import", "bad.csv"]));
    assert!(told.contains("line 2: tier_up_bit_per_s") && told.contains("line 3: "), "{told}");
    let all = good(home, &command(&["lines", "list"]));
    assert_eq!(all.lines().count(), 2, "nothing was recorded: {all}");
    let told = refused(home, &command(&["lines", "retire", "ACC-1"]));
    assert!(told.contains("no device measures it"), "{told}");
    let told = refused(home, &command(&["lines", "set", "ACC-9", "name=x"]));
    assert!(told.contains("is unknown"), "{told}");
}

#[test]
fn a_plan_is_applied_measured_and_studied() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let (_orchestrator, url) = orchestrator(home);
    let with = |arguments: &[&'static str]| -> Vec<String> {
        arguments.iter().map(|it| (*it).to_owned()).chain(reach(&url).map(str::to_owned)).collect()
    };
    let operate = |arguments: &[&'static str]| {
        let arguments = with(arguments);
        good(home, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    std::fs::write(home.join("plan.toml"), PLAN).unwrap();
    assert!(operate(&["fleet", "plan", "apply", "plan.toml"]).contains("runs per second"));
    let code = operate(&["fleet", "code", "--server"]);
    let port = free_port().to_string();
    let public = format!("127.0.0.1:{port}");
    let serve =
        ["serve", "--bind", "127.0.0.1", "--port", &port, "--fleet", &url, "--enrol", &code];
    let named = ["--name", "east", "--public", &public, "--capacity-up", "1gbit"];
    let capacity = ["--capacity-down", "1gbit"];
    let (_server, line) = start(home, &[&serve[..], &named, &capacity].concat());
    assert!(line.starts_with("listening "), "{line:?}");
    std::fs::write(home.join("lines.csv"), "model,region\nXB7,\"no, where\"\nXB8,\nXB8,\n")
        .unwrap();
    let codes = operate(&["fleet", "code", "--lines", "lines.csv"]);
    let codes: Vec<&str> = codes.lines().collect();
    assert_eq!(codes[0], "model,region,code");
    assert!(codes[1].starts_with("XB7,\"no, where\","), "{codes:?}");
    let mut agents = Vec::new();
    for (number, line) in codes.iter().skip(1).enumerate() {
        agents.push(agent(home, &url, number, line.rsplit(',').next().unwrap()));
    }
    let mut study = underload(home, &["fleet", "study", "first", "--json"]);
    study.env("UNDERLOAD_STORE", "sqlite:store");
    let start = Instant::now();
    let document: serde_json::Value = loop {
        let output = study.output().unwrap();
        if output.status.success() {
            break serde_json::from_slice(&output.stdout).unwrap();
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(start.elapsed() < Duration::from_secs(150), "nothing was collected: {said}");
        std::thread::sleep(Duration::from_millis(500));
    };
    assert_eq!(document["plan"], "first", "{document}");
    // Runs that have begun continue; no further run begins.
    operate(&["fleet", "plan", "stop", "first"]);
    for folder in ["store", "device-0", "device-1", "device-2", "underload"] {
        assert_eq!(open_to_others(&home.join(folder)), [""; 0], "{folder}");
    }
    let files = ["store/fleet.sqlite-wal", "device-0/device.key", "underload/server/key.der"];
    assert!(files.iter().all(|file| home.join(file).is_file()), "the premise: they were made");
}

#[test]
fn secrets_are_not_written_to_a_directory_open_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let (running, _) = orchestrator(home);
    drop(running);
    let chmod = |folder: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(home.join(folder), permissions).unwrap();
    };
    for folder in ["state", "server", "archive"] {
        std::fs::create_dir(home.join(folder)).unwrap();
        chmod(folder, 0o755);
    }
    chmod("store", 0o755);
    let here = "http://127.0.0.1:1";
    let orchestrator = ["fleet", "orchestrator", "--listen", "127.0.0.1:0", "--store"];
    let uses = |words: &[&'static str]| [&orchestrator[..], words].concat();
    for (folder, arguments) in [
        ("store", uses(&["sqlite:store"])),
        ("archive", uses(&["sqlite:new", "--archive", "archive"])),
        ("state", uses(&["sqlite:other", "--state", "state"])),
        ("store", vec!["fleet", "token", "new", "ana", "--store", "sqlite:store"]),
        ("store", vec!["fleet", "study", "first", "--store", "sqlite:store"]),
        ("state", vec!["fleet", "agent", "--orchestrator", here, "--state", "state"]),
        ("server", vec!["serve", "--bind", "127.0.0.1", "--port", "0", "--identity", "server"]),
    ] {
        let output = done(home, &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let remedy = "others can read or change what is in it: chmod 700 ";
        let (_, named) = said.split_once(remedy).unwrap_or_else(|| panic!("{arguments:?}: {said}"));
        assert!(named.split(',').next().is_some_and(|it| it.ends_with(folder)), "{said}");
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(home.join("state")).unwrap().count(), 0, "nothing was put there");
    // A restored copy, whose files have the permissions that the umask left: they become private
    // once the folder is private.
    chmod("store", 0o700);
    chmod("store/fleet.sqlite", 0o644);
    let (_running, _) = self::orchestrator(home);
    assert_eq!(open_to_others(&home.join("store")), [""; 0]);
}

#[test]
fn operators_viewers_and_strangers_have_different_rights() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let (running, url) = orchestrator(home);
    let store = ["--store", "sqlite:store"];
    let viewer = good(home, &[&["fleet", "token", "new", "vic"][..], &store].concat());
    private(home, "viewer", &viewer);
    let codes = ["fleet", "code", "--orchestrator", &url, "--token"];
    let said = refused(home, &[&codes[..], &["viewer"]].concat());
    assert!(said.contains("viewers may look only"), "{said}");
    let revoke = [&["fleet", "token", "revoke", "vic"][..], &store].concat();
    good(home, &revoke);
    let said = refused(home, &[&codes[..], &["viewer"]].concat());
    assert!(said.contains("the token is not valid"), "{said}");
    let said = refused(home, &[&codes[..], &["nowhere"]].concat());
    assert!(said.contains("nowhere"), "{said}");
    let chief = ["fleet", "token", "new", "chief", "--role", "operator"];
    let chief = good(home, &[&chief[..], &store].concat());
    private(home, "chief", &chief);
    assert_eq!(good(home, &[&codes[..], &["chief", "--count", "3"]].concat()).lines().count(), 3);
    // A second orchestrator is refused, because it would not know the admissions of the first.
    let second = ["fleet", "orchestrator", "--listen", "127.0.0.1:0"];
    let output = done(home, &[&second[..], &store].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use by another"), "{output:?}");
    drop(running);
    // A later orchestrator has the same operators, and makes no new token.
    let token = std::fs::read(home.join("store/admin.token")).unwrap();
    let (_running, url) = orchestrator(home);
    assert_eq!(std::fs::read(home.join("store/admin.token")).unwrap(), token);
    good(home, &["fleet", "code", "--orchestrator", &url, "--token", "chief"]);
}

#[test]
fn a_missing_orchestrator_and_missing_results_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let said = refused(home, &["fleet", "plan", "apply", "low-latency-trial"]);
    let expected = "no orchestrator was started on this machine";
    assert!(said.contains(expected) && said.contains("underload fleet orchestrator"), "{said}");
    // Before any results are stored.
    let (first, url) = orchestrator(home);
    let mut apply = vec!["fleet", "plan", "apply", "low-latency-trial"];
    apply.extend(reach(&url));
    good(home, &apply);
    let study = ["fleet", "study", "low-latency-trial", "--store", "sqlite:store"];
    let said = refused(home, &study);
    let expected = "no results of plan `low-latency-trial` yet; its runs are due about every 4 h";
    assert!(said.contains(expected), "{said}");
    drop(first);
    // The first operator's token stays where the store's first orchestrator wrote it.
    let second = ["fleet", "orchestrator", "--store", "sqlite:store", "--listen", "127.0.0.1:0"];
    let mut second = underload(home, &[&second[..], &["--state", "elsewhere"]].concat());
    let mut second = second.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(second.stderr.take().unwrap());
    let _running = Running(second);
    let line = told.lines().map_while(Result::ok).find(|line| line.starts_with("pages: "));
    let line = line.expect("it says where its pages are");
    assert!(!line.contains("admin.token") && line.contains("underload fleet token new"), "{line}");
}

#[test]
fn a_server_raises_the_descriptors_that_a_shell_gives() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let orchestrator =
        ["fleet", "orchestrator", "--store", "sqlite:store", "--listen", "127.0.0.1:0"];
    for arguments in [&orchestrator[..], &["serve", "--port", "0"]] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", &PROGRAM]).args(arguments);
        shell.env("XDG_DATA_HOME", home).current_dir(home);
        let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let running = Running(child);
        BufReader::new(out).read_line(&mut String::new()).unwrap();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.0.id())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        assert!(numbers[0] >= numbers[1].min(8_192), "{arguments:?}: {line}");
    }
}

#[test]
fn beyond_loopback_the_orchestrator_uses_tls_with_a_stored_key() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let arguments = ["fleet", "orchestrator", "--store", "sqlite:store", "--listen", "0.0.0.0:0"];
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (_running, line) = start(home, &arguments);
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["listening", url, key] = words[..] else { panic!("{line:?}") };
        let address = url.strip_prefix("https://0.0.0.0:").unwrap_or_else(|| panic!("{url}"));
        let url = format!("https://127.0.0.1:{address}");
        let code = ["fleet", "code", "--orchestrator", &url, "--token", "store/admin.token"];
        good(home, &[&code[..], &["--trust", key]].concat());
        let other = format!("sha256:{}", "0".repeat(64));
        let output = done(home, &[&code[..], &["--trust", &other]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        // The orchestrator does not answer plain HTTP.
        let mut plain = TcpStream::connect(url.trim_start_matches("https://")).unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut first = Vec::new();
        let _ = BufReader::new(plain).read_until(b' ', &mut first);
        assert!(!first.starts_with(b"HTTP"), "{first:?}");
        keys.push(key.to_owned());
    }
    assert_eq!(keys[0], keys[1]);
}
