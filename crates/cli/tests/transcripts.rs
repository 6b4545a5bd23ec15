//! Commands print the output that the documentation shows: every `console` block of the README and
//! of `docs/` is run, in order, in one empty folder per page.
//!
//! A line `$ COMMAND` is run by the shell, with this program on its path; the lines below are its
//! output, errors included. `...` matches any text of a line, alone for any lines. A `toml` block
//! that begins with `# NAME.toml` is a file in that folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command with the output that a page shows.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    number: usize,
    command: String,
    shown: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    below(&root.join("docs"), &mut files);
    files.retain(|file| file.extension().is_some_and(|it| it == "md"));
    files.sort();
    files
}

/// Every file below a folder.
fn below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the documentation is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { below(&path, files) } else { files.push(path) }
    }
}

fn steps(page: &str) -> Vec<Step> {
    let (mut steps, mut inside): (Vec<Step>, bool) = (Vec::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { number, command: command.to_owned(), shown: Vec::new() });
        } else if inside && let Some(step) = steps.last_mut() {
            step.shown.push(line.trim_end().to_owned());
        }
    }
    steps
}

/// Returns name and text of the files that a page shows completely.
fn files(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("```toml\n# ").skip(1);
    blocks
        .filter_map(|block| block.split_once("\n```").map(|(file, _)| file))
        .filter_map(|file| file.split_once('\n'))
        .filter(|(name, _)| name.split_once('.').is_some_and(|(_, end)| end == "toml"))
        .collect()
}

/// Whether a line is as shown, where `...` is any text.
fn line_matches(shown: &str, line: &str) -> bool {
    let Some((before, after)) = shown.split_once("...") else { return shown == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    rest.char_indices()
        .map(|(at, _)| at)
        .chain([rest.len()])
        .any(|at| line_matches(after, &rest[at..]))
}

/// Whether the output is as shown, where a line `...` is any lines.
fn matches(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| line_matches(first, line) && matches(rest, lines)),
    }
}

fn run(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_underload"));
    let beside = program.parent().expect("a program lies in a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(folder);
    shell.env("PATH", format!("{beside}:{path}")).env("HOME", folder);
    shell.env("NO_COLOR", "1").env("XDG_CACHE_HOME", folder.join("cache"));
    let output = shell.output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn documented_output_equals_printed_output() {
    let (mut count, mut wrong) = (0, String::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let steps = steps(&text);
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files(&text) {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        for Step { number, command, shown } in steps {
            count += 1;
            let printed = run(&command, folder.path());
            let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
            if !matches(&shown, &lines) {
                let (page, shown) = (page.display(), shown.join("\n"));
                let _ = writeln!(wrong, "{page}:{number}: {command}");
                let _ = writeln!(wrong, "shown:\n{shown}\nprinted:\n{printed}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 5, "only {count} commands were found");
}

/// The commands of `docs/reference/documents.txt`, with the texts that they print, run scenarios in
/// their short form.
#[test]
fn commands_show_the_items_of_the_founding_documents() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let items = fs::read_to_string(docs.join("reference/documents.txt")).expect("the items");
    let page = fs::read_to_string(docs.join("docsis.md")).expect("the page with cm.toml");
    let mut commands: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let shown =
        items.lines().filter_map(|line| line.split('|').nth(3)?.trim().strip_prefix("run "));
    for (command, text) in shown.filter_map(|shown| shown.split_once(" => ")) {
        commands.entry(command).or_default().push(text);
    }
    let mut wrong = String::new();
    for (command, texts) in &commands {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files(&page) {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let short = |call: &str| match call.strip_prefix("underload run ") {
            Some(rest) => format!("underload run --world sim --short {rest}"),
            None => call.to_owned(),
        };
        let calls: Vec<String> = command.split(" && ").map(short).collect();
        let printed = run(&format!("{} && echo finished", calls.join(" && ")), folder.path());
        let missing: Vec<_> = texts.iter().filter(|text| !printed.contains(**text)).collect();
        if !missing.is_empty() || !printed.ends_with("finished\n") {
            let _ = writeln!(wrong, "{command}\nmissing: {missing:?}\nprinted:\n{printed}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(commands.len() >= 50, "only {} commands were found", commands.len());
}

#[test]
fn the_check_of_transcripts_finds_missing_output() {
    let shown = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert!(matches(&shown(&["a", "...", "d"]), &["a", "b", "c", "d"]));
    assert!(matches(&shown(&["a", "...", "d"]), &["a", "d"]));
    assert!(!matches(&shown(&["a", "...", "d"]), &["a", "b"]));
    assert!(!matches(&shown(&["a"]), &["a", "b"]));
    assert!(line_matches("took ... s, ... ms", "took 12 s, 4 ms"));
    assert!(!line_matches("took ... s", "took 12 ms"));
    let shows = "```toml\n# a.toml\nb = 1\n```\n```toml\n# not a name\nc = 1\n```\n";
    assert_eq!(files(shows), [("a.toml", "b = 1")]);
    let page = "```console\n$ ls\nb  \n\n$ cat b\n```\n```\n$ not run\n```\n";
    let step = |number, command: &str, lines: &[&str]| {
        let command = command.to_owned();
        Step { number, command, shown: shown(lines) }
    };
    assert_eq!(steps(page), [step(2, "ls", &["b", ""]), step(5, "cat b", &[])]);
}
