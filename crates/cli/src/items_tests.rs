//! The page of what the founding documents describe: each item, its state, and how it is shown.
//!
//! The items are lines of `docs/reference/documents.txt`. Every command is parsed here;
//! `tests/transcripts.rs` runs those that need neither a network nor minutes.

use std::fmt::Write as _;
use std::path::Path;

use crate::documents_tests::problem;

const ITEMS: &str = include_str!("../../../docs/reference/documents.txt");
/// The index of published numbers, with the numbers met of each scenario.
const FIGURES: &str = include_str!("../../../docs/reference/figures.md");
const STATES: [&str; 4] = ["works", "partly", "missing", "not a system"];
/// Items by document and state. States may only rise.
const COUNTS: [[usize; 4]; 4] = [[64, 9, 2, 4], [36, 3, 0, 4], [62, 11, 0, 0], [47, 13, 2, 1]];

struct Item<'a> {
    number: &'a str,
    section: &'a str,
    state: &'a str,
    shown: &'a str,
    describes: &'a str,
    missing: &'a str,
}

impl<'a> Item<'a> {
    fn parse(line: &'a str) -> Self {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [number, section, state, shown, describes, missing] = fields[..] else {
            panic!("expected six fields between |: {line}");
        };
        Self { number, section, state, shown, describes, missing }
    }

    /// Returns the kind of evidence for the item, and the rest of the text.
    fn shown(&self) -> (&'a str, &'a str) {
        self.shown.split_once(' ').unwrap_or((self.shown, ""))
    }

    fn row(&self) -> String {
        let Self { number, section, state, describes, missing, .. } = self;
        let shown = match self.shown() {
            ("run", shown) => {
                let (command, text) = shown.split_once(" => ").expect("a printed text");
                format!("`{command}` prints `{text}`")
            }
            ("parse", command) => format!("`{command}` (parsed)"),
            ("page", page) => format!("[{}](../{page})", page.trim_end_matches(".md")),
            ("figures", name) => {
                let (link, numbers, met) = figures(name);
                format!("`underload figures {name}`: [{met} of {numbers} numbers met]({link})")
            }
            _ => String::new(),
        };
        format!("| {number} | {section} | {describes} | {state} | {shown} | {missing} |\n")
    }
}

/// Returns the title of each document with its items.
fn documents() -> Vec<(&'static str, Vec<Item<'static>>)> {
    let parts = ITEMS.split("\n## ").skip(1);
    let items = |part: &'static str| {
        let (title, lines) = part.split_once('\n').expect("a title");
        (title, lines.lines().filter(|line| !line.is_empty()).map(Item::parse).collect())
    };
    parts.map(items).collect()
}

/// Returns the section of a scenario's published numbers, how many they are, and how many are met.
fn figures(name: &str) -> (&'static str, usize, usize) {
    let start = format!("| [{name}](");
    let row = FIGURES.lines().find_map(|line| line.strip_prefix(&start));
    let row = row.unwrap_or_else(|| panic!("{name} has no published numbers"));
    let (link, cells) = row.split_once(") |").expect("a link");
    let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
    let count = |cell: usize| cells[cell].parse().expect("a count");
    (link, count(1), count(2))
}

fn counts(items: &[Item<'_>]) -> [usize; 4] {
    STATES.map(|state| items.iter().filter(|item| item.state == state).count())
}

pub fn page(note: &str) -> String {
    let mut text = format!(
        "# What the founding documents describe\n\n{note}\n\
         This program began with five documents: Comcast's study of queue management and its \
         measurement platform, a talk about a field trial of low latency, CableLabs' guideline for \
         modem buffers, and the paper of BoDe. Here is what they describe, item by item, and what \
         the program does of it.\n\n\
         - **works**: the command or page shows it, and published numbers are met.\n\
         - **partly**: some of it, or some published numbers are missed; the last column says what.\n\
         - **missing**: no command and no built-in scenario has it.\n\
         - **not a system**: an argument, a definition or a piece of history.\n\n\
         Tests run every command, `underload run` in its short form, and look for what it prints. \
         Commands marked *parsed* need a network, privileges or minutes, so tests only parse them. \
         `cm.toml` is the file in [docsis.md](../docsis.md#text); `underload figures` takes \
         minutes, and its numbers are on [their own pages](figures.md).\n\n\
         | document | {} | all |\n|---|---|---|---|---|---|\n",
        STATES.join(" | ")
    );
    let documents = documents();
    for (title, items) in &documents {
        let counts = counts(items).map(|count| count.to_string()).join(" | ");
        let _ = writeln!(text, "| {title} | {counts} | {} |", items.len());
    }
    for (title, items) in &documents {
        let _ = write!(
            text,
            "\n## {title}\n\n| | section | describes | state | shown by | what is missing |\n\
             |---|---|---|---|---|---|\n{}",
            items.iter().map(Item::row).collect::<String>()
        );
    }
    text
}

#[test]
fn every_item_has_what_its_state_needs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut numbers = Vec::new();
    for item in documents().iter().flat_map(|(_, items)| items) {
        let Item { number, state, missing, .. } = item;
        numbers.push(*number);
        let (kind, shown) = item.shown();
        let is_shown = ["works", "partly"].contains(state);
        assert!(STATES.contains(state), "{number}: {state}");
        assert_eq!(kind != "-", is_shown, "{number} is {state}, shown by {kind}");
        let has_reason = ["partly", "missing"].contains(state);
        assert_eq!(!missing.is_empty(), has_reason, "{number} is {state}: {missing}");
        match kind {
            "run" | "parse" => {
                let command = shown.split(" => ").next().unwrap_or_default();
                let calls = command.split(" && ").map(|part| part.trim_start_matches("! "));
                let own: Vec<&str> = calls.filter(|call| call.starts_with("underload ")).collect();
                assert!(!own.is_empty(), "{number}: {command}");
                for call in own {
                    assert_eq!(problem(call), None, "{number}: {call}");
                }
            }
            "page" => assert!(docs.join(shown).is_file(), "{number}: no page {shown}"),
            "figures" => {
                let (_, all, met) = figures(shown);
                assert!(*state != "works" || met == all, "{number} works, and misses numbers");
            }
            _ => assert_eq!(kind, "-", "{number}"),
        }
    }
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "a number occurs twice");
}

#[test]
fn states_of_items_only_rise() {
    let counts: Vec<_> = documents().iter().map(|(_, items)| counts(items)).collect();
    assert_eq!(counts, COUNTS, "states may only rise: write higher counts here");
}
