//! The book with the playground as one archive, ready to be unpacked by a server of static files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::archive::{Entry, gzip, tar, with_folders};

/// Writes `underload-VERSION-book.tar.gz`; `None`, with a report of the skip, without mdBook.
pub fn write(folder: &Path, epoch: u64) -> anyhow::Result<Option<PathBuf>> {
    crate::playground::build()?;
    let Some(book) = crate::book::build()? else { return Ok(None) };
    let name = format!("underload-{}-book", env!("CARGO_PKG_VERSION"));
    let path = folder.join(format!("{name}.tar.gz"));
    let bytes = gzip(&tar(&with_folders(entries(&book, &name)?), epoch)?)?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(Some(path))
}

/// Returns the files below `folder`, as files below `prefix`.
fn entries(folder: &Path, prefix: &str) -> anyhow::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}/{name}");
        if path.is_dir() {
            all.extend(entries(&path, &name)?);
        } else {
            let contents = fs::read(&path).with_context(|| path.display().to_string())?;
            all.push(Entry::file(name, 0o644, contents));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_book_are_in_one_folder() {
        let book = std::env::temp_dir().join(format!("underload-book-{}", std::process::id()));
        crate::process::fresh_folder(&book).unwrap();
        fs::create_dir(book.join("css")).unwrap();
        for name in ["index.html", "css/general.css"] {
            fs::write(book.join(name), name).unwrap();
        }
        let all = with_folders(entries(&book, "book").unwrap());
        fs::remove_dir_all(&book).unwrap();
        let paths: Vec<&str> = all.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["book", "book/css", "book/css/general.css", "book/index.html"]);
        assert_eq!(all[3].contents.as_deref(), Some(&b"index.html"[..]));
    }
}
