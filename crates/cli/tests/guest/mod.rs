//! The kernel for tests that start a guest.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::path::{Path, PathBuf};

/// Returns the kernel of the variable `UNDERLOAD_KERNEL`, else the one that `cargo xtask kernel`
/// built here; `None` after printing that the test is skipped.
pub fn kernel(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel/linux");
    let named = std::env::var_os("UNDERLOAD_KERNEL").map(PathBuf::from);
    let found = named.or_else(|| built.is_file().then_some(built));
    if found.is_none() {
        eprintln!("SKIPPED {test}: no kernel (`cargo xtask kernel` builds one)");
    }
    found
}
