//! Checks that files, tests, constants and Cargo commands in the documentation exist.
//!
//! A table of promises and their tests goes stale when a test is renamed. So every span of code in
//! the documentation that looks like a name of this repository is looked up.

use std::fs;

use anyhow::Context;

use crate::pages::{has_extension, notebook_texts};

/// Pages and folders that are checked; not the changelog, which has names of the past.
const PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/", "python/notebooks/"];

/// A source file, with the modules that lead to it: `crates/probe/src/service/token.rs` is
/// `probe service token`.
struct Source {
    path: Vec<String>,
    text: String,
}

pub struct Names {
    files: Vec<String>,
    sources: Vec<Source>,
    /// Commands of `cargo xtask`.
    commands: Vec<String>,
}

impl Names {
    /// Collects the names in the tracked files and in the usage of `cargo xtask`.
    pub fn read(files: &[String], usage: &str) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for file in files.iter().filter(|file| has_extension(file, "rs")) {
            let text = fs::read_to_string(file).with_context(|| file.clone())?;
            sources.push(Source { path: modules(file), text });
        }
        let listed = usage.lines().filter(|line| line.starts_with("  "));
        let commands = listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
        let files = files.to_vec();
        Ok(Self { files, sources, commands: commands.collect() })
    }

    /// Returns unknown names in all checked pages.
    pub fn problems(&self) -> Vec<String> {
        let is_page = |file: &&String| {
            let is_text = has_extension(file, "md") || has_extension(file, "ipynb");
            is_text && PAGES.iter().any(|page| file.starts_with(page))
        };
        let mut problems = Vec::new();
        for page in self.files.iter().filter(is_page) {
            let Ok(mut text) = fs::read_to_string(page) else { continue };
            if has_extension(page, "ipynb") {
                text = notebook_texts(&text);
            }
            problems.extend(self.unknown(&text).into_iter().map(|what| format!("{page}: {what}")));
        }
        problems
    }

    fn unknown(&self, page: &str) -> Vec<String> {
        let (mut code, mut prose, mut fenced) = (Vec::new(), String::new(), false);
        for line in page.lines() {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if fenced || line.starts_with("    ") {
                code.push(line);
            } else {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        let spans = || prose.split('`').skip(1).step_by(2);
        let commands = code.into_iter().chain(spans()).filter_map(|it| self.command(it));
        commands.chain(spans().flat_map(|span| self.span(span))).collect()
    }

    /// Returns unknown names in a span of code.
    fn span(&self, span: &str) -> Vec<String> {
        let missing = |what: &str| vec![format!("there is no `{what}`")];
        if has_only(span, "/.-") && has_extension(span, "rs") {
            let inside = format!("/{span}");
            let known = self.files.iter().any(|file| file == span || file.ends_with(&inside));
            return if known { Vec::new() } else { missing(span) };
        }
        if span.contains("::") && has_only(span, ":{}, ") {
            let paths = expand(span);
            let foreign = |path: &String| ["std::", "core::"].iter().any(|it| path.starts_with(it));
            let gone = paths.into_iter().filter(|path| !foreign(path) && !self.item(path));
            return gone.flat_map(|path| missing(&path)).collect();
        }
        // Names of four words or more are names of tests, or of metrics, which may end with a
        // direction.
        let is_sentence = span.matches('_').count() >= 3 && has_only(span, "");
        let stem = span.trim_end_matches("_up").trim_end_matches("_down");
        let has_name = |source: &Source| source.text.contains(stem);
        if is_sentence && !self.sources.iter().any(has_name) {
            return missing(span);
        }
        Vec::new()
    }

    /// Whether `service::token::tests::name` is a function, constant, type or module.
    fn item(&self, path: &str) -> bool {
        let mut modules: Vec<&str> = path.split("::").collect();
        let Some(name) = modules.pop() else { return false };
        // The type of a method or variant is in the same file.
        modules.retain(|module| !module.starts_with(char::is_uppercase));
        let kinds = ["fn", "const", "static", "struct", "enum", "trait", "type", "mod", "use"];
        self.sources.iter().any(|source| {
            let is_file = source.path.last().is_some_and(|last| last == name);
            let (path, of_file) = (&source.path, source.path.len().saturating_sub(1));
            if is_file && is_within(&modules, &path[..of_file]) {
                return true;
            }
            let defines = |kind: &&str| has_word(&source.text, &format!("{kind} {name}"));
            let inner = source.text.contains("mod tests");
            let mut modules = modules.clone();
            modules.retain(|module| !(inner && *module == "tests"));
            is_within(&modules, path)
                && (kinds.iter().any(defines) || is_variant(&source.text, name))
        })
    }

    /// Returns the first unknown test, example or command in a command line of `cargo`.
    fn command(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let start = words.iter().position(|word| *word == "cargo")?;
        let words = &words[start + 1..];
        let after = |option: &str| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
        };
        if words.first() == Some(&"xtask") {
            let names = words.get(1)?.split('|');
            let known = |name: &str| self.commands.iter().any(|it| it == name);
            let unknown = names.filter(|name| !known(name)).collect::<Vec<_>>();
            return (!unknown.is_empty())
                .then(|| format!("no `cargo xtask {}`", unknown.join("|")));
        }
        let package = after("-p").and_then(|it| it.strip_prefix("underload"));
        let package = package.map(|it| if it.is_empty() { "cli" } else { it.trim_matches('-') })?;
        for (option, folder) in [("--test", "tests"), ("--example", "examples")] {
            let Some(name) = after(option) else { continue };
            let start = format!("crates/{package}/{folder}/{name}");
            let ends = [format!("{start}.rs"), format!("{start}/main.rs")];
            if !self.files.iter().any(|file| ends.contains(file)) {
                return Some(format!("`{}` has no {option} {name}", words.join(" ")));
            }
        }
        None
    }
}

/// Returns the modules of a file, its crate first.
fn modules(file: &str) -> Vec<String> {
    let parts = file.trim_start_matches("crates/").trim_end_matches(".rs").split('/');
    let silent = ["src", "mod", "lib", "main"];
    parts.filter(|part| !silent.contains(part)).map(str::to_owned).collect()
}

/// Whether a span has only letters, digits, underscores and the `others`.
fn has_only(span: &str, others: &str) -> bool {
    let known = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !span.is_empty() && span.chars().all(|letter| known(letter) || others.contains(letter))
}

/// Expands `a::{b, c}` to `a::b` and `a::c`.
fn expand(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let inside = rest.split_once('}').map_or(rest, |(inside, _)| inside);
    inside.split(',').map(|name| format!("{before}{}", name.trim())).collect()
}

/// Whether `whole` contains all of `part`, in order.
fn is_within(part: &[&str], whole: &[String]) -> bool {
    let mut whole = whole.iter();
    part.iter()
        .all(|wanted| whole.any(|it| it == wanted || (it == "cli" && *wanted == "underload")))
}

/// Whether a text contains `wanted` as a whole word.
fn has_word(text: &str, wanted: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
    text.match_indices(wanted).any(|(at, _)| ends(&text[at + wanted.len()..]))
}

/// Whether a line begins with the name, like a variant of an enum.
fn is_variant(text: &str, name: &str) -> bool {
    let upper = name.starts_with(char::is_uppercase);
    upper && text.lines().any(|line| has_word_first(line.trim_start(), name))
}

fn has_word_first(line: &str, name: &str) -> bool {
    let ends = |rest: &str| rest.starts_with([',', '(', ' ']);
    line.strip_prefix(name).is_some_and(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let source = |file: &str, text: &str| Source { path: modules(file), text: text.to_owned() };
        let files = ["crates/probe/src/service/token.rs", "crates/probe/tests/flood.rs"];
        let token =
            "pub const LIMIT: u8 = 1;\nenum Fate {\n    Spent,\n}\nmod tests {\n fn holds() {}\n}";
        let sources = vec![source(files[0], token), source(files[1], "fn a_flood_is_no_flow() {}")];
        let files = files.map(str::to_owned).to_vec();
        Names { files, sources, commands: vec!["tidy".to_owned(), "fmt".to_owned()] }
    }

    #[test]
    fn existing_names_are_found() {
        let page = "| `service::token::tests::holds` | `probe::service::token::{LIMIT, tests}` |\n\
                    `tests/flood.rs`, `a_flood_is_no_flow`, `flood::a_flood_is_no_flow`, `fmt::x`\n\
                    `token::Fate::Spent`, `std::time::Instant`, `cargo xtask tidy|fmt`, `a_b`\n\
                    \n    cargo test -p underload-probe --test flood -- --show-output\n";
        assert_eq!(names().unknown(page), ["there is no `fmt::x`"]);
    }

    #[test]
    fn missing_names_are_reported() {
        let page = "`service::token::tests::held`, `service::ledger::LIMIT`, `tests/blood.rs`,\n\
                    `a_flood_is_a_flow`, `token::{LIMIT, MOST}`, `cargo xtask tidyup`\n\
                    ```\ncargo run -p underload-probe --example flood\n```\n";
        let expected = [
            "no `cargo xtask tidyup`",
            "`run -p underload-probe --example flood` has no --example flood",
            "there is no `service::token::tests::held`",
            "there is no `service::ledger::LIMIT`",
            "there is no `tests/blood.rs`",
            "there is no `a_flood_is_a_flow`",
            "there is no `token::MOST`",
        ];
        let mut found = names().unknown(page);
        let mut expected = expected.map(str::to_owned).to_vec();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
