//! Medians of repeated runs, and rows of tables.

/// Returns the median, the upper one of an even number of values; `None` without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Formats a row of a table in Markdown.
pub fn row<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    cells.into_iter().fold("|".to_owned(), |row, cell| row + " " + cell.as_ref() + " |")
}

/// Returns the line of Markdown between the heading of a table of `columns` columns and its rows.
pub fn rule(columns: usize) -> String {
    format!("|{}", "---|".repeat(columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_value_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([]), None);
    }
}
