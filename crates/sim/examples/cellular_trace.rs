//! Prints the synthetic cellular trace that `bode/trace` uses by default.

use std::io::Write as _;

use underload_sim::scenario::CellularModel;

fn main() -> std::io::Result<()> {
    let (seed, seconds) = (CellularModel::SHIPPED_SEED, CellularModel::SHIPPED_SECONDS);
    let text = CellularModel::SHIPPED.generate(seed, seconds);
    std::io::stdout().write_all(text.as_bytes())
}
