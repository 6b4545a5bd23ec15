//! What a small queue management does to an upload's latency: a scenario built and run in code.

#![expect(clippy::print_stderr, reason = "an example prints its progress")]

use underload_record::metric;
use underload_run::{Settings, run};
use underload_scenario::{Keys, Scenario};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scenario = Scenario::build("two queues")
        .path(Keys::new().set("up", "10mbit").set("rtt", "20ms"))
        .phases(Keys::new().set("ramp", "5s").set("load", "10s"))
        .flow("upload", "tcp", Keys::new().set("congestion_control", "cubic"))
        .flow("probe", "probe", Keys::new().set("interval", "10ms"))
        .variant("fifo", Keys::new().set("path.up_queue", "fifo:limit=256KiB"))
        .variant("pie", Keys::new().set("path.up_queue", "pie"))
        .finish()?;
    for variant in run(&scenario, &Settings::default(), &mut ())?.record.summaries {
        eprintln!("{}: p99 {:?} ms", variant.variant, metric(&variant, "load.rtt.p99"));
    }
    Ok(())
}
