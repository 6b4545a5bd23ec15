//! Tells the program what its system has: sockets, network namespaces.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(namespaces, shaping, sockets)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_UNIX").is_some() {
        println!("cargo::rustc-cfg=sockets");
    }
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cfg=shaping");
    }
    let live = std::env::var_os("CARGO_FEATURE_LIVE").is_some();
    if live && std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cfg=namespaces");
    }
}
