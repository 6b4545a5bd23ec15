//! Tells the program which commit it was built from, and what its system has.

use std::path::Path;

mod commit;

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rustc-env=UNDERLOAD_COMMIT={}", commit::commit(&root));
    for path in commit::watched(&root) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
