//! `shape apply --engine own`: our process shapes, with queues that no kernel has.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::{FAR_END, World, assert_fails, text};

/// Addresses of IPv6, and a network behind this one whose packets get its address (NAT).
const MORE: &str = "ip addr add fd09::1/64 dev v0 nodad && ip -n far addr add fd09::2/64 dev v1 \
     nodad && ip netns add lan && ip link add l0 type veth peer name l1 && ip link set l1 netns \
     lan && ip addr add 10.8.0.1/24 dev l0 && ip link set l0 up && ip -n lan addr add 10.8.0.2/24 \
     dev l1 && ip -n lan link set l1 up && ip -n lan route add default via 10.8.0.1 && echo 1 > \
     /proc/sys/net/ipv4/ip_forward && PATH=$PATH:/usr/sbin:/sbin nft 'add table ip nat; add chain \
     ip nat post { type nat hook postrouting priority 100 ; }; add rule ip nat post oifname v0 \
     masquerade'";

impl World {
    /// A world with a far end, whose kernel lets a process shape.
    fn with_far_end(test: &str) -> Option<Self> {
        let world = Self::new(test)?;
        world.shell(FAR_END);
        let tried = world.own("none", &["--yes"]);
        let errors = text(&tried.stderr);
        if errors.contains("has no TCX links") || errors.contains("/dev/net/tun") {
            eprintln!("SKIPPED {test}: {errors}");
            return None;
        }
        assert!(tried.status.success(), "{errors}");
        world.turn_off();
        Some(world)
    }

    /// Shapes both directions; what is sent so slowly that three packets wait for each other.
    fn own(&self, overhead: &str, more: &[&str]) -> Output {
        let words = ["apply", "--dev", "v0", "--engine", "own", "--up", "200kbit"];
        let queue = ["--down", "20mbit", "--queue", "dualpi2", "--overhead", overhead];
        self.shape(&[&words[..], &queue, more].concat())
    }

    fn turn_off(&self) {
        let off = self.shape(&["off"]);
        assert!(off.status.success(), "{}", text(&off.stderr));
    }

    /// Whether the far end answers.
    fn answers(&self, program: &[&str]) -> bool {
        let ping = [program, &["-q", "-c", "1", "-W", "10"]].concat();
        self.output(Command::new(ping[0]).args(&ping[1..])).status.success()
    }

    /// Sends a signal to the process that has our TUN device.
    fn signal_shaper(&self, signal: &str) {
        let has_it = "cat $p/fdinfo/* 2> /dev/null | grep -q ul-up";
        let found = self.shell(&format!(
            "for p in /proc/[0-9]*; do {has_it} && kill -{signal} ${{p#/proc/}} && echo one; done; \
             true"
        ));
        assert_eq!(found, "one\n", "the premise: one process shapes");
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}: {}", self.state());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn our_process_shapes_both_directions_and_off_leaves_nothing() {
    let test = "our_process_shapes_both_directions_and_off_leaves_nothing";
    let Some(world) = World::with_far_end(test) else { return };
    world.shell(MORE);
    let before = world.state();
    assert!(world.own("docsis", &["--yes"]).status.success());
    assert!(world.answers(&["ping", "10.9.0.2"]) && world.answers(&["ping", "fd09::2"]));
    let from_lan = ["ip", "netns", "exec", "lan", "ping", "10.9.0.2"];
    assert!(world.answers(&from_lan), "forwarded, with another address");
    // The second packet of a burst waits for the first, 58 ms; the queue marks L4S from 1 ms on.
    let burst = "ping -q -l 3 -c 3 -W 10 -Q 1 -s 1400 10.9.0.2";
    world.shell(burst);
    let counter = "awk '/IpExt/ && !n { n = split($0, name) } /IpExt/ { for (i = 1; i <= n; i++) \
                   if (name[i] == \"InCEPkts\") print $i }' /proc/net/netstat | tail -1";
    let marks = format!("ip netns exec far {counter}");
    let marked: u64 = world.shell(&marks).trim().parse().expect("a number");
    assert!(marked > 0, "CE arrives");
    let shown = || text(&world.shape(&["show"]).stdout);
    world.wait_until("the counts", || shown().contains(&format!(", {marked} marked")));
    let shown = shown();
    assert!(shown.contains("v0: dualpi2, confirmed\n  up    0.20 Mbit/s: "), "{shown}");
    assert!(shown.contains("    L4S ") && shown.contains("\n    others "), "{shown}");
    assert!(shown.contains("\n  down  20.00 Mbit/s: 0.0 MB in "), "{shown}");
    assert!(!shown.contains("0.0 MB in 0 packets"), "both directions are counted: {shown}");
    assert_fails(&world.own("docsis", &["--yes"]), 2, "v0 is already shaped by underload");
    assert_fails(&world.apply(&["--yes"]), 2, "v0 is already shaped by underload");
    world.turn_off();
    assert_eq!((world.state(), world.records()), (before, String::new()));
    assert!(world.answers(&["ping", "10.9.0.2"]));
}

#[test]
fn whatever_becomes_of_our_process_the_line_works() {
    let Some(world) = World::with_far_end("whatever_becomes_of_our_process_the_line_works") else {
        return;
    };
    let before = world.state();
    let works = || world.answers(&["ping", "10.9.0.2"]);
    let is_as_before = || world.state() == before && world.records().is_empty();
    assert_fails(&world.own("none", &["--within", "1s"]), 1, "the change was not confirmed");
    assert!(is_as_before(), "{}", world.state());
    // The kernel removes programs and devices, and the next command the record.
    assert!(world.own("none", &["--yes"]).status.success());
    world.signal_shaper("KILL");
    world.wait_until("the devices", || world.state() == before);
    let shown = text(&world.shape(&["show"]).stdout);
    assert!(shown.contains("the process that shaped it has ended: packets pass"), "{shown}");
    assert!(works());
    // A process that is stopped, whose packets wait forever, is killed by `off`.
    assert!(world.own("none", &["--yes"]).status.success());
    world.signal_shaper("STOP");
    world.turn_off();
    assert!(is_as_before() && works(), "{}", world.state());
    assert!(world.own("none", &["--yes"]).status.success());
    world.signal_shaper("TERM");
    world.wait_until("the end by a signal", is_as_before);
    assert!(works());
    assert!(world.own("none", &["--yes"]).status.success());
    world.shell("ip link del v0");
    world.wait_until("the end with the device", || {
        !world.state().contains("ul-") && world.records().is_empty()
    });
}

#[test]
fn what_our_process_cannot_shape_is_refused_with_advice() {
    let Some(world) = World::with_far_end("what_our_process_cannot_shape_is_refused_with_advice")
    else {
        return;
    };
    let before = world.state();
    let apply = |words: &[&str]| {
        let own = ["apply", "--yes", "--engine", "own", "--up", "5mbit"];
        world.shape(&[&own[..], words].concat())
    };
    for (words, expected) in [
        (&["--dev", "lo", "--queue", "bode"][..], "packets of the kind `loopback`; expected"),
        (&["--dev", "v0", "--queue", "bod"], "did you mean `bode`?"),
        (&["--dev", "v0", "--queue", "bode", "--overhead", "adsl-pppoa"], "no cells of ATM"),
    ] {
        assert_fails(&apply(words), 2, expected);
        assert_eq!(world.state(), before, "{words:?}");
    }
    world.shell("tc qdisc add dev v0 root tbf rate 1mbit burst 5k latency 1s");
    assert_fails(&apply(&["--dev", "v0", "--queue", "bode"]), 2, "packets would be shaped twice");
    assert_eq!(world.records(), "");
}
