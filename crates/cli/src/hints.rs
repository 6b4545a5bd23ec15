//! Tips for the words of other tools and of people: the commands and options that replace them.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use underload_aqm::config::closest;

/// The command, words that people use there, and what replaces them. `-`: words that people try as
/// a command.
fn replacements() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rows = include_str!("hints.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut columns = row.split(" | ").map(str::trim);
        Some((columns.next()?, columns.next()?, columns.next()?))
    })
}

/// Returns what replaces a word at a command.
fn replacement(command: &str, word: &str) -> Option<&'static str> {
    let mut rows = replacements().filter(|(known, ..)| *known == command);
    rows.find(|(_, words, _)| words.split(' ').any(|known| known == word)).map(|(.., tip)| tip)
}

/// Tips for values after options that accept none: the command, its options and the tip. An empty
/// list of options means any value that the command itself does not accept.
const VALUES: &[(&str, &[&str], &str)] = &[
    (
        "compare",
        &[],
        "runs and files are compared by `underload compare --before RUN --after RUN`, queues by \
         `underload try cake fq_codel`",
    ),
    (
        "measure",
        &["--up", "--down"],
        "--up and --down take no value; the rates of the contract are --tier 40mbit/10mbit",
    ),
    ("link", &[], "--up 10mbit --down 10mbit; the command follows `--`"),
];

/// Returns the error of a command line with a tip, if it is about a word of another tool.
pub fn with_tip(
    mut error: Error,
    program: &Command,
    words: impl Iterator<Item = OsString>,
) -> Error {
    let words: Vec<String> = words.skip(1).filter_map(|word| word.into_string().ok()).collect();
    let path = path(program, &words);
    let command = path.first().copied().unwrap_or_default();
    let wrong = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    let tip = match error.kind() {
        // `list scenarios` is wrong in its first word, although `scenarios` is a command.
        ErrorKind::InvalidSubcommand
            if words.first().is_some_and(|it| it == wrong(ContextKind::InvalidSubcommand)) =>
        {
            of_command(wrong(ContextKind::InvalidSubcommand), program)
        }
        ErrorKind::InvalidSubcommand if command == "shape" => {
            let word = wrong(ContextKind::InvalidSubcommand);
            let is_device = word.ends_with(|c: char| c.is_ascii_digit());
            Some(if is_device {
                format!("`underload shape apply --dev {word} --down 90mbit --up 18mbit`")
            } else {
                "`underload shape show` shows the queues of this machine".to_owned()
            })
        }
        ErrorKind::UnknownArgument => {
            let word = wrong(ContextKind::InvalidArg);
            // Clap also suggests options that share some letters.
            let is_near = closest(word, [wrong(ContextKind::SuggestedArg)]).is_some();
            let is_helped = is_near || error.get(ContextKind::SuggestedSubcommand).is_some();
            of_option(command, word, &words).or_else(|| {
                let line = ["underload"].into_iter().chain(path).collect::<Vec<_>>().join(" ");
                let all = || format!("`{line} --help-all` lists every option");
                (!is_helped && command != "link").then(all)
            })
        }
        ErrorKind::MissingRequiredArgument if command == "measure" => Some(NO_HOST.to_owned()),
        ErrorKind::MissingRequiredArgument if command == "report" => Some(NO_RUN.to_owned()),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        if error.remove(ContextKind::SuggestedArg).is_some() {
            // The usage line has the suggested option.
            error.remove(ContextKind::Usage);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the names of the command and of the subcommands in `words`.
fn path<'a>(program: &'a Command, words: &[String]) -> Vec<&'a str> {
    let (mut at, mut path) = (program, Vec::new());
    for word in words {
        if let Some(next) = at.find_subcommand(word) {
            path.push(next.get_name());
            at = next;
        }
    }
    path
}

const NO_HOST: &str = "`measure ndt7` needs no server of yours; \
                       `measure HOST` measures to `underload serve` on another machine";

const NO_RUN: &str = "the directory of a run, such as runs/NAME, or a file of another tool; \
                      `underload try` and `underload measure` make runs";

fn of_command(word: &str, program: &Command) -> Option<String> {
    if word.parse::<std::net::IpAddr>().is_ok() {
        return Some(format!("`underload measure {word}` measures to `underload serve` there"));
    }
    if word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('/') {
        return Some(format!("`underload try {word}` simulates such a line"));
    }
    if Path::new(word).exists() {
        return Some(format!("`underload report {word}` shows a run or the file of another tool"));
    }
    let command = replacement("-", word)?;
    let name = command.split(' ').next()?;
    program.find_subcommand(name)?;
    let server = if name == "measure" { "; without a server of yours `measure ndt7`" } else { "" };
    Some(format!("here that is `underload {command}`{server}"))
}

fn of_option(command: &str, word: &str, words: &[String]) -> Option<String> {
    if !word.starts_with('-') {
        let (_, options, tip) = VALUES.iter().find(|(known, ..)| *known == command)?;
        let is_before = |pair: &[String]| options.contains(&&*pair[0]) && pair[1] == word;
        return (options.is_empty() || words.windows(2).any(is_before)).then(|| (*tip).to_owned());
    }
    let tip = replacement(command, word)?;
    Some(format!("here that is `{tip}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    /// Returns what the program prints for a command line that it refuses.
    fn printed(line: &str) -> String {
        let words = || line.split(' ').map(OsString::from);
        let program = command();
        let error = program.clone().try_get_matches_from(words()).expect_err("a wrong line");
        with_tip(error, &program, words()).to_string()
    }

    #[test]
    fn options_and_names_of_other_tools_suggest_ours() {
        for (line, tip) in [
            ("underload speedtest", "measure ndt7"),
            ("underload 192.0.2.7", "`underload measure 192.0.2.7`"),
            ("underload 100/20", "`underload try 100/20`"),
            ("underload Cargo.toml", "`underload report Cargo.toml`"),
            ("underload shape eth0 90/18", "shape apply --dev eth0"),
            ("underload shape status", "`underload shape show`"),
            ("underload game", "here that is `underload try`"),
            ("underload measure", "measure ndt7"),
            ("underload list scenarios", "`underload scenarios`"),
            ("underload report", "`underload try` and `underload measure` make runs"),
            ("underload compare cake fq_codel", "`underload try cake fq_codel`"),
            ("underload measure -c host -t 30", "`measure HOST`"),
            ("underload measure host -t 30", "--duration 30s"),
            ("underload measure host --up 10mbit", "--tier 40mbit/10mbit"),
            ("underload measure host --no-such-option", "`underload measure --help-all`"),
            ("underload measure host --where word", "`underload measure --help-all`"),
            ("underload measure host --budget", "`underload measure --help-all`"),
            ("underload measure host --load", "`underload measure --help-all`"),
            ("underload shape show eth0", "`underload shape show --help-all`"),
            ("underload --no-such-option", "`underload --help-all`"),
        ] {
            let printed = printed(line);
            assert!(printed.contains("tip: ") && printed.contains(tip), "{line}: {printed}");
            assert!(!printed.contains("similar"), "{line}: {printed}");
        }
    }

    #[test]
    fn a_misspelt_word_suggests_the_nearest_one() {
        assert!(printed("underload mesure").contains("'measure'"));
        assert!(printed("underload measure host --donw").contains("'--down'"));
    }

    #[test]
    #[cfg(feature = "whole")]
    fn tips_name_commands_and_options_that_exist() {
        let program = command();
        let find = |name: &str| program.find_subcommand(name).expect("a command");
        let has = |of: &Command, option: &str| {
            of.get_arguments().any(|known| known.get_long() == option.strip_prefix("--"))
        };
        assert_eq!(replacements().count(), 52, "no row is left out");
        for (command, words, tip) in replacements() {
            let words: Vec<&str> = words.split(' ').collect();
            if command == "-" {
                let is_ours = |word: &&str| program.find_subcommand(word).is_some();
                assert!(!words.iter().any(is_ours), "{words:?}");
                find(tip.split(' ').next().unwrap_or_default());
                continue;
            }
            let command = find(command);
            let mut options = tip.split([' ', ',', '=']).filter(|word| word.starts_with("--"));
            assert!(options.all(|option| has(command, option)), "{tip}");
            for word in words.iter().filter(|word| word.starts_with("--")) {
                assert!(!has(command, word), "{word} is an option of its own");
            }
            let letters = words.iter().filter_map(|word| word.strip_prefix('-')?.chars().next());
            for letter in letters.filter(|letter| *letter != '-') {
                let is_known = command.get_arguments().any(|it| it.get_short() == Some(letter));
                assert!(!is_known, "-{letter} is an option of its own");
            }
        }
    }
}
