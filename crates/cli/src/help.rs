//! The program's help, which lists the commands by purpose.

use std::fmt::Write as _;

use clap::Command;

const GROUPS: [(&str, &str); 3] = [
    ("My line is bad", "measure path shape kernel-queue history survey serve"),
    ("I study queues", "try run sweep replay link scenarios check queues figures"),
    ("Operators, results, tools", "docsis fleet report compare export docs"),
];
/// Commands that share the last line.
const TOOLS: [&str; 3] = ["kernel", "completions", "man"];
const ABOUT_TOOLS: &str = "Guest kernel, completions of a shell, manual pages";

const EXAMPLES: &str = if cfg!(feature = "whole") { WHOLE_EXAMPLES } else { SMALL_EXAMPLES };

const SMALL_EXAMPLES: &str = "\
Examples:
  underload measure example.net                  this access line, to `underload serve` there
  underload measure ndt7 --down                  this access line, to the nearest M-Lab server
  underload shape apply --dev eth0 --up 18mbit   packets wait here, and not in the modem

This program has only the commands that measure access lines.";

const WHOLE_EXAMPLES: &str = "\
Examples:
  underload measure ndt7   this access line, to the nearest public server";

/// Lists the subcommands by groups in the help of `command`.
pub fn grouped(command: Command) -> Command {
    let names = command.get_subcommands().map(Command::get_name);
    let width = names.map(str::len).max().unwrap_or(0);
    let heading = command.get_styles().get_header().to_owned();
    let literal = command.get_styles().get_literal().to_owned();
    let mut text = String::new();
    for (name, members) in GROUPS {
        let mut heading = Some(format!("{heading}{name}:{heading:#}\n"));
        for member in members.split(' ').filter_map(|member| command.find_subcommand(member)) {
            text += &heading.take().unwrap_or_default();
            let about = member.get_about().map(ToString::to_string).unwrap_or_default();
            let name = member.get_name();
            let _ = writeln!(text, "  {literal}{name:<width$}{literal:#}  {about}");
        }
        if heading.is_none() {
            text.push('\n');
        }
    }
    if TOOLS.iter().all(|tool| command.find_subcommand(tool).is_some()) {
        // Removes the empty line after the last group, so that the tools follow it directly.
        text.pop();
        let _ = writeln!(text, "  {literal}{}{literal:#}  {ABOUT_TOOLS}\n", TOOLS.join(", "));
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\
         {heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template).after_help(EXAMPLES).after_long_help(None::<&str>)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn every_command_is_in_one_group() {
        let of_groups = GROUPS.iter().flat_map(|(_, members)| members.split(' '));
        let members: Vec<&str> = of_groups.chain(TOOLS).collect();
        let command = command();
        for known in command.get_subcommands().filter(|known| !known.is_hide_set()) {
            let times = members.iter().filter(|member| **member == known.get_name()).count();
            assert_eq!(times, 1, "{}", known.get_name());
        }
        for member in members.into_iter().filter(|_| cfg!(feature = "whole")) {
            assert!(command.find_subcommand(member).is_some(), "{member}");
        }
        let help = command.clone().render_help().to_string();
        assert!(help.contains("\nMy line is bad:\n  measure "), "{help}");
    }
}
