//! `cargo xtask playground`: the simulator as WebAssembly, for the book's page with sliders.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cargo::{succeed, target};
use crate::targets;

/// The target that browsers run.
const TARGET: &str = "wasm32-unknown-unknown";
/// The folder of the page's script and style.
const PAGE: &str = "crates/playground/page";

fn module() -> PathBuf {
    target().join("playground/playground.wasm")
}

/// Builds the module, or reports a skip without a toolchain for the target.
pub fn build() -> anyhow::Result<()> {
    let mut cargo = match targets::cargo(TARGET) {
        Ok(cargo) => cargo,
        Err(missing) => {
            crate::skips::report("playground", &missing);
            return Ok(());
        }
    };
    let folder = target().join("playground");
    cargo.args(["build", "--quiet", "--locked", "--package", "underload-playground", "--lib"]);
    cargo.args(["--profile", "playground", "--target", TARGET, "--target-dir"]).arg(&folder);
    succeed(&mut cargo)?;
    let built = folder.join(TARGET).join("playground/underload_playground.wasm");
    let module = module();
    fs::copy(&built, &module).with_context(|| built.display().to_string())?;
    let kib = fs::metadata(&module)?.len() / 1024;
    eprintln!("{}: {kib} KiB", module.display());
    Ok(())
}

/// Copies script, style and the module, if it was built, into the book's sources.
pub fn into_book(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for name in ["playground.js", "playground.css"] {
        let from = Path::new(PAGE).join(name);
        fs::copy(&from, folder.join(name)).with_context(|| from.display().to_string())?;
    }
    // As text in a script, because a page from a disk may not fetch files.
    let text = match fs::read(module()) {
        Ok(module) => {
            let text = data_encoding::BASE64.encode(&module);
            format!("window.UNDERLOAD_PLAYGROUND = \"{text}\";\n")
        }
        Err(_) => "// Built without the simulator: see `cargo xtask playground`.\n".to_owned(),
    };
    let place = folder.join("playground-module.js");
    fs::write(&place, text).with_context(|| place.display().to_string())
}
