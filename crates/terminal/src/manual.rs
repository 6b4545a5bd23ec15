//! Completions and man pages.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use anyhow::Context;
use clap::{Arg, Args, Command, ValueHint};
pub use clap_complete::Shell;
use clap_mangen::Man;

use crate::console::{self, note};
use crate::exit::refuse;

#[derive(Debug, Args)]
pub struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub struct Manual {
    /// The command whose page is printed, such as `try` or `docsis check`; without it, the program's.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Directory for the pages of all commands, named after the commands with hyphens.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Completions {
    /// Prints the completion script of the shell.
    pub fn run(&self, command: Command) -> anyhow::Result<()> {
        std::io::stdout()
            .lock()
            .write_all(&completions(self.shell, command))
            .context("writing the completions")
    }
}

/// Returns the completion script of a program for a shell.
pub fn completions(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    // Into memory, because clap itself ends the program if it writes to a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    let mut colons = BTreeSet::new();
    let named = command.get_subcommands().flat_map(|below| {
        below.get_arguments().map(move |argument| (below.get_name(), argument, names_of(argument)))
    });
    for (below, argument, names) in named.filter(|(.., names)| !names.is_empty()) {
        // Clap completes no positional arguments in fish, and no files beside names in zsh.
        if shell == Shell::Fish && argument.is_positional() {
            let using = format!("__fish_{}_using_subcommand {below}", name.replace('-', "_"));
            script.extend([format!("complete -c {name} -n \"{using}\" -a \"{names}\"\n")]);
        } else if shell == Shell::Zsh && argument.get_value_hint() == ValueHint::FilePath {
            let or_file = format!(":{{compadd -- {names}; _files}}'");
            script = script.replace(&format!(":({names})'"), &or_file);
        } else if shell == Shell::Bash {
            let with_colon = names.split(' ').filter(|name| name.contains(':'));
            colons.extend(with_colon.map(str::to_owned));
        }
    }
    if !colons.is_empty() {
        let of_clap = format!("_{}", name.replace('-', "__"));
        let names = colons.into_iter().collect::<Vec<_>>().join(" ");
        script += &BASH_COLONS
            .replace("FUNCTION", &of_clap)
            .replace("PROGRAM", &name)
            .replace("NAMES", &names);
    }
    script.into_bytes()
}

/// Completes words with colons, at which bash separates words.
const BASH_COLONS: &str = r#"
FUNCTION_words() {
    local typed="${COMP_LINE:0:COMP_POINT}"
    typed="${typed##* }"
    if [[ "$typed" != *:* ]]; then FUNCTION "$@"; return; fi
    typed="${typed#--*=}"
    COMPREPLY=($(compgen -W "NAMES" -- "$typed"))
    COMPREPLY=("${COMPREPLY[@]#"${typed%"$2"}"}")
}
complete -F FUNCTION_words -o bashdefault -o default PROGRAM
"#;

/// Returns the names that an argument accepts, with spaces between them.
fn names_of(argument: &Arg) -> String {
    let values = argument.get_value_parser().possible_values().into_iter().flatten();
    values.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(" ")
}

impl Manual {
    /// Prints a command's page, or writes all pages.
    pub fn run(&self, command: Command) -> anyhow::Result<()> {
        let name = [&[command.get_name().to_owned()], &self.command[..]].concat();
        let pages = pages(command)?;
        let Some(directory) = &self.out else {
            let file = format!("{}.1", name.join("-"));
            let Some((_, page)) = pages.iter().find(|(name, _)| *name == file) else {
                refuse!("`{}` is no command; `{} --help` lists them", name.join(" "), name[0])
            };
            if std::io::stdout().is_terminal() && is_shown(page) {
                return Ok(());
            }
            return std::io::stdout().lock().write_all(page).context("writing the page");
        };
        std::fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        for (name, page) in &pages {
            console::write_file(&directory.join(name), page)?;
        }
        note!("{} in {}", console::count(pages.len(), "page"), directory.display());
        Ok(())
    }
}

/// Shows a page with the program `man` and its pager. Returns false if that is impossible.
fn is_shown(page: &[u8]) -> bool {
    let man = Process::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = man else { return false };
    // A reader who leaves early closes the pipe.
    let _ = man.stdin.take().map(|mut pipe| pipe.write_all(page));
    man.wait().is_ok_and(|status| status.success())
}

/// Returns the file name and text of every command's man page, the program's own first.
pub fn pages(command: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages).context("making a page")?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.into_iter().try_for_each(|below| add_pages(below, pages))
}
