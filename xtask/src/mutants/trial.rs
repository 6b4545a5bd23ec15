//! Runs tests against one change after another: only those that reach it, those nearest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};

use super::outcomes::Fate;

/// The test programs of an area, and which tests of each reach which change.
pub struct Trials {
    /// Those that end soonest first.
    programs: Vec<Program>,
    folder: PathBuf,
    /// What the tests of a module take of each program without a change.
    near: BTreeMap<(usize, String), Spent>,
}

struct Program {
    path: PathBuf,
    /// The names of the threads that reached a change are those of the tests.
    reached: BTreeMap<usize, BTreeSet<String>>,
    spent: Spent,
}

/// Processor time, in hundredths of a second.
type Spent = u64;

impl Trials {
    /// Runs every test once without any change, and notes who reaches what.
    pub fn begin(programs: &[PathBuf], folder: &Path) -> anyhow::Result<Self> {
        let programs = programs.iter().map(|path| Program::trace(path, folder));
        let mut programs: Vec<Program> = programs.collect::<anyhow::Result<_>>()?;
        programs.sort_by_key(|program| program.spent);
        Ok(Self { programs, folder: folder.to_owned(), near: BTreeMap::new() })
    }

    /// What becomes of a change, in that file of the package: the tests of its module say it
    /// soonest, then those of the others.
    pub fn judge(&mut self, number: usize, file: &str) -> anyhow::Result<Fate> {
        let module = module(file);
        let is_near = |name: &&String| name.starts_with(&module);
        let mut fate = Fate::Unreached;
        for near in [true, false] {
            for place in 0..self.programs.len() {
                let Some(names) = self.programs[place].reached.get(&number) else { continue };
                fate = Fate::Missed;
                // A thread of a test's own has no name that tells which test it is of.
                let whole = names.iter().any(|name| ["", "main"].contains(&name.as_str()));
                let some: Vec<String> =
                    names.iter().filter(|name| is_near(name) == near).cloned().collect();
                if (whole && near) || (!whole && some.is_empty()) {
                    continue;
                }
                let names = if whole { Vec::new() } else { some };
                let spent = if near { self.spent_near(place, &module)? } else { self.spent(place) };
                let environment = Some(("MUTANT", number.to_string()));
                let path = &self.programs[place].path;
                match run(path, &self.folder, &names, true, environment, limit(spent))? {
                    Fate::Missed => (),
                    other => return Ok(other),
                }
            }
        }
        Ok(fate)
    }

    /// What becomes of a change that these programs were built with alone.
    pub fn judge_alone(&self, programs: &[PathBuf]) -> anyhow::Result<Fate> {
        let longest = self.programs.last().map(|program| program.spent).unwrap_or_default();
        for path in programs {
            match run(path, &self.folder, &[], true, None, limit(longest))? {
                Fate::Missed => (),
                other => return Ok(other),
            }
        }
        Ok(Fate::Missed)
    }

    fn spent(&self, place: usize) -> Spent {
        self.programs[place].spent
    }

    fn spent_near(&mut self, place: usize, module: &str) -> anyhow::Result<Spent> {
        let key = (place, module.to_owned());
        if let Some(spent) = self.near.get(&key) {
            return Ok(*spent);
        }
        let before = spent_by_children();
        let names = [module.to_owned()];
        run(&self.programs[place].path, &self.folder, &names, false, None, u64::MAX)?;
        let spent = spent_by_children() - before;
        self.near.insert(key, spent);
        Ok(spent)
    }
}

impl Program {
    fn trace(path: &Path, folder: &Path) -> anyhow::Result<Self> {
        let trace = path.with_extension("trace");
        let _ = fs::remove_file(&trace);
        let before = spent_by_children();
        let environment = Some(("MUTANT_TRACE", trace.display().to_string()));
        if run(path, folder, &[], true, environment, u64::MAX)? != Fate::Missed {
            bail!("{}: its tests fail without any change", path.display());
        }
        let spent = spent_by_children() - before;
        let mut reached: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        let text = fs::read_to_string(&trace).unwrap_or_default();
        for line in text.lines() {
            let (number, name) = line.split_once(' ').context("a line of a trace")?;
            reached.entry(number.parse()?).or_default().insert(name.to_owned());
        }
        Ok(Self { path: path.to_owned(), reached, spent })
    }
}

/// The seconds of processor time after which tests that take `spent` will never end.
fn limit(spent: Spent) -> u64 {
    MIN_CPU_SECONDS + CPU_FACTOR * spent / 100
}

/// The module of a file, as the names of its tests begin: `congestion::prague`.
fn module(file: &str) -> String {
    let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
    let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    inner.replace('/', "::")
}

/// Runs tests of one program: those of the names, or whose names have one of them as a part, or
/// all. It may use so much processor time, which a busy machine does not use up for it.
fn run(
    program: &Path,
    folder: &Path,
    names: &[String],
    exact: bool,
    environment: Option<(&str, String)>,
    cpu_seconds: u64,
) -> anyhow::Result<Fate> {
    let mut command = Command::new("sh");
    let limited = cpu_seconds < u64::MAX;
    let limits = format!("ulimit -t {cpu_seconds}; ulimit -v {MEMORY_KB}; ");
    command.arg("-c").arg(format!("{}exec nice \"$0\" \"$@\"", if limited { &limits } else { "" }));
    command.arg(program).args(["--quiet", "--test-threads", THREADS]);
    command.args(exact.then_some("--exact")).args(names);
    command.current_dir(folder).envs(environment);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| program.display().to_string())?;
    Ok(fate(status))
}

fn fate(status: ExitStatus) -> Fate {
    match (status.code(), status.signal()) {
        (Some(0), _) => Fate::Missed,
        (None, Some(SIGXCPU | SIGKILL)) => Fate::TimedOut,
        _ => Fate::Caught,
    }
}

/// What everything took that this process has started and waited for.
fn spent_by_children() -> Spent {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = |place: usize| -> Spent {
        after_name.split_whitespace().nth(place).and_then(|it| it.parse().ok()).unwrap_or_default()
    };
    // `cutime` and `cstime`, fields 16 and 17 of proc(5).
    ticks(13) + ticks(14)
}

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
/// Of any tests, however short.
const MIN_CPU_SECONDS: u64 = 3;
/// And so many times what they take without a change.
const CPU_FACTOR: u64 = 5;
/// A change that asks for memory without end shall not take the machine's.
const MEMORY_KB: u64 = 4_000_000;
const THREADS: &str = "2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_after_their_file() {
        assert_eq!(module("crates/sim/src/congestion/prague/mod.rs"), "congestion::prague");
        assert_eq!(module("crates/aqm/src/queue/sfb.rs"), "queue::sfb");
    }

    #[test]
    fn a_program_that_uses_up_its_processor_time_never_ended() {
        assert_eq!(fate(ExitStatus::from_raw(0)), Fate::Missed);
        let exits_with_101 = ExitStatus::from_raw(101 << 8);
        assert_eq!(fate(exits_with_101), Fate::Caught);
        let aborted = ExitStatus::from_raw(6);
        assert_eq!(fate(aborted), Fate::Caught);
        assert_eq!(fate(ExitStatus::from_raw(SIGXCPU)), Fate::TimedOut);
    }
}
