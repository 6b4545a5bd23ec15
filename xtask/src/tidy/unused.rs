//! Code that the compiler does not report: files that no module includes, and public items whose
//! name appears nowhere else in the repository, or only in tests.

use std::collections::BTreeMap;
use std::fs;

use super::code::Source;
use crate::pages::has_extension;

/// Reports source files that no `mod`, `include!` or `#[path]` of their crate names.
pub fn files(files: &[String]) -> Vec<String> {
    let sources: Vec<&String> = files.iter().filter(|file| has_extension(file, "rs")).collect();
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for file in &sources {
        let text = fs::read_to_string(file).unwrap_or_default();
        texts.entry(package(file)).or_default().push_str(&text);
    }
    let is_unused = |file: &&&String| {
        let Some((_, inside)) = file.split_once("/src/") else { return false };
        let path = inside.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let stem = path.rsplit('/').next().unwrap_or(path);
        let declarations = [format!("mod {stem};"), format!("{stem}.rs\"")];
        let text = &texts[package(file)];
        !["lib", "main"].contains(&stem)
            && !inside.starts_with("bin/")
            && !declarations.iter().any(|it| text.contains(it))
    };
    let unused = sources.iter().filter(is_unused);
    unused.map(|file| format!("{file}: no module includes it")).collect()
}

/// Returns the folder of a file's crate.
fn package(file: &str) -> &str {
    ["/src/", "/tests/", "/examples/", "/benches/"]
        .iter()
        .find_map(|part| file.split_once(part))
        .map_or("", |(folder, _)| folder)
}

/// Public items of the crates that no other code names.
#[derive(Debug, Default)]
pub struct Unused {
    /// Items that appear nowhere but in their declaration, as `PATH: NAME`.
    pub nowhere: Vec<String>,
    /// Items that only tests use.
    pub in_tests: Vec<String>,
}

/// Finds public items that nothing uses. Names are counted as words, so an item with the name of
/// another one is missed, and none is reported by mistake.
pub fn items(sources: &[Source]) -> Unused {
    let mut uses: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for source in sources {
        for (kind, lines) in [&source.code, &source.tests].into_iter().enumerate() {
            for word in lines.iter().flat_map(|line| words(line)) {
                uses.entry(word).or_default()[kind] += 1;
            }
        }
    }
    let mut unused = Unused::default();
    // Python and browsers call the items of these crates, so no Rust file does.
    let is_called = |source: &&Source| {
        source.shipped_crate().is_some_and(|name| !["py", "playground"].contains(&name))
    };
    for source in sources.iter().filter(is_called) {
        for name in source.code.iter().filter_map(|line| declared(line)) {
            match uses.get(name).copied().unwrap_or_default() {
                [1, 0] => unused.nowhere.push(format!("{}: {name}", source.path)),
                [1, _] => unused.in_tests.push(format!("{}: {name}", source.path)),
                _ => {}
            }
        }
    }
    unused
}

/// Returns the name of the public item that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.trim().strip_prefix("pub ")?.split(|it: char| !is_of_word(it));
    loop {
        match words.next()? {
            "const" | "unsafe" | "async" | "extern" | "C" | "" => {}
            "fn" | "struct" | "enum" | "trait" | "type" | "static" => return words.next(),
            // The name of a constant, after its keyword.
            name if line.contains("const ") => return Some(name),
            _ => return None,
        }
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("// ").next().unwrap_or(line);
    code.split(|it: char| !is_of_word(it)).filter(|word| !word.is_empty())
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_only_its_declaration_names_is_unused() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let code = "pub const fn used() {}\npub struct Lost;\npub const TESTED: u8 = 1;\nused();";
        let path = "crates/a/src/lib.rs".to_owned();
        let source = Source { path, code: lines(code), tests: lines("TESTED") };
        let unused = items(&[source]);
        assert_eq!(unused.nowhere, ["crates/a/src/lib.rs: Lost"]);
        assert_eq!(unused.in_tests, ["crates/a/src/lib.rs: TESTED"]);
    }
}
