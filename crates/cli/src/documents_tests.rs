//! The commands in the documentation can be typed: every command line of this program in the
//! README, in `docs/` and in `packaging/` is parsed, and every option that prose names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of other programs that the documentation names: iperf3's, irtt's `--dscp`, and `--quick`
/// of `cargo xtask bench worlds`.
const OTHERS: [&str; 6] =
    ["--bidir", "--dscp", "--get-server-output", "--quick", "--socket-stats", "--stored"];

/// Every page, with its name.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    below(&root.join("docs"), &mut files);
    let is_page = |file: &PathBuf| file.extension().is_some_and(|it| it == "md");
    let name = |file: &PathBuf| file.strip_prefix(&root).expect("below it").display().to_string();
    let read = |file: PathBuf| (name(&file), fs::read_to_string(&file).expect("a page"));
    files.into_iter().filter(is_page).map(read).collect()
}

/// Every file below a folder.
fn below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the documentation is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { below(&path, files) } else { files.push(path) }
    }
}

/// Returns the names and texts of systemd's units and the compose file, with continued lines
/// joined: those after a backslash, and indented lines of a folded YAML text.
fn packaged() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let file = entry.expect("an entry").path();
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".service") || name == "compose.yaml" {
            let text = fs::read_to_string(&file).expect("a text");
            let text = text.replace("\\\n#", " ").replace("\\\n", " ");
            files.push((name, text.replace(">-\n      ", "").replace("\n      --", " --")));
        }
    }
    files
}

/// Returns the command that a line of a unit or of a compose file starts or explains, with values
/// in place of variables.
fn started(line: &str) -> Option<String> {
    let line = line.trim();
    let of_unit = || {
        let command = line.strip_prefix("ExecStart=/usr/local/bin/")?;
        let command = command.replacen("underload-agent ", "underload-fleet agent ", 1);
        Some(command.replacen("underload-fleet ", "underload fleet ", 1))
    };
    let of_compose = || Some(format!("underload {}", line.strip_prefix("command: ")?));
    let key = format!("sha256:{}", "0".repeat(64));
    let values = [
        ("%S", "/var/lib"),
        ("$OPTIONS", ""),
        ("${ORCHESTRATOR}", "https://one.example"),
        ("${FINGERPRINT-}", &key),
        ("FINGERPRINT", &key),
        ("${HOST-}", "host.example"),
    ];
    let command = of_unit().or_else(of_compose).or_else(|| told(line))?;
    Some(values.into_iter().fold(command, |command, (name, value)| command.replace(name, value)))
}

/// Returns the command in a comment that explains what to type: as another user, or in a container.
fn told(line: &str) -> Option<String> {
    let line = line.strip_prefix("#   ")?;
    let starts = ["sudo -u underload ", "docker compose exec orchestrator "];
    let typed = starts.iter().find_map(|start| line.strip_prefix(start))?;
    let command = typed.split("  #").next().unwrap_or_default();
    command.starts_with("underload ").then(|| command.trim_end().to_owned())
}

/// The lines of code blocks, fenced or indented, with their numbers; and the prose between them.
fn split(page: &str) -> (Vec<(usize, &str)>, String) {
    let (mut code, mut prose, mut fenced) = (Vec::new(), String::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            code.push((number, line));
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    (code, prose)
}

/// Returns the command in a line of code, without the explanation behind it. Lines of output may
/// also contain the program's name; a command starts the line, or follows `$` or `there:`.
fn command(line: &str) -> Option<&str> {
    let start = line.find("underload ")?;
    let before = line[..start].trim();
    let is_prompt = before.is_empty() || before == "$" || before == "there:" || before == "here:";
    let command = &line[start..];
    let ends = ["  ", " # ", " | ", " > ", " 2> ", " && ", " &"];
    let end = ends.iter().filter_map(|end| command.find(end)).min().unwrap_or(command.len());
    is_prompt.then_some(&command[..end])
}

/// The words of a command, with values in place of placeholders.
fn words(command: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "Q" | "QUEUE" => "codel".to_owned(),
        "L" | "LINK" => "10mbit".to_owned(),
        "DEVICE" => "0".repeat(32),
        word => word.trim_matches(['"', '\'']).trim_end_matches("...").to_owned(),
    };
    split_words(command).iter().map(|it| word(it)).collect()
}

/// Splits words as a shell does: text in quotes is one word.
fn split_words(command: &str) -> Vec<String> {
    let (mut words, mut open) = (vec![String::new()], None);
    for letter in command.chars() {
        match open {
            Some(quote) if letter == quote => open = None,
            None if letter == '\'' || letter == '"' => open = Some(letter),
            None if letter.is_whitespace() => words.push(String::new()),
            _ => words.last_mut().expect("never empty").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Each way to read a command with `decode|encode` in it.
fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let Some(place) = words.iter().position(|word| word.contains('|')) else {
        return vec![words.to_vec()];
    };
    let one = |choice: &str| {
        let mut words = words.to_vec();
        choice.clone_into(&mut words[place]);
        words
    };
    words[place].split('|').map(one).collect()
}

/// The command line of this program, with that of `underload-fleet` below `underload fleet`.
fn both() -> clap::Command {
    crate::command().mut_subcommand("fleet", |_| underload_fleet_cli::command().name("fleet"))
}

/// Returns the error of a command, or of a command that it starts.
pub fn problem(command: &str) -> Option<String> {
    let words = words(command);
    let inner = words.iter().skip(1).position(|word| word == "underload");
    if let Some(problem) = inner.and_then(|at| problem(&words[at + 1..].join(" "))) {
        return Some(problem);
    }
    let parsed = alternatives(&words).into_iter().map(|it| both().try_get_matches_from(it));
    let errors: Vec<String> = parsed.filter_map(Result::err).map(|it| it.to_string()).collect();
    // Some pages write alternatives such as `docsis decode|encode`, whose first word is incomplete
    // alone.
    let missing = "required arguments were not provided";
    errors.into_iter().find(|error| !(words.len() <= 3 && error.contains(missing)))
}

/// The long options of a command and of all below it.
fn options(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_long_and_visible_aliases);
    let own = own.flatten().map(|name| format!("--{name}"));
    let below = command.get_subcommands().flat_map(options);
    own.chain(below).chain(["--help".to_owned(), "--version".to_owned()]).collect()
}

/// The options in spans of code within prose, each with its span.
fn named_options(prose: &str) -> Vec<(String, String)> {
    let spans = prose.split('`').skip(1).step_by(2);
    let ours = |span: &&str| span.starts_with("--") || span.starts_with("underload ");
    let mut named = Vec::new();
    for span in spans.filter(ours) {
        // Words after a bare `--` belong to the command that is run.
        let words = span.split_whitespace().take_while(|word| *word != "--");
        for word in words.filter(|word| word.starts_with("--")) {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let option = word.split(|letter| !is_part(letter)).next().unwrap_or_default();
            named.push((option.to_owned(), span.to_owned()));
        }
    }
    named
}

#[test]
fn every_documented_command_parses() {
    let (mut count, mut problems) = (0, Vec::new());
    for (name, page) in pages() {
        // A line continues after a backslash. A usage with `<COMMAND>` is skipped.
        for (number, line) in split(&page.replace("\\\n", " ")).0 {
            let Some(command) = command(line).filter(|it| !it.contains('<')) else { continue };
            count += 1;
            if let Some(problem) = problem(command) {
                problems.push(format!("{name}:{number}: {command}\n{problem}"));
            }
        }
    }
    assert!(count >= 40, "only {count} commands were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Words that people type into a search, each with a page whose title or first lines have the word.
const SEARCHED: [(&str, &str); 14] = [
    ("bufferbloat", "README.md"),
    ("bufferbloat", "docs/explain/why-aqm.md"),
    ("lag", "docs/tutorials/my-line.md"),
    ("speed test", "docs/web.md"),
    ("latency under load", "docs/measure.md"),
    ("SQM", "docs/queues.md"),
    ("fq_codel", "docs/queues/fq-codel.md"),
    ("SQM", "docs/queues/cake.md"),
    ("jitter", "docs/links.md"),
    ("packet loss", "docs/links.md"),
    ("iperf3", "docs/interoperability.md"),
    ("DSCP", "docs/path.md"),
    ("L4S", "docs/queues/dualpi2.md"),
    ("LTE", "docs/cellular.md"),
];

#[test]
fn common_search_words_lead_to_their_page() {
    let pages = pages();
    let text = |wanted: &str| {
        let page = pages.iter().find(|(name, _)| name == wanted);
        page.map_or("", |(_, text)| text.as_str())
    };
    for (word, page) in SEARCHED {
        let start: Vec<&str> = text(page).lines().take(6).collect();
        let start = start.join("\n").to_lowercase();
        assert!(start.contains(&word.to_lowercase()), "{page} does not begin with {word}: {start}");
    }
    let glossary = text("docs/glossary.md");
    for word in ["ping", "MTU", "jitter", "lag", "speed test", "SQM", "`fq_codel`", "router"] {
        let row = |line: &str| line.starts_with('|') && line.contains(word) && line.contains("](");
        assert!(glossary.lines().any(row), "the glossary leads from {word} to no page");
    }
}

/// Collects every command and subcommand, by the words that call it, with its examples.
fn examples(command: &clap::Command, called: &str, found: &mut Vec<(String, Vec<String>)>) {
    let help = command.get_after_long_help().or(command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default().replace("\\\n", " ");
    let lines = help.split_once("Examples:\n").map_or("", |(_, lines)| lines);
    let lines = lines.lines().take_while(|line| line.starts_with("  ")).map(str::to_owned);
    found.push((called.to_owned(), lines.collect()));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        examples(below, &format!("{called} {}", below.get_name()), found);
    }
}

/// The part of a line that the shell passes to this program.
fn typed(line: &str) -> Option<&str> {
    let command = &line[line.find("underload ")?..];
    let ends = ["  ", " | ", " > ", " && ", ")\""];
    let end = ends.iter().filter_map(|end| command.find(end)).min().unwrap_or(command.len());
    Some(&command[..end])
}

#[test]
fn every_command_has_examples_that_can_be_typed() {
    let mut found = Vec::new();
    examples(&both(), "underload", &mut found);
    assert!(found.len() >= 30, "only {} commands were found", found.len());
    for (called, lines) in found {
        assert!(!lines.is_empty(), "`{called} --help` has no examples");
        let own = lines.iter().any(|line| line.contains(&called));
        assert!(own, "no example of `{called}` calls it: {lines:?}");
        for line in lines {
            let command = typed(&line).unwrap_or_else(|| panic!("`{called}`: {line}"));
            assert_eq!(problem(&command.replace(" \\ ", " ")), None, "`{called}`: {line}");
        }
    }
}

#[test]
fn every_packaged_command_parses() {
    let mut commands = 0;
    for (name, text) in packaged() {
        for command in text.lines().filter_map(started) {
            commands += 1;
            assert!(!command.contains('$'), "{name}: a variable without a value: {command}");
            // These characters do not end a command for a shell, but for Compose they do.
            assert!(!command.contains(['&', ';', '|', '<', '>']), "{name}: {command}");
            assert_eq!(problem(&command), None, "{name}: {command}");
        }
    }
    assert!(commands >= 9, "only {commands} commands were found");
}

#[test]
fn no_packaged_command_line_has_a_secret() {
    let files = packaged();
    for (name, command) in files.iter().flat_map(|(name, text)| {
        text.lines().filter_map(started).map(move |command| (name, command))
    }) {
        let address = command.split_once("://").map(|(_, rest)| rest.split('@').next());
        let has_password =
            command.contains('@') && address.flatten().is_some_and(|user| user.contains(':'));
        assert!(!has_password && !command.contains("--enrol"), "{name}: {command}");
    }
    let (_, unit) = files.iter().find(|(name, _)| name == "underload-agent.service").expect("it");
    assert!(unit.contains(underload_agent::arguments::CODE_VARIABLE), "how else it is given");
}

/// Names between `${` and `-}`, which a compose file takes from `.env`.
fn variables(text: &str) -> BTreeSet<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split(['-', ':', '}']).next()).collect()
}

#[test]
fn the_compose_files_variables_are_those_of_its_header() {
    let files = packaged();
    let (_, text) = files.iter().find(|(name, _)| name == "compose.yaml").expect("it is there");
    let (head, services) = text.split_once("\n\n").expect("a head");
    let told = head.lines().find(|line| line.ends_with("> .env")).expect("a line that writes it");
    let written = told.split('\'').nth(1).expect("what it writes").split("\\n");
    // Other lines of the compose file are commands for Docker.
    let written: BTreeSet<_> = written.filter_map(|it| it.strip_suffix("=%s")).collect();
    assert_eq!(variables(services), written);
}

#[test]
fn every_option_that_prose_names_exists() {
    let known = options(&both());
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, page) in pages() {
        for (option, span) in named_options(&split(&page).1) {
            count += 1;
            if !known.contains(&option) && !OTHERS.contains(&option.as_str()) {
                problems.push(format!("{name}: `{span}`: no command has {option}"));
            }
        }
    }
    assert!(count >= 40, "only {count} options were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_check_of_commands_finds_invalid_ones() {
    assert_eq!(
        command("there:  underload serve --bind ::  # all"),
        Some("underload serve --bind ::")
    );
    assert_eq!(command("$ underload queues | head"), Some("underload queues"));
    assert_eq!(command("built by underload today"), None);
    assert!(problem("underload run comcast/upstream --world sim").is_none());
    assert!(problem("underload run comcast/upstream --no-such-option sim").is_some());
    assert!(problem("underload link --up 5mbit -- underload link --no-such -- true").is_some());
    assert!(problem("underload docsis decode|entcode").is_some());
    assert!(problem("underload replay --link 10mbit --queue").is_some());
    let wrong = started("    command: serve --fleet https://orchestrator:4870 --nam x");
    assert!(problem(&wrong.expect("it starts something")).is_some());
    assert_eq!(started("ExecStart=/bin/true"), None);
    assert_eq!(started("#   systemctl edit underload-serve"), None);
    let wrong = started("#   sudo -u underload underload serve token rotat --keys k  # once");
    assert!(problem(&wrong.expect("an error message")).is_some());
    assert_eq!(variables("a ${X-} ${Y:?} ${Z}"), BTreeSet::from(["X", "Y", "Z"]));
    let named = named_options("with `--world=sim` or `underload link --up L -- ls --all` alone");
    let names: Vec<&str> = named.iter().map(|(option, _)| option.as_str()).collect();
    assert_eq!(names, ["--world", "--up"]);
}
