//! Packages for Debian and derived systems, written without Debian's tools.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use data_encoding::HEXLOWER;
use md5::{Digest as _, Md5};

use super::archive::{Entry, ar, gzip, tar, with_folders};
use super::start::Runner;
use super::{Built, Program, source};

/// A package, whose other files in `packaging/deb` begin with its name or its service's.
struct Package {
    name: &'static str,
    /// Name of the systemd unit in `packaging`, and of the file with its options.
    service: &'static str,
}

impl Package {
    /// Path of the file with options, the only file that users edit.
    fn options(&self) -> String {
        format!("etc/default/{}", self.service)
    }
}

// Recommended are certificates for `measure https://`, and tools of `link` and live runs.
const WHOLE: Package = Package { name: "underload", service: "underload-serve" };
// `fleet demo` calls the tools of iproute2; users start this program as `underload fleet`.
const FLEET: Package = Package { name: "underload-fleet", service: "underload-orchestrator" };
const AGENT: Package = Package { name: "underload-agent", service: "underload-agent" };

/// Only root may read the file: with an unused enrolment code in it, any reader could enrol as
/// this device.
const OPTIONS_MODE: u32 = 0o600;

/// Shells, and the parts of their completion files' paths before and after the program's name.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/", ""),
    ("zsh", "usr/share/zsh/vendor-completions/_", ""),
    ("fish", "usr/share/fish/vendor_completions.d/", ".fish"),
];

/// Writes the package of a program, if it has one. The program itself prints its manual pages and
/// completions.
pub fn write(
    built: &Built,
    runner: &Runner,
    folder: &Path,
    epoch: u64,
) -> anyhow::Result<Option<PathBuf>> {
    let package = match built.program {
        Program::Whole => &WHOLE,
        Program::Fleet => &FLEET,
        Program::Agent => &AGENT,
        Program::Measuring => return Ok(None),
    };
    let mut entries = common(package)?;
    let binary = fs::read(&built.path).with_context(|| built.path.display().to_string())?;
    entries.push(Entry::file(format!("usr/bin/{}", package.name), 0o755, binary));
    if built.program != Program::Agent {
        match documentation(built, runner, folder)? {
            Some(documentation) => entries.extend(documentation),
            None => crate::skips::report(
                &format!("man pages and completions of {} {}", package.name, built.target.debian),
                "the program cannot be started here",
            ),
        }
    }
    let architecture = built.target.debian;
    let bytes = bytes(package, architecture, &with_folders(entries), epoch)?;
    let version = env!("CARGO_PKG_VERSION");
    let path = folder.join(format!("{}_{version}_{architecture}.deb", package.name));
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(Some(path))
}

/// Returns the files of every package beside its program.
fn common(package: &Package) -> anyhow::Result<Vec<Entry>> {
    let Package { name, service } = package;
    let unit = String::from_utf8(source(&format!("packaging/{service}.service"))?)?;
    let options = source(&format!("packaging/deb/{service}.default"))?;
    let documents = format!("usr/share/doc/{name}");
    let changes = gzip(&source("CHANGELOG.md")?)?;
    Ok(vec![
        Entry::file(format!("usr/lib/systemd/system/{service}.service"), 0o644, packaged(&unit)),
        Entry::file(package.options(), OPTIONS_MODE, options),
        Entry::file(format!("{documents}/copyright"), 0o644, copyright()?),
        Entry::file(format!("{documents}/changelog.gz"), 0o644, changes),
    ])
}

/// Converts a unit for a package: with the system's path, and without the instructions to install.
fn packaged(unit: &str) -> String {
    let body: Vec<&str> = unit.lines().skip_while(|line| !line.starts_with('[')).collect();
    body.join("\n").replace("/usr/local/bin/", "/usr/bin/") + "\n"
}

/// Returns both licences in Debian's format.
fn copyright() -> anyhow::Result<String> {
    let mut text = String::from(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n\
         Files: *\nCopyright: the underload authors\nLicense: Apache-2.0 or Expat\n",
    );
    for (name, file) in [("Apache-2.0", "LICENSE-APACHE"), ("Expat", "LICENSE-MIT")] {
        let licence = String::from_utf8(source(file)?)?;
        let _ = write!(text, "\nLicense: {name}\n{}", indented(&licence));
    }
    Ok(text)
}

/// Formats lines of a field: each after a space, an empty one as a full stop.
fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        let line = if line.trim().is_empty() { "." } else { line };
        let _ = writeln!(all, " {line}");
        all
    })
}

/// Returns manual pages and completions from the program; `None` if it cannot run here.
fn documentation(
    built: &Built,
    runner: &Runner,
    folder: &Path,
) -> anyhow::Result<Option<Vec<Entry>>> {
    let pages = folder.join("man");
    let Some(mut man) = runner.command(&built.path, folder) else { return Ok(None) };
    crate::cargo::succeed(man.args(["--quiet", "man", "man"]))?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(&pages).with_context(|| pages.display().to_string())? {
        let page = entry?;
        let name = page.file_name().to_string_lossy().into_owned();
        let packed = gzip(&fs::read(page.path())?)?;
        entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), 0o644, packed));
    }
    fs::remove_dir_all(&pages)?;
    for (shell, before, after) in SHELLS {
        let Some(mut command) = runner.command(&built.path, folder) else { return Ok(None) };
        let output = command.args(["completions", shell]).output()?;
        anyhow::ensure!(output.status.success(), "completions {shell}: {}", output.status);
        let path = format!("{before}{}{after}", built.program.name());
        entries.push(Entry::file(path, 0o644, output.stdout));
    }
    Ok(Some(entries))
}

/// Assembles the package: format version, metadata, files.
fn bytes(
    package: &Package,
    architecture: &str,
    entries: &[Entry],
    epoch: u64,
) -> anyhow::Result<Vec<u8>> {
    let mut about = vec![
        Entry::file("control", 0o644, control(package, architecture, entries)?),
        Entry::file("conffiles", 0o644, format!("/{}\n", package.options())),
        Entry::file("md5sums", 0o644, sums(entries, &package.options())),
    ];
    for script in ["postinst", "postrm", "prerm"] {
        let text = source(&format!("packaging/deb/{}.{script}", package.name))?;
        about.push(Entry::file(script, 0o755, text));
    }
    let about = gzip(&tar(&about, epoch)?)?;
    let files = gzip(&tar(entries, epoch)?)?;
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.gz", &about), ("data.tar.gz", &files)];
    Ok(ar(&members, epoch))
}

/// Returns the control file of a package, with its variables replaced.
fn control(package: &Package, architecture: &str, entries: &[Entry]) -> anyhow::Result<String> {
    let bytes = |entry: &Entry| entry.contents.as_ref().map_or(1, Vec::len) as u64;
    // Debian counts each file in whole KiB and a folder as one.
    let kibibytes: u64 = entries.iter().map(|entry| bytes(entry).div_ceil(1024)).sum();
    let text = String::from_utf8(source(&format!("packaging/deb/{}.control", package.name))?)?;
    let text = text.replace("$version", env!("CARGO_PKG_VERSION"));
    let text = text.replace("$architecture", architecture);
    Ok(text.replace("$kibibytes", &kibibytes.to_string()))
}

/// Returns the MD5 of every file except the options, for `dpkg --verify`.
fn sums(entries: &[Entry], options: &str) -> String {
    let mut text = String::new();
    for entry in entries.iter().filter(|entry| entry.path != options) {
        if let Some(contents) = &entry.contents {
            let sum = HEXLOWER.encode(&Md5::digest(contents));
            let _ = writeln!(text, "{sum}  {}", entry.path);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn package() -> Vec<u8> {
        let mut entries = common(&WHOLE).expect("the files");
        entries.push(Entry::file("usr/bin/underload", 0o755, "program"));
        bytes(&WHOLE, "amd64", &with_folders(entries), 1_700_000_000).expect("a package")
    }

    #[test]
    fn a_package_is_the_same_when_it_is_written_again() {
        assert_eq!(package(), package());
    }

    #[test]
    fn debians_own_tool_reads_it() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            println!("SKIPPED debians_own_tool_reads_it: no dpkg-deb (Debian: dpkg)");
            return;
        }
        let name = format!("underload-deb-{}.deb", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, package()).unwrap();
        let asked = |what: &str| {
            let output = Command::new("dpkg-deb").arg(what).arg(&path).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let (fields, files) = (asked("--field"), asked("--contents"));
        fs::remove_file(&path).unwrap();
        assert!(fields.starts_with("Package: underload\nVersion: "), "{fields}");
        assert!(fields.contains("\nArchitecture: amd64\n"), "{fields}");
        assert!(fields.contains("\nRecommends: ca-certificates, iproute2, nft"), "{fields}");
        assert!(fields.contains("\n .\n With it comes a unit"), "{fields}");
        let program = files.lines().find(|line| line.ends_with("usr/bin/underload")).unwrap();
        assert!(program.starts_with("-rwxr-xr-x root/root"), "{program}");
        assert!(files.contains(" usr/lib/systemd/system/underload-serve.service\n"), "{files}");
    }

    /// Runs the script that ends a package's purge in a separate root.
    fn purge(package: &Package, root: &Path) {
        let script =
            String::from_utf8(source(&format!("packaging/deb/{}.postrm", package.name)).unwrap());
        let at = |folder: &str| root.join(folder).display().to_string();
        let script = script.unwrap().replace("/var/", &at("var/")).replace("/etc/", &at("etc/"));
        // The script must not depend on this machine's users and services.
        let script = format!("PATH=/bin:/usr/bin\ngetent() {{ return 0; }}\n{script}");
        let script = script.replace("/run/systemd", &at("run/systemd"));
        let script = script.replace("userdel", "echo >> gone");
        let output =
            Command::new("sh").args(["-c", &script, "postrm", "purge"]).current_dir(root).output();
        assert!(output.as_ref().is_ok_and(|it| it.status.success()), "{output:?}");
    }

    #[test]
    fn a_purge_takes_the_packages_own_keys_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("underload-purge-{}", std::process::id()));
        let own = [
            "etc/underload/keys",
            "var/lib/underload/server/key.der",
            "var/lib/underload-agent/device.key",
        ];
        let others = ["var/lib/underload/fleet/fleet.sqlite", "etc/underload/mine"];
        for file in own.iter().chain(&others) {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "bytes").unwrap();
        }
        purge(&WHOLE, &root);
        purge(&AGENT, &root);
        assert!(own.iter().all(|file| !root.join(file).exists()), "keys are left");
        assert!(others.iter().all(|file| root.join(file).exists()), "what others made is gone");
        assert!(!root.join("gone").exists(), "the user may be older than the package");
        for file in others {
            fs::remove_file(root.join(file)).unwrap();
        }
        fs::remove_dir(root.join("var/lib/underload/fleet")).unwrap();
        purge(&WHOLE, &root);
        let folders = ["etc/underload", "var/lib/underload"];
        assert!(folders.iter().all(|folder| !root.join(folder).exists()), "empty folders go");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_unit_of_the_system_starts_the_systems_program() {
        let unit = packaged("# How to install.\n\n[Unit]\nExecStart=/usr/local/bin/underload x\n");
        assert_eq!(unit, "[Unit]\nExecStart=/usr/bin/underload x\n");
    }
}
