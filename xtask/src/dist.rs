//! `cargo xtask dist [TARGET…]`: what users install, in `target/dist`: static programs, each tried
//! by `packaging/try`; Debian packages by `cargo-deb`, bills of materials by `cargo-cyclonedx`;
//! checksums. Equal commits and compilers give equal programs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{succeed, target};
use crate::process::{fresh_folder, git, is_installed, output};
use crate::{skips, targets};

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

/// A Debian package: its name, its crate, its systemd unit.
const PACKAGES: [[&str; 3]; 3] = [
    ["underload", "underload", "underload-serve"],
    ["underload-fleet", "underload-fleet-cli", "underload-orchestrator"],
    ["underload-agent", "underload-agent", "underload-agent"],
];
/// Files of packages that are not in the repository: units, manual pages, completions. The
/// `[package.metadata.deb]` of the crates names this folder.
const STAGE: &str = "target/package";
/// Shells, and their files of completions, with `NAME` for the program.
const SHELLS: [(&str, &str); 3] = [("bash", "NAME"), ("zsh", "_NAME"), ("fish", "NAME.fish")];

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
    let folder = std::path::absolute(target().join("dist"))?;
    fresh_folder(&folder)?;
    for target in TARGETS.into_iter().filter(is_wanted) {
        if let Err(missing) = targets::cargo(target.triple) {
            skips::report(&format!("dist {}", target.triple), &missing);
            continue;
        }
        build(target, &folder)?;
        try_out(target, &folder)?;
    }
    let mut names = names_in(&folder)?;
    if names.is_empty() {
        bail!("nothing was built: no target is installed");
    }
    materials(&folder)?;
    names = names_in(&folder)?;
    let sums = output(Command::new("sha256sum").args(&names).current_dir(&folder))?;
    fs::write(folder.join("SHA256SUMS"), sums)?;
    for name in names {
        let bytes = fs::metadata(folder.join(&name))?.len();
        println!("{:>8.2} MiB  {name}", bytes as f64 / f64::from(1 << 20));
    }
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
    for [name, package, unit] in PACKAGES {
        let stage = Path::new(STAGE).join(name);
        fresh_folder(&stage.join("man"))?;
        let text = fs::read_to_string(format!("packaging/{unit}.service"))?;
        let text = text.replace("/usr/local/bin/", "/usr/bin/");
        fs::write(stage.join(format!("{unit}.service")), text)?;
        if name != "underload-agent" {
            document(&folder.join(format!("{name}-{machine}-linux")), runner, name, &stage)?;
        }
        let mut deb = Command::new("cargo");
        deb.args(["deb", "--locked", "--no-build", "--no-strip", "--quiet", "--package", package]);
        deb.args(["--profile", "dist", "--target", triple, "--output"]).arg(folder);
        succeed(deb.env("CARGO_TARGET_DIR", builds()?).env("SOURCE_DATE_EPOCH", epoch()?))?;
    }
    Ok(())
}

/// Writes the manual pages and completions that a program prints.
fn document(program: &Path, runner: &str, name: &str, stage: &Path) -> anyhow::Result<()> {
    let command = || {
        let mut command = Command::new(if runner.is_empty() { program } else { runner.as_ref() });
        command.args((!runner.is_empty()).then_some(program));
        command
    };
    succeed(command().args(["--quiet", "man"]).arg(stage.join("man")))?;
    for (shell, file) in SHELLS {
        let text = output(command().args(["completions", shell]))?;
        fs::write(stage.join(file.replace("NAME", name)), text)?;
    }
    Ok(())
}

/// Writes `NAME.cdx.json` for both programs: their libraries, with versions and licences.
fn materials(folder: &Path) -> anyhow::Result<()> {
    if !is_installed("cargo-cyclonedx") {
        let reason = "no cargo-cyclonedx; cargo install --locked cargo-cyclonedx";
        skips::report("bills of materials", reason);
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["cyclonedx", "--quiet", "--format", "json"]);
    command.args(["--no-build-deps", "--target", TARGETS[0].triple]);
    command.args(["--override-filename", "materials.cdx"]);
    succeed(command.env("SOURCE_DATE_EPOCH", epoch()?))?;
    for path in output(Command::new("git").args(["ls-files", "--others", "*materials.cdx.json"]))?
        .lines()
        .map(PathBuf::from)
    {
        let program = match path.parent().and_then(Path::file_name).and_then(|it| it.to_str()) {
            Some("cli") => "underload",
            Some("fleet-cli") => "underload-fleet",
            _ => {
                fs::remove_file(&path)?;
                continue;
            }
        };
        fs::rename(&path, folder.join(format!("{program}.cdx.json")))?;
    }
    Ok(())
}

fn names_in(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    let mut names = entries.map(name).collect::<anyhow::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
