//! What the help of the program says beyond its arguments: commands by what they are for.

use std::fmt::Write as _;

use clap::Command;

/// Commands by what they are for, as the program's help lists them.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Simulate and emulate",
        &["run", "sweep", "scenarios", "check", "figures", "replay", "link", "queues"],
    ),
    ("Measure lines", &["measure", "history", "survey", "path", "serve", "fleet"]),
    ("Results and tools", &["report", "export", "docsis", "cache", "completions", "man"]),
];

const EXAMPLES: &str = if cfg!(feature = "whole") { OF_ALL } else { OF_MEASURING };

const OF_MEASURING: &str = "\
Examples:
  underload measure example.net                  this line, against `underload serve` there
  underload measure ndt7 --down                  the same, against the nearest of M-Lab's servers
  underload path example.net                     which markings survive, and what queue is there

This program has the commands that measure lines, and no others. `underload COMMAND --help` has the
options and examples of each.";

const OF_ALL: &str = "\
Examples:
  underload run comcast/upstream                 a published experiment, with its report
  underload measure example.net                  this line, against `underload serve` there
  underload link --up 10mbit -- iperf3 -c HOST   any command behind a slow line

`underload COMMAND --help` has the options and examples of each, `underload man DIR` as pages.";

/// The command with its subcommands by groups.
pub fn grouped(command: Command) -> Command {
    let width = command.get_subcommands().map(|it| it.get_name().len()).max().unwrap_or(0);
    let heading = command.get_styles().get_header().to_owned();
    let literal = command.get_styles().get_literal().to_owned();
    let mut text = String::new();
    for (name, members) in GROUPS {
        let known = |member: &&str| command.find_subcommand(member);
        let known: Vec<&Command> = members.iter().filter_map(known).collect();
        if known.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{heading}{name}:{heading:#}");
        for command in known {
            let member = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{member:<width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\
         {heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template).after_help(EXAMPLES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn every_command_is_in_one_group() {
        let members: Vec<&str> = GROUPS.iter().flat_map(|(_, members)| *members).copied().collect();
        let command = command();
        for known in command.get_subcommands().filter(|known| !known.is_hide_set()) {
            let times = members.iter().filter(|member| **member == known.get_name()).count();
            assert_eq!(times, 1, "{}", known.get_name());
        }
        for member in members.into_iter().filter(|_| cfg!(feature = "whole")) {
            assert!(command.find_subcommand(member).is_some(), "{member}");
        }
        let help = command.clone().render_help().to_string();
        assert!(help.contains("\nMeasure lines:\n  measure "), "{help}");
    }
}
