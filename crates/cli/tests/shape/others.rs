//! Other programs, devices and records beside a change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::{BOTH, FIFO, PROGRAM_PATH, World, assert_fails, text};

/// Whether a watcher of this network runs.
fn is_watched(world: &World) -> bool {
    let network = world.shell("stat -Lc %i /proc/self/ns/net");
    let words = format!("\0watch\0/run/underload/shape-{}-", network.trim());
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut lines = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    lines.any(|line| text(&line).contains(&words))
}

/// Programs with rights in this network name devices as they like.
#[test]
fn other_devices_and_records_do_not_stop_undoing() {
    let Some(world) = World::new("other_devices_and_records_do_not_stop_undoing") else { return };
    world.shell("ip link add \"$(printf 'q\\001\\033z')\" type veth peer name w1");
    let other = "n=$(stat -Lc %i /proc/self/ns/net) && mkdir -p -m 700 /run/underload && \
                 echo '{\"version\":9}' > /run/underload/shape-$n-99.json";
    world.shell(other);
    let before = world.state();
    let mut applying = world.start(&["--within", "1s"]);
    world.wait_until_shaped();
    assert_eq!(applying.wait().expect("it ends").code(), Some(1), "it was not confirmed");
    world.wait_for(&before, "undone by the watcher");
    assert!(world.apply(&["--yes"]).status.success());
    let shown = world.shape(&["show"]);
    assert!(text(&shown.stdout).contains("v0: fifo:limit=100p, confirmed"), "{shown:?}");
    assert!(text(&shown.stderr).contains("-99.json cannot be read"), "{shown:?}");
    // The record of the device itself is damaged, after its watcher has seen that it was confirmed.
    while is_watched(&world) {
        world.shell("sleep 0.05");
    }
    world.shell("for r in /run/underload/shape-*[0-9].json; do echo '{' > $r; done");
    assert_fails(&world.shape(&["off"]), 1, "cannot be read");
    let output = world.shape(&["off", "--dev", "v0"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!world.is_shaped() && !world.state().contains("ifb-u"), "{}", world.state());
}

#[test]
fn a_tool_whose_child_keeps_its_output_open_is_abandoned_after_ten_seconds() {
    let name = "a_tool_whose_child_keeps_its_output_open_is_abandoned_after_ten_seconds";
    let Some(world) = World::new(name) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let real = world.shell("PATH=$PATH:/usr/sbin:/sbin command -v tc");
    let script = format!("#!/bin/sh\nsleep 30 &\nexec {} \"$@\"\n", real.trim());
    let path = folder.path().join("tc");
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    let paths = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(PROGRAM_PATH);
    command.args(["shape", "apply", "--yes"]).args(BOTH).args(FIFO).env("PATH", paths);
    assert_fails(&world.output(&mut command), 1, "did not end within 10 s");
    assert_eq!(world.records(), "");
}

#[test]
fn only_one_of_several_processes_shapes() {
    let Some(world) = World::new("only_one_of_several_processes_shapes") else { return };
    let before = world.state();
    let mut all: Vec<_> = (0..4).map(|_| world.start(&["--yes"])).collect();
    let statuses = all.iter_mut().map(|process| process.wait().expect("it ends").code());
    let mut statuses: Vec<_> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [Some(0), Some(2), Some(2), Some(2)]);
    assert!(world.is_shaped());
    assert!(world.shape(&["off"]).status.success());
    assert_eq!(world.state(), before);
}

/// The tools are stubs, because few kernels have BPF queues: `tc` attaches `pfifo` instead.
#[test]
fn a_kernel_queue_that_is_not_added_leaves_the_former_queue_and_no_program() {
    let name = "a_kernel_queue_that_is_not_added_leaves_the_former_queue_and_no_program";
    let Some(world) = World::new(name) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let real = world.shell("PATH=$PATH:/usr/sbin:/sbin command -v tc");
    let (real, path) = (real.trim(), folder.path().display());
    let maps = r#"[{"id":6,"type":"struct_ops","name":"ul_bode","btf_id":9},
        {"id":2,"name":"settings","bytes_value":56,"btf_id":9},
        {"id":3,"name":"queues","btf_id":9}]"#;
    let scripts = [
        ("tc", format!("*ul_bode) {real} qdisc replace dev v0 root pfifo;; *) {real} \"$@\"")),
        (
            "bpftool",
            format!(
                "*unregister*) rm {path}/loaded;; *register*) touch {path}/loaded;; \
                 *show) if [ -e {path}/loaded ]; then echo '{maps}'; fi;; *dump*) echo []"
            ),
        ),
    ];
    for (tool, cases) in scripts {
        let script = format!("#!/bin/sh\ncase \"$*\" in {cases};; esac\n");
        fs::write(folder.path().join(tool), script).expect("a script");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path().join(tool), mode).expect("a mode");
    }
    fs::write(folder.path().join("types"), "\0bpf_qdisc_skb_drop\0").expect("a file");
    world.shell(&format!("mount --bind {path}/types /sys/kernel/btf/vmlinux"));
    let paths = format!("{path}:{}", std::env::var("PATH").unwrap());
    let underload = |words: &[&str]| {
        let mut command = Command::new(PROGRAM_PATH);
        world.output(command.arg("kernel-queue").args(words).env("PATH", &paths))
    };
    world.shell("tc qdisc replace dev v0 root handle 9: pfifo limit 7");
    let device = world.shell("stat -Lc %i /proc/self/ns/net && cat /sys/class/net/v0/ifindex");
    let record = device.trim().replace('\n', "-");
    world.shell(&format!("mkdir -p -m 700 /run/underload/kernel-queue-{record}"));
    let before = world.state();
    let add = ["add", "v0", "bode:rate=20mbit", "--replace"];
    assert_fails(&underload(&add), 1, "Is a directory");
    assert_eq!(world.state(), before);
    assert!(!folder.path().join("loaded").exists());
    // A device took its queue with it.
    fs::write(folder.path().join("loaded"), "").expect("a file");
    assert_fails(&underload(&["remove", "gone"]), 2, "no device `gone`");
    assert!(!folder.path().join("loaded").exists());
}
