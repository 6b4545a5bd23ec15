//! Tests of journals: kills, full disks and power cuts.

use super::*;
use crate::faults::{self, Fault, Tree};

fn open(root: &Path) -> (Journal, Vec<String>) {
    let (journal, lines) = Journal::open(&root.join("log"), 1 << 20, Access::Owner).unwrap();
    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    (journal, lines.iter().map(text).collect())
}

/// Lines that were reported to be on the disk, and lines that may be.
#[derive(Debug, Default)]
struct Progress {
    synced: Vec<String>,
    tried: Vec<String>,
}

fn write(root: &Path) -> Progress {
    let mut progress = Progress::default();
    let Ok((mut journal, _)) = Journal::open(&root.join("log"), 1 << 20, Access::Owner) else {
        return progress;
    };
    for number in 0..4 {
        if number == 2 {
            let _ = journal.rewrite(b"old\nmore\n");
        }
        let line = format!("line {number}");
        progress.tried.push(line.clone());
        if journal.append_synced(format!("{line}\n").as_bytes()).is_ok() {
            progress.synced.push(line);
        }
    }
    progress
}

#[test]
fn synced_lines_survive_every_fault_and_a_torn_line_damages_no_other() {
    let old = b"old\nmore\nhal".to_vec();
    let before = Tree::from([(PathBuf::from("log"), Some(old))]);
    faults::at_every_step(&before, write, |fault, root, outcome| {
        let left = faults::tree(root);
        let cuts: &[Tree] = match fault {
            Fault::Kill(_) => &outcome.after_power_cut,
            _ => &[],
        };
        let progress = &outcome.result;
        for tree in cuts.iter().chain([&left]) {
            faults::restore(root, tree);
            let (mut journal, lines) = open(root);
            assert_eq!(&lines[..2], ["old", "more"], "{fault:?}: {lines:?}");
            // The rewrite removes the first two lines, or fails and leaves them.
            let is_there = |line: &&String| lines.contains(line) || line.as_str() < "line 2";
            assert!(progress.synced.iter().all(|line| is_there(&line)), "{fault:?}: {lines:?}");
            assert!(lines[2..].iter().all(|line| progress.tried.contains(line)), "{lines:?}");
            journal.append_synced(b"last\n").unwrap();
            let again = open(root).1;
            assert_eq!(again, [lines, vec!["last".to_owned()]].concat(), "{fault:?}");
        }
    });
}

#[test]
fn a_missing_journal_is_empty_and_a_large_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, lines) = open(directory.path());
    assert!(lines.is_empty() && journal.bytes() == 0);
    journal.append(b"one\n").unwrap();
    assert_eq!((open(directory.path()).1, journal.bytes()), (vec!["one".to_owned()], 4));
    let error = Lines::read(&directory.path().join("log"), 3).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    let taken = Journal::create(&directory.path().join("log"), b"two\n", Access::Owner);
    assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}
