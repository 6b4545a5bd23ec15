//! `underload new`: asks for a line, queues and uses, and writes the scenario.

use std::io::{BufRead, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use underload_scenario::Scenario;
use underload_scenario::question::{Part, Question, Use};
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

/// A question, its usual answer, and the part of the line or its use that an answer sets.
type Asking = (&'static str, &'static str, fn(&mut Question, &str) -> anyhow::Result<()>);

const QUESTIONS: [Asking; 7] = [
    ("Rate up", "20mbit", |question, rate| {
        rate.clone_into(&mut question.up);
        Ok(())
    }),
    ("Rate down", "100mbit", |question, rate| {
        rate.clone_into(&mut question.down);
        Ok(())
    }),
    ("Round trip of the line", "30ms", |question, time| {
        time.clone_into(&mut question.rtt);
        Ok(())
    }),
    ("Queues, the first is today's", "fifo cake", |question, queues| {
        question.queues = words(queues);
        Ok(())
    }),
    ("Uploads at once", "1", |question, count| {
        question.uploads = transfers(count)?;
        Ok(())
    }),
    ("Downloads at once", "0", |question, count| {
        question.downloads = transfers(count)?;
        Ok(())
    }),
    ("Uses: call game page video, or none", "call", |question, names| {
        question.uses = uses(names)?;
        Ok(())
    }),
];

/// Returns the words of an answer; commas may be between them.
fn words(answer: &str) -> Vec<String> {
    let words = answer.split_whitespace().flat_map(|word| {
        // Commas behind the colon of a SPEC separate its parameters.
        let head = word.find(':').unwrap_or(word.len());
        let last = word[..head].rfind(',').map_or(0, |comma| comma + 1);
        word[..last].split(',').chain([word[last..].trim_end_matches(',')])
    });
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn transfers(count: &str) -> anyhow::Result<u32> {
    let number = count.parse().ok().filter(|number| *number <= 1_000);
    number.ok_or_else(|| anyhow!("`{count}`: expected a number up to 1000"))
}

fn uses(answer: &str) -> anyhow::Result<Vec<Use>> {
    let named = |word: &String| Use::ALL.into_iter().find(|it| it.name() == word);
    let uses = match answer {
        "none" => Some(Vec::new()),
        answer => words(answer).iter().map(named).collect(),
    };
    uses.context("expected some of call, game, page and video, or none")
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
fn ask(input: &mut dyn BufRead, file: &Path) -> anyhow::Result<Scenario> {
    let name = file.display().to_string();
    let mut question = Question::default();
    for (asking, usual, answer_to) in QUESTIONS {
        loop {
            console::ask(&format!("{asking} [{usual}]: "));
            let mut line = String::new();
            if input.read_line(&mut line).context("reading the answer")? == 0 {
                refuse!("the input ended before the last question; nothing was written");
            }
            let answer = if line.trim().is_empty() { usual } else { line.trim() };
            let mut next = question.clone();
            match answer_to(&mut next, answer).and_then(|()| scenario(&next, &name)) {
                Ok(_) => {
                    question = next;
                    break;
                }
                Err(error) => warning!("error: {error}"),
            }
        }
    }
    scenario(&question, &name)
}

fn scenario(question: &Question, name: &str) -> anyhow::Result<Scenario> {
    let part = |part: Part| match part {
        Part::Up => "up",
        Part::Down => "down",
        Part::Rtt => "rtt",
        Part::Queue => "queue",
        Part::Load => "load",
        Part::CongestionControl => "congestion_control",
    };
    question.scenario(name).map_err(|faults| {
        let mut lines: Vec<String> = faults.iter().map(|fault| fault.problem(part)).collect();
        lines.dedup();
        anyhow!(lines.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answers: &str) -> anyhow::Result<Scenario> {
        ask(&mut answers.as_bytes(), Path::new("mine.toml"))
    }

    #[test]
    fn the_usual_answers_are_the_default_question() {
        let asked = answered("\n\n\n\n\n\n\n").expect("a scenario");
        let usual = Question::default().scenario("mine.toml").expect("a scenario");
        assert_eq!(asked.text, usual.text);
    }

    #[test]
    fn an_invalid_answer_repeats_the_question() {
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
    fn a_wrong_answer_has_an_error_without_a_key() {
        for (index, answer, expected) in [
            (1, "20", "`20` has no unit; expected "),
            (0, "20mbit:delay=5ms", "`delay` is set by `rtt`; "),
            (3, "cak", "there is no queue `cak`; "),
            (4, "many", "`many`: expected a number "),
            (6, "flight", "expected some of call, "),
        ] {
            let mut question = Question::default();
            let (.., answer_to) = QUESTIONS[index];
            let made = answer_to(&mut question, answer).and_then(|()| scenario(&question, "mine"));
            let error = made.expect_err("a wrong answer").to_string();
            assert!(error.starts_with(expected), "{answer}: {error}");
        }
        let queues = words("fifo,codel:target=1ms,ecn=on, pie");
        assert_eq!(queues, ["fifo", "codel:target=1ms,ecn=on", "pie"]);
    }
}
