//! Confusion matrices as Markdown.

use std::collections::BTreeMap;

use underload_probe::path::{Answer, Evidence, Model, QueueFamily, QueueKind, classify_with};

use super::cells::Cell;

/// Number of cells with each answer.
#[derive(Default)]
struct Row {
    cells: u32,
    answers: BTreeMap<Option<QueueFamily>, u32>,
}

impl Row {
    fn add(&mut self, answer: Option<QueueFamily>) {
        self.cells += 1;
        *self.answers.entry(answer).or_default() += 1;
    }

    fn percent(&self, answer: Option<QueueFamily>) -> f64 {
        let count = self.answers.get(&answer).copied().unwrap_or(0);
        f64::from(count) * 100.0 / f64::from(self.cells.max(1))
    }

    fn print(&self, name: &str, truth: QueueFamily) {
        let of = |family| format!("{:.1} %", self.percent(Some(family)));
        let families: Vec<_> = QueueFamily::ALL.map(of).into_iter().collect();
        let told = 100.0 - self.percent(None);
        let right = if told > 0.0 { self.percent(Some(truth)) * 100.0 / told } else { 0.0 };
        let (cells, silent) = (self.cells, self.percent(None));
        println!("| {name} | {cells} | {} | {silent:.1} % | {right:.1} % |", families.join(" | "));
    }
}

/// Prints tables by family, discipline, congestion control, and sub-label.
pub fn print(model: &Model, observed: &[(Cell, Evidence)]) {
    let mut families: BTreeMap<QueueFamily, Row> = BTreeMap::new();
    let mut disciplines: BTreeMap<&str, (QueueFamily, Row)> = BTreeMap::new();
    let mut controls: BTreeMap<(QueueFamily, &str), Row> = BTreeMap::new();
    let mut likes: BTreeMap<QueueKind, BTreeMap<Option<QueueKind>, u32>> = BTreeMap::new();
    for (cell, evidence) in observed {
        let kind = cell.discipline.kind;
        let truth = kind.family();
        let answer = classify_with(model, evidence).answer;
        families.entry(truth).or_default().add(answer.family());
        let named = disciplines.entry(cell.discipline.name).or_insert((truth, Row::default()));
        named.1.add(answer.family());
        controls.entry((truth, cell.control)).or_default().add(answer.family());
        if let Answer::Known { family: QueueFamily::SingleQueueAqm, like, .. } = answer {
            *likes.entry(kind).or_default().entry(like).or_default() += 1;
        }
        match answer.family() {
            Some(family) if family == truth => {}
            Some(_) => eprintln!("wrong: {cell}: {answer:?}"),
            None => eprintln!("silent: {cell}: {answer:?}"),
        }
    }
    let names = QueueFamily::ALL.map(|family| family.to_string()).join(" | ");
    let head = |first: &str| {
        println!("\n| {first} | cells | {names} | cannot tell | right, of those told |");
        println!("|---|---|---|---|---|---|---|---|");
    };
    head("true queue");
    for (family, row) in &families {
        row.print(family.name(), *family);
    }
    head("discipline");
    for (name, (family, row)) in &disciplines {
        row.print(name, *family);
    }
    head("true queue, load");
    for ((family, control), row) in &controls {
        row.print(&format!("{family}, {control}"), *family);
    }
    println!("\nOf the answers \"single-queue AQM\":\n");
    println!("| true AQM | PIE-like | CoDel-like | RED-like | not said |\n|---|---|---|---|---|");
    for (kind, counts) in &likes {
        let of = |like| counts.get(&like).copied().unwrap_or(0);
        let [pie, codel, red] = [QueueKind::PieLike, QueueKind::CodelLike, QueueKind::RedLike]
            .map(|like| of(Some(like)));
        println!("| {kind} | {pie} | {codel} | {red} | {} |", of(None));
    }
}
