//! The names that a shell completes: scenarios, queues and links with their profiles, and pages of the
//! documentation. They are the lists by which the program finds them.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use underload_aqm::config::{Definition, Profile};
use underload_aqm::registry::{LINKS, QUEUES};
use underload_scenario::builtin;
use underload_scenario::question::home::lines;

use crate::docs;

/// Returns the command line for completions: its arguments have the names that they accept.
pub fn with_names(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let of = command.get_name().to_owned();
        command.mut_args(|argument| of_argument(&of, argument))
    })
}

fn of_argument(command: &str, argument: Arg) -> Arg {
    let queues = || QUEUES.iter().flat_map(|entry| specs(entry.definition));
    let links = LINKS.iter().map(|entry| entry.definition.name.to_owned());
    let is_spec =
        argument.get_value_names().is_some_and(|names| names.iter().any(|it| it == "SPEC"));
    let hint = argument.get_value_hint();
    let (names, hint): (Vec<String>, ValueHint) = match (command, argument.get_id().as_str()) {
        ("run", "scenario") | ("check", "files") | ("link", "config") | ("scenarios", "name") => {
            (builtin::scenarios().map(|it| it.name.to_owned()).collect(), ValueHint::FilePath)
        }
        ("docs", "page") => (docs::names(), hint),
        ("queues", "name") => (queues().chain(links).collect(), hint),
        ("try", "words") => (queues().chain(lines().map(str::to_owned)).collect(), hint),
        ("try" | "link" | "replay", _) if is_spec => (queues().chain(links).collect(), hint),
        _ => return argument,
    };
    // Clap has only texts that live as long as the program, which ends when the script is printed.
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    argument.value_parser(PossibleValuesParser::new(names)).value_hint(hint)
}

/// Returns the name of a queue, and its SPECs with each profile.
fn specs(definition: &'static Definition) -> Vec<String> {
    let Definition { name, profiles, profile_key, .. } = definition;
    let of_profile = |profile: &Profile| format!("{name}:{profile_key}={}", profile.name);
    [(*name).to_owned()].into_iter().chain(profiles.iter().map(of_profile)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use underload_terminal::manual::{Shell, completions};

    use super::*;

    fn script(shell: Shell) -> String {
        String::from_utf8(completions(shell, with_names(crate::command()))).expect("text")
    }

    /// Returns what a shell prints for a script; `None` if the shell is not installed.
    fn printed(shell: &str, script: &str) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("my.toml"), "").expect("a file");
        // As one argument it would be too long for Linux.
        std::fs::write(folder.path().join("typed"), script).expect("a file");
        let output = match Process::new(shell).arg("typed").current_dir(folder.path()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED completions of {shell}: it is not installed");
                return None;
            }
            output => output.expect("the shell starts"),
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{shell}: {errors}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What is typed, with `^` where the last word begins for the shell, and the completion.
    const TYPED: [(&str, &str); 7] = [
        ("underload run ^comcast/upstr", "comcast/upstream"),
        ("underload scenarios ^home/ca", "home/cable"),
        ("underload try --queue ^docsis-p", "docsis-pie"),
        ("underload try cable ^fq-c", "fq-codel"),
        ("underload replay all.pcap --link 10mbit --queue codel:^prof", "profile=linux"),
        ("underload try --router=codel:profile=^li", "linux"),
        ("underload docs ^how-to/sw", "how-to/sweep"),
    ];

    #[test]
    fn bash_completes_scenarios_queues_profiles_and_pages() {
        for (typed, expected) in TYPED {
            let (before, word) = typed.split_once('^').expect("the last word");
            let previous = before.trim_end().rsplit([' ', '=']).next().unwrap_or_default();
            let line = format!("{before}{word}");
            let words: Vec<&str> = line.split(' ').collect();
            let run = format!(
                "{}\nCOMP_WORDS=({line}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}\n\
                 complete -p underload | grep -o -- '-F [^ ]*' | cut -c4- > function\n\
                 $(cat function) underload '{word}' '{previous}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                script(Shell::Bash),
                words.len() - 1,
                line.len(),
            );
            let Some(printed) = printed("bash", &run) else { return };
            let is_found = printed.lines().any(|line| line == expected);
            assert!(is_found, "{typed}: {printed}");
        }
    }

    #[test]
    fn fish_and_zsh_complete_names_and_files() {
        let fish = script(Shell::Fish);
        for (typed, expected) in TYPED {
            let line = typed.replace('^', "");
            let run = format!("{fish}\ncomplete -C '{line}'");
            let Some(printed) = printed("fish", &run) else { break };
            let is_found = printed.lines().any(|line| line.contains(expected));
            assert!(is_found, "{typed}: {printed}");
        }
        if let Some(printed) = printed("fish", &format!("{fish}\ncomplete -C 'underload run my'")) {
            assert!(printed.contains("my.toml"), "{printed}");
        }
        let zsh = script(Shell::Zsh);
        assert!(zsh.contains("; _files}'"), "a scenario may be a file");
        for name in ["comcast/upstream", "codel\\:profile=linux", "how-to/sweep"] {
            assert!(zsh.contains(name), "{name}");
        }
        let loads = format!("autoload -U compinit; compinit -D; {zsh}\nwhence -w _underload");
        if let Some(printed) = printed("zsh", &loads) {
            assert_eq!(printed.trim(), "_underload: function");
        }
    }
}
