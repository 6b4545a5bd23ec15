//! The load of a plan and the outcome of a simulation, as text.

use std::fmt::Write as _;

use underload_fleet::plan::{Excess, Load, Plan};
use underload_fleet::simulate::Outcome;
use underload_record::text::one_line;
use underload_report::grouped;

/// Formats a number with three significant digits, and thousands in groups.
fn number(value: f64) -> String {
    if value > 0.0 && value < 0.001 {
        return "less than 0.001".to_owned();
    }
    let digits = match value.abs() {
        size if size >= 100.0 || size <= 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some((whole, fraction)) => format!("{}.{fraction}", grouped(whole, ',')),
        None => grouped(&text, ','),
    }
}

fn count(things: impl Into<u64>) -> String {
    grouped(&things.into().to_string(), ',')
}

/// Formats a value with the largest decimal prefix that leaves a number of at least 1.
fn scaled(value: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = prefixes.into_iter().find(|(size, _)| value >= *size).unwrap_or((1.0, ""));
    format!("{} {}{unit}", number(value / found.0), found.1)
}

fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<28} {value}");
}

/// The output of `underload fleet plan check`.
pub fn load(plan: &Plan, load: &Load, servers_needed: Option<u32>) -> String {
    let mut text = format!("{}\n", one_line(&plan.title));
    let lines = plan.lines;
    let of_all = if lines.sample < lines.count {
        format!(" of {}", count(lines.count))
    } else {
        String::new()
    };
    row(&mut text, "lines", &format!("{}{of_all}", count(lines.sample)));
    let in_window = load.runs_per_s_in_window;
    let window = if in_window > load.runs_per_s {
        format!(", {} within the window", number(in_window))
    } else {
        String::new()
    };
    row(&mut text, "runs per second", &format!("{}{window}", number(load.runs_per_s)));
    row(&mut text, "requests per second", &number(load.requests_per_s));
    let stored = scaled(load.stored_bytes_per_day, "B");
    let rows = format!("{} per second, about {stored} a day", number(load.rows_per_s));
    row(&mut text, "stored series", &rows);
    row(&mut text, "a line sends and receives", &per_month(load));
    for step in &load.steps {
        let told = format!(
            "{} lines at once, {} on average, {} per run",
            number(step.concurrent),
            scaled(step.bit_per_s, "bit/s"),
            scaled(step.bytes_per_run, "B")
        );
        row(&mut text, &format!("step {}", one_line(&step.name)), &told);
    }
    let servers = load.servers_bit_per_s;
    let (up, down) = (scaled(servers.up, "bit/s"), scaled(servers.down, "bit/s"));
    row(&mut text, "servers, on average", &format!("{up} from the lines, {down} to them"));
    let reserved = load.servers_reserved_percent;
    let (up, down) = (number(reserved.up), number(reserved.down));
    row(&mut text, "servers, reserved", &format!("{up} % from the lines, {down} % to them"));
    let enough = servers_needed.map_or_else(
        || "no number of servers leaves 1 %".to_owned(),
        |needed| match needed {
            1 => "1 server leaves 1 % or less".to_owned(),
            _ => format!("{} servers leave 1 % or less", count(needed)),
        },
    );
    let found = format!("{} %; {enough}", number(load.blocked_percent));
    row(&mut text, "runs refused, servers full", &found);
    if let Some(overlap) = load.segment_overlap_percent {
        let told = format!("{} % of runs, if not prevented", number(overlap));
        row(&mut text, "overlap in a segment", &told);
    }
    text
}

fn per_month(load: &Load) -> String {
    format!("{} in 30 days", scaled(load.line_bytes_per_month, "B"))
}

pub fn excess(excess: &Excess) -> String {
    format!(
        "{} is {}, at most {} is allowed",
        excess.key,
        number(excess.takes),
        number(excess.may_take)
    )
}

/// The output of `underload fleet simulate`.
pub fn outcome(plan: &Plan, ruled: &Outcome, free: Option<&Outcome>) -> String {
    let mut text = format!("{}\n", one_line(&plan.title));
    let days = if ruled.days == 1 { "day" } else { "days" };
    let lines = format!("{}, {} {days}", count(ruled.lines), ruled.days);
    row(&mut text, "lines", &lines);
    let capacity = scaled(plan.servers.capacity.bits_per_second() as f64, "bit/s");
    let servers = format!("{} of {capacity}", count(plan.servers.count));
    row(&mut text, "servers", &servers);
    row(&mut text, "runs scheduled", &count(ruled.scheduled));
    let share = |part: u64| number(part as f64 / ruled.scheduled.max(1) as f64 * 100.0);
    row(&mut text, "runs finished", &format!("{} ({} %)", count(ruled.done), share(ruled.done)));
    if ruled.vanished > 0 {
        let told = format!("{} ({} %)", count(ruled.vanished), share(ruled.vanished));
        row(&mut text, "lines vanished in a run", &told);
    }
    for (reason, runs) in &ruled.given_up {
        let told = format!("{} ({} %)", count(*runs), share(*runs));
        row(&mut text, &format!("given up: {reason}"), &told);
    }
    for (reason, refusals) in &ruled.refusals {
        row(&mut text, &format!("refusals: {reason}"), &count(*refusals));
    }
    let requests = format!(
        "{} on average, {} at the 99.9th percentile, {} at most",
        number(ruled.requests_per_s),
        count(ruled.requests_per_s_p999),
        count(ruled.requests_per_s_max)
    );
    row(&mut text, "requests per second", &requests);
    let reserved = format!(
        "{} % on average, {} % at most",
        number(ruled.servers_reserved_percent),
        number(ruled.servers_reserved_max_percent)
    );
    row(&mut text, "servers, reserved", &reserved);
    let blocked = format!(
        "{} % of first requests; one pool would have {} %",
        number(ruled.blocked_percent),
        number(Load::of(plan).blocked_percent)
    );
    row(&mut text, "refused, servers full", &blocked);
    if let Some(free) = free {
        let told = format!(
            "{} %; without the segments' limit {} %",
            number(ruled.overlap_percent),
            number(free.overlap_percent)
        );
        row(&mut text, "overlap in a segment", &told);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let cases = [
            (0.0, "0"),
            (0.0004, "less than 0.001"),
            (0.1234, "0.123"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, want) in cases {
            assert_eq!(number(value), want);
        }
        assert_eq!((count(4_u32), count(26_853_u64)), ("4".to_owned(), "26,853".to_owned()));
        assert_eq!(scaled(243.1e9, "bit/s"), "243 Gbit/s");
        assert_eq!(scaled(12.0, "B"), "12.0 B");
    }
}
