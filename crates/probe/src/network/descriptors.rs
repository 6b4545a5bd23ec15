//! The limit of open sockets and files of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors (`RLIMIT_NOFILE`) to `wanted`, at most to the hard
/// limit. Returns the resulting limit.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let raised = wanted.min(hard);
    if raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok() {
        return raised;
    }
    soft
}
