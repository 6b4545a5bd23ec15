//! The pages of the docs about published numbers: an index, and for each paper a page with a table
//! for each of its figures.

use std::fmt::Write as _;

use underload_record::schema::{Expectation, Verdict};
use underload_report::{Figure, published_cells, published_table};

const MARK: &str = "<!-- Written by a test of `underload figures`. Do not edit it here. -->";

const INDEX: &str = "\
For researchers who want to know how far a result can be trusted: every published number that the
built-in scenarios carry, against what they give in virtual time. The band of what counts as met
comes from the source or from how exactly it can be read, never from our result; each scenario's
file says how, and what it does differently. Each paper has a page. This prints the same numbers:
";

/// Returns each page with its path.
pub fn of(figures: &[Figure]) -> Vec<(String, String)> {
    let mut papers: Vec<&str> = figures.iter().map(paper).collect();
    papers.dedup();
    let page = |paper: &&str| {
        let of_paper: Vec<&Figure> =
            figures.iter().filter(|it| self::paper(it) == *paper).collect();
        (format!("figures/{paper}.md"), paper_page(paper, &of_paper))
    };
    let index = ("figures.md".to_owned(), index_page(figures));
    std::iter::once(index).chain(papers.iter().map(page)).collect()
}

/// Returns the short name of a scenario's paper: its folder.
fn paper(figure: &Figure) -> &str {
    figure.scenario.split_once('/').expect("a folder").0
}

fn index_page(figures: &[Figure]) -> String {
    let mut text = format!(
        "# Published numbers beside ours\n\n{MARK}\n\n{INDEX}\n    underload figures\n\n\
         | scenario | reproduces | numbers | met | missed | not measured |\n\
         |---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let name = &figure.scenario;
        let anchor: String = name.chars().filter(|c| *c != '/').collect();
        let (page, reproduces) = (paper(figure), cell(&figure.figure));
        let cells = counts(&figure.expectations);
        let _ = writeln!(text, "| [{name}](figures/{page}.md#{anchor}) | {reproduces} | {cells} |");
    }
    let _ = writeln!(text, "| all | | {} |", counts(&all_of(figures.iter())));
    text
}

fn paper_page(paper: &str, figures: &[&Figure]) -> String {
    let table = published_table(&all_of(figures.iter().copied()));
    let count = table.lines().next().unwrap_or_default();
    let mut text = format!(
        "# Published numbers: {paper}\n\n{MARK}\n\n{count}. What counts as met, and the other \
         papers: [all published numbers](../figures.md).\n",
    );
    for figure in figures {
        let _ = write!(text, "\n## {}\n\n{}.\n\n", figure.scenario, figure.figure);
        text += "| number | published | ours | outcome | source, and why a number is missed |\n\
                 |---|---|---|---|---|\n";
        for expected in &figure.expectations {
            let ([what, published, ours, outcome], why) = published_cells(expected);
            let mut remarks = vec![cell(&expected.source)];
            remarks.extend(why.map(|why| format!("**Why:** {}", cell(why))));
            let (what, remarks) = (cell(&what), remarks.join(" "));
            let _ = writeln!(text, "| {what} | {published} | {ours} | {outcome} | {remarks} |");
        }
    }
    text
}

fn all_of<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<Expectation> {
    figures.flat_map(|figure| figure.expectations.clone()).collect()
}

fn counts(numbers: &[Expectation]) -> String {
    let count = |is: fn(&Verdict) -> bool| numbers.iter().filter(|it| is(&it.verdict)).count();
    let met = count(|it| *it == Verdict::Met);
    let missed = count(|it| matches!(it, Verdict::Missed { .. }));
    let unmeasured = count(|it| *it == Verdict::NotMeasured);
    format!("{} | {met} | {missed} | {unmeasured}", numbers.len())
}

/// Escapes a text for a cell of a Markdown table, with the asterisks of variant patterns.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace("/*", "/\\*").replace(" *", " \\*")
}
