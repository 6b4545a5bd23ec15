//! What is wrong with a plan.

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct PlanError {
    /// Counted from 1.
    pub line: Option<usize>,
    /// In words, with the key.
    pub problem: String,
    /// What else is wrong.
    pub others: Vec<PlanError>,
}

impl PlanError {
    fn words(&self) -> String {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let first = format!("{line}{}", self.problem);
        let others = self.others.iter().map(Self::to_string);
        std::iter::once(first).chain(others).collect::<Vec<_>>().join("\n")
    }
}
