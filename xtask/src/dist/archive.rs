//! Archive formats (tar, gzip, ar) and checksums. Equal contents give equal bytes.

use std::io::Write as _;

use data_encoding::HEXLOWER;
use flate2::{Compression, GzBuilder};
use ring::digest;

/// A file or folder in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root, without a leading slash.
    pub path: String,
    pub mode: u32,
    /// The number of both user and group.
    pub owner: u32,
    /// `None` for a folder.
    pub contents: Option<Vec<u8>>,
}

impl Entry {
    /// Makes a file of root.
    pub fn file(path: impl Into<String>, mode: u32, contents: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode, owner: 0, contents: Some(contents.into()) }
    }

    pub fn folder(path: impl Into<String>, mode: u32, owner: u32) -> Self {
        Self { path: path.into(), mode, owner, contents: None }
    }
}

/// Adds the parent folders of all entries, and sorts by path.
pub fn with_folders(entries: Vec<Entry>) -> Vec<Entry> {
    let mut all = entries;
    let paths: Vec<String> = all.iter().map(|entry| entry.path.clone()).collect();
    for path in paths {
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            if !all.iter().any(|entry| entry.path == folder) {
                all.push(Entry::folder(folder, 0o755, 0));
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Writes a tar archive with `epoch` as every time.
pub fn tar(entries: &[Entry], epoch: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.into());
        header.set_gid(entry.owner.into());
        if entry.owner == 0 {
            header.set_username("root")?;
            header.set_groupname("root")?;
        }
        header.set_mtime(epoch);
        let contents = entry.contents.as_deref().unwrap_or_default();
        header.set_size(contents.len() as u64);
        let is_folder = entry.contents.is_none();
        let kind = if is_folder { tar::EntryType::Directory } else { tar::EntryType::Regular };
        header.set_entry_type(kind);
        let slash = if is_folder { "/" } else { "" };
        archive.append_data(&mut header, format!("{}{slash}", entry.path), contents)?;
    }
    Ok(archive.into_inner()?)
}

/// Compresses, without name and time in the header.
pub fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Writes an ar archive of files with short names, as Debian's packages are.
pub fn ar(members: &[(&str, &[u8])], epoch: u64) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, contents) in members {
        let length = contents.len();
        let header = format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, "100644");
        debug_assert_eq!(header.len(), 60, "{name}");
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(contents);
        // Members begin at even offsets.
        if length % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

/// Returns SHA-256 as hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn folders_come_before_what_lies_in_them_and_once() {
        let entries = vec![Entry::file("usr/bin/b", 0o755, "b"), Entry::file("usr/a", 0o644, "a")];
        let entries = with_folders(entries);
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["usr", "usr/a", "usr/bin", "usr/bin/b"]);
    }

    #[test]
    fn what_was_packed_is_unpacked_with_its_rights() {
        let entries = with_folders(vec![
            Entry::file("usr/bin/it", 0o755, "program"),
            Entry::folder("state", 0o700, 4870),
        ]);
        let packed = gzip(&tar(&entries, 1_700_000_000).unwrap()).unwrap();
        assert_eq!(packed, gzip(&tar(&entries, 1_700_000_000).unwrap()).unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let (mode, owner) = (entry.header().mode().unwrap(), entry.header().uid().unwrap());
            assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000);
            let mut contents = String::new();
            entry.read_to_string(&mut contents).unwrap();
            found.push((path, mode, owner, contents));
        }
        let expected = [
            ("state/", 0o700, 4870, ""),
            ("usr/", 0o755, 0, ""),
            ("usr/bin/", 0o755, 0, ""),
            ("usr/bin/it", 0o755, 0, "program"),
        ];
        let expected = expected.map(|(a, b, c, d)| (a.to_owned(), b, c, d.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn long_paths_survive() {
        let path = format!("usr/share/{}/end", "long-name/".repeat(20));
        let packed = tar(&[Entry::file(path.clone(), 0o644, "x")], 0).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().display().to_string(), format!("{path}"));
    }

    #[test]
    fn members_of_ar_begin_at_even_places() {
        let bytes = ar(&[("debian-binary", b"2.0\n"), ("odd", b"abc"), ("last", b"")], 7);
        assert_eq!(&bytes[..8], b"!<arch>\n");
        let header = "debian-binary   7           0     0     100644  4         `\n";
        assert_eq!(&bytes[8..68], header.as_bytes());
        assert_eq!(bytes.len(), 8 + 60 + 4 + 60 + 4 + 60);
        assert_eq!(&bytes[72..76], b"odd ");
        assert_eq!(&bytes[136..141], b"last ");
    }

    #[test]
    fn the_checksum_is_the_standards() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
    }
}
