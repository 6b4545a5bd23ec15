//! The right to create namespaces, and how a process gets it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};

/// How this process can create network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Directly: it is root or has the capability.
    Root,
    /// In a user namespace that [`enter`] created; the host's network cannot be reached.
    UserNamespace,
    /// In a user namespace that `pasta` connects to the host's network: it reaches what the host
    /// reaches, and the host itself at the address of its default route.
    Pasta,
}

/// Why namespaces cannot be created, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("a user namespace must be entered before other threads start ({threads} are running)")]
    Threads { threads: usize },
    #[error("creating a user namespace is refused: run as root, or {advice}")]
    Refused {
        source: io::Error,
        /// The setting to change.
        advice: String,
    },
    #[error("{file} cannot be written: run as root")]
    Map { file: &'static str, source: io::Error },
}

/// Ensures that this process can create network namespaces: root can, and other users enter a new
/// user and network namespace in which they are root. Call it first in `main`.
pub fn enter() -> Result<Privilege, PrivilegeError> {
    if can_create_namespaces() {
        return Ok(Privilege::Root);
    }
    let threads = threads();
    if threads > 1 {
        return Err(PrivilegeError::Threads { threads });
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| PrivilegeError::Refused { source: errno.into(), advice: advice(errno) })?;
    map_to_root(user, group)?;
    Ok(Privilege::UserNamespace)
}

/// Counts the threads of this process. A joined thread may still be ending, so this waits for it.
pub(crate) fn threads() -> usize {
    const LOOKS: u32 = 100;
    let count = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    for _ in 0..LOOKS {
        if count() <= 1 {
            return 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    count()
}

/// Whether this process can create network namespaces. Tries it in a separate thread, so that the
/// caller's network does not change.
pub fn can_create_namespaces() -> bool {
    std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).is_ok())
        .join()
        .unwrap_or(false)
}

fn map_to_root(user: Uid, group: Gid) -> Result<(), PrivilegeError> {
    let write = |file: &'static str, text: String| {
        std::fs::write(file, text).map_err(|source| PrivilegeError::Map { file, source })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Returns the setting that forbids user namespaces, as far as the machine shows it.
fn advice(errno: Errno) -> String {
    let is_set = |path: &str, value: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(path))
            .is_ok_and(|text| text.trim() == value)
    };
    if is_set("kernel/unprivileged_userns_clone", "0") {
        return "as root `sysctl kernel.unprivileged_userns_clone=1`".to_owned();
    }
    if is_set("user/max_user_namespaces", "0") || errno == Errno::ENOSPC {
        return "as root `sysctl user.max_user_namespaces=10000`".to_owned();
    }
    if is_set("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "as root `sysctl kernel.apparmor_restrict_unprivileged_userns=0`".to_owned();
    }
    "allow unprivileged user namespaces (in a container: its seccomp profile forbids them)"
        .to_owned()
}

/// Environment variable of a process that `pasta` started, so that it does not start `pasta` again.
/// Commands that this process runs do not get it.
pub(crate) const INSIDE_PASTA: &str = "UNDERLOAD_INSIDE_PASTA";

/// Like [`enter`], but if that would put the host's network out of reach and `pasta` is installed,
/// starts this program again inside a network that `pasta` connects, and does not return.
pub fn enter_with_internet() -> Result<Privilege, PrivilegeError> {
    let is_inside = std::env::var_os(INSIDE_PASTA).is_some();
    if can_create_namespaces() {
        return Ok(if is_inside { Privilege::Pasta } else { Privilege::Root });
    }
    if is_inside {
        return enter();
    }
    if let Ok(program) = std::env::current_exe() {
        let mut pasta = Command::new("pasta");
        pasta.args(["--config-net", "--quiet", "--"]).arg(program);
        pasta.args(std::env::args_os().skip(1)).env(INSIDE_PASTA, "1");
        // Returns only if `pasta` cannot be started; then the link only reaches this machine.
        let _ = pasta.exec();
    }
    enter()
}
