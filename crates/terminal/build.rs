//! Passes the commit of the sources to the programs.

use std::path::Path;

mod commit;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rustc-env=UNDERLOAD_COMMIT={}", commit::commit(&root));
    for path in commit::watched(&root) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
