//! Commands behind a link. Each test makes a namespace that plays the host, and runs the `link`
//! example in it: the machine's own network is not touched.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use underload_emu::namespace::Namespace;
use underload_emu::privilege::can_create_namespaces;

/// A host to play in and the program, or `None` after saying why the test cannot run.
fn host(test: &str) -> Option<(Namespace, PathBuf)> {
    if !can_create_namespaces() {
        eprintln!("SKIPPED {test}: this process may not create network namespaces (run as root)");
        return None;
    }
    if Command::new("nft").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED {test}: nft is not installed");
        return None;
    }
    let test_program = std::env::current_exe().expect("a path");
    let program = test_program.parent().and_then(|deps| deps.parent()).expect("target directory");
    let program = program.join("examples/link");
    if !program.exists() {
        eprintln!("SKIPPED {test}: {} is not built (cargo build --examples)", program.display());
        return None;
    }
    let host = Namespace::create("host").expect("a namespace");
    // An address beyond the link, so that there is something to route to.
    host.configure("addr add 192.0.2.1/32 dev lo\n").expect("an address");
    host.set_parameter("net/ipv4/ip_forward", "0").expect("a switch");
    Some((host, program))
}

/// What `script` prints, and its exit code, behind the link given by `arguments`.
fn behind(host: &Namespace, program: &PathBuf, arguments: &[&str], script: &str) -> (String, i32) {
    let mut command = Command::new(program);
    command.args(arguments).args(["--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let pipe = process.child().stdout.take().expect("piped");
    let printed = std::io::read_to_string(pipe).expect("text");
    let status = process.wait_for(Duration::from_mins(1)).expect("waiting").expect("an end");
    (printed, status.code().unwrap_or(-1))
}

/// Tables and forwarding of the host, as text.
fn traces(host: &Namespace) -> (String, String) {
    let mut nft = Command::new("nft");
    nft.args(["list", "tables"]);
    let tables = host.run(nft, "").expect("nft");
    let forwarding = host.enter(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward"));
    (tables, forwarding.unwrap().unwrap().trim().to_owned())
}

fn nothing() -> (String, String) {
    (String::new(), "0".to_owned())
}

#[test]
fn the_command_reaches_the_host_and_its_status_is_ours() {
    let Some((host, program)) = host("the_command_reaches_the_host_and_its_status_is_ours") else {
        return;
    };
    let script = "ping -q -c 1 -W 10 $UNDERLOAD_BASE && ping -q -c 1 -W 10 192.0.2.1 && exit 7";
    let (printed, code) = behind(&host, &program, &["--up", "10mbit:delay=15ms"], script);
    assert_eq!(code, 7, "{printed}");
    assert_eq!(printed.matches(" 0% packet loss").count(), 2, "{printed}");
    let least = printed.split("rtt min/avg/max/mdev = ").nth(1).and_then(|t| t.split('/').next());
    let least: f64 = least.and_then(|text| text.parse().ok()).expect(&printed);
    assert!(least >= 15.0, "{printed}");
    assert_eq!(traces(&host), nothing());
}

#[test]
fn ipv6_reaches_the_host() {
    let Some((host, program)) = host("ipv6_reaches_the_host") else { return };
    let script = "ping -q -c 1 -W 10 fd75:6c:1::1";
    let (printed, code) = behind(&host, &program, &["--down", "10mbit:delay=5ms"], script);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains(" 0% packet loss"), "{printed}");
}

#[test]
fn links_nest_and_their_delays_add_up() {
    let Some((host, program)) = host("links_nest_and_their_delays_add_up") else { return };
    let inner =
        format!("{} --up 10mbit:delay=20ms -- ping -q -c 1 -W 10 100.126.0.1", program.display());
    let (printed, code) = behind(&host, &program, &["--up", "10mbit:delay=15ms"], &inner);
    assert_eq!(code, 0, "{printed}");
    let least = printed.split("rtt min/avg/max/mdev = ").nth(1).and_then(|t| t.split('/').next());
    let least: f64 = least.and_then(|text| text.parse().ok()).expect(&printed);
    assert!(least >= 35.0, "{printed}");
    assert_eq!(traces(&host), nothing());
}

#[test]
fn the_log_has_every_packet_of_the_command() {
    let Some((host, program)) = host("the_log_has_every_packet_of_the_command") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a name");
    let script = "for i in 1 2 3; do ping -q -c 1 -W 10 -s 972 $UNDERLOAD_BASE; done";
    let (printed, code) = behind(&host, &program, &["--log", path], script);
    assert_eq!(code, 0, "{printed}");
    for direction in ["uplink", "downlink"] {
        let text = std::fs::read_to_string(directory.path().join(format!("{direction}.log")));
        let text = text.expect("a log");
        assert!(text.starts_with("# mahimahi mm-link ("), "{text}");
        // 972 bytes, 8 of ICMP, 20 of IP and 4 as Mahimahi counts.
        assert_eq!(text.matches(" + 1004\n").count(), 3, "{text}");
        assert_eq!(text.matches(" - 1004 ").count(), 3, "{text}");
        assert!(text.contains(" # 1504\n"));
        let times = text.lines().filter(|line| !line.starts_with('#'));
        let times: Vec<u64> =
            times.filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
        assert!(times.is_sorted(), "{text}");
    }
    let samples = std::fs::read_to_string(directory.path().join("samples.csv")).expect("samples");
    assert!(samples.lines().count() > 2);
}

#[test]
fn a_signal_goes_to_the_command() {
    let Some((host, program)) = host("a_signal_goes_to_the_command") else { return };
    let script = "trap 'echo caught; exit 9' TERM; echo ready; sleep 30 & wait";
    let mut command = Command::new(&program);
    command.args(["--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let mut pipe = process.child().stdout.take().expect("piped");
    let mut word = [0; 6];
    std::io::Read::read_exact(&mut pipe, &mut word).expect("ready");
    kill(Pid::from_raw(process.child().id() as i32), Signal::SIGTERM).expect("sent");
    let status = process.wait_for(Duration::from_secs(20)).expect("waiting").expect("an end");
    assert_eq!(status.code(), Some(9));
    assert_eq!(std::io::read_to_string(pipe).expect("text"), "caught\n");
    assert_eq!(traces(&host), nothing());
}

#[test]
fn after_a_kill_the_kernel_and_the_next_start_clean_up() {
    let test = "after_a_kill_the_kernel_and_the_next_start_clean_up";
    let Some((host, program)) = host(test) else { return };
    let mut command = Command::new(&program);
    let script = "setsid sleep 60 & echo ready; wait";
    command.args(["--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let mut pipe = process.child().stdout.take().expect("piped");
    let mut word = [0; 6];
    std::io::Read::read_exact(&mut pipe, &mut word).expect("ready");
    kill(Pid::from_raw(process.child().id() as i32), Signal::SIGKILL).expect("sent");
    let before = Instant::now();
    // End of file: the kernel ended the grandchild that had left the process group.
    std::io::read_to_string(pipe).expect("end of file");
    assert!(before.elapsed() < Duration::from_secs(30));
    process.wait().expect("an end");
    let (tables, forwarding) = traces(&host);
    assert!(tables.contains("underload-0"), "the premise: a table is left");
    assert_eq!(forwarding, "1");
    behind(&host, &program, &[], "true");
    assert_eq!(traces(&host), nothing());
}
