//! Lines of code of the crates: no blank lines and no comments, and tests apart from the rest.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;

use crate::pages::has_extension;

/// A source file below `crates/*/src`, or a test, example or tool.
pub struct Source {
    pub path: String,
    /// Lines of code that ships; empty for a file of tests.
    pub code: Vec<String>,
    /// Lines of code of tests: of the whole file, or of its `#[cfg(test)]` items.
    pub tests: Vec<String>,
}

impl Source {
    /// Returns the crate of shipped code, `aqm` for `crates/aqm/src/lib.rs`.
    pub fn shipped_crate(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    }
}

/// Reads the Rust files among `files`.
pub fn read(files: &[String]) -> anyhow::Result<Vec<Source>> {
    let mut texts = Vec::new();
    for path in files.iter().filter(|file| has_extension(file, "rs")) {
        texts.push((path, fs::read_to_string(path).with_context(|| path.clone())?));
    }
    let modules: BTreeSet<String> =
        texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &str| {
        let stem = path.trim_end_matches(".rs");
        let is_named = |part: &str| {
            let word = part.rsplit('_').next();
            word.is_some_and(|word| ["tests", "test"].contains(&word))
        };
        let is_inside = |module: &String| {
            stem.strip_prefix(module.as_str())
                .is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        stem.split('/').any(is_named) || modules.iter().any(is_inside)
    };
    let source = |(path, text): (&String, String)| {
        let (mut code, mut tests) = split(&text);
        if is_test(path) {
            tests.append(&mut code);
        }
        Source { path: path.clone(), code, tests }
    };
    Ok(texts.into_iter().map(source).collect())
}

/// Splits a text into its lines of code and the lines of its `#[cfg(test)]` items.
fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut code, mut tests) = (Vec::new(), Vec::new());
    let mut lines = text.lines().peekable();
    let mut in_comment = false;
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if in_comment || trimmed.starts_with("/*") {
            in_comment = !trimmed.contains("*/");
        } else if is_test_attribute(trimmed) {
            while lines.next_if(|line| line.trim().starts_with("#[")).is_some() {}
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let is_end = |line: &str| line.trim_end().trim_end_matches([',', ';']) == end;
            let mut is_first = true;
            for line in lines.by_ref() {
                tests.extend(is_code(line.trim()).then(|| line.to_owned()));
                let is_declaration = is_first && line.trim_end().ends_with(';');
                is_first = false;
                if is_declaration || is_end(line) {
                    break;
                }
            }
        } else if is_code(trimmed) {
            code.push(line.to_owned());
        }
    }
    (code, tests)
}

fn is_code(trimmed: &str) -> bool {
    !trimmed.is_empty() && !trimmed.starts_with("//")
}

fn is_test_attribute(trimmed: &str) -> bool {
    ["#[cfg(test", "#[cfg(all(test"].iter().any(|start| {
        trimmed.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    })
}

/// Returns the paths, without extension, of the modules that a `#[cfg(test)] mod NAME;` declares.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let is_root = ["mod", "lib", "main"].contains(&stem);
    let base = if is_root { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if is_test_attribute(line) {
            while lines.next_if(|line| line.starts_with("#[")).is_some() {}
            let declared = lines.peek().and_then(|line| line.strip_suffix(';'));
            let name = declared.and_then(|line| line.split_once("mod ")).map(|(_, name)| name);
            found.extend(name.map(|name| format!("{base}/{name}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_not_code_and_tests_are_apart() {
        let text = "//! File.\n\nuse a;\n/* b\n c */\n#[cfg(test)]\nmod named_tests;\nfn d() {}\n\
                    #[cfg(test)]\nmod tests {\n    use super::*;\n    fn e() {\n    }\n}\nfn f() {}\n";
        let (code, tests) = split(text);
        assert_eq!(code, ["use a;", "fn d() {}", "fn f() {}"]);
        assert_eq!(tests.len(), 6);
        assert_eq!(test_modules("crates/a/src/b.rs", text), ["crates/a/src/b/named_tests"]);
    }
}
