//! `cargo xtask dist [TARGET… | book]`: everything that is installed, in `target/dist`, with each
//! program started once.
//!
//! - [`build`]: static programs for each target.
//! - [`start`]: a real job for every program, on this machine or in an emulator.
//! - [`deb`]: packages for Debian and derived systems.
//! - [`oci`]: the images of `underload serve` and of an orchestrator.
//! - [`sbom`]: the libraries in the programs.
//! - [`site`]: the book with the playground.
//! - [`archive`]: archive formats with reproducible bytes.
//!
//! All times in the files are the commit's, or `SOURCE_DATE_EPOCH`.

mod archive;
mod build;
mod deb;
mod oci;
#[cfg(test)]
mod openwrt_tests;
mod sbom;
mod site;
mod start;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cargo::target;
use crate::process::{fresh_folder, git};

pub use build::STEPS;

/// A kind of machine that programs are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The target's name in Rust.
    pub triple: &'static str,
    /// The name by `uname -m`, also used in file names.
    pub machine: &'static str,
    /// The architecture's name in Debian.
    pub debian: &'static str,
    /// Architecture and variant in images.
    pub image: (&'static str, Option<&'static str>),
    /// The user-mode emulator in Debian's `qemu-user-static`.
    pub emulator: &'static str,
}

/// The targets that programs are built for.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `underload` with all commands.
    Whole,
    /// `underload-fleet`, with the commands of fleets.
    Fleet,
    /// `underload` with the commands that measure lines, for small machines.
    Measuring,
    Agent,
}

impl Program {
    pub const ALL: [Self; 4] = [Self::Whole, Self::Fleet, Self::Measuring, Self::Agent];

    /// Returns the file name, without the machine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "underload",
            Self::Fleet => "underload-fleet",
            Self::Measuring => "underload-measuring",
            Self::Agent => "underload-agent",
        }
    }

    /// Returns the size limit in bytes, a little more than the present size
    /// (`docs/contributing/dist.md`).
    pub fn bytes_max(self) -> u64 {
        match self {
            Self::Whole => 18 << 20,
            Self::Fleet => 12 << 20,
            Self::Measuring => 8 << 20,
            Self::Agent => 3 << 20,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Built {
    pub program: Program,
    pub target: Target,
    pub path: PathBuf,
}

/// A line of the final table.
#[derive(Debug)]
struct Row {
    path: PathBuf,
    ran: String,
}

fn folder() -> PathBuf {
    target().join("dist")
}

/// Builds for the named targets, or for all; skips those without a toolchain. `book` names the
/// book, which is built with all targets or alone.
pub fn run(wanted: &[&str]) -> anyhow::Result<()> {
    if wanted == ["book"] {
        let folder = folder();
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let book = site::write(&folder, epoch()?)?;
        let rows: Vec<Row> = book.map(book_row).into_iter().collect();
        print!("{}", table(&rows)?);
        return Ok(());
    }
    let targets = chosen(wanted)?;
    let epoch = epoch()?;
    let folder = folder();
    fresh_folder(&folder)?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for target in targets {
        let built = match build::all(target, &folder, epoch)? {
            Ok(built) => built,
            Err(missing) => {
                crate::skips::report(&format!("dist {}", target.triple), &missing);
                continue;
            }
        };
        let runner = start::Runner::find(target);
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
    if wanted.is_empty() {
        rows.extend(site::write(&folder, epoch)?.map(book_row));
    }
    let sums = checksums(&folder)?;
    rows.push(Row { path: sums, ran: String::new() });
    print!("{}", table(&rows)?);
    too_large()
}

fn book_row(path: PathBuf) -> Row {
    Row { path, ran: "for a server of static files".to_owned() }
}

/// Formats a time in UTC as in RFC 3339.
fn time(epoch: u64) -> anyhow::Result<String> {
    Ok(jiff::Timestamp::from_second(i64::try_from(epoch)?)?.to_string())
}

/// Reads a file of the repository.
fn source(name: &str) -> anyhow::Result<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read(&path).with_context(|| path.display().to_string())
}

/// Finds targets by Rust's or the machine's name.
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

/// Returns the time in all files, seconds since 1970: the commit's, or `SOURCE_DATE_EPOCH`.
fn epoch() -> anyhow::Result<u64> {
    if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let text = text.to_string_lossy().into_owned();
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text:?}"));
    }
    let text = git(&["log", "-1", "--format=%ct"]).unwrap_or_default();
    text.trim().parse().context("the commit's time: run it in a clone, or set SOURCE_DATE_EPOCH")
}

/// Writes the Debian packages of a target.
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

/// Writes `SHA256SUMS` of all files, for `sha256sum --check`.
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

/// Formats a table of files with their sizes and runs.
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

/// Fails if a program is larger than its limit, after the table is printed.
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
