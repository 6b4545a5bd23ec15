//! A lab without a gateway: its namespaces and addresses, and that everything ends with its owner.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use underload_emu::machine::privilege::can_create_namespaces;
use underload_emu::machine::{CLIENT_V4, CLIENT_V6, Lab, LabConfig, SERVER_V4};

/// A lab, or `None` after printing why the test is skipped.
fn lab(test: &str) -> Option<Lab> {
    if !can_create_namespaces() {
        eprintln!("SKIPPED {test}: this process may not create network namespaces (run as root)");
        return None;
    }
    Some(Lab::create(&LabConfig::default()).expect("a lab"))
}

#[test]
fn each_side_has_its_addresses_and_only_those() {
    let Some(lab) = lab("each_side_has_its_addresses_and_only_those") else { return };
    let (own_v4, own_v6, foreign) = lab
        .client()
        .enter(|| {
            let bind = |address: &str| UdpSocket::bind(address).is_ok();
            let v6 = format!("[{CLIENT_V6}]:0");
            (bind(&format!("{CLIENT_V4}:0")), bind(&v6), bind(&format!("{SERVER_V4}:0")))
        })
        .expect("entering the client");
    assert!(own_v4 && own_v6 && !foreign, "{own_v4} {own_v6} {foreign}");
}

#[test]
fn sockets_made_inside_work_outside() {
    let Some(lab) = lab("sockets_made_inside_work_outside") else { return };
    let listener = lab.server().enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err(), "it is inside");
    let connected = lab.server().enter(|| TcpStream::connect(address)).unwrap();
    assert!(connected.is_ok());
    assert!(listener.accept().is_ok());
}

#[test]
fn congestion_control_is_the_named_one() {
    let Some(lab) = lab("congestion_control_is_the_named_one") else { return };
    let mut show = Command::new("ip");
    show.args(["route", "get", &SERVER_V4.to_string()]);
    let route = lab.client().run(show, "").expect("ip route");
    assert!(route.contains("congctl cubic"), "{route}");
}

#[test]
fn a_refused_congestion_control_is_named() {
    if lab("a_refused_congestion_control_is_named").is_none() {
        return;
    }
    let config = |name: &str| LabConfig {
        congestion_control: Some(name.to_owned()),
        ..LabConfig::default()
    };
    let error = Lab::create(&config("cubic; true")).unwrap_err().to_string();
    assert!(error.contains("congestion_control is cubic; true"), "{error}");
    let error = Lab::create(&config("nonesuch")).unwrap_err().to_string();
    assert!(error.contains("congestion_control is nonesuch: accepted is one of"), "{error}");
    assert!(error.contains("reno"), "{error}");
}

#[test]
fn commands_and_their_children_end_with_the_lab() {
    let Some(lab) = lab("commands_and_their_children_end_with_the_lab") else { return };
    let mut command = Command::new("sh");
    // The grandchild leaves the process group, has the pipe open, and would run for a minute.
    command.args(["-c", "setsid sleep 60 & echo started; wait"]).stdout(Stdio::piped());
    let mut process = lab.client().spawn(command).expect("sh");
    let mut pipe = process.child().stdout.take().expect("piped");
    let mut word = [0; 8];
    std::io::Read::read_exact(&mut pipe, &mut word).expect("a word");
    let before = Instant::now();
    drop((process, lab));
    // End of file: no process has the other end open.
    let rest = std::io::read_to_string(pipe).expect("end of file");
    assert_eq!(rest, "");
    assert!(before.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_lab_may_end_before_its_commands_are_dropped() {
    let Some(lab) = lab("a_lab_may_end_before_its_commands_are_dropped") else { return };
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut process = lab.client().spawn(command).expect("sleep");
    drop(lab);
    let status = process.wait_for(Duration::from_secs(20)).expect("waiting");
    assert!(status.is_some_and(|status| !status.success()), "killed: {status:?}");
}
