//! The maps of a loaded BPF object, as `bpftool -j` prints them, and the commands that use them.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use underload_tc::Command;

use super::{KernelQueue, Law};

/// Why the output of `bpftool` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MapsError {
    #[error("`bpftool -j map {0}` printed something else than expected")]
    Json(&'static str, #[source] serde_json::Error),
    #[error("`bpftool` prints `{0}` with settings that this version does not know")]
    Settings(&'static str),
}

/// The maps of the registered object of a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maps {
    law: Law,
    /// The number of the map that represents the registration.
    registration: u64,
    /// The number of the map of settings by device.
    settings: u64,
    /// The number of the map of queues.
    queues: u64,
    settings_bytes: u64,
}

/// The key of a device's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Place {
    /// The number of the network namespace that the device is in.
    pub network: u32,
    /// The number of the device in that namespace.
    pub device: u32,
}

/// The present state of a queue, with counts since it was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub device: String,
    /// A SPEC with all parameters.
    pub queue: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub waiting: Backlog,
    pub law: serde_json::Map<String, serde_json::Value>,
    /// Why the queue cannot keep its bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queue, counts, waiting, law, warning } = self;
        let megabytes = counts.sent_bytes as f64 / 1e6;
        let longest_ms = counts.longest_sojourn_ns as f64 / 1e6;
        writeln!(
            f,
            "{device}: {queue}\n  {} packets sent ({megabytes:.1} MB), longest wait \
             {longest_ms:.1} ms; {} waiting\n  dropped: {} on arrival by the queue, {} on arrival \
             when full, {} after waiting",
            counts.sent, waiting.packets, counts.early, counts.full, counts.late
        )?;
        let number = |name: &str| law.get(name).and_then(serde_json::Value::as_u64);
        if let Some(exempted) = number("exempted") {
            writeln!(f, "  {exempted} sent late, because they were among the last")?;
        }
        if let Some(probability_q56) = number("probability_q56") {
            let probability = probability_q56 as f64 / 2_f64.powi(56);
            writeln!(f, "  probability of a drop {probability:.6}")?;
        }
        if let Some(warning) = warning {
            writeln!(f, "  {warning}")?;
        }
        Ok(())
    }
}

/// Counts of packets; a field is one of `struct counts` in the C files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub sent: u64,
    pub sent_bytes: u64,
    /// Arrivals that did not fit.
    pub full: u64,
    /// Arrivals that the law dropped.
    pub early: u64,
    /// Heads that the law dropped because of their delay.
    pub late: u64,
    /// The longest time that a packet waited that was sent.
    pub longest_sojourn_ns: u64,
}

/// Packets and bytes that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    pub packets: u64,
    pub bytes: u64,
}

/// A line of `bpftool -j map show`; the kernel's own maps lack some fields.
#[derive(Deserialize)]
struct Listed {
    id: u64,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    bytes_value: u64,
    btf_id: Option<u64>,
}

#[derive(Deserialize)]
struct Dumped {
    formatted: Formatted,
}

#[derive(Deserialize)]
struct Formatted {
    value: Entry,
}

/// An entry of the map `queues`.
#[derive(Deserialize)]
struct Entry {
    /// The queue's address in the kernel; 0 if the entry is free, `None` in the objects of older
    /// versions, whose map has no free entries.
    owner: Option<u64>,
    place: Place,
    queue: Queue,
}

#[derive(Deserialize)]
struct Queue {
    settings: serde_json::Map<String, serde_json::Value>,
    law: serde_json::Map<String, serde_json::Value>,
    backlog: Backlog,
    counts: Counts,
}

impl Maps {
    /// Finds the maps in what `bpftool -j map show` prints; `None` if the object is not registered.
    ///
    /// # Errors
    /// Returns [`MapsError::Json`] if the text is something else.
    pub fn find(law: Law, text: &str) -> Result<Option<Self>, MapsError> {
        // An empty list is printed as nothing by some versions.
        let text = if text.trim().is_empty() { "[]" } else { text };
        let listed: Vec<Listed> =
            serde_json::from_str(text).map_err(|error| MapsError::Json("show", error))?;
        let is_registration = |map: &&Listed| map.kind == "struct_ops" && map.name == law.kind();
        let Some(registration) = listed.iter().rev().find(is_registration) else {
            return Ok(None);
        };
        // The maps of one object share its types.
        let map = |name: &str| {
            listed.iter().find(|map| map.name == name && map.btf_id == registration.btf_id)
        };
        let (Some(settings), Some(queues)) = (map("settings"), map("queues")) else {
            return Ok(None);
        };
        Ok(Some(Self {
            law,
            registration: registration.id,
            settings: settings.id,
            queues: queues.id,
            settings_bytes: settings.bytes_value,
        }))
    }

    /// Whether the object reads settings as this version writes them.
    pub fn has_layout_of(&self, queue: &KernelQueue) -> bool {
        self.settings_bytes == 8 * queue.words(0).len() as u64
    }

    /// Returns the command that writes the settings of a place.
    pub fn set(&self, place: Place, words: &[u64]) -> Command {
        let mut text = format!("map update id {} key hex{} value hex", self.settings, key(place));
        for byte in words.iter().flat_map(|word| word.to_ne_bytes()) {
            let _ = write!(text, " {byte:02x}");
        }
        Command::bpftool(&text)
    }

    /// Returns the command that removes the settings of a place.
    pub fn forget(&self, place: Place) -> Command {
        Command::bpftool(&format!("map delete id {} key hex{}", self.settings, key(place)))
    }

    /// Returns the command whose output [`Maps::reports`] parses.
    pub fn dump(&self) -> Command {
        Command::bpftool(&format!("-j map dump id {}", self.queues))
    }

    /// Returns the command that removes the object; queues that use it stay.
    pub fn unregister(&self) -> Command {
        Command::bpftool(&format!("struct_ops unregister id {}", self.registration))
    }

    /// Parses all queues with their places. The names of devices are empty.
    ///
    /// # Errors
    /// Returns [`MapsError`] if the text is not what [`Maps::dump`] prints.
    pub fn reports(&self, text: &str) -> Result<Vec<(Place, Report)>, MapsError> {
        let dumped: Vec<Dumped> =
            serde_json::from_str(text).map_err(|error| MapsError::Json("dump", error))?;
        let entries = dumped.into_iter().map(|dumped| dumped.formatted.value);
        let report = |Entry { place, queue, .. }| {
            let spec = KernelQueue::from_json(self.law, &queue.settings)
                .ok_or(MapsError::Settings(self.law.kind()))?;
            let report = Report {
                device: String::new(),
                queue: spec.to_string(),
                counts: queue.counts,
                waiting: queue.backlog,
                law: queue.law,
                warning: None,
            };
            Ok((place, report))
        };
        entries.filter(|entry| entry.owner != Some(0)).map(report).collect()
    }
}

fn key(place: Place) -> String {
    let bytes = [place.network.to_ne_bytes(), place.device.to_ne_bytes()].concat();
    bytes.iter().fold(String::new(), |text, byte| text + &format!(" {byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of bpftool 7.8 with the maps of an object and of two other programs.
    const SHOW: &str = r#"[{"id":1,"type":"hash","name":"settings","bytes_value":8,"btf_id":7},
        {"id":2,"type":"hash","name":"settings","flags":0,"bytes_value":56,"btf_id":19},
        {"id":3,"type":"array","name":"queues","flags":0,"bytes_value":184,"btf_id":19},
        {"id":5,"type":"array","flags":1152,"bytes_value":184},
        {"id":6,"type":"struct_ops","name":"ul_bode","bytes_value":256,"btf_id":19}]"#;

    const DUMP: &str = r#"[{"key":["0x00"],"value":["0x00"],"formatted":{"key":1,"value":{
        "owner":18446612682172844032,"started":17490861044,"refresh_at":4,"taken":3,"stored":5,
        "place":{"network":4026531833,"device":3},
        "queue":{"settings":{"version":1,"rate":20000000,"limit_packets":1000,
            "limit_bytes":18446744073709551615,
            "law":{"bound_ns":20000000,"exempt_packets":3,"is_patch":0}},
        "law":{"exempted":4},"backlog":{"packets":2,"bytes":3028},"free_at":5,"carry":0,
        "counts":{"sent":3,"sent_bytes":126,"full":0,"early":0,"late":9,
            "longest_sojourn_ns":744935}}}}}]"#;

    fn maps() -> Maps {
        Maps::find(Law::Bode, SHOW).expect("JSON").expect("registered")
    }

    #[test]
    fn maps_of_one_object_are_found_by_their_types() {
        let maps = maps();
        assert_eq!((maps.registration, maps.settings, maps.queues), (6, 2, 3));
        assert_eq!(Maps::find(Law::DocsisPie, SHOW).expect("JSON"), None);
        assert_eq!(Maps::find(Law::Bode, "").expect("nothing"), None);
        assert!(Maps::find(Law::Bode, "{").is_err());
        let queue = KernelQueue::parse("bode").expect("a queue");
        assert!(maps.has_layout_of(&queue));
        assert!(!Maps { settings_bytes: 48, ..maps }.has_layout_of(&queue));
    }

    #[test]
    fn a_queue_is_reported_with_its_spec_and_counts() {
        let reports = maps().reports(DUMP).expect("a dump");
        let [(place, report)] = reports.as_slice() else { panic!("{reports:?}") };
        assert_eq!(*place, Place { network: 4_026_531_833, device: 3 });
        let spec = "bode:profile=paper,bound=20ms,exempt=3p,limit=1000p,rate=20mbit";
        assert_eq!(report.queue, spec);
        assert_eq!((report.counts.late, report.waiting.bytes), (9, 3_028));
        assert!(maps().reports(&DUMP.replace("bound_ns", "bond_ns")).is_err());
        let owner = "\"owner\":18446612682172844032,";
        let free = maps().reports(&DUMP.replace(owner, "\"owner\":0,")).expect("a dump");
        assert_eq!(free, []);
        let older = maps().reports(&DUMP.replace(owner, "")).expect("a dump");
        assert_eq!(older.len(), 1);
    }

    #[test]
    fn commands_write_numbers_as_bytes() {
        let place = Place { network: 0x0102_0304, device: 5 };
        assert_eq!(
            maps().set(place, &[1, 20]).to_string(),
            "bpftool map update id 2 key hex 04 03 02 01 05 00 00 00 value hex 01 00 00 00 00 00 \
             00 00 14 00 00 00 00 00 00 00"
        );
        let forget = "bpftool map delete id 2 key hex 04 03 02 01 05 00 00 00";
        assert_eq!(maps().forget(place).to_string(), forget);
        assert_eq!(maps().unregister().to_string(), "bpftool struct_ops unregister id 6");
        assert_eq!(maps().dump().to_string(), "bpftool -j map dump id 3");
    }
}
