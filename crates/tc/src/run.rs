//! Running `tc`, `ip` and `bpftool`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Command, Program};

/// The longest time that a command may take. The kernel lets one program at a time change the
/// network, so a command may wait for others.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest output of a command, in bytes.
const OUTPUT_MAX: u64 = 8 << 20;

/// Number of last lines of a command's messages that an error repeats.
const MESSAGE_LINES: usize = 6;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("`{}` is not installed: {}", program.name(), program.package())]
    Missing { program: Program },
    #[error("starting `{command}`")]
    Start { command: Command, source: io::Error },
    #[error("`{command}` did not end within {} s", TIMEOUT.as_secs())]
    Hangs { command: Command },
    #[error("not allowed to change the network: run as root (sudo)")]
    Forbidden,
    #[error(
        "this kernel has no queue `{kind}`: load it (`modprobe sch_{}`; OpenWrt: the package \
         {}), or choose {}",
        kind.trim_end_matches("_mq"),
        package(kind),
        without(kind)
    )]
    NoQueue { kind: String },
    #[error(
        "this `tc` does not know the queue `{kind}`: install a newer iproute2 (dualpi2: 6.17, \
         cake_mq: 7.0), or choose another queue"
    )]
    OldTool { kind: String },
    #[error(
        "this kernel has no ifb devices, behind which received packets are shaped: load them \
         (`modprobe ifb`; OpenWrt: the package kmod-ifb), or shape --up alone"
    )]
    NoIfb,
    #[error(
        "this kernel cannot redirect received packets ({message}): `modprobe -a sch_ingress \
         cls_u32 act_mirred` (OpenWrt: the package kmod-sched-core), or shape --up alone"
    )]
    NoRedirect { message: String },
    #[error("`{command}`: {message}")]
    Failed { command: Command, message: String },
}

impl ToolError {
    /// Formats errors, all missing queues in one line.
    pub fn in_lines(errors: &[Self]) -> Vec<String> {
        let missing = |error: &Self| match error {
            Self::NoQueue { kind } => Some(kind.clone()),
            _ => None,
        };
        let kinds: Vec<String> = errors.iter().filter_map(missing).collect();
        if kinds.len() < 2 {
            return errors.iter().map(ToString::to_string).collect();
        }
        let modules: Vec<String> =
            kinds.iter().map(|kind| format!("sch_{}", kind.trim_end_matches("_mq"))).collect();
        let packages: BTreeSet<&str> = kinds.iter().map(|kind| package(kind)).collect();
        let line = format!(
            "this kernel has none of the queues {}: load them (`modprobe -a {}`; OpenWrt: {})",
            kinds.join(", "),
            modules.join(" "),
            Vec::from_iter(packages).join(", ")
        );
        let others = errors.iter().filter(|error| missing(error).is_none());
        others.map(ToString::to_string).chain([line]).collect()
    }
}

/// Returns OpenWrt's package with a kind of queue.
fn package(kind: &str) -> &'static str {
    if kind.starts_with("cake") { "kmod-sched-cake" } else { "kmod-sched" }
}

/// Returns an option of `shape` for a kernel that lacks this kind of queue.
fn without(kind: &str) -> &'static str {
    match kind {
        // `tbf` limits the rate of every queue but `cake`.
        "tbf" => "`--queue cake`",
        _ => "`--queue fifo`",
    }
}

impl Command {
    /// Runs the command and returns its output.
    ///
    /// # Errors
    /// Returns [`ToolError`] with what would help, where that is known.
    pub fn run(&self) -> Result<String, ToolError> {
        let start_error = |source| ToolError::Start { command: self.clone(), source };
        let mut process = Process::new(self.program.name());
        process.args(&self.words).env("LC_ALL", "C");
        process.env("PATH", with_system_programs(std::env::var_os("PATH")));
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The command has its own process group: Ctrl-C reaches only this process, and does not
        // interrupt a command.
        process.process_group(0);
        let start = Instant::now();
        let mut child = process.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ToolError::Missing { program: self.program },
            _ => start_error(source),
        })?;
        let (out, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let is_success = wait(&mut child).map_err(start_error)?;
        let hangs = || ToolError::Hangs { command: self.clone() };
        // A process that it started may have its output open.
        let text = |reader: Receiver<String>| {
            reader.recv_timeout(TIMEOUT.saturating_sub(start.elapsed())).map_err(|_| hangs())
        };
        match is_success {
            Some(true) => text(out),
            Some(false) => Err(failure(self, &text(errors)?)),
            None => Err(hangs()),
        }
    }
}

/// Returns the path of this machine's `tc`, which knows these kinds of queues.
///
/// # Errors
/// Returns [`ToolError::Missing`], or [`ToolError::OldTool`] with the first unknown kind.
pub fn find<'a>(kinds: impl IntoIterator<Item = &'a str>) -> Result<PathBuf, ToolError> {
    let missing = || ToolError::Missing { program: Program::Tc };
    let path = with_system_programs(std::env::var_os("PATH"));
    let mut files = std::env::split_paths(&path).map(|folder| folder.join("tc"));
    let tool = files.find(|file| file.is_file()).ok_or_else(missing)?;
    for kind in kinds {
        let mut help = Process::new(&tool);
        help.args(["qdisc", "add", "dev", "lo", "root", kind, "help"]);
        let output = help.output().map_err(|_| missing())?;
        if String::from_utf8_lossy(&output.stderr).contains("Unknown qdisc") {
            return Err(ToolError::OldTool { kind: kind.to_owned() });
        }
    }
    Ok(tool)
}

/// Returns the version that a `tc` prints, such as `iproute2-6.1.0`; empty if it prints none.
pub fn version(tool: &Path) -> String {
    let output = Process::new(tool).arg("-V").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut words = text.split([' ', ',', '\n']);
    words.find(|word| word.starts_with("iproute2")).unwrap_or_default().to_owned()
}

/// Waits until the process ends, and returns whether it succeeded. After the timeout it is killed;
/// then `None`.
fn wait(child: &mut Child) -> io::Result<Option<bool>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.map(|stream| stream.take(OUTPUT_MAX).read_to_end(&mut bytes));
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Returns the error that the messages of a failed command mean.
fn failure(command: &Command, errors: &str) -> ToolError {
    let lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.collect::<Vec<_>>();
    // The kernel explains a refused BPF program in thousands of lines, the cause last.
    let message = lines[lines.len().saturating_sub(MESSAGE_LINES)..].join("; ");
    let message = message.replace("RTNETLINK answers: ", "");
    let says = |text: &str| message.contains(text);
    let has = |word: &str| command.words.iter().any(|known| known == word);
    if says("Operation not permitted") {
        return ToolError::Forbidden;
    }
    if has("qdisc") && says("qdisc kind is unknown") {
        return match queue_kind(command) {
            kind if kind == "clsact" => ToolError::NoRedirect { message },
            kind => ToolError::NoQueue { kind },
        };
    }
    if has("qdisc") && says("Unknown qdisc") {
        return ToolError::OldTool { kind: queue_kind(command) };
    }
    if has("ifb") && says("Unknown device type") {
        return ToolError::NoIfb;
    }
    if has("filter") && has("add") {
        return ToolError::NoRedirect { message };
    }
    ToolError::Failed { command: command.clone(), message }
}

/// Returns the kind of queue in `qdisc add dev DEVICE [root|parent P] [handle H] KIND ...`.
fn queue_kind(command: &Command) -> String {
    let mut words = command.words.iter().skip(2).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "dev" | "parent" | "handle" => drop(words.next()),
            "root" => {}
            kind => return kind.to_owned(),
        }
    }
    String::new()
}

/// Appends the directories of programs for administrators, which users' paths lack on Debian.
pub fn with_system_programs(path: Option<OsString>) -> OsString {
    let mut path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_system_administration_are_found_by_users_too() {
        assert_eq!(with_system_programs(Some("/opt/bin".into())), "/opt/bin:/usr/sbin:/sbin");
        assert_eq!(with_system_programs(None), "/usr/bin:/bin:/usr/sbin:/sbin");
    }

    #[test]
    fn each_failure_has_advice() {
        let cake = Command::tc("qdisc replace dev eth0 root handle 756c: cake bandwidth 5mbit");
        let clsact = Command::tc("qdisc add dev eth0 clsact");
        let ifb = Command::ip("link add name ifb-u2 type ifb");
        let filter = Command::tc("filter add dev eth0 ingress protocol all pref 49152 u32");
        for (command, errors, expected) in [
            (&cake, "Error: Specified qdisc kind is unknown.", "modprobe sch_cake"),
            (&cake, "Error: Specified qdisc kind is unknown.", "choose `--queue fifo`"),
            (&cake, "Unknown qdisc \"cake\", hence option \"x\" is unparsable", "newer iproute2"),
            (&cake, "RTNETLINK answers: Operation not permitted", "run as root"),
            (&clsact, "Error: Specified qdisc kind is unknown.", "sch_ingress"),
            (&ifb, "Error: Unknown device type.", "modprobe ifb"),
            (&filter, "RTNETLINK answers: No such file or directory", "cls_u32"),
            (&cake, "Error: something new", "`tc qdisc replace dev eth0 root handle 756c: cake"),
        ] {
            let message = failure(command, errors).to_string();
            assert!(message.contains(expected), "{errors}: {message}");
        }
        let long = failure(&cake, &["reason"; 9].join("\n")).to_string();
        assert_eq!(long.matches("reason").count(), MESSAGE_LINES, "{long}");
    }

    #[test]
    fn queues_that_a_kernel_lacks_are_named_in_one_line() {
        let no = |kind: &str| ToolError::NoQueue { kind: kind.to_owned() };
        let errors = [no("cake"), ToolError::Forbidden, no("fq_codel"), no("fq_pie")];
        assert_eq!(
            ToolError::in_lines(&errors),
            [
                "not allowed to change the network: run as root (sudo)",
                "this kernel has none of the queues cake, fq_codel, fq_pie: load them (`modprobe -a \
                 sch_cake sch_fq_codel sch_fq_pie`; OpenWrt: kmod-sched, kmod-sched-cake)"
            ]
        );
        assert!(ToolError::in_lines(&[no("cake")])[0].contains("choose `--queue fifo`"));
    }
}
