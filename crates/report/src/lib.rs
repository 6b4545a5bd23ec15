//! Reports of runs: pages, plots, tables, sentences.
//!
//! - [`load_to_show`], [`load`], [`render`], [`write_report`]: one page from one run or several,
//!   and its plots.
//! - [`diagram`], [`style_sheet`]: plots of anything else, for documentation and other pages.
//! - [`finding_lines`]: what the steps of a measured line found, in words.
//! - [`table()`], [`summary_lines`], [`warnings`]: a report for a terminal, in plain words.
//! - [`explain`]: the trials, the arithmetic and the rule behind a sentence.
//! - [`plain_text`], [`one_line`]: texts of strangers, made safe for a terminal.
//! - [`figures_table`]: published numbers beside those of many runs.
//! - [`history_page`], [`history_sentences`]: one line over weeks.
//! - [`pairs_page`]: lines before and after a change.
//! - [`cohort_page`], [`cohort_table`], [`cohort_sentences`]: the cohorts of a plan compared.
//! - [`SweepOutcome`], [`sweep_page`]: the results of a sweep of up to a million cells.

mod across;
mod alarms;
mod claims;
mod clocks;
mod cohorts;
mod combine;
mod explain;
mod history;
mod inside;
mod measured;
mod overload;
mod page;
mod plot;
mod probe_share;
mod published;
mod reduce;
mod settings;
mod study;
mod subject;
mod sweep;
mod table;
mod trial;
mod unfilled;
mod verdict;
mod words;

pub use claims::{Sentence, change_sentence};
pub use cohorts::{cohort_sentences, cohort_table, cohort_warnings};
pub use combine::{LoadError, load, load_to_show};
pub use explain::explain;
pub use history::{before_and_after, history_sentence, history_sentences};
pub use measured::{finding_lines, sentences};
pub use page::{
    HistoryPage, PageError, Pairs, check_page_path, cohort_page, history_page, pairs_page, plots,
    render, replace_numbers, replace_page, sweep_page, write_page, write_report,
    write_sweep_report,
};
pub use plot::{Plot, diagram, style_sheet};
pub use published::{Figure, figures_table, published_cells, published_table};
pub use sweep::SweepOutcome;
pub use table::table;
pub use trial::trial_sentences;
pub use verdict::{summary, summary_lines, warnings};
pub use words::{capital, grouped, one_line, plain_text, significant, thousands};
