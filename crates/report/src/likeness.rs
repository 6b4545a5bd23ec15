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

    /// What a sentence adds to the names of the two arms: ` (up queue docsis-pie instead of fifo)`;
    /// nothing where the names say it.
    pub(crate) fn beside(&self, first: &str, other: &str) -> String {
        let value = |value: Option<&'a str>| value.unwrap_or("its default");
        let (from, to) = (value(self.from), value(self.to));
        let (from, to) = if self.is_queue() { apart(from, to) } else { (from.into(), to.into()) };
        if first.contains(&from) && other.contains(&to) {
            return String::new();
        }
        let key = in_words(self.key);
        if from.chars().count().max(to.chars().count()) > MOST_VALUE {
            return format!(" (another {key})");
        }
        format!(" ({key} {to} instead of {from})")
    }
}

/// Characters of a value that a sentence has, at most.
const MOST_VALUE: usize = 40;

/// `up queue at modem` of `path.hop.modem.up_queue`, `count of upload` of `flow.upload.count`.
fn in_words(key: &str) -> String {
    let plain = |key: &str| key.replace('_', " ");
    if let Some((hop, key)) = key.strip_prefix("path.hop.").and_then(|key| key.rsplit_once('.')) {
        return format!("{} at {hop}", plain(key));
    }
    match key.strip_prefix("flow.").and_then(|key| key.rsplit_once('.')) {
        Some((flow, key)) => format!("{} of {flow}", plain(key)),
        None => plain(key.strip_prefix("path.").unwrap_or(key)),
    }
}

/// What two SPECs do not share: their disciplines, or of one discipline the parameters.
fn apart(from: &str, to: &str) -> (String, String) {
    let cut = |spec: &str| {
        let (head, rest) = spec.split_once(':').unwrap_or((spec, ""));
        (head.to_owned(), parameters(rest))
    };
    let ((from_head, from_rest), (to_head, to_rest)) = (cut(from), cut(to));
    if from_head != to_head {
        return (from_head, to_head);
    }
    let own = |mine: &[String], others: &[String]| {
        let mine: Vec<&str> =
            mine.iter().filter(|it| !others.contains(it)).map(String::as_str).collect();
        if mine.is_empty() { "its default".to_owned() } else { mine.join(",") }
    };
    (own(&from_rest, &to_rest), own(&to_rest, &from_rest))
}

/// The parameters of a SPEC; commas inside brackets belong to a SPEC in it.
fn parameters(text: &str) -> Vec<String> {
    let (mut all, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, all.last_mut()) {
            (',', _) if depth == 0 => all.push(String::new()),
            (_, Some(last)) => last.push(c),
            (_, None) => {}
        }
    }
    all.retain(|parameter| !parameter.is_empty());
    all
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
        assert_eq!(difference.beside("a", "b"), " (up queue pie instead of fifo)");
        assert_eq!(difference.beside("fifo-10", "pie-10"), "", "the names say it");
        assert!(difference.is_queue());
        assert_eq!(Difference::only(&fifo, &busy_pie), None, "two things");
        assert_eq!(Difference::only(&fifo, &fifo), None, "nothing");
        assert_eq!(Difference::only(&arm(&[]), &arm(&[])), None, "nothing is known");
        let (plain, slow) = (arm(&[]), arm(&[("path.up", "1mbit")]));
        let line = Difference::only(&plain, &slow).unwrap();
        assert!(line.is_line() && !line.is_queue());
        assert_eq!(line.beside("a", "b"), " (up 1mbit instead of its default)");
    }

    #[test]
    fn a_sentence_has_of_two_specs_what_they_do_not_share() {
        let words = |key: &str, from: &str, to: &str| {
            Difference { key, from: Some(from), to: Some(to) }.beside("a", "b")
        };
        let queue = "path.hop.modem.up_queue";
        let bode = [
            "bode:profile=paper,limit=80p,bound=10ms",
            "bode:profile=paper,limit=1000p,bound=10ms",
        ];
        assert_eq!(
            words(queue, bode[0], bode[1]),
            " (up queue at modem limit=1000p instead of limit=80p)"
        );
        let lld = ["docsis-lld", "docsis-lld:grant-rate=15mbit"];
        assert_eq!(
            words(queue, lld[0], lld[1]),
            " (up queue at modem grant-rate=15mbit instead of its default)"
        );
        assert_eq!(
            words(queue, "fifo:limit=8p", "pie"),
            " (up queue at modem pie instead of fifo)"
        );
        assert_eq!(words("flow.upload.count", "1", "10"), " (count of upload 10 instead of 1)");
        let long = [
            "diffserv:high=[bode:profile=patch,bound=50ms],low=[fifo:limit=1500kB]",
            "diffserv:high=[fifo:limit=5p],low=[fifo:limit=15p]",
        ];
        assert_eq!(words("path.down_queue", long[0], long[1]), " (another down queue)");
        let one = "diffserv:high=[fifo:limit=5p],low=[fifo:limit=1500kB]";
        assert_eq!(
            words("path.down_queue", long[1], one),
            " (down queue low=[fifo:limit=1500kB] instead of low=[fifo:limit=15p])"
        );
    }
}
