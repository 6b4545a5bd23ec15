//! How long columns of packets take through a queue and a link, as JSON, for comparison with the
//! Python package: `cargo xtask bench python`. Takes the number of packets.

use std::env;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_run::replay::{PacketColumns, replay_columns};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets: u64 = env::args().nth(1).as_deref().unwrap_or("1000000").parse()?;
    let time_ns: Vec<u64> = (0..packets).map(|at| at * 50_000).collect();
    let len = vec![1_000; packets as usize];
    let flow: Vec<u32> = (0..packets).map(|at| (at % 7) as u32).collect();
    let columns =
        PacketColumns { time_ns: &time_ns, len: &len, flow: Some(&flow), ..Default::default() };
    let link = LinkSetup::parse("155mbit")?;
    let queue = QueueSetup::parse("pie:profile=rfc", &link.facts())?;
    let link = link.build(queue.build(&Rng::new(1)), &Rng::new(1));
    let start = Instant::now();
    let done = replay_columns(link, &columns, &AtomicBool::new(false))?;
    let seconds = start.elapsed().as_secs_f64();
    let sent = done.map_or(0, |(fates, _)| fates.was_sent.iter().filter(|it| **it).count());
    let mut out = std::io::stdout().lock();
    std::io::Write::write_fmt(
        &mut out,
        format_args!("{{\"seconds\": {seconds}, \"sent\": {sent}}}\n"),
    )?;
    Ok(())
}
