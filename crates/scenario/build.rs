//! Embeds the folder `scenarios/` in the program: every TOML file as a scenario, every trace as a
//! file that a scenario may name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let from_cargo = |name| env::var(name).map_err(io::Error::other);
    let folder = Path::new(&from_cargo("CARGO_MANIFEST_DIR")?).join("../../scenarios");
    let folder = folder.canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let table = |name, extension, keep_extension| {
        let of_kind = files.iter().filter(|file| file.extension() == Some(extension));
        of_kind.fold(format!("const {name}: &[BuiltIn] = &[\n"), |mut text, file| {
            let kept = if keep_extension { file.clone() } else { file.with_extension("") };
            let name = kept.strip_prefix(&folder).unwrap_or(&kept).display().to_string();
            let path = file.display().to_string();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "BuiltIn {{ name: {name:?}, text: include_str!({path:?}) }},");
            text
        }) + "];\n"
    };
    let text = table("SCENARIOS", "toml".as_ref(), false) + &table("FILES", "trace".as_ref(), true);
    fs::write(Path::new(&from_cargo("OUT_DIR")?).join("builtin_scenarios.rs"), text)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
