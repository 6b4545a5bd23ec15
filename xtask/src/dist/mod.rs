//! `cargo xtask dist [TARGET…]`: what is installed, in `target/dist`, each program started once.
//!
//! - [`build`]: static programs for each target, by whatever builds for it here.
//! - [`start`]: every program does a real job, on this machine or in an emulator of another.
//! - [`deb`]: packages for Debian and its kin.
//! - [`oci`]: the images of `underload serve` and of an orchestrator.
//! - [`sbom`]: what the program is made of.
//! - [`archive`]: the formats of files in files, the same bytes from the same contents.
//!
//! All times in what is written are the commit's, or `SOURCE_DATE_EPOCH`.

mod archive;
mod build;
mod deb;
mod oci;
#[cfg(test)]
mod openwrt;
mod sbom;
mod start;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::target;

pub use build::STEPS;

/// A kind of machine that programs are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// What Rust calls it.
    pub triple: &'static str,
    /// What `uname -m` says there, and the names of the files.
    pub machine: &'static str,
    /// What Debian calls it.
    pub debian: &'static str,
    /// Architecture and variant as images name them.
    pub image: (&'static str, Option<&'static str>),
    /// The emulator of one program, from Debian's `qemu-user-static`.
    pub emulator: &'static str,
}

/// Those that there are programs for.
pub const TARGETS: [Target; 3] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        machine: "x86_64",
        debian: "amd64",
        image: ("amd64", None),
        emulator: "qemu-x86_64-static",
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        machine: "aarch64",
        debian: "arm64",
        image: ("arm64", None),
        emulator: "qemu-aarch64-static",
    },
    Target {
        triple: "armv7-unknown-linux-musleabihf",
        machine: "armv7",
        debian: "armhf",
        image: ("arm", Some("v7")),
        emulator: "qemu-arm-static",
    },
];

/// A program that is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `underload` with all commands.
    Whole,
    /// `underload-fleet`, with the commands of fleets.
    Fleet,
    /// `underload` with the commands that measure lines, for small machines.
    Measuring,
    /// `underload-agent`.
    Agent,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Whole, Self::Fleet, Self::Measuring, Self::Agent];

    /// What its file is called, before the machine's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "underload",
            Self::Fleet => "underload-fleet",
            Self::Measuring => "underload-measuring",
            Self::Agent => "underload-agent",
        }
    }

    /// The most bytes that it may have: a little more than it has (`docs/install.md`).
    pub fn bytes_max(self) -> u64 {
        match self {
            Self::Whole => 15 << 20,
            Self::Fleet => 12 << 20,
            Self::Measuring => 8 << 20,
            Self::Agent => 3 << 20,
        }
    }
}

/// A program that was built for a target.
#[derive(Debug, Clone)]
pub struct Built {
    /// Which.
    pub program: Program,
    /// For what.
    pub target: Target,
    /// Where it lies.
    pub path: PathBuf,
}

/// One line of what is printed at the end.
#[derive(Debug)]
struct Row {
    path: PathBuf,
    ran: String,
}

/// Where everything goes.
fn folder() -> PathBuf {
    target().join("dist")
}

/// Builds for the targets named, or for all; those that nothing here builds for are told.
pub fn run(wanted: &[&str]) -> anyhow::Result<()> {
    let targets = chosen(wanted)?;
    let epoch = epoch()?;
    let folder = folder();
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for target in targets {
        let built = match build::all(target, &folder, epoch)? {
            Ok(built) => built,
            Err(missing) => {
                crate::skips::report(&format!("dist {}", target.triple), &missing);
                continue;
            }
        };
        let runner = start::Runner::of(target);
        let ran = start::all(&built, &runner)?;
        rows.extend(built.iter().zip(ran).map(|(it, ran)| Row { path: it.path.clone(), ran }));
        rows.extend(packages(&built, &runner, &folder, epoch)?);
        all.extend(built);
    }
    if rows.is_empty() {
        bail!("nothing was built: no target is there");
    }
    for image in oci::write(&all, &folder, epoch)? {
        rows.push(Row { path: image, ran: "see docs/install.md".to_owned() });
    }
    for parts in sbom::write(&folder, epoch)? {
        rows.push(Row { path: parts, ran: String::new() });
    }
    let sums = checksums(&folder)?;
    rows.push(Row { path: sums, ran: String::new() });
    print!("{}", table(&rows)?);
    too_large()
}

/// A time as RFC 3339 writes it, in UTC.
fn time(epoch: u64) -> anyhow::Result<String> {
    Ok(jiff::Timestamp::from_second(i64::try_from(epoch)?)?.to_string())
}

/// A file of the repository.
fn source(name: &str) -> anyhow::Result<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read(&path).with_context(|| path.display().to_string())
}

/// The targets that were asked for by Rust's name or the machine's.
fn chosen(wanted: &[&str]) -> anyhow::Result<Vec<Target>> {
    if wanted.is_empty() {
        return Ok(TARGETS.to_vec());
    }
    let find = |name: &&str| {
        let found = TARGETS.iter().find(|it| it.triple == *name || it.machine == *name);
        let known = || {
            let known: Vec<&str> = TARGETS.iter().map(|it| it.triple).collect();
            format!("no target {name}; there are {}", known.join(", "))
        };
        found.copied().with_context(known)
    };
    wanted.iter().map(find).collect()
}

/// Seconds since 1970 that all that is written carries: the commit's, or as the environment says.
fn epoch() -> anyhow::Result<u64> {
    if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let text = text.to_string_lossy().into_owned();
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text:?}"));
    }
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().context("the commit's time: run it in a clone, or set SOURCE_DATE_EPOCH")
}

/// Debian's packages of one target.
fn packages(
    built: &[Built],
    runner: &start::Runner,
    folder: &Path,
    epoch: u64,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for it in built {
        if let Some(path) = deb::write(it, runner, folder, epoch)? {
            rows.push(Row { path, ran: String::new() });
        }
    }
    Ok(rows)
}

/// `SHA256SUMS` of everything that lies there, as `sha256sum --check` reads it.
fn checksums(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        let bytes = fs::read(folder.join(&name)).with_context(|| name.clone())?;
        let _ = writeln!(text, "{}  {name}", archive::sha256(&bytes));
    }
    let path = folder.join("SHA256SUMS");
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// File, size, and where it ran.
fn table(rows: &[Row]) -> anyhow::Result<String> {
    let name = |row: &Row| row.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let width = rows.iter().map(|row| name(row).len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>10}  {:>9}  ran\n", "file", "bytes", "MiB");
    for row in rows {
        let bytes = fs::metadata(&row.path)?.len();
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        let line = format!("{:width$}  {bytes:>10}  {mebibytes:>9.2}  {}", name(row), row.ran);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}

/// Programs that are larger than they may be fail the command, once all is told.
fn too_large() -> anyhow::Result<()> {
    let mut large = Vec::new();
    for target in TARGETS {
        for program in Program::ALL {
            let path = build::place(&folder(), program, target);
            let bytes = fs::metadata(&path).map_or(0, |facts| facts.len());
            if bytes >= program.bytes_max() {
                large.push(format!("{}: {bytes} bytes", path.display()));
            }
        }
    }
    if large.is_empty() { Ok(()) } else { bail!("too large: {}", large.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_chosen_by_either_name() {
        assert_eq!(chosen(&[]).unwrap(), TARGETS);
        let machines = chosen(&["armv7", "x86_64-unknown-linux-musl"]).unwrap();
        assert_eq!(machines, [TARGETS[2], TARGETS[0]]);
        let told = chosen(&["pdp11"]).unwrap_err().to_string();
        assert!(told.contains("pdp11") && told.contains("aarch64-unknown-linux-musl"), "{told}");
    }
}
