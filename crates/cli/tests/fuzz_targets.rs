//! Runs every fuzz target on its stored inputs and on damaged copies of them.
//!
//! The targets are compiled here as ordinary tests. `cargo xtask fuzz` compiles them to count
//! branches, and searches for new inputs.

#![cfg(feature = "live")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use underload_aqm::rng::Rng;

// Stands in for libFuzzer's crate, from which the targets take the macro below.
extern crate self as libfuzzer_sys;

/// Declares the targets' files as modules and lists them by name.
macro_rules! targets {
    ($($name:ident)*) => {
        #[path = "../../../fuzz/fuzz_targets"]
        #[allow(unused_attributes, reason = "each file is the root of a program, too")]
        mod files {
            $(pub mod $name;)*
        }

        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), files::$name::run)),*];
    };
}

targets! {
    capture classify control_messages docsis_decode docsis_text fleet_agent fleet_lease
    fleet_messages fleet_plan fleet_requests icmp_quote import load_messages load_reports
    modem_file ndt7 nq_config run_directory run_json scenario spec stamp super_packet
    sweep trace udp_port web_datagrams web_offer
}

/// Makes a function `run` out of a target's closure, as libFuzzer would call it.
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:expr) => {
        #[allow(clippy::unit_arg, reason = "some closures return what they call")]
        pub fn run($input: &[u8]) {
            $body;
        }
    };
    (|$input:ident: &str| $body:expr) => {
        pub fn run(bytes: &[u8]) {
            let valid = match std::str::from_utf8(bytes) {
                Ok(text) => text.len(),
                Err(error) => error.valid_up_to(),
            };
            let $input = std::str::from_utf8(&bytes[..valid]).expect("checked above");
            $body;
        }
    };
}
pub(crate) use fuzz_target;

/// Damaged copies of the inputs of one target.
const DAMAGED: usize = 400;

#[test]
fn no_stored_or_damaged_input_makes_a_target_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (name, run) in TARGETS {
        // The input that is printed if a target panics.
        eprintln!("{name}");
        let mut inputs: Vec<Vec<u8>> = match fs::read_dir(folder.join("corpus").join(name)) {
            Ok(kept) => kept.map(|it| fs::read(it.expect("a file").path()).expect(name)).collect(),
            Err(_) => Vec::new(),
        };
        inputs.sort();
        for input in &inputs {
            run(input);
        }
        inputs.push(vec![0; 64]);
        let mut rng = Rng::new(1);
        for _ in 0..DAMAGED {
            let mut input = inputs[below(&mut rng, inputs.len())].clone();
            damage(&mut input, &mut rng);
            run(&input);
        }
    }
}

/// Returns a random number below `limit`, which is at least 1.
fn below(rng: &mut Rng, limit: usize) -> usize {
    rng.below(limit as u32) as usize
}

/// Changes some bytes, or cuts, repeats or inserts a part.
fn damage(input: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=below(rng, 4) {
        let at = below(rng, input.len() + 1);
        match below(rng, 4) {
            0 => input.truncate(at),
            1 => input.extend_from_within(at..),
            2 => input.insert(at, rng.next_u64() as u8),
            _ if at < input.len() => input[at] ^= 1 << below(rng, 8),
            _ => input.push(b'0'),
        }
    }
}

#[test]
fn every_file_of_a_target_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = fs::read_dir(folder).expect("the folder of targets").map(|it| it.expect("a file"));
    let stems = files.filter_map(|it| Some(it.path().file_stem()?.to_string_lossy().into_owned()));
    let listed = TARGETS.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(stems.collect::<BTreeSet<_>>(), listed.collect());
}
