//! Lists and tables in foreign files, with a limit on their length.
//!
//! A few bytes of a file can become a value many times their size, so a limit on the size of the
//! file does not bound the memory that reading it takes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum number of rows in one file, over all its lists: probes, points, intervals.
pub(super) const ROWS_MAX: usize = 2_000_000;

/// Maximum number of entries of one table in a file, such as its series.
pub(super) const NAMES_MAX: usize = 4_096;

thread_local! {
    /// Rows that the file read by this thread may still have. All lists of a file share it.
    static LEFT: Cell<usize> = const { Cell::new(ROWS_MAX) };
}

/// Reads one file, whose lists share [`ROWS_MAX`].
pub(super) fn counted<T>(read: impl FnOnce() -> T) -> T {
    LEFT.set(ROWS_MAX);
    read()
}

fn take_row<E: Error>() -> Result<(), E> {
    let left = LEFT.get().checked_sub(1);
    LEFT.set(left.unwrap_or(0));
    left.map(drop).ok_or_else(|| E::custom(format_args!("more than {ROWS_MAX} rows are not read")))
}

/// A list whose items count towards [`ROWS_MAX`].
#[derive(Debug, Clone)]
pub(super) struct Rows<T>(Vec<T>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Rows<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Rows<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rows<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut rows = Vec::new();
                while let Some(row) = items.next_element()? {
                    take_row()?;
                    rows.push(row);
                }
                Ok(rows)
            }
        }
        deserializer.deserialize_seq(List(PhantomData)).map(Rows)
    }
}

/// A table of at most [`NAMES_MAX`] named values.
#[derive(Debug, Clone)]
pub(super) struct Named<T>(BTreeMap<String, T>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Deref for Named<T> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &BTreeMap<String, T> {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = BTreeMap<String, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut named = BTreeMap::new();
                while let Some((name, value)) = entries.next_entry()? {
                    named.insert(name, value);
                    if named.len() > NAMES_MAX {
                        let problem = format_args!("more than {NAMES_MAX} series are not read");
                        return Err(A::Error::custom(problem));
                    }
                }
                Ok(named)
            }
        }
        deserializer.deserialize_map(Entries(PhantomData)).map(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_a_file_share_one_limit() {
        let list = |rows: usize| vec!["0"; rows].join(",");
        let two = |first, second| format!("[[{}],[{}]]", list(first), list(second));
        let read = |text: &str| counted(|| serde_json::from_str::<[Rows<u8>; 2]>(text));
        assert_eq!(read(&two(ROWS_MAX - 5, 5)).unwrap()[1].len(), 5);
        let error = read(&two(ROWS_MAX - 5, 6)).unwrap_err().to_string();
        assert!(error.contains("2000000 rows"), "{error}");
        assert!(read(&two(1, 1)).is_ok(), "the next file begins anew");
    }

    #[test]
    fn names_have_a_limit() {
        let table = |names: usize| {
            let entries: Vec<String> = (0..names).map(|name| format!("\"{name}\":0")).collect();
            format!("{{{}}}", entries.join(","))
        };
        let read = |text: &str| serde_json::from_str::<Named<u8>>(text);
        assert_eq!(read(&table(NAMES_MAX)).unwrap().len(), NAMES_MAX);
        let error = read(&table(NAMES_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("4096 series"), "{error}");
    }
}
