//! Whether a connection is metered: paid by the byte, or limited in bytes.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::{fmt, fs};

use super::interfaces::Line;

/// A network interface whose connection is metered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metered {
    pub interface: String,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    NetworkManager,
    /// The hotspot of an Android phone names itself in its DHCP lease.
    Lease,
}

/// How long NetworkManager may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// `ANDROID_METERED` in hexadecimal digits, DHCP option 43 of Android's hotspots.
const ANDROID_METERED: &str = "414e44524f49445f4d455445524544";

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::NetworkManager => "by NetworkManager",
            Source::Lease => "by the phone that shares it",
        };
        write!(f, "{}: the connection is metered, {source}", self.interface)
    }
}

/// Returns the first interface of `line` that NetworkManager calls metered, or whose address is
/// from the hotspot of an Android phone by the lease of systemd-networkd; `None` if neither reports
/// a metered connection.
pub fn metered(line: &Line) -> Option<Metered> {
    line.names().into_iter().find_map(|interface| {
        let source = if by_network_manager(&interface) {
            Source::NetworkManager
        } else if by_lease(&interface) {
            Source::Lease
        } else {
            return None;
        };
        Some(Metered { interface, source })
    })
}

/// Without `nmcli`, without an answer in time, and for "unknown" the connection is not metered.
fn by_network_manager(interface: &str) -> bool {
    let mut command = Command::new("nmcli");
    command.args(["-g", "GENERAL.METERED", "device", "show", interface]).env("LC_ALL", "C");
    first_output(&mut command).is_some_and(|answer| is_yes(&answer))
}

/// Returns the first bytes that a command prints, or `None` if it prints nothing in time.
///
/// Does not wait for the end of its output: a process that the command leaves behind may keep the
/// pipe open.
fn first_output(command: &mut Command) -> Option<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // The answer is a word or two; whatever else runs as `nmcli` may print without an end.
        let mut bytes = [0; 64];
        let length = stdout.read(&mut bytes).unwrap_or(0);
        let _ = sender.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
    });
    let answer = receiver.recv_timeout(PATIENCE).ok();
    let _ = child.kill();
    let _ = child.wait();
    answer
}

/// NetworkManager answers `yes`, `no`, `unknown`, `yes (guessed)` or `no (guessed)`.
fn is_yes(answer: &str) -> bool {
    answer.split_whitespace().next() == Some("yes")
}

fn by_lease(interface: &str) -> bool {
    let Ok(index) = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")) else {
        return false;
    };
    let lease = fs::read_to_string(format!("/run/systemd/netif/leases/{}", index.trim()));
    lease.is_ok_and(|lease| is_of_phone(&lease))
}

fn is_of_phone(lease: &str) -> bool {
    let option = lease.lines().find_map(|line| line.strip_prefix("VENDOR_SPECIFIC="));
    option.is_some_and(|digits| digits.to_ascii_lowercase().contains(ANDROID_METERED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_network_manager_are_read() {
        for (answer, is_metered) in [
            ("yes\n", true),
            ("yes (guessed)\n", true),
            ("no\n", false),
            ("no (guessed)\n", false),
            ("unknown\n", false),
            ("", false),
            ("Error: Device 'eth9' not found.\n", false),
        ] {
            assert_eq!(is_yes(answer), is_metered, "{answer}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_process_left_behind_does_not_delay_the_answer() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 5 & echo yes"]);
        assert_eq!(first_output(&mut command).as_deref(), Some("yes\n"));
    }

    #[test]
    fn an_android_hotspot_is_recognised_by_its_dhcp_lease() {
        let lease = "# This is private data. Do not parse.\nADDRESS=192.168.43.17\n";
        assert!(!is_of_phone(lease));
        let of_phone = format!("{lease}VENDOR_SPECIFIC=414e44524f49445f4d455445524544\n");
        assert!(is_of_phone(&of_phone));
        assert!(!is_of_phone(&format!("{lease}VENDOR_SPECIFIC=01020304\n")));
        let metered = Metered { interface: "wlan0".to_owned(), source: Source::Lease };
        let words = "wlan0: the connection is metered, by the phone that shares it";
        assert_eq!(metered.to_string(), words);
    }
}
