//! Links at the top of a page to its sections.

use std::fmt::Write as _;

/// Fewest sections with a list of links.
const FEWEST: usize = 4;

const START: &str = "<h2>";
const END: &str = "</h2>";

/// Adds an anchor to each heading of a section, and links to them after the header.
pub(super) fn with_contents(html: &str) -> String {
    let mut anchors: Vec<String> = Vec::new();
    let mut links = String::new();
    let mut pieces = html.split(START);
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Headings are escaped text without tags.
        let title = piece.split(END).next().unwrap_or_default();
        let anchor = anchor(title, &anchors);
        // Writing to a String cannot fail.
        let _ = writeln!(links, "<a href=\"#{anchor}\">{title}</a>");
        let _ = write!(page, "<h2 id=\"{anchor}\">{piece}");
        anchors.push(anchor);
    }
    if anchors.len() < FEWEST {
        return page;
    }
    let nav = format!("</header>\n<nav class=\"contents\" aria-label=\"Contents\">\n{links}</nav>");
    page.replacen("</header>", &nav, 1)
}

/// Makes a unique anchor of the lower-case letters and digits of a title.
fn anchor(title: &str, known: &[String]) -> String {
    let plain: String = title
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' })
        .take(MOST_CHARACTERS)
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let anchor = if words.is_empty() { "section".to_owned() } else { words.join("-") };
    if known.contains(&anchor) { format!("{anchor}-{}", known.len()) } else { anchor }
}

const MOST_CHARACTERS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heading_is_linked_once() {
        let page = with_contents(
            "<header></header><h2>Over time</h2><p><h2>A &lt;b&gt;</h2><h2>Over time</h2><h2></h2>",
        );
        assert!(page.contains("<a href=\"#over-time\">Over time</a>"), "{page}");
        assert!(page.contains("<h2 id=\"a-lt-b-gt\">A &lt;b&gt;</h2>"), "{page}");
        for anchor in ["over-time", "over-time-2", "section"] {
            assert_eq!(page.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}: {page}");
        }
        assert!(!with_contents("<header></header><h2>One</h2>").contains("<nav"));
    }
}
