//! Runs tests against one change after another: only those that reach it, those nearest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use super::outcomes::Fate;

/// The test programs of an area, and which tests of each reach which change.
pub struct Trials {
    programs: Vec<Program>,
    folder: PathBuf,
}

struct Program {
    path: PathBuf,
    /// The tests that reach a change, by their names.
    reached: BTreeMap<usize, BTreeSet<String>>,
    /// What a test took without a change.
    took: BTreeMap<String, Duration>,
    /// Processor time of all tests.
    spent: Duration,
}

/// Tests of one program that run together.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    program: usize,
    /// None are all.
    names: Vec<String>,
    took: Duration,
}

impl Trials {
    /// Runs every test once without any change, and notes who reaches what, and how fast.
    pub fn begin(programs: &[PathBuf], folder: &Path) -> anyhow::Result<Self> {
        let programs = programs.iter().map(|path| Program::trace(path, folder));
        let programs = programs.collect::<anyhow::Result<_>>()?;
        Ok(Self { programs, folder: folder.to_owned() })
    }

    /// What becomes of a change, in that file of the package.
    pub fn judge(&self, number: usize, file: &str) -> anyhow::Result<Fate> {
        let mut fate = Fate::Unreached;
        for batch in self.batches(number, &module(file)) {
            let path = &self.programs[batch.program].path;
            let mutant = Some(("MUTANT", number.to_string()));
            fate = run(path, &self.folder, &batch.names, mutant, Some(limit(batch.took)))?;
            if fate != Fate::Missed {
                break;
            }
        }
        Ok(fate)
    }

    /// What becomes of a change that these programs were built with alone.
    pub fn judge_alone(&self, programs: &[PathBuf]) -> anyhow::Result<Fate> {
        let longest = self.programs.iter().map(|program| program.spent).max();
        let limit = limit(longest.unwrap_or_default());
        for path in programs {
            match run(path, &self.folder, &[], None, Some(limit))? {
                Fate::Missed => (),
                other => return Ok(other),
            }
        }
        Ok(Fate::Missed)
    }

    /// The tests that reach a change, in the order of how soon they are likely to say something:
    /// the quick ones of the module together, the quick ones of others, then one by one.
    fn batches(&self, number: usize, module: &str) -> Vec<Batch> {
        let (mut near, mut far, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for (place, program) in self.programs.iter().enumerate() {
            let Some(names) = program.reached.get(&number) else { continue };
            if !names.iter().all(|name| program.took.contains_key(name)) {
                // A thread of a test's own has no name that tells which test it is of.
                slow.push(Batch { program: place, names: Vec::new(), took: program.spent });
                continue;
            }
            let is_quick = |name: &&String| program.took[*name] < QUICK;
            let together = |names: Vec<&String>| Batch {
                program: place,
                took: names.iter().map(|name| program.took[*name]).sum(),
                names: names.into_iter().cloned().collect(),
            };
            let (quick, others): (Vec<&String>, Vec<&String>) = names.iter().partition(is_quick);
            let (here, elsewhere): (Vec<&String>, Vec<&String>) =
                quick.into_iter().partition(|name| name.starts_with(module));
            near.extend((!here.is_empty()).then(|| together(here)));
            far.extend((!elsewhere.is_empty()).then(|| together(elsewhere)));
            slow.extend(others.into_iter().map(|name| together(vec![name])));
        }
        slow.sort_by_key(|batch| batch.took);
        near.into_iter().chain(far).chain(slow).collect()
    }
}

impl Program {
    fn trace(path: &Path, folder: &Path) -> anyhow::Result<Self> {
        let trace = path.with_extension("trace");
        let _ = fs::remove_file(&trace);
        let before = spent_by_children();
        let environment = Some(("MUTANT_TRACE", trace.display().to_string()));
        if run(path, folder, &[], environment, None)? != Fate::Missed {
            bail!("{}: its tests fail without any change", path.display());
        }
        let spent = spent_by_children().saturating_sub(before);
        let (mut reached, mut took) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::new());
        let text = fs::read_to_string(&trace).unwrap_or_default();
        for line in text.lines() {
            // The names of the threads are those of their tests.
            let mut words = line.rsplitn(3, ' ');
            let (number, what, name) = (words.next(), words.next(), words.next());
            let number: u64 = number.and_then(|it| it.parse().ok()).context("a trace's line")?;
            let name = name.unwrap_or_default().to_owned();
            if what == Some("took") && !["", "main"].contains(&name.as_str()) {
                took.insert(name, Duration::from_micros(number));
            } else if what == Some("reached") {
                reached.entry(number as usize).or_default().insert(name);
            }
        }
        Ok(Self { path: path.to_owned(), reached, took, spent })
    }
}

/// The seconds of processor time after which tests that took so long will never end.
fn limit(took: Duration) -> u64 {
    MIN_CPU_SECONDS + CPU_FACTOR * took.as_secs()
}

/// The module of a file, as the names of its tests begin: `congestion::prague`.
fn module(file: &str) -> String {
    let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
    let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    inner.replace('/', "::")
}

/// Runs tests of one program: those of the names, or all. It may use so many seconds of processor
/// time, which a busy machine does not use up for it.
fn run(
    program: &Path,
    folder: &Path,
    names: &[String],
    environment: Option<(&str, String)>,
    cpu_seconds: Option<u64>,
) -> anyhow::Result<Fate> {
    let mut command = Command::new("sh");
    let limits = cpu_seconds.map(|it| format!("ulimit -t {it}; ulimit -v {MEMORY_KB}; "));
    command.arg("-c").arg(format!("{}exec nice \"$0\" \"$@\"", limits.unwrap_or_default()));
    command.arg(program).args(["--quiet", "--test-threads", THREADS]);
    if !names.is_empty() {
        command.arg("--exact").args(names);
    }
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
fn spent_by_children() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = |place: usize| -> u64 {
        after_name.split_whitespace().nth(place).and_then(|it| it.parse().ok()).unwrap_or_default()
    };
    // `cutime` and `cstime`, fields 16 and 17 of proc(5), in hundredths of a second.
    Duration::from_millis(10 * (ticks(13) + ticks(14)))
}

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
/// Tests that took less run together.
const QUICK: Duration = Duration::from_millis(200);
/// Of any tests, however short.
const MIN_CPU_SECONDS: u64 = 4;
/// And so many times what they take without a change.
const CPU_FACTOR: u64 = 4;
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
    fn what_says_something_soonest_runs_first() {
        let program = |tests: &[(&str, u64)]| Program {
            path: PathBuf::new(),
            reached: BTreeMap::from([(7, tests.iter().map(|it| it.0.to_owned()).collect())]),
            took: tests
                .iter()
                .filter(|it| !it.0.is_empty())
                .map(|it| (it.0.to_owned(), Duration::from_millis(it.1)))
                .collect(),
            spent: Duration::from_secs(9),
        };
        let first = program(&[("a::slow", 900), ("a::quick", 10), ("b::quick", 20), ("a::two", 5)]);
        let programs = vec![first, program(&[("c::slower", 400)]), program(&[("", 1)])];
        let trials = Trials { programs, folder: PathBuf::new() };
        let told: Vec<(usize, String, u128)> = trials
            .batches(7, "a")
            .iter()
            .map(|batch| (batch.program, batch.names.join(" "), batch.took.as_millis()))
            .collect();
        let expected = [
            (0, "a::quick a::two", 15),
            (0, "b::quick", 20),
            (1, "c::slower", 400),
            (0, "a::slow", 900),
            (2, "", 9_000),
        ];
        assert_eq!(told, expected.map(|(place, names, took)| (place, names.to_owned(), took)));
        assert_eq!(trials.batches(8, "a"), []);
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
