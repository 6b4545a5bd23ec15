//! Completions and man pages.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
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
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
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
