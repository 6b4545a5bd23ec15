//! Cargo for other machines: by an installed target, or by a program from the environment.
//!
//! `UNDERLOAD_CARGO_TARGET_NAME` names a program that replaces `cargo` for that target and chooses
//! linker, C compiler and standard library; `packaging/cargo-zig` is one.

use std::path::Path;
use std::process::Command;

/// Returns the Cargo command for a target, or a sentence with what is missing and how to get it.
pub fn cargo(target: &str) -> Result<Command, String> {
    let variable = variable(target);
    if let Some(program) = std::env::var_os(&variable) {
        return Ok(Command::new(program));
    }
    if is_installed(target) {
        return Ok(Command::new("cargo"));
    }
    Err(format!(
        "this Rust has no {target}; rustup target add {target}, or {variable}=PROGRAM, which \
         stands for cargo"
    ))
}

/// Returns the variable that names a replacement of Cargo.
fn variable(target: &str) -> String {
    format!("UNDERLOAD_CARGO_{}", target.to_uppercase().replace('-', "_"))
}

/// Whether the toolchain has the target's standard library.
pub fn is_installed(target: &str) -> bool {
    let asked = ["--print", "target-libdir", "--target", target];
    let output = Command::new("rustc").args(asked).output();
    output.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&folder).is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_target_is_reported_with_how_to_install_it() {
        let told = cargo("z80-unknown-none").unwrap_err();
        assert!(told.contains("rustup target add z80-unknown-none"), "{told}");
        assert!(told.contains("UNDERLOAD_CARGO_Z80_UNKNOWN_NONE="), "{told}");
    }
}
