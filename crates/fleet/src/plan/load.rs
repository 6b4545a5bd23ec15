//! The load that a plan causes.

use serde::{Deserialize, Serialize};

use super::{Kind, Plan, SERVERS_MAX, Servers, Step, Tier};
use crate::blocking::{Class, blocking};
use crate::schedule::DAY;

/// The average load of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Load {
    /// Runs that begin per second, over the whole day.
    pub runs_per_s: f64,
    /// Runs that begin per second within the window.
    pub runs_per_s_in_window: f64,
    /// Requests per second: a run requests a lease, releases it, and sends its result.
    pub requests_per_s: f64,
    /// Series of probes that are stored per second.
    pub rows_per_s: f64,
    /// Bytes stored per day as compressed columns; see [`ROW_BYTES`].
    pub stored_bytes_per_day: f64,
    /// The load of each step of a run.
    pub steps: Vec<StepLoad>,
    /// Bytes that a line sends and receives in 30 days.
    pub line_bytes_per_month: f64,
    /// Traffic of all servers together, mean within the window, bit/s.
    pub servers_bit_per_s: Directions,
    /// Share of all servers that leases reserve, mean within the window, percent.
    pub servers_reserved_percent: Directions,
    /// Runs that would find the servers full if they were one pool, percent.
    pub blocked_percent: f64,
    /// Runs that would begin during another run of their segment if that were not prevented,
    /// percent; absent if runs load nothing.
    pub segment_overlap_percent: Option<f64>,
}

/// A value for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Directions {
    /// From the lines to the servers.
    pub up: f64,
    /// From the servers to the lines.
    pub down: f64,
}

/// The load of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepLoad {
    /// Name of the step.
    pub name: String,
    /// Lines that run the step at once, mean over the day.
    pub concurrent: f64,
    /// Traffic of the step, up and down together, mean over the day, bit/s.
    pub bit_per_s: f64,
    /// Bytes of one run, up and down together.
    pub bytes_per_run: f64,
}

/// A budget that a plan exceeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Excess {
    pub key: &'static str,
    /// The plan's value, in the key's unit.
    pub takes: f64,
    pub may_take: f64,
}

/// Bytes of a stored row: 21.5 of results (eleven columns of 10 million rows as zstd Parquet) and
/// an estimated 150 of bins.
pub const ROW_BYTES: f64 = 171.5;
/// Requests of a run: for a lease, to release it, and to send the result.
const REQUESTS_PER_RUN: f64 = 3.0;
/// Days of a month that a budget is for.
const DAYS_PER_MONTH: f64 = 30.0;
/// Maximum number of units of a pool in the calculation: one unit more or less does not matter.
const POOL_UNITS_MAX: f64 = 1e5;
/// Units of the smallest run if runs differ in size.
const UNITS_OF_THE_SMALLEST: f64 = 16.0;

impl Load {
    pub fn of(plan: &Plan) -> Self {
        let runs_per_s = f64::from(plan.lines.sample) * plan.runs_per_day / DAY.as_secs_f64();
        let in_window = runs_per_s * DAY.as_secs_f64() / plan.window.length().as_secs_f64();
        let rows = plan.steps.iter().map(|step| step.classes.len()).sum::<usize>() as f64;
        let steps: Vec<_> =
            plan.steps.iter().map(|step| step_load(plan, step, runs_per_s)).collect();
        let bytes_per_run: f64 = steps.iter().map(|step| step.bytes_per_run).sum();
        let erlang = in_window * plan.run_lasts().as_secs_f64();
        Self {
            runs_per_s,
            runs_per_s_in_window: in_window,
            requests_per_s: runs_per_s * REQUESTS_PER_RUN,
            rows_per_s: runs_per_s * rows,
            stored_bytes_per_day: runs_per_s * DAY.as_secs_f64() * rows * ROW_BYTES,
            line_bytes_per_month: bytes_per_run * plan.runs_per_day * DAYS_PER_MONTH,
            servers_bit_per_s: servers_bit_per_s(plan, in_window),
            servers_reserved_percent: reserved_percent(plan, erlang),
            blocked_percent: blocked_percent(plan, erlang),
            segment_overlap_percent: plan.loads_lines().then(|| overlap_percent(plan, erlang)),
            steps,
        }
    }

    pub fn excesses(&self, plan: &Plan) -> Vec<Excess> {
        let Directions { up, down } = self.servers_bit_per_s;
        let gigabytes = |bytes: f64| bytes / 1e9;
        let budget = &plan.budget;
        let line = budget.line_bytes_per_month.map(|most| gigabytes(most as f64));
        let servers = budget.servers_bit_per_s.map(|most| most as f64 / 1e9);
        let checks = [
            ("line_per_month (GB)", gigabytes(self.line_bytes_per_month), line),
            ("servers (Gbit/s)", up.max(down) / 1e9, servers),
            ("requests_per_second", self.requests_per_s, budget.requests_per_s),
        ];
        let excess = |(key, takes, most): (_, f64, Option<f64>)| {
            let may_take = most.filter(|most| takes > *most)?;
            Some(Excess { key, takes, may_take })
        };
        checks.into_iter().filter_map(excess).collect()
    }
}

/// Returns the smallest number of servers with which at most the share `blocked` of the runs, from
/// 0 to 1, finds the servers full; `None` if more than [`SERVERS_MAX`] would be needed.
pub fn servers_for(plan: &Plan, blocked: f64) -> Option<u32> {
    let suffices = |count: u32| {
        let plan = Plan { servers: Servers { count, ..plan.servers }, ..plan.clone() };
        Load::of(&plan).blocked_percent <= blocked * 100.0
    };
    let (mut too_few, mut enough) = (0, 1);
    while !suffices(enough) {
        if enough >= SERVERS_MAX {
            return None;
        }
        too_few = enough;
        enough = (enough * 2).min(SERVERS_MAX);
    }
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        if suffices(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

/// Mean of `value` over the tiers of a plan.
fn mean_over_tiers(plan: &Plan, value: impl Fn(&Tier) -> f64) -> f64 {
    plan.tiers.iter().map(|tier| tier.share * value(tier)).sum()
}

fn step_load(plan: &Plan, step: &Step, runs_per_s: f64) -> StepLoad {
    let rate = mean_over_tiers(plan, |tier| {
        let (up, down) = step.bit_per_s(tier);
        // The probes beside a load are less than the uncertainty of the load's rate.
        let loaded = up.max(down) as f64;
        if step.kind == Kind::Latency { up as f64 + down as f64 } else { loaded }
    });
    let concurrent = runs_per_s * step.lasts().as_secs_f64();
    StepLoad {
        name: step.name.clone(),
        concurrent,
        bit_per_s: concurrent * rate,
        bytes_per_run: rate * step.lasts().as_secs_f64() / 8.0,
    }
}

fn servers_bit_per_s(plan: &Plan, runs_per_s: f64) -> Directions {
    let of = |direction: fn((u64, u64)) -> u64| {
        let bits = plan.steps.iter().map(|step| {
            let rate = mean_over_tiers(plan, |tier| direction(step.bit_per_s(tier)) as f64);
            rate * step.lasts().as_secs_f64()
        });
        bits.sum::<f64>() * runs_per_s
    };
    Directions { up: of(|rates| rates.0), down: of(|rates| rates.1) }
}

/// Capacity of all servers of a plan in each direction, bit/s.
fn pool_bit_per_s(plan: &Plan) -> f64 {
    f64::from(plan.servers.count) * plan.servers.capacity.bits_per_second() as f64
}

fn reserved_percent(plan: &Plan, erlang: f64) -> Directions {
    let of = |direction: fn((u64, u64)) -> u64| {
        let peak = mean_over_tiers(plan, |tier| direction(plan.peak_bit_per_s(tier)) as f64);
        erlang * peak / pool_bit_per_s(plan) * 100.0
    };
    Directions { up: of(|rates| rates.0), down: of(|rates| rates.1) }
}

/// The larger share of both directions.
fn blocked_percent(plan: &Plan, erlang: f64) -> f64 {
    let of = |direction: fn((u64, u64)) -> u64| {
        let bits = |tier: &Tier| direction(plan.peak_bit_per_s(tier)).max(1) as f64;
        let rates: Vec<f64> = plan.tiers.iter().map(bits).collect();
        let (pool, unit) = (pool_bit_per_s(plan), pool_unit(plan, &rates));
        let class = |(tier, rate): (&Tier, &f64)| {
            let units = (rate / unit).round().max(1.0);
            // Rounding to units does not change the total traffic.
            let erlang = erlang * tier.share * rate / (units * unit);
            Class { erlang, units: units as usize }
        };
        let classes: Vec<Class> = plan.tiers.iter().zip(&rates).map(class).collect();
        let blocked = blocking(&classes, (pool / unit) as usize);
        plan.tiers.iter().zip(blocked).map(|(tier, share)| tier.share * share).sum::<f64>() * 100.0
    };
    of(|rates| rates.0).max(of(|rates| rates.1))
}

/// The unit of the pool, bit/s: the size of a run if all are of one size, else a fraction of the
/// smallest; large enough for at most [`POOL_UNITS_MAX`] units.
fn pool_unit(plan: &Plan, rates: &[f64]) -> f64 {
    let smallest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = rates.iter().copied().fold(0.0, f64::max);
    let fine = if largest > smallest { smallest / UNITS_OF_THE_SMALLEST } else { smallest };
    fine.max(pool_bit_per_s(plan) / POOL_UNITS_MAX)
}

/// A run overlaps if a Poisson number of the segment's other runs is not zero.
fn overlap_percent(plan: &Plan, erlang: f64) -> f64 {
    let segments = f64::from(plan.lines.count) / f64::from(plan.lines.per_segment);
    (1.0 - libm::exp(-erlang / segments)) * 100.0
}

#[cfg(test)]
mod tests {
    use underload_aqm::rate::Rate;
    use underload_aqm::time::Span;

    use super::*;
    use crate::blocking::tests::erlang_b;

    /// Ten million lines, six times a day.
    fn load(step: &str, tier: &str) -> Load {
        Load::of(&plan(step, tier))
    }

    fn plan(step: &str, tier: &str) -> Plan {
        let text = format!(
            "title = \"\"\nruns_per_day = 6\n[lines]\ncount = 10_000_000\nper_segment = 300\n\
             [[tier]]\n{tier}\n[servers]\ncount = 100\ncapacity = \"100gbit\"\n\
             [[step]]\nname = \"step\"\n{step}\n"
        );
        Plan::parse(&text).expect("a plan")
    }

    const TIER: &str = "up = \"35mbit\"\ndown = \"800mbit\"";

    fn near(found: f64, want: f64) {
        assert!((found / want - 1.0).abs() < 0.006, "{found} is not {want}");
    }

    #[test]
    fn six_uploads_a_day_by_ten_million_lines_have_the_computed_load() {
        let load = load("kind = \"upload\"\nduration = \"7s\"\nwarm_up = \"3s\"", TIER);
        // 10,000,000 * 6 / 86,400 s = 694.4 runs per second, times 10 s, times 35 Mbit/s.
        near(load.runs_per_s, 694.4);
        near(load.steps[0].concurrent, 6_944.0);
        near(load.steps[0].bit_per_s, 243.1e9);
        near(load.steps[0].bytes_per_run, 43.75e6);
        near(load.line_bytes_per_month, 7.875e9);
        near(load.requests_per_s, 2_083.0);
        // 300 lines, 6 runs, 10 s: 0.2083 erlang; 1 - exp(-0.2083) = 18.8 %.
        near(load.segment_overlap_percent.expect("it loads"), 18.8);
        near(load.servers_bit_per_s.up, 243.1e9);
        near(load.servers_reserved_percent.up, 2.431);
    }

    #[test]
    fn downloads_and_latency_only_runs_have_the_computed_load() {
        let down = load("kind = \"download\"\nduration = \"11s\"\nwarm_up = \"3s\"", TIER);
        near(down.steps[0].concurrent, 9_722.0);
        near(down.steps[0].bit_per_s, 7_778e9);
        near(down.line_bytes_per_month, 252e9);
        let alone = load("kind = \"latency\"\nduration = \"11s\"", TIER);
        near(alone.steps[0].concurrent, 7_639.0);
        // 50 probes a second of 100 bytes, both ways.
        near(alone.steps[0].bit_per_s, 0.611e9);
        near(alone.steps[0].bytes_per_run, 0.11e6);
        assert_eq!(alone.segment_overlap_percent, None);
    }

    #[test]
    fn a_daily_window_concentrates_the_load() {
        let mut plan = plan("kind = \"upload\"\nduration = \"10s\"", TIER);
        let whole = Load::of(&plan);
        plan.window =
            crate::schedule::Window { from: DAY * 3, until: DAY * 3 + Span::from_secs(21_600) };
        let quarter = Load::of(&plan);
        near(quarter.runs_per_s, whole.runs_per_s);
        near(quarter.runs_per_s_in_window, whole.runs_per_s * 4.0);
        near(quarter.servers_bit_per_s.up, whole.servers_bit_per_s.up * 4.0);
        near(quarter.line_bytes_per_month, whole.line_bytes_per_month);
    }

    #[test]
    fn tiers_count_by_their_shares_and_the_scarcer_direction_blocks() {
        let tiers = "share_percent = 75\nup = \"20mbit\"\ndown = \"200mbit\"\n\
                     [[tier]]\nshare_percent = 25\nup = \"40mbit\"\ndown = \"1gbit\"";
        let load = load("kind = \"download\"\nduration = \"14s\"", tiers);
        near(load.steps[0].bytes_per_run, 400e6 * 14.0 / 8.0);
        // 9,722 erlang of 400 Mbit/s on average in 10 Tbit/s: 39 %, none blocked.
        near(load.servers_reserved_percent.down, 38.9);
        assert!(load.blocked_percent < 1e-6, "{}", load.blocked_percent);
    }

    #[test]
    fn the_number_of_servers_is_the_smallest_sufficient_one() {
        // 694.4 runs start per second; each takes 10 s and 35 Mbit/s, so they need 243 Gbit/s. At 1
        // % blocking such a large pool of servers is used by 98 % or more.
        let mut plan = plan("kind = \"upload\"\nduration = \"10s\"", TIER);
        let count = servers_for(&plan, 0.01).expect("some suffice");
        assert_eq!(count, 3);
        plan.servers.count = count;
        assert!(Load::of(&plan).blocked_percent <= 1.0);
        plan.servers.count = count - 1;
        assert!(Load::of(&plan).blocked_percent > 1.0);
        assert_eq!(servers_for(&plan, -1.0), None);
    }

    #[test]
    fn small_runs_and_large_pools_are_counted_as_they_are() {
        // 7,639 erlang of 40 kbit/s: a third of a gigabit, which one server has.
        let mut plan = plan("kind = \"latency\"\nduration = \"11s\"", TIER);
        plan.servers.capacity = Rate::from_megabits_per_second(1_000);
        assert_eq!(servers_for(&plan, 0.01), Some(1));
        // The pool has a slot for each run that fits, so Erlang's formula applies for any size.
        let mut plan = self::plan("kind = \"upload\"\nduration = \"10s\"", TIER);
        for (lines, servers) in [(10_000_000, 3), (10_000, 1), (20_000_000, 6)] {
            plan.lines.sample = lines;
            plan.servers.count = servers;
            plan.servers.capacity = Rate::from_megabits_per_second(80_000);
            let erlang = f64::from(lines) * 6.0 / 86_400.0 * 10.0;
            let slots = f64::from(servers) * 80_000.0 / 35.0;
            let want = erlang_b(erlang, slots as usize) * 100.0;
            let found = Load::of(&plan).blocked_percent;
            assert!((found - want).abs() < 1e-9, "{found} is not {want}");
        }
        // Two sizes that are not multiples of each other block about as often as their mean size.
        let tiers = "share_percent = 50\nup = \"33mbit\"\ndown = \"1gbit\"\n\
                     [[tier]]\nshare_percent = 50\nup = \"37mbit\"\ndown = \"1gbit\"";
        let mut two = self::plan("kind = \"upload\"\nduration = \"10s\"", tiers);
        (two.servers.count, two.servers.capacity) = (3, Rate::from_megabits_per_second(80_000));
        plan.lines.sample = 10_000_000;
        plan.servers.count = 3;
        let (one, two) = (Load::of(&plan).blocked_percent, Load::of(&two).blocked_percent);
        assert!((one - two).abs() < 0.1 && one > 1.0, "{one}, {two}");
    }

    #[test]
    fn errors_name_the_exceeded_budget() {
        let mut plan = plan("kind = \"upload\"\nduration = \"7s\"\nwarm_up = \"3s\"", TIER);
        let load = Load::of(&plan);
        assert_eq!(load.excesses(&plan), []);
        plan.budget.line_bytes_per_month = Some(7_000_000_000);
        plan.budget.servers_bit_per_s = Some(250_000_000_000);
        plan.budget.requests_per_s = Some(2_000.0);
        let keys: Vec<_> = load.excesses(&plan).iter().map(|excess| excess.key).collect();
        assert_eq!(keys, ["line_per_month (GB)", "requests_per_second"]);
    }
}
