//! Shapes an access line with the kernel's queues, and leaves nobody without a network.
//!
//! Whatever is changed is recorded first, and undone unless the user confirms it. The rules are
//! functions without a clock, a file or a process; [`machine`] executes them.
//!
//! | module | what it has |
//! |---|---|
//! | [`request`] | what a user asks for: device, rates, queue, overhead of the line |
//! | [`tree`] | the queues of a device, as `tc -j` prints them |
//! | [`judge`] | whether the queues of a device may be replaced, and could be restored |
//! | [`auto`] | the rate of a direction of a line that varies |
//! | [`suggest`] | rates and queue of a line, from measurements behind several of them |
//! | [`trial`] | the hours with and without a shaper of a trial |
//! | [`plan`] | the commands that shape a device, in an order that never cuts it off |
//! | [`rate`] | the rate of a queue, as `tc` and the kernel express it |
//! | [`restore`] | the commands that bring back recorded queues |
//! | [`record`] | what stood before, and when the change is undone |
//! | [`permanent`] | files that shape the device after each start of the machine |
//! | [`kernel_queue`] | queues that Linux lacks, as BPF programs: their settings |
//! | [`machine`] | `tc`, `ip`, the records' directory, the process that undoes |

pub mod auto;
pub mod judge;
pub mod kernel_queue;
#[cfg(target_os = "linux")]
pub mod machine;
pub mod permanent;
pub mod plan;
pub mod rate;
pub mod record;
pub mod request;
pub mod restore;
pub mod suggest;
pub mod tree;
pub mod trial;

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub program: Program,
    pub words: Vec<String>,
}

underload_aqm::named! {
    /// The programs that change the kernel's queues.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Program {
        Ip = "ip",
        Tc = "tc",
        Bpftool = "bpftool",
    }
}

impl Program {
    /// Returns the package that has it, and how to install that.
    #[cfg(target_os = "linux")]
    fn package(self) -> &'static str {
        match self {
            Self::Ip | Self::Tc => {
                "it is part of iproute2 (Debian: apt install iproute2; OpenWrt: opkg install \
                 tc-full ip-full)"
            }
            Self::Bpftool => {
                "it loads the kernel's BPF programs (Debian: apt install bpftool; Ubuntu: \
                 linux-tools)"
            }
        }
    }
}

impl Command {
    /// Returns a command of `ip`, from words with spaces between them.
    pub fn ip(text: &str) -> Self {
        Self::new(Program::Ip, text)
    }

    /// Returns a command of `tc`, from words with spaces between them.
    pub fn tc(text: &str) -> Self {
        Self::new(Program::Tc, text)
    }

    /// Returns a command of `bpftool`, from words with spaces between them.
    pub fn bpftool(text: &str) -> Self {
        Self::new(Program::Bpftool, text)
    }

    fn new(program: Program, text: &str) -> Self {
        Self { program, words: text.split_whitespace().map(str::to_owned).collect() }
    }

    #[must_use]
    pub fn with<T: Into<String>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }
}

impl std::fmt::Display for Command {
    /// Formats the command as one would type it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program.name(), self.words.join(" "))
    }
}
