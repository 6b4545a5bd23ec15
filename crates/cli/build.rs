//! Sets compile-time flags for the features of the target system: servers, network namespaces.
//! Packs the documentation for `underload docs`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(namespaces, shaping, sockets)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_UNIX").is_some() {
        println!("cargo::rustc-cfg=sockets");
    }
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cfg=shaping");
    }
    let live = std::env::var_os("CARGO_FEATURE_LIVE").is_some();
    if live && std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cfg=namespaces");
    }
    if std::env::var_os("CARGO_FEATURE_WHOLE").is_some() {
        pack_documents();
    }
}

/// Excluded pages: those of published figures and documents, those for developers, the book's
/// contents, and those that repeat the help of commands.
const LEFT_OUT: [&str; 6] = [
    "figures", "reference/documents.md", "contributing", "SUMMARY.md", "reference/commands.md",
    "reference/fleet.md",
];

/// Writes every page, each behind a line with its name and its number of bytes, as one compressed
/// file.
fn pack_documents() {
    let docs = Path::new("../../docs");
    println!("cargo::rerun-if-changed={}", docs.display());
    let mut pages = Vec::new();
    add_pages(docs, &mut pages);
    pages.sort();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("docs");
    let file = fs::File::create(out).expect("a file of the build");
    let mut packed = DeflateEncoder::new(file, Compression::best());
    for page in pages {
        let name = page.strip_prefix(docs).expect("below docs").with_extension("");
        let text = fs::read_to_string(&page).expect("a page");
        writeln!(packed, "{} {}", name.display(), text.len()).expect("space on the disk");
        packed.write_all(text.as_bytes()).expect("space on the disk");
    }
    packed.finish().expect("space on the disk");
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the documentation") {
        let path = entry.expect("an entry").path();
        let is_left_out = LEFT_OUT.iter().any(|name| path.ends_with(name));
        if is_left_out {
            continue;
        }
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}
