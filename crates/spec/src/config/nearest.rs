//! The known word that a misspelt word probably means.

use alloc::vec::Vec;

/// Letters of a word that are compared; a hostile file may have a longer one.
const MOST_LETTERS: usize = 64;
/// Maximum number of mistakes with which a word is still recognised.
const MOST_MISTAKES: usize = 3;

/// Returns the known word that `word` probably means: the nearest within one mistake per three
/// letters. A mistake is an extra, missing or wrong letter, or a swap. Case does not count.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word);
    // A known word of one letter would match every other letter.
    let most = (word.len() / 3).clamp(1, MOST_MISTAKES).min(word.len().saturating_sub(1));
    let distances = known.into_iter().map(|known| (distance(&word, &letters(known)), known));
    distances.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| known)
}

fn letters(word: &str) -> Vec<char> {
    word.chars().take(MOST_LETTERS).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Returns the Damerau-Levenshtein distance as optimal string alignment.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for j in 0..b.len() {
            let changed = above[j] + usize::from(a[i] != b[j]);
            let mut least = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_neighbours_are_one_mistake() {
        let known = ["bode", "codel", "fq-codel", "docsis-pie", "pie"];
        for (word, meant) in [
            ("codle", Some("codel")),
            ("CoDel", Some("codel")),
            ("fq_codel", Some("fq-codel")),
            ("docsispie", Some("docsis-pie")),
            ("pei", Some("pie")),
            ("red", None),
            ("", None),
            ("p", None),
        ] {
            assert_eq!(closest(word, known), meant, "{word}");
        }
        assert_eq!(closest(&"x".repeat(1 << 20), known), None);
        assert_eq!(closest("codel", []), None);
    }

    #[test]
    fn distances_are_those_of_the_definition() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("ca", "abc", 3),
            ("upsteam", "upstream", 1),
            ("ab", "ba", 1),
        ] {
            assert_eq!(distance(&letters(a), &letters(b)), expected, "{a} {b}");
            assert_eq!(distance(&letters(b), &letters(a)), expected, "{b} {a}");
        }
    }
}
