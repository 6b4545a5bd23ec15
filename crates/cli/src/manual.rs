//! `underload completions` and `underload man`: the command line for shells and for `man`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use underload_disk::{self as disk, Access};

use crate::console::{self, note};

/// The command line of `underload completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload completions bash > ~/.local/share/bash-completion/completions/underload
  underload completions zsh > ~/.zfunc/_underload
  underload completions fish > ~/.config/fish/completions/underload.fish")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The command line of `underload man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload man | man -l -
  underload man ~/.local/share/man/man1")]
pub struct Manual {
    /// Writes a page for each command there, underload-run.1 and so on; without it the page of the
    /// whole program is printed.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

const NAME: &str = "underload";

impl Completions {
    /// Prints the shell's script.
    pub fn run(&self, mut command: Command) -> anyhow::Result<()> {
        // Through memory: what it prints itself may not find a reader.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, NAME, &mut script);
        std::io::stdout().lock().write_all(&script).context("writing the completions")
    }
}

impl Manual {
    /// Prints the program's page, or writes all of them.
    pub fn run(&self, command: Command) -> anyhow::Result<()> {
        let pages = pages(command)?;
        let Some(directory) = &self.directory else {
            let (_, page) = pages.first().context("the program has a page")?;
            return std::io::stdout().lock().write_all(page).context("writing the page");
        };
        std::fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        for (name, page) in &pages {
            write(&directory.join(name), page)?;
        }
        note!("{} in {}", console::count(pages.len(), "page"), directory.display());
        Ok(())
    }
}

fn write(path: &Path, page: &[u8]) -> anyhow::Result<()> {
    disk::write_whole(path, page, Access::Usual)
        .with_context(|| format!("writing {}", path.display()))
}

/// Every command's page with its file's name, the program's own first.
fn pages(command: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = pages(command()).expect("pages");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.first(), Some(&"underload.1"));
        for name in ["underload-run.1", "underload-docsis-decode.1", "underload-fleet-plan-check.1"]
        {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for (name, page) in &pages {
            let page = String::from_utf8_lossy(page);
            assert!(page.contains("\n.TH underload"), "{name}: {page:.200}");
            assert!(page.contains("Examples:"), "{name}");
        }
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), NAME, &mut script);
            let script = String::from_utf8(script).expect("text");
            for word in ["scenarios", "completions", "recommend", "congestion-control"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
