//! Tests that need a kernel of 7.0 or newer, or its virtual time.

use std::fmt::Write as _;
use std::time::Duration;

use underload_record::schema::Direction;

use super::{
    BLOATED_MODEM, PROGRAM_PATH, added_ms, course, guest, in_guest, in_guest_within, lines,
};

/// With a `tc` that is older than `cake_mq` (iproute2 7.0) the command refuses it, and changes
/// nothing.
#[test]
fn cake_with_a_part_for_each_queue_shapes_in_the_guest_and_is_restored() {
    let Some(kernel) =
        guest::kernel("cake_with_a_part_for_each_queue_shapes_in_the_guest_and_is_restored")
    else {
        return;
    };
    let extensions = std::env::var("TC_LIB_DIR").unwrap_or_default();
    let out = in_guest(
        &kernel,
        &format!(
            "[ -z '{extensions}' ] || export TC_LIB_DIR='{extensions}'\n\
             ip link del v0\nip link add v0 numtxqueues 4 type veth peer name v1\n\
             ip link set v0 up\nip link set v1 up\nip addr add 10.0.0.1/24 dev v0\n\
             state() {{ tc -j -d qdisc show dev v0; ip -j link | grep -c ifb-u; }}\n\
             begin=$(state)\n\
             underload shape apply --dev v0 --up 20mbit --down 30mbit --queue cake_mq --yes\n\
             ping -c 1 -W 1 10.0.0.2\nunderload shape show\ntc qdisc show dev v0\n\
             underload shape off\n[ \"$begin\" = \"$(state)\" ] && echo off: as before\n\
             underload shape apply --dev lo --up 20mbit --queue cake_mq --yes\n\
             tc qdisc replace dev v0 root handle 1: cake_mq bandwidth 9mbit\nforeign=$(state)\n\
             underload shape apply --dev v0 --up 20mbit --yes\n\
             underload shape apply --dev v0 --up 20mbit --replace --yes\nunderload shape off\n\
             [ \"$foreign\" = \"$(state)\" ] && echo foreign: as before\n"
        ),
    );
    eprintln!("{out}");
    assert!(out.contains("\noff: as before\n"), "{out}");
    assert!(out.contains("lo has one transmit queue"), "{out}");
    if out.contains("this `tc` is older than the queue `cake_mq`") {
        return;
    }
    assert!(out.contains("v0: cake_mq, confirmed\n  up    20.00 Mbit/s: "), "{out}");
    assert!(out.contains("\n  down  30.00 Mbit/s: "), "{out}");
    assert!(out.contains("qdisc cake_mq 756c: root"), "{out}");
    assert!(out.contains("underload did not set up: `cake_mq 1:` with 9000 kbit/s"), "{out}");
    assert!(out.contains("\nforeign: as before\n"), "{out}");
}

/// `cargo xtask bench followed-live`: plays the lines of `cargo xtask bench followed-lines` that
/// have steps in a guest, whose kernel has CAKE and whose time is virtual, and compares rate and
/// delay with the simulator's.
#[test]
#[ignore = "prints a table within an hour"]
fn courses_in_a_guest_are_those_of_the_simulator() {
    const SECONDS: usize = 60;
    let Some(kernel) = guest::kernel("courses_in_a_guest") else { return };
    let mut far = Vec::new();
    eprintln!(
        "| line | simulated, Mbit/s | guest | ratio | p99 above idle, ms: simulated | guest |"
    );
    eprintln!("|---|---:|---:|---:|---:|---:|");
    for line in lines::lines(3_001) {
        let Some(script) = course_script(&line, SECONDS) else { continue };
        let simulated = course::simulate(&line, course::Rule::Follower, SECONDS);
        let out = in_guest_within(Duration::from_mins(30), &kernel, &script);
        let [added, ..] = added_ms(&out)[..] else { panic!("{out}") };
        let rate = out.split(" Mbit/s").next().and_then(|text| text.rsplit(' ').next());
        let rate: f64 = rate.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{out}"));
        let ratio = rate / simulated.goodput;
        eprintln!(
            "| {} ({}) | {:.1} | {rate:.1} | {ratio:.2} | {:.0} | {added} |",
            line.name, line.seed, simulated.goodput, simulated.p99_ms
        );
        if !(0.9..=1.1).contains(&ratio) {
            far.push(line.name);
        }
    }
    assert!(far.is_empty(), "more than 10 % from the simulator: {far:?}");
}

/// Returns the script that plays a line's steps with the kernel's token bucket while `shape auto`
/// follows it; `None` for a line without steps.
fn course_script(line: &course::Line, seconds: usize) -> Option<String> {
    let (loaded, way) = match line.loaded {
        Direction::Up => (0, "up"),
        Direction::Down => (1, "down"),
    };
    let change = |way: usize, rate: &str| {
        let (device, limit) = (["m0", "v1"][way], line.buffers[way]);
        format!(
            "tc -n modem qdisc change dev {device} root tbf rate {rate} burst 5k limit {limit}\n"
        )
    };
    let steps = line.links[loaded].strip_prefix("steps:")?;
    let (mut script, mut now_ms) = (String::new(), 0);
    for step in steps.split(',').filter(|step| !step.starts_with("delay")) {
        let (at, rate) = step.split_once("ms=")?;
        let at_ms: u32 = at.parse().ok()?;
        // The bucket cannot stop: a packet in a minute comes close.
        let rate = if rate == "0bit" { "200bit" } else { rate };
        let wait_ms = at_ms - now_ms;
        let _ = write!(
            script,
            "sleep {}.{:03}\n{}",
            wait_ms / 1_000,
            wait_ms % 1_000,
            change(loaded, rate)
        );
        now_ms = at_ms;
        if now_ms > (seconds as u32 + 30) * 1_000 {
            break;
        }
    }
    let other = 1 - loaded;
    let constant = change(other, ["10mbit", "50mbit"][other]);
    let [(up_min, up_max), (down_min, down_max)] = line.bounds;
    Some(format!(
        "program={PROGRAM_PATH}\n{BLOATED_MODEM}\
         tc -n far qdisc change dev s0 root netem delay 27ms limit 10000\n{constant}\
         (\n{script}) &\n\
         underload shape auto --dev v0 --reflector 10.0.1.2 --up-min {up_min}mbit --up-max \
         {up_max}mbit --down-min {down_min}mbit --down-max {down_max}mbit --yes > /run/followed \
         2>&1 &\nsleep 4\n\
         underload measure 10.0.1.2 --{way} --idle 1s --duration {seconds}s -q | \
         grep 'adds .* grade'\n"
    ))
}
