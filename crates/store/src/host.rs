//! Facts about the machine, for the record.

use std::fs;

use underload_record::schema::{HostFacts, World};

/// Returns the facts that are known before the run. None of them names a person or an address.
pub fn facts(world: World) -> HostFacts {
    HostFacts {
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        resumed: Vec::new(),
        duration_s: 0.0,
        operating_system: value_of("/etc/os-release", "PRETTY_NAME", '='),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        processor: value_of("/proc/cpuinfo", "model name", ':'),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        clock: match world {
            World::Sim | World::Kernel | World::KernelTcp => "virtual".to_owned(),
            _ => first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        },
        device: String::new(),
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns the first value of a key in a file of `key SEPARATOR value` lines.
fn value_of(path: &str, key: &str, separator: char) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    });
    value.unwrap_or_default()
}
