//! `underload docs`: the pages of the documentation, which are in the program.

use std::io::Read as _;

use anyhow::Context as _;
use clap::Args;
use flate2::read::DeflateDecoder;
use underload_aqm::config::closest;
use underload_terminal::console;
use underload_terminal::exit::refuse;

#[derive(Debug, Args)]
#[command(after_help = "\
A page is found by its name, or by a word such as bufferbloat, lag, ping, MTU or fq_codel.

Examples:
  underload docs
  underload docs measure | less
  underload docs bufferbloat
  underload docs scenario-keys | less")]
pub struct Arguments {
    /// A page, or words; without it, all pages are listed.
    page: Vec<String>,
}

struct Page {
    /// The path without the extension: `how-to/sweep`.
    name: String,
    text: String,
}

/// All pages with their names; `build.rs` writes the file.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/docs"));
/// The page whose tables lead from words to pages.
const GLOSSARY: &str = "glossary";
/// The folder of pages that list every option and key, and so contain most words.
const REFERENCE: &str = "reference/";
/// Maximum number of listed pages that contain a word.
const MOST_FOUND: usize = 12;
/// Maximum length of the line that shows where a page has the words.
const EXCERPT_CHARS: usize = 100;
/// The longest name of a page.
const NAME_COLUMNS: usize = 37;

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pages = pages().context("the documentation in the program")?;
    let wanted = arguments.page.join(" ");
    if wanted.is_empty() {
        return console::print(&list(&pages));
    }
    if let Some(page) = called(&pages, &wanted) {
        return console::print(&page.text);
    }
    let found = about(&pages, &wanted);
    if found.is_empty() {
        let meant = nearest(&pages, &wanted);
        let meant = meant.map_or(";".to_owned(), |word| format!("; did you mean {word:?}?"));
        refuse!("no page has the words {wanted:?}{meant} `underload docs` lists all pages")
    }
    let found = listed(&found, &wanted);
    console::print(&format!("Pages about {wanted:?}, for `underload docs PAGE`:\n{found}"))
}

/// Returns the names of all pages.
pub fn names() -> Vec<String> {
    pages().unwrap_or_default().into_iter().map(|page| page.name).collect()
}

/// Returns the lines of pages, each with the line that has the words.
fn listed(pages: &[&Page], wanted: &str) -> String {
    pages.iter().map(|page| line(page) + &page.excerpt(wanted)).collect()
}

fn pages() -> anyhow::Result<Vec<Page>> {
    let mut text = String::new();
    DeflateDecoder::new(PACKED).read_to_string(&mut text)?;
    let (mut rest, mut pages) = (text.as_str(), Vec::new());
    while let Some((head, below)) = rest.split_once('\n') {
        let (name, length) = head.rsplit_once(' ').context("a page without a length")?;
        let (text, next) = below.split_at_checked(length.parse()?).context("a page is cut")?;
        pages.push(Page { name: name.to_owned(), text: text.to_owned() });
        rest = next;
    }
    Ok(pages)
}

impl Page {
    fn title(&self) -> &str {
        let heading = self.text.lines().find_map(|line| line.strip_prefix("# "));
        heading.unwrap_or(&self.name)
    }

    /// Whether the name, or its part behind the folder, is `wanted`.
    fn is_called(&self, wanted: &str) -> bool {
        let stem = self.name.rsplit('/').next().unwrap_or_default();
        self.name.eq_ignore_ascii_case(wanted) || stem.eq_ignore_ascii_case(wanted)
    }

    /// Returns the first line with the first of the words that it finds, indented.
    fn excerpt(&self, wanted: &str) -> String {
        let wanted = wanted.to_lowercase();
        let with = |word: &str| self.text.lines().find(|line| line.to_lowercase().contains(word));
        let line = with(&wanted).or_else(|| long_words(&wanted).find_map(with));
        line.map_or(String::new(), |line| {
            let cut: String = line.trim().chars().take(EXCERPT_CHARS).collect();
            format!("      {cut}\n")
        })
    }

    /// Returns how often the text contains a word, plus 1,000 if the title contains it.
    fn count(&self, word: &str) -> usize {
        let in_title = usize::from(self.title().to_lowercase().contains(word));
        self.text.to_lowercase().matches(word).count() + in_title * 1_000
    }
}

/// Returns the page with the name `wanted`.
fn called<'a>(pages: &'a [Page], wanted: &str) -> Option<&'a Page> {
    let name = wanted.trim_start_matches("docs/").trim_end_matches(".md");
    pages.iter().find(|page| page.is_called(name))
}

/// Returns the pages to which the glossary refers from the words, the most specific row first, then
/// those that contain the words, at most [`MOST_FOUND`].
fn about<'a>(pages: &'a [Page], wanted: &str) -> Vec<&'a Page> {
    let word = wanted.to_lowercase();
    let of_glossary = pages.iter().find(|page| page.name == GLOSSARY);
    let rows = of_glossary.map_or("", |page| page.text.as_str()).lines();
    let mut rows: Vec<&str> = rows.filter(|row| is_row_of(row, &word)).collect();
    rows.sort_by_key(|row| row.split('|').nth(1).map(|cell| cell.split(',').count()));
    let links = rows.into_iter().flat_map(links);
    let of_rows = links.filter_map(|link| pages.iter().find(|page| page.name == link));
    let mut found: Vec<&Page> = Vec::new();
    for page in of_rows.chain(containing(pages, wanted)) {
        if !found.iter().any(|known| known.name == page.name) {
            found.push(page);
        }
    }
    found.truncate(MOST_FOUND);
    found
}

/// Returns the pages that contain the phrase `wanted`, or else all its words, the most relevant
/// first.
fn containing<'a>(pages: &'a [Page], wanted: &str) -> Vec<&'a Page> {
    let wanted = wanted.to_lowercase();
    let phrase = counted(pages, |page| page.count(&wanted));
    if !phrase.is_empty() {
        return phrase;
    }
    counted(pages, |page| {
        let counts = || long_words(&wanted).map(|word| page.count(word));
        if counts().all(|count| count > 0) { counts().sum() } else { 0 }
    })
}

/// Returns the words without their endings. Short words such as "my" and "is" are on every page.
fn long_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| word.chars().count() > 3).map(stem)
}

/// Endings of English words; the longer ones first.
const ENDINGS: &[&str] = &["ances", "ance", "ants", "ant", "ings", "ing", "ed", "es", "ly", "s"];

/// Returns a word without its ending, if enough is left to be found by.
fn stem(word: &str) -> &str {
    let stems = ENDINGS.iter().filter_map(|ending| word.strip_suffix(ending));
    stems.into_iter().find(|stem| stem.chars().count() >= 4).unwrap_or(word)
}

/// Returns the pages that count, the highest count first, at most [`MOST_FOUND`].
fn counted(pages: &[Page], count: impl Fn(&Page) -> usize) -> Vec<&Page> {
    let pages = pages.iter().filter(|page| !page.name.starts_with(REFERENCE));
    let mut counted: Vec<(usize, &Page)> = pages.map(|page| (count(page), page)).collect();
    counted.retain(|(count, _)| *count > 0);
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counted.into_iter().take(MOST_FOUND).map(|(_, page)| page).collect()
}

/// Returns the page whose name a misspelt word may be.
fn nearest<'a>(pages: &'a [Page], wanted: &str) -> Option<&'a str> {
    let stems = pages.iter().filter_map(|page| page.name.rsplit('/').next());
    closest(&wanted.to_lowercase(), stems)
}

/// Whether the first cell of a table's row is about a word.
fn is_row_of(row: &str, word: &str) -> bool {
    let Some((cell, _)) = row.strip_prefix('|').and_then(|row| row.split_once('|')) else {
        return false;
    };
    // People type `wifi` and `Wi-Fi`.
    let (cell, word) = (cell.to_lowercase().replace(['`', '-'], ""), word.replace('-', ""));
    let is_word = |it: &str| stem(it) == stem(&word);
    cell.split(',').any(|part| part.trim() == word || part.split(' ').any(is_word))
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter_map(|target| target.strip_suffix(".md"))
}

fn line(page: &Page) -> String {
    format!("  {:<NAME_COLUMNS$} {}\n", page.name, page.title())
}

fn list(pages: &[Page]) -> String {
    let lines = pages.iter().map(line).collect::<String>();
    format!("Pages, for `underload docs PAGE`:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(word: &str) -> Vec<String> {
        let pages = pages().expect("pages");
        let found = called(&pages, word).map_or_else(|| about(&pages, word), |page| vec![page]);
        found.iter().map(|page| page.name.clone()).collect()
    }

    #[test]
    fn common_search_words_find_their_page() {
        for (word, page) in [
            ("bufferbloat", "explain/why-aqm"),
            ("lag", "tutorials/my-line"),
            ("ping", "measure"),
            ("speed test", "web"),
            ("fq_codel", "queues/fq-codel"),
            ("MTU", "link"),
            ("speedtest", "web"),
            ("gaming", "tutorials/my-line"),
            ("how many repeats", "how-to/sweep"),
            ("sqm", "queues"),
            ("Zoom", "tutorials/my-line"),
            ("freezing calls", "tutorials/my-line"),
            ("my calls are late", "measure"),
            ("significant", "how-to/before-and-after"),
            ("stuttered calls", "tutorials/my-line"),
            ("policers", "path"),
            ("jitter", "links"),
            ("game", "tutorials/my-line"),
            ("vpn", "queues/fq-codel"),
            ("starlink", "cellular"),
            ("wifi", "path"),
            ("Wi-Fi", "path"),
        ] {
            let found = found(word);
            assert!(found.iter().any(|name| name == page), "{word}: {found:?}");
        }
        assert_eq!(found("speedtest").first().map(String::as_str), Some("web"), "the row about it");
        assert!(found("gaming").len() > 1, "the page to which the glossary refers is not all");
        assert_eq!(found("docs/how-to/sweep.md"), ["how-to/sweep"]);
        assert_eq!(found("scenario-format"), ["scenario-format"]);
        assert_eq!(found("no such wordlet at all"), Vec::<String>::new());
        let pages = pages().expect("pages");
        let page = pages.iter().find(|page| page.name == "measure").expect("the page");
        assert!(page.excerpt("Round Trip").to_lowercase().contains("round trip"));
        assert_eq!(page.excerpt("a b c"), "", "short words are not looked for");
        let about = about(&pages, "MTU");
        let shown = listed(&about, "MTU");
        assert!(shown.lines().count() > about.len() && shown.contains("1,500"), "{shown}");
        for (word, expected) in [
            ("stutters", "stutter"),
            ("gaming", "gaming"),
            ("repeatedly", "repeated"),
            ("bed", "bed"),
        ] {
            assert_eq!(stem(word), expected);
        }
        assert_eq!(nearest(&pages, "mesure"), Some("measure"));
        assert!(pages.iter().all(|page| page.name.len() <= NAME_COLUMNS));
    }

    #[test]
    fn every_page_is_packed_and_the_pages_are_small() {
        let pages = pages().expect("pages");
        assert!(pages.len() > 40, "{}", pages.len());
        assert!(pages.iter().all(|page| page.text.starts_with('#')), "every page has a title");
        assert!(PACKED.len() < 200_000, "{} bytes in the program", PACKED.len());
    }
}
