//! Reproduced figures: a page per paper, with each figure and its numbers.

use std::path::{Path, PathBuf};

use maud::{Markup, html};
use underload_disk::{self as disk, Access};
use underload_record::schema::Expectation;
use underload_record::text::plain_text;
use underload_store::RunData;

use super::figures::{Headings, figures};
use super::parts::folded;
use super::{PAGE_MARK, PageError, check_file_of, header, published, write_whole};
use crate::plot::{Plot, Plots};
use crate::published::{Count, FIGURES_MARK, Figure, figure_pages, papers};
use crate::subject::subjects;

/// A figure of a paper, reproduced by a scenario.
#[derive(Debug, Clone)]
pub struct FigurePage {
    scenario: String,
    title: String,
    figure: String,
    description: String,
    plots: Vec<Plot>,
    expectations: Vec<Expectation>,
}

impl FigurePage {
    /// Draws the figure of a run. `figure` and `description` come from the scenario.
    pub fn of(run: &RunData, figure: &str, description: &str) -> Self {
        let runs = std::slice::from_ref(run);
        let plots = Plots::asked_for(&subjects(runs));
        Self {
            scenario: run.record.scenario.name.clone(),
            title: header::title(run).to_owned(),
            figure: figure.to_owned(),
            description: description.to_owned(),
            plots,
            expectations: run.record.expectations.clone(),
        }
    }

    /// Returns the paper's short name: the folder of its scenarios.
    fn paper(&self) -> &str {
        crate::published::paper(&self.scenario)
    }

    fn anchor(&self) -> String {
        self.scenario.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    }
}

/// Writes `index.html` and a page per paper into a directory, and returns the path of the index.
/// Replaces the files of an earlier run, each atomically.
///
/// # Errors
/// Returns [`PageError::Io`] if writing fails, [`PageError::NotOurs`] if a file with such a name is
/// not such a page.
pub fn write_figure_pages(directory: &Path, pages: &[FigurePage]) -> Result<PathBuf, PageError> {
    let papers = papers(pages.iter().map(|page| page.scenario.as_str()));
    let of_paper = |paper: &str| -> Vec<&FigurePage> {
        pages.iter().filter(|page| page.paper() == paper).collect()
    };
    let mut files = vec![(directory.join("index.html"), index(&papers, pages))];
    for paper in &papers {
        files.push((directory.join(format!("{paper}.html")), paper_page(&of_paper(paper))));
    }
    files.iter().try_for_each(|(path, _)| check_file_of(directory, path, PAGE_MARK))?;
    disk::create_directory(directory, Access::Usual).map_err(PageError::io(directory, "create"))?;
    files.iter().try_for_each(|(path, html)| write_whole(path, html))?;
    Ok(directory.join("index.html"))
}

/// Writes the Markdown pages of [`figure_pages`] into a directory, and returns the path of the
/// index. `command` is the command that writes them. Replaces the files of an earlier run, each
/// atomically.
///
/// # Errors
/// Returns [`PageError::Io`] if writing fails, [`PageError::NotOurs`] if a file with such a name is
/// not such a page.
pub fn write_figures_markdown(
    directory: &Path,
    figures: &[Figure],
    command: &str,
) -> Result<PathBuf, PageError> {
    let pages = figure_pages(figures, command);
    let mut files = pages.iter().map(|(name, page)| (directory.join(name), page));
    let papers = directory.join("figures");
    disk::refuse_links(directory, &papers).map_err(PageError::io(&papers, "write"))?;
    files.clone().try_for_each(|(path, _)| check_file_of(directory, &path, FIGURES_MARK))?;
    disk::create_directory(&papers, Access::Usual).map_err(PageError::io(&papers, "create"))?;
    files.try_for_each(|(path, page)| write_whole(&path, page))?;
    Ok(directory.join("figures.md"))
}

/// Returns the name of a paper: the part of a figure's name before its number.
fn paper_name(figures: &[&FigurePage]) -> String {
    let name = figures.first().map_or("", |page| page.figure.as_str());
    match name.find(", Figure").or_else(|| name.find(", section")).or_else(|| name.find(", Table"))
    {
        Some(end) => name[..end].to_owned(),
        None => name.to_owned(),
    }
}

fn index(papers: &[&str], pages: &[FigurePage]) -> String {
    let content = html! {
        header { "\n" h1 { "Published figures, reproduced" } "\n" }
        p.note {
            "Each paper has a page: its figures as this program draws them from its own runs, with "
            "the published numbers in them, and every number beside ours. " (counted(pages.iter()))
        }
        "\n"
        @for paper in papers {
            @let own: Vec<&FigurePage> =
                pages.iter().filter(|page| page.paper() == *paper).collect();
            h2 { a href=(format!("{paper}.html")) { (paper_name(&own)) } } "\n"
            p.note { (counted(own.iter().copied())) } "\n"
            ul {
                "\n"
                @for page in own {
                    li {
                        a href=(format!("{paper}.html#{}", page.anchor())) { (page.figure) }
                        ": " (page.title)
                    }
                    "\n"
                }
            }
            "\n"
        }
    };
    finished("Published figures", &content)
}

fn paper_page(figures_of_paper: &[&FigurePage]) -> String {
    let name = paper_name(figures_of_paper);
    let content = html! {
        header {
            "\n"
            p.kind { a href="index.html" { "All papers" } } "\n"
            h1 { (name) } "\n"
            p.verdict.minor { (counted(figures_of_paper.iter().copied())) } "\n"
        }
        "\n"
        nav.contents aria-label="Figures" {
            "\n"
            @for page in figures_of_paper {
                a href=(format!("#{}", page.anchor())) { (short_name(&name, &page.figure)) } "\n"
            }
        }
        "\n"
        @for page in figures_of_paper { (section(page)) }
    };
    finished(&name, &content)
}

/// Returns the name of a figure without its paper, unless nothing is left.
fn short_name<'a>(paper: &str, figure: &'a str) -> &'a str {
    let rest = figure.strip_prefix(paper).unwrap_or(figure).trim_start_matches([',', ' ']);
    if rest.is_empty() { figure } else { rest }
}

fn section(page: &FigurePage) -> Markup {
    html! {
        section id=(page.anchor()) {
            "\n"
            h2 { (page.figure) } "\n"
            p { (page.title) ". " code { "underload run " (page.scenario) } } "\n"
            (figures(&page.plots, Headings::Shown))
            @if page.plots.is_empty() {
                p.note { "Numbers alone: the source has no picture of it." } "\n"
            }
            (published::numbers(&page.title, &page.expectations))
            @if !page.description.is_empty() {
                (folded("What this run is, and what it does differently", false, &html! {
                    @for paragraph in page.description.split("\n\n") { p { (paragraph) } "\n" }
                }))
            }
        }
        "\n"
    }
}

fn counted<'a>(pages: impl Iterator<Item = &'a FigurePage>) -> String {
    let count = Count::new(pages.flat_map(|page| &page.expectations));
    count.sentence().unwrap_or_else(|| "It has no published number.".to_owned())
}

fn finished(title: &str, content: &Markup) -> String {
    plain_text(&header::interactive(title, content).into_string())
}
