//! Linux's `tc`: the one place that knows its arguments, its output and how to run it.
//!
//! | module | what it has |
//! |---|---|
//! | [`words`] | a SPEC as the arguments of `tc qdisc` |
//! | [`printed`] | queues, filters and devices, as `tc -j` and `ip -j` print them |
//! | [`restore`] | the commands that bring back printed queues |
//! | [`run`] | running `tc`, `ip` and `bpftool`, and what their errors mean |
//!
//! `shape` changes the queues of real devices with it, `emu` those between its namespaces.

use underload_record::text::shell_word;

pub mod printed;
pub mod restore;
#[cfg(target_os = "linux")]
pub mod run;
pub mod words;

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
                "it is part of iproute2 (Debian: apt install iproute2; OpenWrt: the packages \
                 tc-full and ip-full)"
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
        Self { program, words: text.split_ascii_whitespace().map(str::to_owned).collect() }
    }

    #[must_use]
    pub fn with<T: Into<String>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }
}

impl std::fmt::Display for Command {
    /// Formats the command as one would type it in a shell.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program.name())?;
        self.words.iter().try_for_each(|word| write!(f, " {}", shell_word(word)))
    }
}
