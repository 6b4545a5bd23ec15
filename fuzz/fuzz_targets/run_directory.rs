//! Checks that no files make the reader of run directories panic, and that every run that is read
//! can be shown.
#![no_main]

use std::fs;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use underload_report::{render, summary_lines, table, warnings};
use underload_store::RunDir;

// Up to five files, each after its length in three bytes.
fuzz_target!(|bytes: &[u8]| {
    let directory = Scratch::new();
    let mut rest = bytes;
    let names = ["run.json", "trials.jsonl", "samples.parquet", "series.parquet", "trials.parquet"];
    for name in names {
        let Some((length, after)) = rest.split_first_chunk::<3>() else { break };
        let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
        let (content, after) = after.split_at(after.len().min(length));
        rest = after;
        for place in
            [directory.0.join(name), directory.0.join("parts").join(format!("0000000-{name}"))]
        {
            let _ = fs::write(place, content);
        }
    }
    let Ok(run) = RunDir::read(&directory.0) else { return };
    let runs = std::slice::from_ref(&run);
    let _ = (render(runs), table(runs), summary_lines(runs), warnings(runs));
});

/// A folder of this process, which is emptied and reused.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("underload-fuzz-{}", std::process::id()));
        let parts = path.join("parts");
        fs::create_dir_all(&parts).expect("a scratch folder");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
