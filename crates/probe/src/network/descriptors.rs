//! How many sockets and files this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors (`RLIMIT_NOFILE`) to `wanted`, or as far as the hard
/// limit allows. Returns the limit that holds then.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let raised = wanted.min(hard);
    if raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok() {
        return raised;
    }
    soft
}
