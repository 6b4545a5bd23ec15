//! Ten lines that vary, shaped by an oracle, by the best fixed rate, and by the follower.
//!
//! `cargo xtask bench followed-lines [SEED]` prints the table; each seed has other courses.
#![expect(clippy::print_stdout, reason = "the table is the result of the program")]

mod course;
mod lines;

use course::{Line, Outcome, Rule, simulate};

/// Seconds of load that count.
const SECONDS: usize = 120;
/// Fixed rates, in thousandths of the largest.
const FIXED: [u64; 8] = [150, 250, 350, 450, 550, 700, 850, 1_000];
/// Delay above idle that the best fixed rate may have, ms, unless the oracle has more.
const P99_MAX_MS: f64 = 30.0;

fn main() {
    let seed = std::env::args().nth(1).map_or(Ok(JUDGED_SEED), |text| text.parse());
    let Ok(seed) = seed else {
        println!("expected a seed: a number such as {JUDGED_SEED}");
        return;
    };
    println!(
        "| line | oracle, Mbit/s | of it: fixed | followed | p99 above idle, ms: unshaped | oracle \
         | fixed | followed |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    let lines = lines::lines(seed);
    let (first, second) = lines.split_at(lines.len() / 2);
    std::thread::scope(|scope| {
        let halves = [first, second].map(|half| {
            scope.spawn(move || half.iter().map(row).collect::<Vec<String>>().concat())
        });
        for half in halves {
            print!("{}", half.join().unwrap_or_default());
        }
    });
}

/// The seed of the courses that no constant was chosen by.
const JUDGED_SEED: u64 = 1_001;

fn row(line: &Line) -> String {
    let [unshaped, oracle, followed] =
        [Rule::Unshaped, Rule::Oracle, Rule::Follower].map(|rule| simulate(line, rule, SECONDS));
    let fixed = best_fixed(line, P99_MAX_MS.max(oracle.p99_ms));
    let part = |outcome: &Outcome| 100.0 * outcome.goodput / oracle.goodput;
    format!(
        "| {} ({}) | {:.1} | {:.0} % | {:.0} % | {:.0} | {:.0} | {:.0} | {:.0} |\n",
        line.name,
        line.seed,
        oracle.goodput,
        part(&fixed),
        part(&followed),
        unshaped.p99_ms,
        oracle.p99_ms,
        fixed.p99_ms,
        followed.p99_ms
    )
}

/// Returns the fixed rate that carries most within a delay; the slowest one if none is within it.
fn best_fixed(line: &Line, p99_max_ms: f64) -> Outcome {
    let mut best: Option<Outcome> = None;
    for permille in FIXED {
        let outcome = simulate(line, Rule::Fixed(permille), SECONDS);
        if best.is_none() || outcome.p99_ms <= p99_max_ms {
            best = Some(outcome);
        } else {
            break;
        }
    }
    best.unwrap_or_default()
}
