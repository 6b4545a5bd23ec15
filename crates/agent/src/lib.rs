//! Measures a line by a plan.
