//! The process that shapes, as other processes see it: its TUN devices end with it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::now_ms;

/// How long a process may take to find that its record is gone, in milliseconds.
const PATIENCE_MS: u64 = 2_000;

/// Waits until the process that has the TUN devices `tuns` ends, whose record was removed. A
/// process that does not, because it is stopped for example, is killed. Returns whether it ended.
pub fn end(tuns: &[String; 2]) -> bool {
    let has_ended = || tuns.iter().all(|tun| if_nametoindex(tun.as_str()).is_err());
    for _ in 0..2 {
        let deadline_ms = now_ms() + PATIENCE_MS;
        while !has_ended() && now_ms() < deadline_ms {
            sleep(Duration::from_millis(10));
        }
        if has_ended() {
            return true;
        }
        if let Some(process) = owner(&tuns[0]) {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
    has_ended()
}

/// Returns the process of this network that has the TUN device `tun`.
fn owner(tun: &str) -> Option<Pid> {
    let network = |process: &Path| fs::metadata(process.join("ns/net")).ok().map(|it| it.ino());
    let here = network(Path::new("/proc/self"))?;
    let line = format!("iff:\t{tun}");
    let has_tun = |process: &Path| {
        let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let mut texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.any(|text| text.lines().any(|known| known == line))
    };
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let path = entry.path();
        (network(&path) == Some(here) && has_tun(&path)).then(|| Pid::from_raw(number))
    })
}
