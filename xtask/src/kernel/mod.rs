//! `cargo xtask kernel`: builds the kernel of the world `kernel` from the distribution's source.
//!
//! The kernel is User-Mode Linux, configured by `kernel.config`, with two changes to its source: a
//! seed gives its randomness, and it counts 250 ticks a second, as distributions' kernels do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo::succeed;
use crate::process::{is_installed, output};

/// Options of the kernel; all others are off.
const CONFIG: &str = include_str!("kernel.config");
/// The name that kernels before 7.3 have for `CONFIG_SYSCTL`; both are in [`CONFIG`].
const RENAMED: &str = "CONFIG_PROC_SYSCTL=y";
/// The Debian suite whose source package is built: the newest kernels for a stable release.
const SUITE: &str = "trixie-backports";
/// The keys of Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Programs that the build needs, and Debian's packages that have them.
const TOOLS: [(&str, &str); 7] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];
/// Changes of the source: file, text, its replacement.
const CHANGES: [(&str, &str, &str); 2] = [
    ("arch/um/Kconfig", "config HZ\n\tint\n\tdefault 100", "config HZ\n\tint\n\tdefault 250"),
    ("arch/um/os-Linux/util.c", "\treturn getrandom(buf, len, flags);\n", SEEDED),
];
/// Random bytes: from the C library's generator if UML_SEED is set, otherwise from the host.
const SEEDED: &str = "\
	static int is_seeded;
	const char *seed = getenv(\"UML_SEED\");
	unsigned char *bytes = buf;

	if (!seed)
		return getrandom(buf, len, flags);
	if (!is_seeded)
		srand48(strtol(seed, NULL, 10));
	is_seeded = 1;
	for (size_t i = 0; i < len; i++)
		bytes[i] = lrand48() >> 16;
	return len;
";

/// Builds the kernel of a source: a file `linux-*.tar.xz`, a version such as `7.2`, or by default
/// the newest version of the distribution.
pub fn build(arguments: &[&str]) -> anyhow::Result<()> {
    check_tools()?;
    let folder = crate::cargo::target().join("kernel");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let archive = match arguments {
        [] => download(&folder, "linux-source")?,
        [file] if Path::new(file).is_file() => PathBuf::from(file),
        [version] => download(&folder, &format!("linux-source-{version}"))?,
        _ => bail!("usage: cargo xtask kernel [VERSION | SOURCE.tar.xz]"),
    };
    let source = unpack(&folder, &archive)?;
    let objects = folder.join("objects");
    configure(&source, &objects)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&source, &objects, &[&format!("-j{jobs}"), "linux"])?;
    let built = folder.join("linux");
    fs::copy(objects.join("linux"), &built).with_context(|| built.display().to_string())?;
    eprintln!("built {0}; next: underload kernel install {0}", built.display());
    Ok(())
}

fn check_tools() -> anyhow::Result<()> {
    let missing = TOOLS.iter().filter(|(tool, _)| !is_installed(tool));
    let missing: Vec<_> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        bail!("missing tools: apt install {}", missing.join(" "));
    }
    Ok(())
}

/// Downloads a source package with apt, from [`SUITE`] and with a separate state, so that the
/// packages of the machine do not change. Returns the archive in it.
fn download(folder: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let apt = folder.join("apt");
    for below in ["state/lists/partial", "cache/archives/partial", "download"] {
        fs::create_dir_all(apt.join(below))?;
    }
    let sources = apt.join("sources.list");
    fs::write(&sources, format!("{}\n", source_line()?))?;
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        let options = [
            format!("Dir::Etc::sourcelist={}", fs::canonicalize(&sources)?.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State={}", fs::canonicalize(apt.join("state"))?.display()),
            "Dir::State::status=/var/lib/dpkg/status".to_owned(),
            format!("Dir::Cache={}", fs::canonicalize(apt.join("cache"))?.display()),
            "APT::Sandbox::User=root".to_owned(),
        ];
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command.args(arguments).current_dir(apt.join("download"));
        anyhow::Ok(command)
    };
    succeed(&mut apt_get(&["update", "-q"])?)?;
    let package = match package {
        // The package without a version names the newest one as its dependency.
        "linux-source" => newest(&mut apt_get(&["install", "--simulate", "-q", package])?)?,
        versioned => versioned.to_owned(),
    };
    eprintln!("downloading {package}, about 165 MB");
    succeed(&mut apt_get(&["download", "-q", &package])?)?;
    let found = fs::read_dir(apt.join("download"))?.flatten().map(|entry| entry.path());
    let deb = found
        .filter(|path| path.to_string_lossy().contains(&format!("/{package}_")))
        .max()
        .with_context(|| format!("apt-get downloaded no {package}"))?;
    let out = folder.join("package");
    succeed(Command::new("dpkg-deb").arg("-x").args([&deb, &out]))?;
    Ok(out.join(format!("usr/src/{package}.tar.xz")))
}

/// The line for the list of package sources: this machine's mirror, with another suite.
fn source_line() -> anyhow::Result<String> {
    let targets = ["indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"];
    let targets = output(Command::new("apt-get").args(targets)).unwrap_or_default();
    let mirror = targets.lines().find(|mirror| mirror.ends_with("/debian/")).context(
        "apt-get knows no mirror of Debian: name a file: cargo xtask kernel linux-7.2.tar.xz",
    )?;
    Ok(format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main"))
}

/// The versioned package in what a simulated installation prints.
fn newest(simulation: &mut Command) -> anyhow::Result<String> {
    let text = output(simulation)?;
    let mut packages =
        text.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let package = packages.find(|package| package.starts_with("linux-source-"));
    Ok(package.with_context(|| format!("{SUITE} has no linux-source"))?.to_owned())
}

/// Unpacks the archive if it is not unpacked yet, and patches the source.
fn unpack(folder: &Path, archive: &Path) -> anyhow::Result<PathBuf> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let source = folder.join(name.trim_end_matches(".tar.xz"));
    if source.join(".is-changed").exists() {
        return Ok(source);
    }
    eprintln!("unpacking {}", archive.display());
    fs::create_dir_all(&source)?;
    let strip = ["--strip-components=1", "-C"];
    succeed(Command::new("tar").arg("xf").arg(archive).args(strip).arg(&source))?;
    for (file, before, after) in CHANGES {
        let path = source.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if text.matches(before).count() != 1 && !text.contains(after) {
            bail!("{}: expected `{}` once", path.display(), before.trim());
        }
        fs::write(&path, text.replacen(before, after, 1))?;
    }
    fs::write(source.join(".is-changed"), "")?;
    Ok(source)
}

/// Switches on what [`CONFIG`] names, and checks that this version of the kernel has it all.
fn configure(source: &Path, objects: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(objects)?;
    let wanted = objects.join("wanted.config");
    fs::write(&wanted, CONFIG)?;
    let all = format!("KCONFIG_ALLCONFIG={}", fs::canonicalize(&wanted)?.display());
    make(source, objects, &[&all, "allnoconfig"])?;
    let set = fs::read_to_string(objects.join(".config"))?;
    let is_unset = |line: &&str| !line.starts_with('#') && !set.lines().any(|it| it == *line);
    let lacking: Vec<&str> =
        CONFIG.lines().filter(is_unset).filter(|line| *line != RENAMED).collect();
    if !lacking.is_empty() {
        eprintln!("this version of the kernel lacks {}", lacking.join(", "));
    }
    Ok(())
}

fn make(source: &Path, objects: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let objects = format!("O={}", fs::canonicalize(objects)?.display());
    let mut make = Command::new("make");
    make.args(["-s", "-C"]).arg(source).args(["ARCH=um", &objects]);
    succeed(make.args(arguments))
}
