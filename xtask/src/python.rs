//! `cargo xtask python`: builds the Python package as a wheel, installs it into a fresh
//! environment, and checks its tests, types, stubs and notebooks there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::cargo::{cargo, succeed, target};
use crate::notebooks;
use crate::process::{fresh_folder, output, paths_in};
use crate::pythons::{self, Installed};
use crate::skips;

/// Folder of environments and wheels, in Cargo's folder.
const FOLDER: &str = "python";
/// Folder of the package's sources.
const PACKAGE: &str = "python";
/// Size limit of a wheel for users, bytes.
const WHEEL_MOST: u64 = 15 << 20;
/// Packages that are installed for other versions of Python; tests that need more are skipped
/// there.
const OTHERS_NEED: [&str; 4] = ["hypothesis", "numpy", "polars", "pytest"];
/// Number of timed imports. The fastest counts, because the others waited for other processes.
const IMPORTS: usize = 7;

/// The variable of the environment that names the program whose server the tests measure against.
const PROGRAM: &str = "UNDERLOAD_PROGRAM";

fn underload() -> anyhow::Result<PathBuf> {
    Ok(std::path::absolute(target().join("debug/underload"))?)
}

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        [] => check(Profile::Test),
        ["--release"] => check(Profile::Release),
        ["--ray"] => on_ray(),
        ["--bench", rest @ ..] => compare(rest),
        _ => bail!("usage: cargo xtask python [--release | --ray | --bench [PART [SIZE]]]"),
    }
}

/// Runs the checks in CI; reports a skip if no environment can be made.
pub fn where_possible() -> anyhow::Result<()> {
    check(Profile::AfterTests)
}

/// The build of a wheel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    /// A build without optimisation, which is quick.
    Test,
    /// As `Test`, from the artefacts of the workspace tests.
    AfterTests,
    /// Builds the wheel for users, with maturin.
    Release,
}

fn check(profile: Profile) -> anyhow::Result<()> {
    let Some(environments) = Environments::prepare()? else { return Ok(()) };
    let wheel = match profile {
        Profile::Test => environments.wheel_of_tests(&[])?,
        // With the features of the tests' dependencies nothing is built again.
        Profile::AfterTests => environments.wheel_of_tests(&["--tests"])?,
        Profile::Release => environments.wheel_of_users()?,
    };
    let python = environments.fresh(&wheel)?;
    let tests = fs::canonicalize(PACKAGE)?.join("tests");
    let configuration = fs::canonicalize(PACKAGE)?.join("pyproject.toml");
    let configured = format!("--config-file={}", configuration.display());
    let program = underload()?;
    // Runs in a folder without the package, so that the installed one is imported.
    let module = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.arg("-m").args(arguments).current_dir(environments.folder.join("fresh"));
        command.env(PROGRAM, &program);
        command
    };
    skips::succeed(module(&["pytest", "-q", "-rs", "-p", "no:cacheprovider"]).arg(tests))?;
    succeed(module(&["mypy", "--strict", &configured, "-p", "underload"]).stdout(Stdio::null()))?;
    succeed(module(&["mypy.stubtest", "underload._underload"]).stdout(Stdio::null()))?;
    notebooks::run_quickly(&python)?;
    environments.test_on_others(&wheel, profile)?;
    if profile == Profile::Release {
        print_cost(&wheel, &python)?;
    }
    Ok(())
}

/// Runs `cargo xtask notebooks`, with a wheel as for tests.
pub fn notebooks(names: &[&str]) -> anyhow::Result<()> {
    let Some(environments) = Environments::prepare()? else { return Ok(()) };
    let python = environments.fresh(&environments.wheel_of_tests(&[])?)?;
    notebooks::run_whole(&python, names)
}

/// Compares the package of users with the program and its replay, all built for release. The first
/// argument names a part of the comparison, the second its size.
fn compare(arguments: &[&str]) -> anyhow::Result<()> {
    let Some(environments) = Environments::prepare()? else { return Ok(()) };
    succeed(cargo("build").args(["--profile=bench", "--package", "underload"]))?;
    let replay = ["--package", "underload-run", "--example", "replay_columns"];
    succeed(cargo("build").arg("--profile=bench").args(replay))?;
    let python = environments.fresh(&environments.wheel_of_users()?)?;
    if arguments.first() == Some(&"ray") {
        install_ray(&python)?;
    }
    let release = target().join("release");
    let mut bench = Command::new(python);
    bench.arg(Path::new(PACKAGE).join("bench/compare.py")).arg(release.join("underload"));
    succeed(bench.arg(release.join("examples/replay_columns")).args(arguments))
}

/// Builds the wheel of users; `None`, with a report of the skip, if no environment can be made.
pub fn wheel() -> anyhow::Result<Option<PathBuf>> {
    Environments::prepare()?.map(|environments| environments.wheel_of_users()).transpose()
}

/// Runs the tests that need Ray, which is too large to install in every check.
fn on_ray() -> anyhow::Result<()> {
    let Some(environments) = Environments::prepare()? else { return Ok(()) };
    let python = environments.fresh(&environments.wheel_of_tests(&[])?)?;
    install_ray(&python)?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider"]);
    tests.arg(fs::canonicalize(PACKAGE)?.join("tests/test_ray.py"));
    succeed(tests.current_dir(environments.folder.join("fresh")))
}

/// Installs the packages of `underload[ray]`.
fn install_ray(python: &Path) -> anyhow::Result<()> {
    let wanted = fs::read_to_string(Path::new(PACKAGE).join("pyproject.toml"))?;
    succeed(pip_install(python).args(optional_packages(&wanted, "ray")?))
}

/// Prints the size of the wheel and the time of its import.
fn print_cost(wheel: &Path, python: &Path) -> anyhow::Result<()> {
    let bytes = fs::metadata(wheel)?.len();
    let code = "import time; start = time.perf_counter(); import underload; \
                print(time.perf_counter() - start)";
    let mut fastest_s = f64::INFINITY;
    for _ in 0..IMPORTS {
        let took: f64 = output(Command::new(python).args(["-c", code]))?.trim().parse()?;
        fastest_s = fastest_s.min(took);
    }
    println!("wheel: {:.1} MiB; import: {:.0} ms", bytes as f64 / 1_048_576.0, fastest_s * 1e3);
    if bytes > WHEEL_MOST {
        bail!("the wheel is larger than {} MiB", WHEEL_MOST >> 20);
    }
    Ok(())
}

/// The virtual environments of the tests: one with the packages that tests need, kept between runs,
/// and an empty one for each run.
struct Environments {
    /// Absolute, because programs run in other folders.
    folder: PathBuf,
    /// The environment that is kept between runs.
    kept: PathBuf,
}

impl Environments {
    /// Installs the packages that tests need, unless they are installed. Returns `None` and reports
    /// a skip if that fails.
    fn prepare() -> anyhow::Result<Option<Self>> {
        let folder = std::path::absolute(target().join(FOLDER))?;
        let kept = folder.join("kept");
        let wanted = fs::read_to_string(Path::new(PACKAGE).join("pyproject.toml"))?;
        let mut packages = optional_packages(&wanted, "test")?;
        packages.push("maturin>=1.16,<2".to_owned());
        let made = keep("python", Path::new("python3"), &kept, &packages)?;
        Ok(made.then_some(Self { folder, kept }))
    }

    /// Builds a wheel with the command that built the workspace's tests: `--package` would enable
    /// other features of its dependencies and build all of them again.
    fn wheel_of_tests(&self, more: &[&str]) -> anyhow::Result<PathBuf> {
        let built = ["--workspace", "--lib", "--bin=underload"];
        succeed(cargo("build").args(built).args(more))?;
        let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let library = target().join("debug").join(format!("{start}underload_py{end}"));
        let version = env!("CARGO_PKG_VERSION");
        let mut pack = Command::new(interpreter(&self.kept));
        pack.arg(Path::new(PACKAGE).join("wheel.py")).arg(library).arg(version);
        Ok(PathBuf::from(output(pack.arg(self.folder.join("test")))?.trim()))
    }

    fn wheel_of_users(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join("release");
        fresh_folder(&folder)?;
        let mut maturin = Command::new(self.kept.join("bin/maturin"));
        maturin
            .args(["build", "--quiet", "--profile=bench", "--locked", "--strip", "--out"])
            .arg(&folder);
        maturin.arg("--target-dir").arg(std::path::absolute(target())?);
        maturin.arg("--interpreter").arg(interpreter(&self.kept)).current_dir(PACKAGE);
        succeed(&mut maturin)?;
        paths_in(&folder, "whl")?.pop().context("maturin made no wheel")
    }

    /// Runs the package's tests on every other installed Python, in CI only on the oldest and the
    /// newest. One wheel fits all of them.
    fn test_on_others(&self, wheel: &Path, profile: Profile) -> anyhow::Result<()> {
        let own = pythons::version(&interpreter(&self.kept)).context("the kept Python")?;
        let is_other = |it: &Installed| !own.starts_with(&format!("3.{}.", it.minor));
        let tests = fs::canonicalize(PACKAGE)?.join("tests");
        let mut tested = vec![own.clone()];
        let needed = OTHERS_NEED.map(str::to_owned);
        let mut others: Vec<Installed> =
            pythons::installed().into_iter().filter(is_other).collect();
        if profile == Profile::AfterTests {
            // CI tests the oldest of them alone; `cargo xtask python` tests all.
            others.truncate(1);
        }
        for other in others {
            let Installed { minor, version, program } = other;
            let folder = self.folder.join(format!("python3.{minor}"));
            if !keep(&format!("python {version}"), &program, &folder, &needed)? {
                continue;
            }
            let python = interpreter(&folder);
            let mut pip = pip_install(&python);
            succeed(pip.args(["--no-deps", "--no-index", "--force-reinstall"]).arg(wheel))?;
            let mut pytest = Command::new(&python);
            pytest.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]).arg(&tests);
            skips::succeed(pytest.env(PROGRAM, underload()?).current_dir(&self.folder))
                .with_context(|| format!("on Python {version}"))?;
            tested.push(version);
        }
        println!("tested on Python {}", tested.join(", "));
        Ok(())
    }

    /// Makes a new environment with the wheel; other packages come from the kept environment.
    fn fresh(&self, wheel: &Path) -> anyhow::Result<PathBuf> {
        let fresh = self.folder.join("fresh");
        succeed(Command::new(interpreter(&self.kept)).args(["-m", "venv", "--clear"]).arg(&fresh))?;
        let python = interpreter(&fresh);
        succeed(pip_install(&python).args(["--no-deps", "--no-index"]).arg(wheel))?;
        let lent = site_packages(&interpreter(&self.kept))?;
        fs::write(site_packages(&python)?.join("kept.pth"), format!("{}\n", lent.display()))?;
        // Data of packages outside of their modules, such as nbconvert's templates.
        let share = fresh.join("share");
        fs::create_dir_all(&share)?;
        std::os::unix::fs::symlink(self.kept.join("share/jupyter"), share.join("jupyter"))?;
        Ok(python)
    }
}

/// Makes an environment with these packages, unless an earlier run has made it. Reports a skip and
/// returns false if that fails.
fn keep(name: &str, python: &Path, folder: &Path, packages: &[String]) -> anyhow::Result<bool> {
    let version = pythons::version(python).unwrap_or_default();
    let (mark, wanted) = (folder.join("installed.txt"), packages.join("\n") + &version);
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(true);
    }
    if let Err(why) = make(python, folder, packages) {
        skips::report(name, &why);
        return Ok(false);
    }
    fs::write(mark, wanted)?;
    Ok(true)
}

/// Makes an environment with these packages, or returns why that failed.
fn make(python: &Path, folder: &Path, packages: &[String]) -> Result<(), String> {
    let mut venv = Command::new(python);
    venv.args(["-m", "venv", "--clear"]).arg(folder);
    if !venv.output().is_ok_and(|output| output.status.success()) {
        let python = python.display();
        return Err(format!("`{python} -m venv` does not work; apt install python3-venv"));
    }
    let output = pip_install(&interpreter(folder)).args(packages).output();
    let output = output.map_err(|error| format!("pip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("pip install: {last}"))
}

fn pip_install(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

fn interpreter(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn site_packages(python: &Path) -> anyhow::Result<PathBuf> {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    Ok(PathBuf::from(output(Command::new(python).args(["-c", code]))?.trim()))
}

/// Returns a list of the package's optional dependencies.
fn optional_packages(project: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let project: toml::Table = project.parse().context("python/pyproject.toml")?;
    let lists = project.get("project").and_then(|it| it.get("optional-dependencies"));
    let list = lists.and_then(|it| it.get(name)).and_then(toml::Value::as_array);
    let list = list.with_context(|| format!("python/pyproject.toml has no list `{name}`"))?;
    Ok(list.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}
