//! Sentences on applications that the line cannot carry.

use underload_record::comparison::Overload;
use underload_record::schema::RunRecord;

use crate::words::{list, mbit};

/// Maximum number of flows that a sentence names.
const MOST_NAMES: usize = 6;

/// Returns a sentence for each direction that carries less than its applications need, with the
/// variants for which it holds unless they are all.
pub(crate) fn sentences(record: &RunRecord) -> Vec<String> {
    let mut groups: Vec<(&Overload, Vec<String>)> = Vec::new();
    for it in &record.overloads {
        let is_same = |(other, _): &&mut (&Overload, Vec<String>)| {
            other.direction == it.direction
                && other.flows == it.flows
                && other.carries_bit_per_s == it.carries_bit_per_s
        };
        match groups.iter_mut().find(is_same) {
            Some((_, variants)) => variants.push(it.variant.clone()),
            None => groups.push((it, vec![it.variant.clone()])),
        }
    }
    let sentence = |(it, variants): (&Overload, Vec<String>)| {
        let is_of_all = variants.len() == record.variants.len();
        let with =
            if is_of_all { "The".to_owned() } else { format!("With {} the", list(&variants)) };
        let who = match it.flows.len() {
            ..=MOST_NAMES => list(&it.flows),
            many => format!("{many} applications"),
        };
        let [carries, needs] =
            [it.carries_bit_per_s, it.needs_bit_per_s].map(|rate| mbit(rate as f64));
        let (verb, end) = match it.flows.len() {
            1 => ("needs", "it cannot work"),
            _ => ("need", "they cannot all work"),
        };
        format!(
            "{with} line carries {carries} Mbit/s {}, and {who} {verb} at least {needs}: {end}, \
             whatever the queue.",
            it.direction
        )
    };
    groups.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{Direction, VariantRecord};

    use super::*;

    #[test]
    fn an_overload_is_told_once_for_all_variants() {
        let overload = |variant: &str, flows: &[&str]| Overload {
            variant: variant.to_owned(),
            direction: Direction::Up,
            flows: flows.iter().map(|it| (*it).to_owned()).collect(),
            needs_bit_per_s: 64_000,
            carries_bit_per_s: 50_000,
        };
        let variants = ["fifo", "cake"]
            .map(|name| VariantRecord { name: name.to_owned(), ..VariantRecord::default() });
        let told = |overloads: Vec<Overload>| {
            sentences(&RunRecord { variants: variants.to_vec(), overloads, ..RunRecord::default() })
        };
        let both = ["fifo", "cake"].map(|name| overload(name, &["call-up", "game"]));
        let said = "The line carries 0.050 Mbit/s up, and call-up and game need at least 0.064: they \
                    cannot all work, whatever the queue.";
        assert_eq!(told(both.to_vec()), [said]);
        let said = "With cake the line carries 0.050 Mbit/s up, and game needs at least 0.064: it \
                    cannot work, whatever the queue.";
        assert_eq!(told(vec![overload("cake", &["game"])]), [said]);
        assert!(told(Vec::new()).is_empty());
    }
}
