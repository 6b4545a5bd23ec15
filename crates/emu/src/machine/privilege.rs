//! What a process needs before it may create namespaces, and how it gets it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};

/// How this process may create network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// As it stands: it is root, or has the capability.
    Root,
    /// By a user namespace that [`enter`] created; the host's network is out of reach.
    UserNamespace,
    /// By a user namespace that `pasta` connects to the host's network: what the host reaches is
    /// reached, and the host itself at the address of its default route.
    Pasta,
}

/// Why namespaces cannot be created, and what would help.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// A user namespace can only be entered before the first thread starts.
    #[error("a user namespace must be entered before other threads start ({threads} are running)")]
    Threads {
        /// Threads of this process.
        threads: usize,
    },
    /// The machine forbids user namespaces to users.
    #[error("creating a user namespace is refused: run as root, or {advice}")]
    Refused {
        /// The error of the system call.
        source: io::Error,
        /// The setting to change.
        advice: String,
    },
    /// The user namespace exists but its user table could not be written.
    #[error("{file} cannot be written: run as root")]
    Map {
        /// The file, by the path that was opened.
        file: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Makes sure that this process may create network namespaces: at once as root, otherwise by a new
/// user and network namespace in which the user is root. Call it first in `main`.
///
/// # Errors
/// Where the machine refuses user namespaces, the error names the setting; where threads already
/// run, it says so.
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

/// Threads of this process. One that has been joined may still be on its way out: it is given time.
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

/// Whether this process may create network namespaces as it stands. Tried in a thread of its own,
/// so that the caller's network does not change.
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

/// The setting that stands in the way, as far as the machine tells.
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

/// Set for a process that `pasta` was asked to start, so that it is not asked again, and not for
/// what that process starts.
pub(crate) const INSIDE_PASTA: &str = "UNDERLOAD_INSIDE_PASTA";

/// The same as [`enter`], but where it would leave the host's network out of reach and `pasta` is
/// installed, starts this program again inside a network that `pasta` connects, and does not
/// return.
///
/// # Errors
/// As [`enter`].
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
        // Returns only where pasta cannot be started; then the link leads to this machine alone.
        let _ = pasta.exec();
    }
    enter()
}
