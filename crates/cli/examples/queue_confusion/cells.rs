//! The simulated cases: disciplines, rates, round trips, congestion controls, seeds.

use std::fmt;

use underload_probe::path::QueueKind;

/// A discipline with its variants.
#[derive(Debug)]
pub struct Discipline {
    pub name: &'static str,
    pub kind: QueueKind,
    /// SPECs; `{SIZE}` becomes the buffer's size of the cell.
    specs: &'static [&'static str],
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub discipline: &'static Discipline,
    pub queue: String,
    pub mbit: u64,
    pub rtt_ms: u64,
    pub control: &'static str,
    pub seed: u64,
}

/// The use of a cell: learning or testing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Learn,
    Judge,
}

const fn discipline(
    name: &'static str,
    kind: QueueKind,
    specs: &'static [&'static str],
) -> Discipline {
    Discipline { name, kind, specs }
}

static DISCIPLINES: [Discipline; 11] = [
    discipline("fifo", QueueKind::DropTail, &["fifo:limit={SIZE}"]),
    discipline("head-drop", QueueKind::DropTail, &["head-drop:limit={SIZE}"]),
    discipline("buffer-control", QueueKind::DropTail, &["buffer-control:target={SIZE}"]),
    discipline("bode", QueueKind::DropTail, &["bode:profile=paper", "bode:profile=patch"]),
    discipline(
        "pie",
        QueueKind::PieLike,
        &["pie:profile=rfc", "pie:profile=linux", "pie:profile=linux,ecn=on"],
    ),
    discipline("docsis-pie", QueueKind::PieLike, &["docsis-pie", "docsis-pie:target=15ms"]),
    discipline(
        "codel",
        QueueKind::CodelLike,
        &["codel:profile=rfc", "codel:profile=linux", "codel:profile=linux,ecn=on"],
    ),
    discipline("red", QueueKind::RedLike, &["red"]),
    discipline("fq-codel", QueueKind::FlowQueuing, &["fq-codel", "fq-codel:ecn=off"]),
    discipline("dualpi2", QueueKind::DualQueue, &["dualpi2"]),
    discipline("docsis-lld", QueueKind::DualQueue, &["docsis-lld"]),
];

const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

/// Rates in Mbit/s, round trips in ms, buffers in ms of the rate, seeds.
struct Grid {
    mbit: &'static [u64],
    rtt_ms: &'static [u64],
    buffer_ms: &'static [u64],
    variants: usize,
    seed: u64,
}

const LEARN: Grid = Grid {
    mbit: &[1, 3, 8, 20, 50, 110],
    rtt_ms: &[10, 25, 60, 150],
    buffer_ms: &[20, 45, 100, 220, 500, 1_000],
    variants: 4,
    seed: 1_000,
};
const JUDGE: Grid = Grid {
    mbit: &[2, 5, 12, 35, 100],
    rtt_ms: &[12, 40, 90, 130],
    buffer_ms: &[30, 70, 150, 350, 800],
    variants: 2,
    seed: 500_000,
};

/// All cells of a set.
pub fn cells(set: Set) -> Vec<Cell> {
    let grid = if set == Set::Learn { LEARN } else { JUDGE };
    let mut cells = Vec::new();
    for discipline in &DISCIPLINES {
        for &mbit in grid.mbit {
            for &rtt_ms in grid.rtt_ms {
                for control in CONTROLS {
                    let mut cell = Cell {
                        discipline,
                        queue: String::new(),
                        mbit,
                        rtt_ms,
                        control,
                        seed: grid.seed,
                    };
                    for queue in discipline.queues(mbit, &grid, cells.len()) {
                        cell.seed = grid.seed + cells.len() as u64;
                        cell.queue = queue;
                        cells.push(cell.clone());
                    }
                }
            }
        }
    }
    cells
}

impl Discipline {
    /// The grid determines the number of variants per cell. Successive cells have different
    /// variants; a discipline with fewer variants repeats them with another seed.
    fn queues(&self, mbit: u64, grid: &Grid, cell: usize) -> Vec<String> {
        let buffer_ms = grid.buffer_ms;
        let mut queues = Vec::new();
        let sized = self.specs.iter().any(|spec| spec.contains("{SIZE}"));
        let variants = if sized { buffer_ms.len() } else { self.specs.len() };
        for index in 0..grid.variants {
            let variant = (cell / grid.variants + index) % variants;
            let spec = self.specs[variant % self.specs.len()];
            let bytes = (mbit * 125 * buffer_ms[variant % buffer_ms.len()]).max(6_000);
            queues.push(spec.replace("{SIZE}", &format!("{bytes}B")));
        }
        queues
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, mbit, rtt_ms, control, .. } = self;
        write!(f, "{queue} {mbit} Mbit/s {rtt_ms} ms {control}")
    }
}
