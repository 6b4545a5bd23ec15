//! Commands behind a link. Each test creates a namespace as the host and runs the `link` example in
//! it, so that the machine's own network is not changed.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use underload_emu::machine::privilege::can_create_namespaces;
use underload_emu::machine::{Namespace, Process};

/// The namespace of the host and the program, or `None` after printing why the test is skipped.
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
    // An address beyond the link, so that there is a route.
    host.configure("addr add 192.0.2.1/32 dev lo\n").expect("an address");
    host.set_parameter("net/ipv4/ip_forward", "0").expect("a switch");
    Some((host, program))
}

/// Returns the output of `script` behind the link given by `arguments`, and its exit status.
fn behind(host: &Namespace, program: &PathBuf, arguments: &[&str], script: &str) -> (String, i32) {
    let mut command = Command::new(program);
    command.args(arguments).args(["--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let pipe = process.child().stdout.take().expect("piped");
    let printed = std::io::read_to_string(pipe).expect("text");
    let status = process.wait_for(Duration::from_mins(1)).expect("waiting").expect("an end");
    (printed, status.code().unwrap_or(-1))
}

/// Returns the tables and forwarding switches of the host, as text.
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
        format!("{} --up 10mbit:delay=20ms -- ping -q -c 1 -W 10 198.19.0.1", program.display());
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
        // 972 bytes, 8 of ICMP, 20 of IP, and 4 that Mahimahi adds.
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
    assert_eq!(status.code(), Some(9), "{status:?}");
    assert_eq!(std::io::read_to_string(pipe).expect("text"), "caught\n");
    assert_eq!(traces(&host), nothing());
}

/// A command that prints that it runs, and then runs until it is ended.
fn lasting(host: &Namespace, program: &PathBuf, script: &str) -> (Process, ChildStdout) {
    let mut command = Command::new(program);
    command.args(["--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let mut pipe = process.child().stdout.take().expect("piped");
    let mut word = [0; 6];
    std::io::Read::read_exact(&mut pipe, &mut word).expect("ready");
    (process, pipe)
}

fn send(process: &mut Process, signal: Signal) {
    kill(Pid::from_raw(process.child().id() as i32), signal).expect("sent");
}

/// Waits until `is_so`.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn after_a_kill_the_kernel_and_the_watcher_clean_up() {
    let test = "after_a_kill_the_kernel_and_the_watcher_clean_up";
    let Some((host, program)) = host(test) else { return };
    let (mut process, pipe) = lasting(&host, &program, "setsid sleep 600 & echo ready; wait");
    let (tables, forwarding) = traces(&host);
    assert!(tables.contains("underload-0"), "the premise: a table is there");
    assert_eq!(forwarding, "1", "the premise: it forwards");
    send(&mut process, Signal::SIGKILL);
    // End of file: the kernel killed the grandchild, which had left the process group.
    std::io::read_to_string(pipe).expect("end of file");
    process.wait().expect("an end");
    wait_until("the table and the switch stay", || traces(&host) == nothing());
}

#[test]
fn after_a_kill_of_both_the_next_start_cleans_up() {
    let test = "after_a_kill_of_both_the_next_start_cleans_up";
    let Some((host, program)) = host(test) else { return };
    let (mut process, pipe) = lasting(&host, &program, "echo ready; sleep 600");
    let main = process.child().id();
    let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
    let children = children.expect("/proc");
    let watcher: i32 = children.trim().parse().expect("the main thread has one child");
    kill(Pid::from_raw(watcher), Signal::SIGKILL).expect("sent");
    send(&mut process, Signal::SIGKILL);
    std::io::read_to_string(pipe).expect("end of file");
    process.wait().expect("an end");
    let (tables, forwarding) = traces(&host);
    assert!(tables.contains("underload-0"), "the premise: a table is left");
    assert_eq!(forwarding, "1");
    behind(&host, &program, &[], "true");
    assert_eq!(traces(&host), nothing());
}

#[test]
fn a_link_that_fails_ends_its_command() {
    let Some((host, program)) = host("a_link_that_fails_ends_its_command") else { return };
    let start = Instant::now();
    let (printed, code) = behind(&host, &program, &[], "ip link delete ul0; exec sleep 50");
    assert!(code != 0 && start.elapsed() < Duration::from_secs(40), "{code} {printed}");
    assert_eq!(traces(&host), nothing());
}

#[test]
fn a_log_of_an_unlimited_direction_ends_with_the_command() {
    let test = "a_log_of_an_unlimited_direction_ends_with_the_command";
    let Some((host, program)) = host(test) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a name");
    let arguments = ["--log", path, "--up", "unlimited"];
    let script = "ping -q -c 1 -W 10 $UNDERLOAD_BASE; exit 5";
    let (printed, code) = behind(&host, &program, &arguments, script);
    assert_eq!(code, 5, "{printed}");
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("a log");
    assert!(read("uplink.log").contains(" + "));
    assert!(!read("uplink.log").contains(" # 1504"), "an unlimited link has no opportunities");
    assert!(read("downlink.log").contains(" # 1504"));
    assert!(read("samples.csv").lines().count() > 2);
}

#[test]
fn logs_that_cannot_be_written_do_not_hold_signals_off() {
    let test = "logs_that_cannot_be_written_do_not_hold_signals_off";
    let Some((host, program)) = host(test) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    // Opening a pipe without a reader blocks.
    let pipe = directory.path().join("uplink.log");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let mut command = Command::new(&program);
    command.arg("--log").arg(directory.path()).args(["--", "true"]);
    let mut process = host.spawn(command).expect("the program");
    let early = process.wait_for(Duration::from_millis(500)).expect("waiting");
    assert!(early.is_none(), "the premise: it hangs");
    wait_until("it does not end", || {
        // The first signal may still reach the command; the second one after its end ends the
        // program.
        let ended = process.wait_for(Duration::from_millis(100)).expect("waiting").is_some();
        if !ended {
            send(&mut process, Signal::SIGTERM);
        }
        ended
    });
    wait_until("the table and the switch stay", || traces(&host) == nothing());
}

#[test]
fn a_command_that_cannot_be_run_has_the_status_that_shells_give() {
    let test = "a_command_that_cannot_be_run_has_the_status_that_shells_give";
    let Some((host, program)) = host(test) else { return };
    for (name, expected) in [("/nonexistent/command", 127), ("/dev/null", 126)] {
        let mut command = Command::new(&program);
        command.args(["--", name]).stderr(Stdio::null());
        let mut process = host.spawn(command).expect("the program");
        let status = process.wait_for(Duration::from_mins(1)).expect("waiting").expect("an end");
        assert_eq!(status.code(), Some(expected), "{name}");
    }
    assert_eq!(traces(&host), nothing());
}

#[test]
fn a_foreign_socket_does_not_block_a_link() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let test = "a_foreign_socket_does_not_block_a_link";
    let Some((host, program)) = host(test) else { return };
    let _sockets: Vec<UnixListener> = host
        .enter(|| {
            let names = ["underload-setup", "underload-0"];
            let addresses = names.map(|name| SocketAddr::from_abstract_name(name).expect("a name"));
            let bind = |address| UnixListener::bind_addr(address).expect("a socket");
            addresses.iter().map(bind).collect()
        })
        .expect("a network");
    let (printed, code) = behind(&host, &program, &[], "echo $UNDERLOAD_BASE");
    assert_eq!((printed.as_str(), code), ("198.19.0.1\n", 0));
}

/// Returns what the program says on stderr while `true` runs behind a link.
fn notes(host: &Namespace, program: &PathBuf) -> String {
    let mut command = Command::new(program);
    command.args(["--", "true"]).stderr(Stdio::piped());
    let mut process = host.spawn(command).expect("the program");
    let pipe = process.child().stderr.take().expect("piped");
    let said = std::io::read_to_string(pipe).expect("text");
    process.wait_for(Duration::from_mins(1)).expect("waiting").expect("an end");
    said
}

#[test]
fn a_firewall_that_drops_the_commands_packets_is_named() {
    let test = "a_firewall_that_drops_the_commands_packets_is_named";
    let Some((host, program)) = host(test) else { return };
    let _beyond = router(&host);
    let rules = |script: &str| {
        let mut nft = Command::new("nft");
        nft.args(["-f", "-"]);
        host.run(nft, &format!("flush ruleset\n{script}")).expect("nft")
    };
    assert_eq!(notes(&host, &program), "");
    // The rules that Tailscale adds on every machine.
    rules(
        "table ip ts { chain i { type filter hook input priority 0; ip saddr 100.64.0.0/10 drop; }; }",
    );
    assert_eq!(notes(&host, &program), "");
    let (out, back) = ("the command sends to", "to the command");
    let beyond = "hosts beyond this machine";
    for (family, hook, rule, what) in [
        // Policies as Docker and ufw set them.
        ("ip", "forward", "policy drop;", &*format!("{out} {beyond}")),
        ("ip", "input", "policy drop;", &*format!("{out} this machine")),
        ("ip6", "forward", "policy drop;", &*format!("{out} {beyond}")),
        ("ip6", "input", "policy drop;", &*format!("{out} this machine")),
        ("inet", "forward", "policy drop;", &*format!("{out} {beyond}")),
        // Only answers are dropped.
        ("ip", "output", r#"oifname "ul*" drop;"#, &*format!("this machine sends {back}")),
        ("ip", "forward", r#"oifname "ul*" drop;"#, &*format!("{beyond} send {back}")),
        ("ip6", "forward", r#"iifname "left" drop;"#, &*format!("{beyond} send {back}")),
    ] {
        rules(&format!(
            "table {family} t {{ chain C {{ type filter hook {hook} priority 0; {rule} }}; }}"
        ));
        let said = notes(&host, &program);
        let policy = if rule.starts_with("policy") { "policy drop of " } else { "" };
        let expected = format!("drops what {what}: {policy}chain C of table {family} t; ");
        assert!(said.contains(&expected) && said.lines().count() == 1, "{expected}: {said}");
        let command = said.split_once("to let it pass: ").expect(&said).1.trim();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        host.run(shell, "").expect(command);
        assert_eq!(notes(&host, &program), "", "{command}");
    }
}

/// A neighbour of `host` that is its default router, and answers every packet that ends there.
fn router(host: &Namespace) -> Namespace {
    let router = neighbour(host, "left", 1);
    router.configure("addr add fd99::2/64 dev host nodad\n").expect("an address");
    host.configure(
        "addr add fd99::1/64 dev left nodad\nroute add default via 10.99.1.2\n\
         route add default via fd99::2\n",
    )
    .expect("routes");
    let switches = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv6/icmp/ratelimit", "0"),
    ];
    router
        .enter(|| {
            for (name, value) in switches {
                std::fs::write(format!("/proc/sys/net/{name}"), value).expect(name);
            }
        })
        .expect("a thread");
    router.configure("route add default via fd99::1\n").expect("a route");
    router
}

/// A neighbour of `host` with the address 10.99.NET.2, where the host has 10.99.NET.1.
fn neighbour(host: &Namespace, name: &str, network: u8) -> Namespace {
    let neighbour = Namespace::create(name).expect("a namespace");
    neighbour
        .enter(|| {
            // `ip` identifies a namespace without a name by a thread in it.
            let thread = std::fs::read_link("/proc/thread-self").expect("/proc");
            let thread = thread.file_name().expect("a number").to_string_lossy().into_owned();
            host.configure(&format!(
                "link add {name} type veth peer name host netns {thread}\n\
                 link set {name} up\naddr add 10.99.{network}.1/24 dev {name}\n"
            ))
        })
        .expect("a thread")
        .expect("a pair of devices");
    let lines = format!(
        "link set host up\naddr add 10.99.{network}.2/24 dev host\n\
         route add default via 10.99.{network}.1\n"
    );
    neighbour.configure(&lines).expect("an address");
    neighbour
}

fn reaches(from: &Namespace, to: &str) -> bool {
    let mut ping = Command::new("ping");
    ping.args(["-q", "-c", "3", "-i", "0.2", "-W", "1", to]);
    from.run(ping, "").is_ok()
}

#[test]
fn a_host_forwards_packets_only_while_the_command_runs() {
    let test = "a_host_forwards_packets_only_while_the_command_runs";
    let Some((host, program)) = host(test) else { return };
    let (left, right) = (neighbour(&host, "left", 1), neighbour(&host, "right", 2));
    let script = "ping -q -c 1 -W 30 10.99.2.2 >&2 && echo ready; read line";
    for was_router in [false, true] {
        let switch = if was_router { "1" } else { "0" };
        host.set_parameter("net/ipv4/ip_forward", switch).expect("a switch");
        // The command reaches what the host reaches, whether or not the host was a router.
        let (mut process, _pipe) = lasting(&host, &program, script);
        assert_eq!(traces(&host).1, "1", "the premise: it forwards");
        assert_eq!(reaches(&left, "10.99.2.2"), was_router, "between neighbours");
        assert_eq!(reaches(&right, "198.19.0.2"), was_router, "to the command");
        drop(process.child().stdin.take());
        process.wait().expect("an end");
        assert_eq!(traces(&host), (String::new(), switch.to_owned()));
    }
}
