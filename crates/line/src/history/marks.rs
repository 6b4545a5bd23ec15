//! Marks of a line's history: dated remarks such as "new router", in `marks.jsonl` beside the runs.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use underload_record::history::Mark;

use super::lines;
use crate::series::local_zone;

const FILE: &str = "marks.jsonl";
/// Maximum number of marks of a line, so that a script that marks each run does not fill a page.
pub const MARKS_MAX: usize = 200;

#[derive(Serialize, Deserialize)]
struct Line {
    /// RFC 3339.
    at: String,
    text: String,
}

/// Returns the marks of a directory in order of time; of more than [`MARKS_MAX`] the latest.
///
/// # Errors
/// Returns the error of the system call; [`io::ErrorKind::InvalidData`] for a file that this
/// program did not write.
pub fn read(directory: &Path) -> io::Result<Vec<Mark>> {
    let path = directory.join(FILE);
    // A directory without marks, or one that cannot be written, gets no file.
    if !path.try_exists()? {
        return Ok(Vec::new());
    }
    let (_, lines) = lines::open::<Line>(&path)?;
    let zone = local_zone(|_| ());
    // The file may have been edited, so its text is checked.
    let mark = |it: Line| {
        let at: jiff::Timestamp = it.at.parse().ok()?;
        let (offset_s, text) = (zone.to_offset(at).seconds(), crate::label(&it.text).ok()?);
        Some(Mark { at_s: at.as_second(), offset_s, text })
    };
    let mut marks: Vec<Mark> = lines.into_iter().filter_map(mark).collect();
    marks.sort_by_key(|mark| mark.at_s);
    marks.drain(..marks.len().saturating_sub(MARKS_MAX));
    Ok(marks)
}

/// Adds a mark. It is on the disk when this returns.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::StorageFull`] if there are [`MARKS_MAX`] marks.
pub fn add(directory: &Path, at: jiff::Timestamp, text: &str) -> io::Result<()> {
    let path = directory.join(FILE);
    let (mut journal, marks) = lines::open::<Line>(&path)?;
    if marks.len() >= MARKS_MAX {
        let what = format!("{}: {MARKS_MAX} marks; remove a line of it", path.display());
        return Err(io::Error::new(io::ErrorKind::StorageFull, what));
    }
    journal
        .append_synced(lines::line(&Line { at: at.to_string(), text: text.to_owned() })?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_in_order_of_time_and_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let at = |second| jiff::Timestamp::from_second(1_790_000_000 + second).unwrap();
        assert_eq!(read(directory.path()).unwrap(), []);
        assert!(!directory.path().join(FILE).exists());
        add(directory.path(), at(60), "new router").unwrap();
        add(directory.path(), at(0), "fibre, \"1 Gbit/s\"").unwrap();
        let texts = || -> Vec<String> {
            read(directory.path()).unwrap().into_iter().map(|mark| mark.text).collect()
        };
        assert_eq!(texts(), ["fibre, \"1 Gbit/s\"", "new router"]);
        // An edited line has an escape sequence of a terminal.
        let path = directory.path().join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text += "{\"at\":\"2026-11-23T10:00:00Z\",\"text\":\"\\u001b[2J\"}\nhalf a li";
        std::fs::write(&path, text).unwrap();
        assert_eq!(texts().len(), 2);
        for second in 0..MARKS_MAX as i64 {
            let _ = add(directory.path(), at(second), "again");
        }
        assert!(texts().len() <= MARKS_MAX);
        let full = add(directory.path(), at(0), "one more").unwrap_err();
        assert!(full.to_string().contains("remove a line"), "{full}");
        std::fs::write(&path, "my notes\n").unwrap();
        assert!(read(directory.path()).is_err() && add(directory.path(), at(0), "x").is_err());
    }
}
