//! Errors in a plan.

/// An error in a plan, with the other errors of the same plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct PlanError {
    /// Line of the plan's file, from 1; `None` if the error has no line.
    pub line: Option<usize>,
    /// Description of the error, with its key.
    pub problem: String,
    pub others: Vec<PlanError>,
}

impl PlanError {
    fn message(&self) -> String {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let first = format!("{line}{}", self.problem);
        let others = self.others.iter().map(Self::to_string);
        std::iter::once(first).chain(others).collect::<Vec<_>>().join("\n")
    }
}
