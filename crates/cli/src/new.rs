//! `underload new`: asks for a line, queues and uses, and writes the scenario.
//!
//! The answers become options of `underload try`, which checks them and builds the scenario.

use std::error::Error;
use std::io::{BufRead, IsTerminal as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::error::ContextKind;
use clap::{Args, Parser};
use underload_run::scenario::Scenario;
use underload_terminal::console::{self, note, shell_word, warning};
use underload_terminal::exit::refuse;

use crate::question;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload new mine.toml
  underload try --call --save mine.toml   the same from options, without questions")]
pub struct Arguments {
    /// The new file for the scenario.
    file: PathBuf,
}

/// The options of `underload try`, without a program around them.
#[derive(Debug, Parser)]
struct Asked {
    #[command(flatten)]
    question: question::Arguments,
}

/// A question, its usual answer, and the options of `underload try` that an answer becomes.
type Asking = (&'static str, &'static str, fn(&str) -> Vec<String>);

const QUESTIONS: [Asking; 7] = [
    ("Rate up", "20mbit", |rate| vec![format!("--up={rate}")]),
    ("Rate down", "100mbit", |rate| vec![format!("--down={rate}")]),
    ("Round trip of the line", "30ms", |time| vec![format!("--rtt={time}")]),
    ("Queues, the first is today's", "fifo cake", |queues| each("--queue=", queues)),
    ("Uploads at once", "1", |count| count_of("--upload=", count)),
    ("Downloads at once", "0", |count| count_of("--download=", count)),
    ("Uses: call game page video, or none", "call", |uses| match uses {
        "none" => Vec::new(),
        uses => each("--", uses),
    }),
];

/// Returns an option for each word of an answer; commas may be between the words.
fn each(option: &str, words: &str) -> Vec<String> {
    let words = words.split_whitespace().flat_map(|word| {
        // Commas behind the colon of a SPEC separate its parameters.
        let head = word.find(':').unwrap_or(word.len());
        let last = word[..head].rfind(',').map_or(0, |comma| comma + 1);
        word[..last].split(',').chain([word[last..].trim_end_matches(',')])
    });
    words.filter(|word| !word.is_empty()).map(|word| format!("{option}{word}")).collect()
}

fn count_of(option: &str, count: &str) -> Vec<String> {
    if count == "0" { Vec::new() } else { vec![format!("{option}{count}")] }
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        if !std::io::stdin().is_terminal() {
            refuse!("expected a terminal to ask; `underload try --save FILE` needs none");
        }
        if self.file.exists() {
            refuse!("{}: the file exists; expected a new name", self.file.display());
        }
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            refuse!("{}: not a folder; expected a file in an existing one", folder.display());
        }
        let scenario = ask(&mut std::io::stdin().lock(), &self.file)?;
        question::save(&self.file.display(), &self.file, &scenario.text)?;
        note!("written: underload run {}", shell_word(&self.file));
        Ok(())
    }
}

/// Asks every question until its answer is accepted; an empty answer is the usual one.
fn ask(input: &mut dyn BufRead, file: &std::path::Path) -> anyhow::Result<Scenario> {
    let mut options = vec!["try".to_owned(), format!("--save={}", file.display())];
    for (words, usual, to_options) in QUESTIONS {
        loop {
            console::ask(&format!("{words} [{usual}]: "));
            let mut line = String::new();
            if input.read_line(&mut line).context("reading the answer")? == 0 {
                refuse!("the input ended before the last question; nothing was written");
            }
            let answer = if line.trim().is_empty() { usual } else { line.trim() };
            let mut more = options.clone();
            more.extend(to_options(answer));
            match scenario(&more) {
                Ok(_) => {
                    options = more;
                    break;
                }
                Err(error) => warning!("error: {}", without_option(error.root_cause())),
            }
        }
    }
    scenario(&options)
}

fn scenario(options: &[String]) -> anyhow::Result<Scenario> {
    let asked = Asked::try_parse_from(options).map_err(|error| {
        match (error.get(ContextKind::InvalidValue), error.source()) {
            (Some(value), Some(source)) => anyhow!("`{value}`: {source}"),
            // Only uses become options by their names.
            _ => anyhow!("expected some of call, game, page and video, or none"),
        }
    })?;
    asked.question.scenario()
}

/// Returns an error of `try` without the names of options, which the questions do not have.
fn without_option(error: &dyn Error) -> String {
    let text = error.to_string();
    let line = |line: &str| match line.trim_start_matches("error: ").split_once(": ") {
        Some((option, problem)) if option.starts_with("--") => problem.replace("`--", "`"),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answers: &str) -> anyhow::Result<Scenario> {
        ask(&mut answers.as_bytes(), std::path::Path::new("mine.toml"))
    }

    #[test]
    fn the_usual_answers_are_those_of_try() {
        let asked = answered("\n\n\n\n\n\n\n").expect("a scenario");
        let options = scenario(&["try".to_owned(), "--save=mine.toml".to_owned()]).expect("one");
        assert_eq!(asked.text, options.text);
    }

    #[test]
    fn a_wrong_answer_is_asked_again() {
        let answers = "fast\n5mbit\n\n\nfifo,fq_codel, pie\nmany\n2\n1\nflight\ngame, page\n";
        let asked = answered(answers).expect("a scenario");
        let names: Vec<&str> = asked.variants.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["fifo", "fq-codel", "pie"]);
        assert!(asked.text.contains("up = \"5mbit\""), "{}", asked.text);
        let flows: Vec<&str> =
            asked.variants[0].flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(flows, ["upload", "download", "game", "page", "probe"]);
        let error = format!("{:#}", answered("5mbit\n").expect_err("the answers end"));
        assert!(error.contains("nothing was written"), "{error}");
    }

    #[test]
    fn errors_name_no_option() {
        for (option, expected) in [
            ("--down=20", "`20` has no unit; expected "),
            ("--up=20mbit:delay=5ms", "`delay` is set by `rtt`; "),
            ("--queue=cak", "there is no queue `cak`; "),
            ("--upload=many", "`many`: "),
            ("--flight", "expected some of call, "),
        ] {
            let options = ["try", "--save=mine.toml", option].map(str::to_owned);
            let error = scenario(&options).expect_err("a wrong answer");
            let error = without_option(error.root_cause());
            assert!(error.starts_with(expected) && !error.contains("--"), "{option}: {error}");
        }
        let queues = each("", "fifo,codel:target=1ms,ecn=on, pie");
        assert_eq!(queues, ["fifo", "codel:target=1ms,ecn=on", "pie"]);
    }
}
