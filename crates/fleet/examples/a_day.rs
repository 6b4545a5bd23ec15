//! A day of the low latency trial on any number of lines: `a_day 10000000`.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use underload_fleet::admission::Rules;
use underload_fleet::plan::{Plan, servers_for};
use underload_fleet::simulate::{Settings, simulate};

fn main() {
    let text = Plan::built_in("low-latency-trial").expect("it is built in");
    let mut plan = Plan::parse(text).expect("it is a plan");
    let lines = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    (plan.lines.count, plan.lines.sample) = (lines, lines);
    plan.servers.count = servers_for(&plan, 0.01).expect("some number of servers suffices");
    let settings = Settings { seed: 1, days: 1, vanishing: 0.01, rules: Rules::default() };
    let outcome = simulate(&plan, &settings, &mut |_| ());
    println!("{} servers, {} of {} runs done", plan.servers.count, outcome.done, outcome.scheduled);
    println!("refused: {:?}, given up: {:?}", outcome.refusals, outcome.given_up);
}
