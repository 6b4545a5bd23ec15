//! `cargo xtask dist [TARGET…]`: what users install. Static programs, each tried by `packaging/try`,
//! with Debian packages, wheel and book in `target/programs`; `packaging/site` makes of them the
//! folder `target/dist`, which a web server serves. Equal commits and compilers give equal programs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::process::{fresh_folder, git, is_installed, output};
use crate::{book, python, skips, targets};

/// A kind of machine that programs are built for.
#[derive(Clone, Copy)]
struct Target {
    /// The target's name in Rust.
    triple: &'static str,
    /// The name by `uname -m`, also used in file names.
    machine: &'static str,
    /// The user-mode emulator in Debian's `qemu-user-static`.
    emulator: &'static str,
}

const TARGETS: [Target; 3] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        machine: "x86_64",
        emulator: "qemu-x86_64-static",
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        machine: "aarch64",
        emulator: "qemu-aarch64-static",
    },
    Target {
        triple: "armv7-unknown-linux-musleabihf",
        machine: "armv7",
        emulator: "qemu-arm-static",
    },
];

/// The target for x86_64 on a toolchain that has only this one. Its programs are not static.
const INSTEAD: &str = "x86_64-unknown-linux-gnu";

/// Arguments of `cargo build`, and the programs that it makes: Cargo's name and the installed name.
/// The agent is built with the whole program, which has all of its dependencies. The fleet program
/// is built alone, because its features of shared libraries would get into the others.
type Build = (&'static [&'static str], &'static [(&'static str, &'static str)]);
const BUILDS: [Build; 3] = [
    (
        &["--package", "underload", "--package", "underload-agent"],
        &[("underload", "underload"), ("underload-agent", "underload-agent")],
    ),
    (&["--package", "underload-fleet-cli"], &[("underload-fleet", "underload-fleet")]),
    (&["--package", "underload", "--no-default-features"], &[("underload", "underload-measuring")]),
];

/// Builds for the named targets, or for all; skips targets without a toolchain.
pub fn run(wanted: &[&str]) -> anyhow::Result<()> {
    let known = |name: &&str| TARGETS.iter().any(|it| [it.triple, it.machine].contains(name));
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        let names = TARGETS.map(|target| target.machine).join(", ");
        bail!("there is no target `{unknown}`; there are {names}");
    }
    let is_wanted = |target: &Target| {
        wanted.is_empty() || wanted.iter().any(|it| [target.triple, target.machine].contains(it))
    };
    let folder = std::path::absolute(target().join("programs"))?;
    fresh_folder(&folder)?;
    for mut target in TARGETS.into_iter().filter(is_wanted) {
        if let Err(missing) = targets::cargo(target.triple) {
            skips::report(&format!("dist {}", target.triple), &missing);
            if target.machine != "x86_64" || !targets::is_installed(INSTEAD) {
                continue;
            }
            eprintln!("    {INSTEAD} instead: the programs need a C library as new as this one");
            target.triple = INSTEAD;
        }
        build(target, &folder)?;
        try_out(target, &folder)?;
    }
    if wanted.is_empty() {
        skips::report("dist mipsel", "32-bit MIPS has no 64-bit atomic numbers, which probe uses");
    }
    if fs::read_dir(&folder)?.next().is_none() {
        bail!("nothing was built: no target is installed");
    }
    if wanted.is_empty() {
        add_others(&folder)?;
    }
    let mut site = Command::new("packaging/site");
    site.arg(&folder).arg(target().join("dist")).env("SOURCE_DATE_EPOCH", epoch()?);
    skips::succeed(&mut site)?;
    crate::tidy::budget::check_programs()
}

/// Returns the folder of Cargo's builds for targets.
fn builds() -> anyhow::Result<PathBuf> {
    Ok(std::path::absolute(target().join("dist-build"))?)
}

fn build(target: Target, folder: &Path) -> anyhow::Result<()> {
    let Target { triple, machine, .. } = target;
    for (arguments, programs) in BUILDS {
        eprintln!("==> {triple}: cargo build {}", arguments.join(" "));
        let mut cargo = targets::cargo(triple).map_err(anyhow::Error::msg)?;
        cargo.args(["build", "--locked", "--bins", "--profile", "dist", "--target", triple]);
        cargo.args(arguments).arg("--target-dir").arg(builds()?);
        succeed(reproducible(&mut cargo)?)?;
        for (name, installed) in programs {
            let from = builds()?.join(triple).join("dist").join(name);
            fs::copy(&from, folder.join(format!("{installed}-{machine}-linux")))
                .with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

/// Makes a build independent of its place and time: replaces the names of folders in the programs,
/// and sets the time for C compilers.
fn reproducible(cargo: &mut Command) -> anyhow::Result<&mut Command> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let mut names = vec![(std::env::current_dir()?, "/underload")];
    names.extend(home.map(|home| (home, "/cargo")));
    names.push((PathBuf::from(sysroot.trim()), "/rust"));
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut c_flags = std::env::var("CFLAGS").unwrap_or_default();
    for (folder, name) in names {
        let folder = folder.display();
        let _ = write!(flags, " --remap-path-prefix={folder}={name}");
        let _ = write!(c_flags, " -ffile-prefix-map={folder}={name}");
    }
    cargo.env("SOURCE_DATE_EPOCH", epoch()?).env("CARGO_INCREMENTAL", "0");
    Ok(cargo.env("RUSTFLAGS", flags.trim()).env("CFLAGS", c_flags.trim()))
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the commit, in seconds since 1970.
fn epoch() -> anyhow::Result<String> {
    let time = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| git(&["log", "-1", "--format=%ct"]));
    Ok(time.context("run it in a clone, or set SOURCE_DATE_EPOCH")?.trim().to_owned())
}

/// Runs a real job with every program of a target, here or in an emulator, then makes packages,
/// whose manual pages and completions the programs print.
fn try_out(target: Target, folder: &Path) -> anyhow::Result<()> {
    let Target { triple, machine, emulator } = target;
    let is_here = std::env::consts::OS == "linux" && std::env::consts::ARCH == machine;
    let runner = if is_here { "" } else { emulator };
    if !is_here && !is_installed(emulator) {
        let reason = format!("no {emulator} (Debian: qemu-user-static)");
        skips::report(&format!("trying programs and making packages for {machine}"), &reason);
        return Ok(());
    }
    succeed(Command::new("packaging/try").arg(folder).args([machine, runner]))?;
    if !is_installed("cargo-deb") {
        let reason = "no cargo-deb; cargo install --locked cargo-deb";
        skips::report(&format!("Debian packages for {machine}"), reason);
        return Ok(());
    }
    let mut debs = Command::new("packaging/debs");
    debs.arg(folder).args([machine, triple, runner]).env("CARGO_TARGET_DIR", builds()?);
    succeed(debs.env("SOURCE_DATE_EPOCH", epoch()?))
}

/// Adds what is built once for all machines: the wheel, the book, bills of materials.
fn add_others(folder: &Path) -> anyhow::Result<()> {
    if let Some(wheel) = python::wheel()? {
        fs::copy(&wheel, folder.join(wheel.file_name().unwrap_or_default()))?;
    }
    if let Some(book) = book::build()? {
        succeed(Command::new("cp").arg("-r").arg(book).arg(folder.join("book")))?;
    }
    if !is_installed("cargo-cyclonedx") {
        let reason = "no cargo-cyclonedx; cargo install --locked cargo-cyclonedx";
        skips::report("bills of materials", reason);
        return Ok(());
    }
    let mut materials = Command::new("packaging/materials");
    succeed(materials.arg(folder).env("SOURCE_DATE_EPOCH", epoch()?))
}
