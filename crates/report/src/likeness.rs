//! Which arms may be compared: those that differ in one thing.
//!
//! Two arms that differ in their queue and in their load, too, say nothing of either. What an arm
//! differs in it knows from its scenario ([`ArmRecord::factors`]); arms that do not know it, such
//! as a line measured up and then down, are not compared at all.

use std::collections::BTreeSet;

use underload_record::schema::ArmRecord;

use crate::subject::Subject;

/// The one thing that an arm has otherwise than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference<'a> {
    /// Key of the scenario.
    pub(crate) key: &'a str,
    /// What the first arm has; `None`: what holds where nothing is said.
    from: Option<&'a str>,
    /// The other arm's value.
    to: Option<&'a str>,
}

impl<'a> Difference<'a> {
    /// Of two arms of one scenario; `None` where they differ in more than one thing, or in nothing
    /// that is known.
    pub(crate) fn only(first: &'a ArmRecord, other: &'a ArmRecord) -> Option<Self> {
        let keys: BTreeSet<&'a String> = first.factors.keys().chain(other.factors.keys()).collect();
        let value = |arm: &'a ArmRecord, key: &str| arm.factors.get(key).map(String::as_str);
        let of = |key: &'a String| Self { key, from: value(first, key), to: value(other, key) };
        let mut differences = keys.into_iter().map(of).filter(|it| it.from != it.to);
        let only = differences.next()?;
        differences.next().is_none().then_some(only)
    }

    /// A choice of queue, of which an arm can be better than another.
    pub(crate) fn is_queue(&self) -> bool {
        self.key.ends_with("queue")
    }

    /// The line itself, its rate or delay: another line is not better or worse managed.
    pub(crate) fn is_line(&self) -> bool {
        self.key.starts_with("path.") && !self.is_queue()
    }

    /// `path.up_queue docsis-pie instead of fifo`.
    pub(crate) fn words(&self) -> String {
        let value = |value: Option<&'a str>| value.unwrap_or("its default");
        format!("{} {} instead of {}", self.key, value(self.to), value(self.from))
    }
}

/// Whether the second may be held against the first: an arm of the same run that differs in one
/// thing, or the same arm of another run of the same scenario.
pub(crate) fn is_like(first: &Subject<'_>, other: &Subject<'_>) -> bool {
    if first.run_number == other.run_number {
        Difference::only(first.arm, other.arm).is_some_and(|difference| !difference.is_line())
    } else {
        is_same_arm(first, other)
    }
}

/// Whether two subjects are the same arm in two runs of a scenario.
pub(crate) fn is_same_arm(first: &Subject<'_>, other: &Subject<'_>) -> bool {
    let (own, others) = (&first.run.record.scenario, &other.run.record.scenario);
    first.arm.name == other.arm.name
        && own.name == others.name
        && own.text == others.text
        && !own.text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(factors: &[(&str, &str)]) -> ArmRecord {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ArmRecord { factors: factors.iter().map(own).collect(), ..ArmRecord::default() }
    }

    #[test]
    fn arms_are_alike_that_differ_in_one_thing() {
        let fifo = arm(&[("path.up_queue", "fifo"), ("flow.upload.count", "1")]);
        let pie = arm(&[("path.up_queue", "pie"), ("flow.upload.count", "1")]);
        let busy_pie = arm(&[("path.up_queue", "pie"), ("flow.upload.count", "8")]);
        let difference = Difference::only(&fifo, &pie).unwrap();
        assert_eq!(difference.words(), "path.up_queue pie instead of fifo");
        assert!(difference.is_queue());
        assert_eq!(Difference::only(&fifo, &busy_pie), None, "two things");
        assert_eq!(Difference::only(&fifo, &fifo), None, "nothing");
        assert_eq!(Difference::only(&arm(&[]), &arm(&[])), None, "nothing is known");
        let (plain, slow) = (arm(&[]), arm(&[("path.up", "1mbit")]));
        let line = Difference::only(&plain, &slow).unwrap();
        assert!(line.is_line() && !line.is_queue());
        assert_eq!(line.words(), "path.up 1mbit instead of its default");
    }
}
