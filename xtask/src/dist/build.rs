//! Static programs for a target, built by any toolchain for it on this machine.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Built, Program, Target};
use crate::cargo::succeed;
use crate::targets;

/// A run of Cargo, and its programs with Cargo's names.
pub struct Step {
    /// Arguments of `cargo build` that select packages and binaries.
    pub arguments: &'static [&'static str],
    programs: &'static [(&'static str, Program)],
}

/// The agent is built with the whole program, which has all of its dependencies. The fleet program
/// is built alone, because its features of shared libraries would get into the others.
pub const STEPS: [Step; 3] = [
    Step {
        arguments: &["--package", "underload", "--package", "underload-agent", "--bins"],
        programs: &[("underload", Program::Whole), ("underload-agent", Program::Agent)],
    },
    Step {
        arguments: &["--package", "underload-fleet-cli", "--bins"],
        programs: &[("underload-fleet", Program::Fleet)],
    },
    Step {
        arguments: &["--package", "underload", "--no-default-features", "--bins"],
        programs: &[("underload", Program::Measuring)],
    },
];

pub fn place(folder: &Path, program: Program, target: Target) -> PathBuf {
    folder.join(format!("{}-{}-linux", program.name(), target.machine))
}

/// Builds every program for a target; the inner error names what this machine lacks.
pub fn all(
    target: Target,
    folder: &Path,
    epoch: u64,
) -> anyhow::Result<Result<Vec<Built>, String>> {
    let triple = target.triple;
    if let Err(missing) = targets::cargo(triple) {
        return Ok(Err(missing));
    }
    let below = crate::cargo::target().join("dist-build");
    let mut built = Vec::new();
    for step in STEPS {
        eprintln!("==> {triple}: cargo build {}", step.arguments.join(" "));
        let mut cargo = match targets::cargo(triple) {
            Ok(cargo) => cargo,
            Err(missing) => return Ok(Err(missing)),
        };
        cargo.args(["build", "--locked", "--profile", "dist", "--target", triple]);
        cargo.args(step.arguments).arg("--target-dir").arg(&below);
        succeed(reproducible(&mut cargo, epoch)?)?;
        for (name, program) in step.programs {
            let from = below.join(triple).join("dist").join(name);
            let path = place(folder, *program, target);
            fs::copy(&from, &path).with_context(|| from.display().to_string())?;
            built.push(Built { program: *program, target, path });
        }
    }
    Ok(Ok(built))
}

/// Makes a build independent of its place: replaces the names of folders in the programs, and sets
/// the time for C compilers.
fn reproducible(cargo: &mut Command, epoch: u64) -> anyhow::Result<&mut Command> {
    let here = std::env::current_dir()?;
    let mut names = vec![(here, "/underload")];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    names.extend(home.map(|home| (home, "/cargo")));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).args(["--print", "sysroot"]).output();
    let output = output.with_context(|| rustc.display().to_string())?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    names.push((sysroot, "/rust"));
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut of_c = std::env::var("CFLAGS").unwrap_or_default();
    for (folder, name) in names {
        let folder = folder.display();
        let _ = write!(flags, " --remap-path-prefix={folder}={name}");
        let _ = write!(of_c, " -ffile-prefix-map={folder}={name}");
    }
    cargo.env("SOURCE_DATE_EPOCH", epoch.to_string());
    cargo.env("CARGO_INCREMENTAL", "0");
    Ok(cargo.env("RUSTFLAGS", flags.trim()).env("CFLAGS", of_c.trim()))
}
