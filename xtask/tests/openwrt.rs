//! Tests the command lines for OpenWrt's settings: runs the init script in a shell, with
//! replacements for OpenWrt's functions.

#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::process::Command;

/// OpenWrt's functions, on settings that are lines of `SECTION.OPTION=VALUE`, with `NEWLINE` for a
/// line feed in a value; the words that procd would get are printed, each in brackets.
const STAND_INS: &str = r#"
settings() { printf '%s\n' "$SETTINGS"; }
option() { settings | sed -n "s/^$1\.$2=//p"; }
config_load() { :; }
config_foreach() { for it in $(settings | sed 's/\..*//' | sort -u); do "$1" "$it"; done; }
config_get() {
    value=$(option "$2" "$3" | head -n 1 | sed 's/NEWLINE/\n/g')
    eval "$1=\${value:-\${4-}}"
}
config_get_bool() {
    config_get "$@"
    eval "case \$$1 in 1 | on | true | yes | enabled) $1=1 ;; *) $1=0 ;; esac"
}
config_list_foreach() { option "$1" "$2" | while IFS= read -r it; do "$3" "$it"; done; }
procd_open_instance() { printf 'instance %s:' "$1"; }
procd_set_param() { [ "$1" != command ] || { shift; words "$@"; }; }
procd_append_param() { shift; words "$@"; }
procd_close_instance() { echo; }
words() { for word in "$@"; do printf ' [%s]' "$word"; done; }
logger() { shift 4; printf 'log: %s\n' "$*"; }
"#;
/// The script without its first line, which names an interpreter that only OpenWrt has.
const SCRIPT: &str = include_str!("../../packaging/openwrt/underload/files/underload.init");

/// Returns the shells of this machine to test: `sh`, and BusyBox's, which routers have.
fn shells() -> Vec<Vec<&'static str>> {
    let mut shells = Vec::new();
    for shell in [vec!["sh"], vec!["busybox", "ash"]] {
        let mut command = Command::new(shell[0]);
        let works = command.args(&shell[1..]).args(["-c", ":"]).status();
        if works.is_ok_and(|status| status.success()) {
            shells.push(shell);
        } else {
            eprintln!("SKIPPED openwrt in {shell:?}: not here (Debian: busybox-static)");
        }
    }
    shells
}

/// Returns the words that procd gets, from every installed shell.
fn told(settings: &str) -> String {
    let program = format!("{STAND_INS}{SCRIPT}\nstart_service\n");
    let mut answers = Vec::new();
    for shell in shells() {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args(["-eu", "-c", &program]).env("SETTINGS", settings);
        let output = command.output().expect("a shell");
        assert!(output.status.success(), "{shell:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{shell:?}: {output:?}");
        answers.push(String::from_utf8(output.stdout).expect("text"));
    }
    let first = answers.first().cloned().expect("a shell");
    assert!(answers.iter().all(|answer| *answer == first), "{answers:?}");
    first
}

#[test]
fn each_setting_becomes_one_argument() {
    let told = told(
        "home.enabled=1\nhome.host=server.example\nhome.out=/mnt/my disk/$(reboot)\nhome.every=2h\n\
         home.direction=up\nhome.tier=40mbit/10mbit\nhome.class=0\nhome.class=45\n\
         home.family=ipv6\nhome.keep=90d\nhome.token_file=/etc/token",
    );
    assert_eq!(
        told,
        "instance home: [/usr/bin/underload] [measure] [server.example] [--every=2h] \
         [--out=/mnt/my disk/$(reboot)] [--jitter] [--up] [--ipv6] [--keep=90d] \
         [--tier=40mbit/10mbit] [--token-file=/etc/token] [--class=0] [--class=45]\n"
    );
}

#[test]
fn no_value_becomes_a_command_another_option_or_another_line_of_the_log() {
    for value in [
        "$(touch /tmp/x)", "`reboot`", "a b  c", "'; reboot; '", "\"; reboot; \"", "*", "/etc/*",
        "\\n\\0$HOME${HOME}", "--help", "-x", "aNEWLINEb", "é\u{1b}[2J",
    ] {
        let shown = value.replace("NEWLINE", "\n");
        let told = told(&format!(
            "home.enabled=1\nhome.host=h\nhome.out={value}\nhome.every={value}\n\
             home.keep={value}\nhome.token_file={value}\nhome.class={value}\n\
             other.enabled=1\nother.host=h\nother.out=/o\nother.family={value}"
        ));
        // In this test's configuration, a list has one value per line.
        let class = value;
        let logged: String = shown
            .chars()
            .map(|letter| if letter.is_ascii_control() { '?' } else { letter })
            .collect();
        let words = format!(
            "instance home: [/usr/bin/underload] [measure] [h] [--every={shown}] \
             [--out={shown}] [--jitter] [--keep={shown}] [--token-file={shown}] \
             [--class={class}]\n\
             log: section 'other': option family is ipv4 or ipv6, not '{logged}'\n"
        );
        assert_eq!(told, words);
    }
}

#[test]
fn sections_that_are_off_start_nothing_and_faulty_ones_say_why() {
    let good = "host=a.example\nGOOD.out=/mnt/a".replace("GOOD", "b");
    assert_eq!(told(&format!("a.enabled=0\na.host=a.example\na.out=/mnt/a\nb.{good}")), "");
    let faulty = told("a.enabled=1\na.host=a.example\nb.enabled=1\nb.host=-x\nb.out=/mnt/b");
    let faults = "log: section 'a': option host and option out are needed\n\
                  log: section 'b': option host '-x' is no host\n";
    assert_eq!(faulty, faults);
    let direction = told("a.enabled=1\na.host=h\na.out=/o\na.direction=sideways");
    let fault = "log: section 'a': option direction is up, down or both, not 'sideways'\n";
    assert_eq!(direction, fault);
    let plain = told("a.enabled=yes\na.host=h\na.out=/o\na.jitter=0");
    let words = "instance a: [/usr/bin/underload] [measure] [h] [--every=4h] [--out=/o]\n";
    assert_eq!(plain, words);
}
