//! Checks that no file of another tool makes the importers panic, and that the imported run can be
//! drawn and written.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use underload_exchange::{flent_file, import};
use underload_report::render;

// The first byte selects the compression: none, gzip, or crusader's frames.
fuzz_target!(|bytes: &[u8]| {
    let Some((packing, content)) = bytes.split_first() else { return };
    let file = match packing % 3 {
        0 => content.to_vec(),
        1 => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            if gzip.write_all(content).is_err() {
                return;
            }
            gzip.finish().unwrap_or_default()
        }
        _ => {
            let mut file = [0x5372_ab82_ae7c_59cb_u64, 2].map(u64::to_le_bytes).concat();
            let mut frames = snap::write::FrameEncoder::new(&mut file);
            if frames.write_all(content).is_err() {
                return;
            }
            drop(frames);
            file
        }
    };
    let Ok(run) = import(&file) else { return };
    let _ = render(std::slice::from_ref(&run));
    for trial in &run.record.trials {
        let _ = flent_file(&run, trial);
    }
});
