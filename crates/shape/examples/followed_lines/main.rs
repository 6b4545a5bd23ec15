//! Ten lines that vary, shaped by an oracle, by the best fixed rate, and by the follower.
//!
//! `cargo xtask bench followed-lines [SEED]` prints the table; each seed has other courses. With
//! `svg` after the seed it prints a picture of the oracle's and the follower's rates instead.
#![expect(clippy::print_stdout, reason = "the table is the result of the program")]

mod course;
mod lines;
mod picture;

use course::{Line, Outcome, Rule, simulate};
use picture::{Course, draw};

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
    let lines = lines::lines(seed);
    let (first, second) = lines.split_at(lines.len() / 2);
    let (rows, courses): (Vec<String>, Vec<Course>) = std::thread::scope(|scope| {
        let halves = [first, second]
            .map(|half| scope.spawn(move || half.iter().map(row).collect::<Vec<_>>()));
        halves.into_iter().flat_map(|half| half.join().unwrap_or_default()).unzip()
    });
    if std::env::args().nth(2).is_some_and(|word| word == "svg") {
        print!("{}", draw(&courses));
        return;
    }
    println!(
        "| line | oracle, Mbit/s | of it: fixed | followed | p99 above idle, ms: unshaped | oracle \
         | fixed | followed |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    print!("{}", rows.concat());
}

/// The seed of the courses that no constant was chosen by.
const JUDGED_SEED: u64 = 1_001;

/// Returns a line's row of the table, and its course.
fn row(line: &Line) -> (String, Course) {
    let [unshaped, oracle, followed] =
        [Rule::Unshaped, Rule::Oracle, Rule::Follower].map(|rule| simulate(line, rule, SECONDS));
    let fixed = best_fixed(line, P99_MAX_MS.max(oracle.p99_ms));
    let part = |outcome: &Outcome| 100.0 * outcome.goodput / oracle.goodput;
    let row = format!(
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
    );
    let title = format!(
        "{} ({}): {:.0} % of the oracle's rate, p99 +{:.0} ms",
        line.name,
        line.seed,
        part(&followed),
        followed.p99_ms
    );
    (row, Course { title, rates: [oracle.rates, followed.rates] })
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
