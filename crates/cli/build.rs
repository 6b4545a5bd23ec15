//! Tells the program which commit it was built from, and what its system has.

use std::process::Command;

fn main() {
    // What opens sockets, and what runs between network namespaces: where the system has such.
    println!("cargo::rustc-check-cfg=cfg(namespaces, sockets)");
    if std::env::var_os("CARGO_CFG_UNIX").is_some() {
        println!("cargo::rustc-cfg=sockets");
    }
    let live = std::env::var_os("CARGO_FEATURE_LIVE").is_some();
    if live && std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cfg=namespaces");
    }
    let commit = git(&["rev-parse", "HEAD"]).map_or("unknown".to_owned(), |commit| {
        match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if changes.is_empty() => commit,
            _ => format!("{commit}-dirty"),
        }
    });
    println!("cargo::rustc-env=UNDERLOAD_COMMIT={commit}");
    for name in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
