//! `--help` with the usual options of a command, and `--help-all` with every option.
//!
//! An option with clap's `hide_short_help` is rare: only `--help-all`, the manual pages and the
//! book show it. They also have all examples, and the text before the examples if it is long.

use std::ffi::OsString;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command};

use crate::console::LAST;

const ALL: &str = "help-all";

/// Returns a parser of the values in `all`, each with its name and a description for the help.
pub fn choices<T: Clone + Send + Sync + 'static, const N: usize>(
    all: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let names = all.each_ref().map(|(_, name, about)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(names).try_map(move |given| {
        let chosen = all.iter().find(|(_, name, _)| *name == given);
        chosen.map(|(value, ..)| value.clone()).ok_or("an unknown value")
    })
}

/// Adds `--help` and `--help-all` to a command and to those below it, unless a command passes its
/// words on to another program.
pub fn with_help(command: Command) -> Command {
    if command.is_disable_help_flag_set() {
        return command;
    }
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::HelpShort).display_order(LAST)
    };
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let short = usual(&text);
    below(command, with_help)
        .after_help(short)
        .after_long_help(text)
        .disable_help_flag(true)
        .arg(flag("help", "Prints this help").short('h'))
        .arg(flag(ALL, "Prints every option, rare ones too"))
}

/// Returns the command with all options in its help and in that of the commands below it.
pub fn with_rare_options(command: Command) -> Command {
    let command = match command.get_after_long_help().cloned() {
        Some(whole) => command.after_help(whole).after_long_help(None::<&str>),
        None => command,
    };
    below(command.mut_args(|option| option.hide_short_help(false)), with_rare_options)
}

/// Returns the text below the options without its long introduction and its last examples.
fn usual(text: &str) -> String {
    let (introduction, examples) = text.split_once(EXAMPLES).unwrap_or((text, ""));
    let introduction = if introduction.lines().count() > MOST_LINES { "" } else { introduction };
    let mut shown = 0;
    let is_shown = |line: &&str| {
        shown += usize::from(line.trim_start().starts_with("underload "));
        shown <= MOST_EXAMPLES
    };
    let lines: Vec<&str> = examples.lines().take_while(is_shown).collect();
    if lines.is_empty() {
        return introduction.to_owned();
    }
    format!("{introduction}{EXAMPLES}{}", lines.join("\n"))
}

const EXAMPLES: &str = "Examples:\n";
/// Lines before the examples, and examples, that the usual help has at most.
const MOST_LINES: usize = 4;
const MOST_EXAMPLES: usize = 4;

pub fn asks_for_all(words: impl Iterator<Item = OsString>) -> bool {
    let all = format!("--{ALL}");
    words.take_while(|word| word != "--").any(|word| word == all.as_str())
}

/// Applies a change to the commands below a command.
fn below(command: Command, change: fn(Command) -> Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let rare = Arg::new("rare").long("rare").hide_short_help(true);
        let usual = Arg::new("usual").long("usual");
        let passes_on = Command::new("other").disable_help_flag(true).arg(Arg::new("words"));
        let own = Command::new("own").arg(rare).arg(usual);
        with_help(Command::new("program").subcommand(own).subcommand(passes_on))
    }

    fn help(command: &Command, words: &[&str]) -> String {
        let outcome = command.clone().try_get_matches_from(words);
        outcome.expect_err("help ends the program").to_string()
    }

    #[test]
    fn rare_options_are_in_the_full_help_only() {
        for word in ["-h", "--help"] {
            let usual = help(&command(), &["program", "own", word]);
            assert!(usual.contains("--usual") && !usual.contains("--rare"), "{usual}");
        }
        let words = ["program", "own", "--help-all"];
        assert!(asks_for_all(words.iter().map(OsString::from)));
        let all = help(&with_rare_options(command()), &words);
        assert!(all.contains("--usual") && all.contains("--rare"), "{all}");
        let behind = ["program", "link", "--", "other", "--help-all"];
        assert!(!asks_for_all(behind.iter().map(OsString::from)));
        let passed = command().try_get_matches_from(["program", "other", "--", "--help"]);
        assert!(passed.is_ok(), "the words of another program are not read");
    }

    #[test]
    fn the_usual_help_has_few_examples_and_no_long_text() {
        let example = |number| format!("  underload own {number} \\\n    --more");
        let examples: Vec<String> = (1..7).map(example).collect();
        let whole = format!("{}Examples:\n{}", "Long.\n".repeat(9), examples.join("\n"));
        let usual = format!("Examples:\n{}", examples[..4].join("\n"));
        let own = with_help(Command::new("own").after_help(&whole));
        let text = |command: &Command| command.get_after_help().map(ToString::to_string);
        assert_eq!(text(&own), Some(usual));
        assert_eq!(text(&with_rare_options(own)), Some(whole));
    }
}
