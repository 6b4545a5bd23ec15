//! `docs/exit-status.md`: each of its examples ends with the status beside it.

use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/exit-status.md");

/// Returns status and command of each row that has a command.
fn examples() -> Vec<(i32, String)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| "));
    let examples = rows.filter_map(|line| {
        let line = line.replace("\\|", "\u{1}");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, status, _, example, _] = cells.as_slice() else { return None };
        let command = example.strip_prefix('`')?.strip_suffix('`')?.replace('\u{1}', "|");
        // `underload link` ends with the command's status, which is 0 here.
        Some((if *status == "any" { 0 } else { status.parse().ok()? }, command))
    });
    examples.collect()
}

#[test]
fn every_example_ends_as_the_page_says() {
    let program = Path::new(env!("CARGO_BIN_EXE_underload"));
    let beside = program.parent().expect("a program lies in a folder").display();
    let path = format!("{beside}:{}", std::env::var("PATH").unwrap_or_default());
    let examples = examples();
    assert!(examples.len() >= 8, "only {examples:?} were found");
    for (expected, command) in examples {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new("sh")
            .args(["-c", &command])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("HOME", folder.path())
            .output()
            .expect("sh runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        let forbidden = ["refused", "cannot be created", "not permitted", "/dev/net/tun"];
        let is_link = command.contains("underload link");
        if is_link && forbidden.iter().any(|word| errors.contains(word)) && expected != 126 {
            eprintln!("SKIPPED {command}: namespaces or TUN devices are forbidden: {errors}");
            continue;
        }
        if is_link && expected == 126 && output.status.code() == Some(1) {
            eprintln!("SKIPPED {command}: namespaces or TUN devices are forbidden: {errors}");
            continue;
        }
        assert_eq!(output.status.code(), Some(expected), "{command}: {errors}");
        assert_eq!(expected == 0, !errors.contains("error: "), "{command}: {errors}");
    }
}
