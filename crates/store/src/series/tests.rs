//! Removing runs from a series, without touching other files.

use std::cell::Cell;
use std::os::unix::fs::symlink;

use underload_disk::faults::{self, Fault, Tree};

use super::*;

const FILES: [&str; 6] =
    ["run.json", "samples.parquet", "findings.json", "report.html", "plots/a-1.svg", "plots/b.svg"];

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Adds a finished run to the series.
fn add(series: &Series, name: &str) {
    let run = series.path().join(name);
    for file in FILES {
        write(&run, file, file);
    }
    series.adopt(&run, &format!("{name}T00:00:00Z")).unwrap();
}

/// Returns a series of two runs, with files of the user beside them.
fn two_runs(root: &Path) -> Series {
    fs::create_dir_all(root).unwrap();
    let series = Series::open(root, "s-1").unwrap();
    add(&series, "2026-01-01");
    add(&series, "2026-01-02");
    write(root, "report.html", "the page over all");
    write(root, "plots/mine.svg", "mine");
    write(root, "thesis/chapter.txt", "important");
    series
}

fn reason(series: &Series, name: &str) -> String {
    let members = series.members().unwrap();
    let found = members.others.into_iter().find(|(path, _)| path.ends_with(name));
    found.unwrap_or_else(|| panic!("{name} counts as a run of the series")).1
}

#[test]
fn only_the_directory_of_a_run_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let series = two_runs(directory.path());
    let members = series.members().unwrap();
    let names: Vec<&str> = members.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["2026-01-01", "2026-01-02"]);
    assert_eq!(members.others.len(), 1, "{:?}", members.others);
    let mut wanted = faults::tree(directory.path());
    let run = Path::new("2026-01-01");
    wanted.retain(|path, _| !path.starts_with(run));
    let is_called = Cell::new(false);
    let before = || {
        is_called.set(true);
        Ok(())
    };
    series.remove(&members.runs[0], before).unwrap();
    assert!(is_called.get());
    assert_eq!(faults::tree(directory.path()), wanted);
}

#[test]
fn a_reopened_series_is_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    assert!(Series::find(root).unwrap().is_none());
    two_runs(root);
    let again = Series::open(root, "another").unwrap();
    assert_eq!((again.name.as_str(), again.members().unwrap().runs.len()), ("s-1", 2));
    for wrong in
        ["", "{}", "mine", "{\"version\":2,\"series\":\"s-1\"}", "{\"version\":1,\"series\":\"\"}"]
    {
        fs::write(root.join(NAME), wrong).unwrap();
        assert!(Series::open(root, "s-1").is_err(), "{wrong}");
        assert_eq!(fs::read_to_string(root.join(NAME)).unwrap(), wrong);
    }
}

#[test]
fn only_runs_of_this_series_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let series = two_runs(root);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Series::open(elsewhere.path(), "s-2").unwrap();
    add(&other, "2026-01-03");
    fs::rename(elsewhere.path().join("2026-01-03"), root.join("2026-01-03")).unwrap();
    // A run that has not finished has no `made.json`.
    write(root, "2026-01-04/run.json", "{}");
    write(root, "2026-01-04/parts/0000000-samples.parquet", "half");
    for (name, file) in [
        ("2026-01-05", "notes.txt"),
        ("2026-01-06", "plots/mine/a.svg"),
        ("2026-01-07", ".underload-1"),
        ("2026-01-08", "sub/x"),
    ] {
        add(&series, name);
        write(&root.join(name), file, "mine");
    }
    add(&series, "2026-01-09");
    fs::rename(root.join("2026-01-09"), root.join("the good one")).unwrap();
    for (name, change) in [
        ("2026-01-10", ["run.json", "../../thesis/chapter.txt"]),
        ("2026-01-11", ["run.json", "/etc/passwd"]),
        ("2026-01-12", ["run.json", "plots/../made.json"]),
        ("2026-01-13", ["series\": \"s-1", "series\": \"s-9"]),
        ("2026-01-14", ["{", "["]),
    ] {
        add(&series, name);
        let made = root.join(name).join(MADE);
        let text = fs::read_to_string(&made).unwrap().replacen(change[0], change[1], 1);
        fs::write(made, text).unwrap();
    }
    for (name, reason_part) in [
        ("thesis", "no made.json"),
        ("2026-01-03", "another series"),
        ("2026-01-04", "no made.json"),
        ("2026-01-05", "notes.txt"),
        ("2026-01-06", "plots/mine"),
        ("2026-01-07", ".underload-1"),
        ("2026-01-08", "it has another file: sub"),
        ("the good one", "a copy, or renamed: it was 2026-01-09"),
        ("2026-01-10", "lists files that no run writes"),
        ("2026-01-11", "lists files that no run writes"),
        ("2026-01-12", "lists files that no run writes"),
        ("2026-01-13", "another series"),
        ("2026-01-14", "not a file of this program"),
    ] {
        let reason = reason(&series, name);
        assert!(reason.contains(reason_part), "{name}: {reason}");
    }
    assert_eq!(series.members().unwrap().runs.len(), 2, "the premise");
}

/// Returns everything below a directory; the content of a link is its target.
fn with_links(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let content = if kind.is_dir() {
                waiting.push(path.clone());
                None
            } else if kind.is_symlink() {
                Some(fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else {
                Some(fs::read(&path).unwrap())
            };
            found.insert(path, content);
        }
    }
    found
}

#[test]
fn nothing_is_removed_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let root = &directory.path().join("line");
    let series = two_runs(root);
    let mine = directory.path().join("mine");
    write(&mine, "run.json", "mine");
    // A run in another directory, with a link to it under the run's name.
    let outside = directory.path().join("2026-01-03");
    add(&series, "2026-01-03");
    fs::rename(root.join("2026-01-03"), &outside).unwrap();
    symlink(&outside, root.join("2026-01-03")).unwrap();
    // Links in place of a run's record, its `made.json` and its folder of pictures.
    for (name, file, to) in [
        ("2026-01-04", "run.json", mine.join("run.json")),
        ("2026-01-05", MADE, outside.join(MADE)),
        ("2026-01-06", "plots", outside.join("plots")),
    ] {
        add(&series, name);
        let place = root.join(name).join(file);
        if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }.unwrap();
        symlink(to, place).unwrap();
    }
    let before = with_links(directory.path());
    for name in ["2026-01-03", "2026-01-04", "2026-01-05", "2026-01-06"] {
        reason(&series, name);
        // A directory that is replaced by a link after the check is not removed either.
        let member = Member {
            path: root.join(name),
            name: name.to_owned(),
            started: format!("{name}T00:00:00Z"),
            is_headless: false,
            files: FILES.map(str::to_owned).into(),
        };
        assert!(series.remove(&member, || panic!("nothing is removed")).is_err());
    }
    assert_eq!(with_links(directory.path()), before);
}

#[test]
fn a_run_without_stored_numbers_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let series = two_runs(directory.path());
    let run = series.members().unwrap().runs[0].clone();
    let error = series.remove(&run, || Err(io::ErrorKind::StorageFull.into())).unwrap_err();
    assert!(error.to_string().contains("keep the numbers"), "{error}");
    for (file, is_left) in [("run.json", true), ("samples.parquet", true), ("report.html", false)] {
        assert_eq!(run.path.join(file).exists(), is_left, "{file}");
    }
    // The run is unchanged, and can be removed once the disk has space.
    let again = series.members().unwrap().runs[0].clone();
    series.remove(&again, || Ok(())).unwrap();
    assert!(!run.path.exists());
}

/// A full disk, a kill and a power cut at each step: foreign files stay byte for byte, the numbers
/// of a run are stored before its directory stops being a run, and the rest can be finished.
#[test]
fn an_interrupted_removal_can_be_continued() {
    let start = tempfile::tempdir().unwrap();
    two_runs(start.path());
    write(start.path(), "kept", "");
    let before = faults::tree(start.path());
    let run = Path::new("2026-01-01");
    let is_beside = |path: &Path| !path.starts_with(run) && path != Path::new("kept");
    let beside = |tree: &Tree| -> Tree {
        tree.iter()
            .filter(|(path, _)| is_beside(path))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect()
    };
    let remove = |root: &Path| {
        let series = Series::find(root).unwrap().unwrap();
        let members = series.members().unwrap();
        let Some(member) = members.runs.iter().find(|it| it.path.ends_with(run)) else { return };
        // Stores the numbers before the removal, as the program does, unless they were stored by an
        // earlier attempt.
        let keep = || disk::write_whole(&root.join("kept"), b"numbers", Access::Usual);
        let _ = series.remove(member, || if member.is_headless { Ok(()) } else { keep() });
    };
    let mut done_at_last = 0;
    faults::at_every_step(&before, remove, |fault, root, outcome| {
        let left = faults::tree(root);
        done_at_last += usize::from(!outcome.is_hit && !left.contains_key(run));
        let cuts: &[Tree] = match fault {
            Fault::Kill(_) => &outcome.after_power_cut,
            _ => &[],
        };
        for tree in std::iter::once(&left).chain(cuts) {
            let clean: Tree = beside(tree)
                .into_iter()
                .filter(|(path, _)| !path.to_string_lossy().starts_with(disk::UNFINISHED))
                .collect();
            assert_eq!(clean, beside(&before), "{fault:?}");
            let kept = tree.get(Path::new("kept")).cloned().flatten();
            if !tree.contains_key(&run.join("run.json")) {
                assert_eq!(kept.as_deref(), Some(&b"numbers"[..]), "{fault:?}: {tree:?}");
            }
            faults::restore(root, tree);
            remove(root);
            let left = faults::tree(root);
            // The run's empty folder may be left at the end, because it could belong to another
            // program.
            let of_run: Vec<&PathBuf> = left.keys().filter(|path| path.starts_with(run)).collect();
            assert!(of_run.is_empty() || of_run == [run], "{fault:?}: {of_run:?}");
        }
    });
    assert_eq!(done_at_last, 3, "the premise: without a fault it is gone");
}

#[test]
fn processes_that_start_together_share_one_series() {
    for _ in 0..32 {
        let directory = faults::private_tempdir().unwrap();
        let open = |name: &'static str| Series::open(directory.path(), name).map(|it| it.name);
        let names = std::thread::scope(|scope| {
            let openers = ["s-1", "s-2", "s-3", "s-4"].map(|name| scope.spawn(move || open(name)));
            openers.map(|opener| opener.join().unwrap().unwrap())
        });
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
}
