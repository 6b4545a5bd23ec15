//! `cargo xtask book`: the documentation as a book with search and playground, built by mdBook.
//!
//! The pages in `docs/` are read on the forge and in the book. Links out of `docs/`, such as
//! `../ARCHITECTURE.md`, lead to the forge from the book, so the pages are copied first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::cargo::{cargo, succeed, target};
use crate::pages::{CONTRIBUTING, outward};
use crate::process::{fresh_folder, is_installed, output};
use crate::{skips, targets};

const SOURCE: &str = "docs";
/// The files of the documentation that the program prints, with their commands.
const WRITTEN: [(&str, &[&str]); 2] = [
    ("scenario.schema.json", &["check", "--schema", "scenario"]),
    ("sweep.schema.json", &["check", "--schema", "sweep"]),
];
/// The test that compares the pages of `docs/reference/` with the programs, or writes them.
const REFERENCE_TEST: &str = "the_reference_pages_match_the_programs";

/// The target that browsers run.
const WASM: &str = "wasm32-unknown-unknown";
/// The folder of the playground's script and style.
const PLAYGROUND: &str = "crates/playground/page";

/// Builds the book, and returns its folder; reports a skip without mdBook.
pub fn build() -> anyhow::Result<Option<PathBuf>> {
    let module = playground()?;
    if !is_installed("mdbook") {
        skips::report("book", "mdbook is missing; cargo install --locked mdbook");
        return Ok(None);
    }
    let (folder, book) = (target().join("book-source"), target().join("book"));
    fresh_folder(&folder)?;
    let docs = folder.join(SOURCE);
    copy(Path::new(SOURCE), &docs)?;
    crate::notebooks::into_book(&docs)?;
    fs::create_dir_all(docs.join("playground"))?;
    for name in ["playground.js", "playground.css"] {
        fs::copy(Path::new(PLAYGROUND).join(name), docs.join("playground").join(name))?;
    }
    // As text in a script, because a page from a disk may not fetch files.
    let module = module.map_or_else(
        || "// Built without the simulator: `cargo xtask book` says what is missing.\n".to_owned(),
        |module| {
            let text = data_encoding::BASE64.encode(&module);
            format!("window.UNDERLOAD_PLAYGROUND = \"{text}\";\n")
        },
    );
    fs::write(docs.join("playground/playground-module.js"), module)?;
    fs::copy("book.toml", folder.join("book.toml")).context("book.toml")?;
    let place = std::path::absolute(&book)?;
    succeed(Command::new("mdbook").arg("build").arg("--dest-dir").arg(&place).arg(&folder))?;
    eprintln!("{}", book.join("index.html").display());
    Ok(Some(book))
}

/// Builds the simulator as WebAssembly; `None`, with a report of the skip, without a toolchain.
fn playground() -> anyhow::Result<Option<Vec<u8>>> {
    let mut cargo = match targets::cargo(WASM) {
        Ok(cargo) => cargo,
        Err(missing) => {
            skips::report("playground", &missing);
            return Ok(None);
        }
    };
    let folder = target().join("playground");
    cargo.args(["build", "--quiet", "--locked", "--package", "underload-playground", "--lib"]);
    cargo.args(["--profile", "playground", "--target", WASM, "--target-dir"]).arg(&folder);
    succeed(&mut cargo)?;
    let built = folder.join(WASM).join("playground/underload_playground.wasm");
    let module = folder.join("playground.wasm");
    fs::copy(&built, &module).with_context(|| built.display().to_string())?;
    Ok(Some(fs::read(module)?))
}

/// Copies pages and pictures, without the pages for contributors. Links to other files become links
/// to the forge.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let place = to.join(path.file_name().unwrap_or_default());
        if path == Path::new(CONTRIBUTING) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &place)?;
        } else if path.extension().is_some_and(|it| it == "md") && !path.ends_with("SUMMARY.md") {
            let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            fs::write(&place, outward(&page, &path))
                .with_context(|| place.display().to_string())?;
        } else {
            fs::copy(&path, &place).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Writes the files of the documentation that follow from the programs.
pub fn reference() -> anyhow::Result<()> {
    // The whole workspace, as in all checks: a single package would be built a second time.
    succeed(cargo("build").args(["--workspace", "--bins"]))?;
    for (page, words) in WRITTEN {
        let mut command = Command::new(target().join("debug/underload"));
        let text = output(command.args(words))?;
        let file = format!("{SOURCE}/{page}");
        fs::write(&file, text).with_context(|| file.clone())?;
        eprintln!("{file}");
    }
    let test = ["--package", "underload", "--bin", "underload", REFERENCE_TEST];
    succeed(cargo("test").args(test).env("UNDERLOAD_WRITE_REFERENCE", "1"))
}
