//! Compiles the tests of an area, and tells which changes do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::areas::Area;
use super::listing::Change;
use super::tree;
use super::weave::{self, Woven};

/// Where the copy of the workspace is, and where it is built.
pub struct Workshop {
    pub tree: PathBuf,
    pub target: PathBuf,
}

/// What a compilation said.
pub enum Built {
    /// The test programs, and the folder that each runs in.
    Programs(Vec<PathBuf>),
    /// Errors: the file, where in it, and what is wrong.
    Errors(Vec<(String, Range<usize>, String)>),
}

/// All changes that can be switched, in one set of test programs.
pub struct Switched {
    pub programs: Vec<PathBuf>,
    /// Those that do not compile.
    pub unviable: BTreeSet<usize>,
    /// Those that can only be built alone.
    pub alone: BTreeSet<usize>,
}

impl Workshop {
    /// The package's folder in the copy.
    pub fn package_folder(&self, area: &Area) -> PathBuf {
        self.tree.join("crates").join(area.package.trim_start_matches("underload-"))
    }

    /// Puts a file of the copy back to what it is here, with a switch in the package's root.
    fn root_with_switch(&self, area: &Area) -> anyhow::Result<()> {
        let root = self.package_folder(area).join("src/lib.rs");
        let text = fs::read_to_string(&root).with_context(|| root.display().to_string())?;
        if !text.contains(SWITCH) {
            let lenient = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n";
            tree::write(&root, format!("{lenient}{text}{SWITCH}").as_bytes())?;
        }
        Ok(())
    }

    /// Weaves `changes` in, builds, and takes out what does not compile until the rest does.
    pub fn build_switched(&self, area: &Area, changes: &[Change]) -> anyhow::Result<Switched> {
        self.without_lints(area)?;
        let (mut unviable, mut alone) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..MAX_BUILDS {
            let woven = self.weave(area, changes, &unviable, &alone)?;
            let switched: BTreeSet<usize> =
                woven.values().flat_map(|it| &it.branches).map(|(_, number)| *number).collect();
            let missing = |number: &usize| !switched.contains(number) && !unviable.contains(number);
            alone = (0..changes.len()).filter(missing).collect();
            match self.compile(area)? {
                Built::Programs(programs) => return Ok(Switched { programs, unviable, alone }),
                Built::Errors(errors) => blame(&woven, &errors, &mut unviable, &mut alone)?,
            }
        }
        bail!("the changes do not compile after {MAX_BUILDS} builds without those that did not")
    }

    /// Lints of the workspace refuse what the switches look like.
    fn without_lints(&self, area: &Area) -> anyhow::Result<()> {
        let manifest = self.package_folder(area).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        tree::write(&manifest, text.replace("[lints]\nworkspace = true\n", "").as_bytes())
    }

    fn weave(
        &self,
        area: &Area,
        changes: &[Change],
        unviable: &BTreeSet<usize>,
        alone: &BTreeSet<usize>,
    ) -> anyhow::Result<BTreeMap<String, Woven>> {
        let mut of_file: BTreeMap<&str, Vec<(usize, &Change)>> = BTreeMap::new();
        for (number, change) in changes.iter().enumerate() {
            let here = of_file.entry(&change.file).or_default();
            if !unviable.contains(&number) && !alone.contains(&number) {
                here.push((number, change));
            }
        }
        let mut all = BTreeMap::new();
        for (file, changes) in of_file {
            let source = fs::read_to_string(file).with_context(|| file.to_owned())?;
            let woven = weave::weave(&source, &changes).with_context(|| file.to_owned())?;
            tree::write(&self.tree.join(file), woven.text.as_bytes())?;
            all.insert(file.to_owned(), woven);
        }
        self.root_with_switch(area)?;
        Ok(all)
    }

    /// One change alone, as it stands in the text; the package's other files as they are.
    pub fn build_alone(&self, area: &Area, change: &Change) -> anyhow::Result<Built> {
        let source = fs::read_to_string(&change.file).with_context(|| change.file.clone())?;
        let changed = replaced(&source, change).context("a change lies outside its file")?;
        let path = self.tree.join(&change.file);
        tree::write(&path, changed.as_bytes())?;
        let built = self.compile(area);
        tree::write(&path, source.as_bytes())?;
        built
    }

    /// Compiles the area's tests.
    fn compile(&self, area: &Area) -> anyhow::Result<Built> {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-run", "--locked"]);
        command.args(["--package", area.package, "--message-format", "json"]).args(area.tests);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        let output = command.output().context("cargo test")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let messages: Vec<Value> =
            said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if output.status.success() {
            let program = |it: &Value| it["executable"].as_str().map(PathBuf::from);
            let tests = messages.iter().filter(|it| it["profile"]["test"] == true);
            return Ok(Built::Programs(tests.filter_map(program).collect()));
        }
        let errors: Vec<_> = messages.iter().filter_map(error).collect();
        if errors.is_empty() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Built::Errors(errors))
    }
}

/// The file, the place and the text of a compiler's error.
fn error(message: &Value) -> Option<(String, Range<usize>, String)> {
    let message = &message["message"];
    if message["level"] != "error" {
        return None;
    }
    let spans = message["spans"].as_array()?;
    let mut span = spans.iter().find(|it| it["is_primary"] == true)?;
    // Where a macro was called, not where it is written.
    while span["expansion"]["span"].is_object() {
        span = &span["expansion"]["span"];
    }
    let place = |key: &str| span[key].as_u64().map(|place| place as usize);
    let range = place("byte_start")?..place("byte_end")?;
    Some((span["file_name"].as_str()?.to_owned(), range, message["rendered"].as_str()?.to_owned()))
}

/// Puts each error down to the change that stands where it is, or to those of the nearest choice
/// around it.
fn blame(
    woven: &BTreeMap<String, Woven>,
    errors: &[(String, Range<usize>, String)],
    unviable: &mut BTreeSet<usize>,
    alone: &mut BTreeSet<usize>,
) -> anyhow::Result<()> {
    let mut unclear = None;
    let before = unviable.len() + alone.len();
    for (file, range, said) in errors {
        let Some(woven) = woven.get(file) else {
            unclear = Some(said);
            continue;
        };
        let around = |it: &Range<usize>| it.start <= range.start && range.end <= it.end;
        if let Some((_, number)) = woven.branches.iter().find(|(branch, _)| around(branch)) {
            unviable.insert(*number);
            continue;
        }
        let wrapped = woven.wrapped.iter().filter(|(extent, _)| around(extent));
        match wrapped.min_by_key(|(extent, _)| extent.len()) {
            Some((_, numbers)) => alone.extend(numbers),
            None => unclear = Some(said),
        }
    }
    if unviable.len() + alone.len() > before {
        return Ok(());
    }
    bail!("no change is to blame:\n{}", unclear.map_or("", |said| said.as_str()));
}

/// The source with one change.
fn replaced(source: &str, change: &Change) -> Option<String> {
    let place = |place: super::listing::Place| {
        let before: usize = source.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
        let line = source[before..].split_inclusive('\n').next()?;
        let within = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        Some(before + within.clone().nth(place.column - 1)?)
    };
    let (start, end) = (place(change.span.start)?, place(change.span.end)?);
    Some(format!("{}{}{}", source.get(..start)?, change.replacement, source.get(end..)?))
}

/// What every package gets while its changes can be switched.
const SWITCH: &str = include_str!("switch.rs.txt");
/// Each build takes out what the compiler complains of; it complains of types before lifetimes.
const MAX_BUILDS: usize = 12;

#[cfg(test)]
mod tests {
    use super::super::listing::{Extent, Genre, Place};
    use super::*;

    #[test]
    fn a_change_alone_is_put_where_it_belongs() {
        let source = "// µs\nconst A: u8 = 1 + 2; // µ + µ\n";
        let column = source.lines().nth(1).unwrap().find('+').unwrap() + 1;
        let span =
            Extent { start: Place { line: 2, column }, end: Place { line: 2, column: column + 1 } };
        let change = Change {
            file: String::new(),
            name: String::new(),
            span,
            replacement: "-".to_owned(),
            genre: Genre::BinaryOperator,
        };
        let changed = "// µs\nconst A: u8 = 1 - 2; // µ + µ\n";
        assert_eq!(replaced(source, &change).as_deref(), Some(changed));
    }

    #[test]
    fn an_error_is_put_down_to_the_change_or_to_the_choice_around_it() {
        let woven = Woven {
            text: String::new(),
            branches: vec![(10..20, 0), (30..40, 1)],
            wrapped: vec![(5..60, vec![0, 2]), (25..50, vec![1])],
        };
        let woven = BTreeMap::from([("a.rs".to_owned(), woven)]);
        let blamed = |range: Range<usize>| {
            let (mut unviable, mut alone) = (BTreeSet::new(), BTreeSet::new());
            let errors = [("a.rs".to_owned(), range, String::new())];
            blame(&woven, &errors, &mut unviable, &mut alone).ok()?;
            Some((unviable, alone))
        };
        let set = |numbers: &[usize]| numbers.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(blamed(12..15), Some((set(&[0]), set(&[]))));
        assert_eq!(blamed(27..45), Some((set(&[]), set(&[1]))));
        assert_eq!(blamed(22..24), Some((set(&[]), set(&[0, 2]))));
        assert_eq!(blamed(70..71), None);
    }
}
