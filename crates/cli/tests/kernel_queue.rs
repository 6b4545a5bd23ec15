//! `underload kernel-queue`: what it refuses, and that a refused command changes nothing.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

fn underload(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_underload"));
    program.arg("kernel-queue").args(arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Queues of the loopback device, and the programs that are pinned.
fn traces() -> String {
    let script = "tc qdisc show dev lo; ls /sys/fs/bpf 2>/dev/null";
    let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_queue_without_a_bpf_program_is_refused_first() {
    for (spec, expected) in [
        ("bode:ecn=on", "ecn=on: a BPF queue cannot mark packets"),
        ("fq_codel", "expected bode or docsis-pie"),
        ("bode:bound=1h", "bound"),
        ("docsis-pie", "rate"),
    ] {
        for action in ["add", "change"] {
            let output = underload(&[action, "lo", spec]);
            assert_eq!(output.status.code(), Some(2), "{spec}: {}", errors(&output));
            assert!(errors(&output).contains(expected), "{spec}: {}", errors(&output));
        }
    }
}

#[test]
fn a_kernel_without_bpf_queues_is_named_and_nothing_is_left() {
    const NAME: &str = "a_kernel_without_bpf_queues_is_named_and_nothing_is_left";
    let types = std::fs::read("/sys/kernel/btf/vmlinux");
    let missing = match &types {
        Err(_) => "CONFIG_DEBUG_INFO_BTF",
        Ok(types) if types.split(|byte| *byte == 0).any(|name| name == b"bpf_qdisc_skb_drop") => {
            eprintln!("SKIPPED {NAME}: this kernel has BPF queues");
            return;
        }
        Ok(_) => "CONFIG_NET_SCH_BPF",
    };
    let before = traces();
    let actions: [&[&str]; 4] = [
        &["add", "lo", "bode:bound=20ms,rate=20mbit"],
        &["change", "lo", "docsis-pie:rate=10mbit"],
        &["show"],
        &["remove", "lo"],
    ];
    for arguments in actions {
        let output = underload(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(missing), "{arguments:?}: {}", errors(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(traces(), before);
}
