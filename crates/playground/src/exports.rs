//! The functions that a page calls.
//!
//! ```text
//! address = reserve(length);      write the settings there, UTF-8 JSON
//! length = trial();               or record(): runs the trial; length of the answer
//! address = answer();             address of the answer, valid until the next call
//! ```
//!
//! An answer is a JSON document; for invalid settings, `{"error": "..."}`. No function dereferences
//! an address from the page: a page that writes elsewhere damages only its own sandbox.

#![expect(unsafe_code, reason = "exported names; no code here dereferences a given address")]

use std::cell::RefCell;

use crate::{Outcome, Settings, record as full_record};

/// Maximum length of the settings.
const TEXT_BYTES_MOST: usize = 64 << 10;

#[derive(Default)]
struct Memory {
    text: Vec<u8>,
    answer: String,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// Allocates `length` bytes for the settings; returns their address.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    MEMORY.with_borrow_mut(|memory| {
        memory.text = vec![0; length.min(TEXT_BYTES_MOST)];
        memory.text.as_mut_ptr()
    })
}

/// Runs the trial of the settings; returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn trial() -> usize {
    respond(|settings| {
        let outcome = Outcome::new(settings)?;
        serde_json::to_string(&outcome).map_err(|error| error.to_string())
    })
}

/// As [`trial`], with the full record as the answer.
#[unsafe(no_mangle)]
pub extern "C" fn record() -> usize {
    respond(full_record)
}

/// Returns the address of the last answer.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    MEMORY.with_borrow(|memory| memory.answer.as_ptr())
}

fn respond(work: impl Fn(&Settings) -> Result<String, String>) -> usize {
    let text = MEMORY.with_borrow_mut(|memory| std::mem::take(&mut memory.text));
    let answer = Settings::parse(&text)
        .and_then(|settings| work(&settings))
        .unwrap_or_else(|error| serde_json::json!({ "error": error }).to_string());
    MEMORY.with_borrow_mut(|memory| {
        memory.answer = answer;
        memory.answer.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> String {
        MEMORY.with_borrow_mut(|memory| memory.text = text.as_bytes().to_vec());
        let length = trial();
        MEMORY.with_borrow(|memory| {
            assert_eq!(memory.answer.len(), length);
            memory.answer.clone()
        })
    }

    #[test]
    fn impossible_settings_are_refused_in_words() {
        let good = r#"{"rate_kbit_per_s":10000,"rtt_ms":20,"queue":"fifo:limit=64KiB","uploads":1,
            "congestion_control":"cubic","ecn":false,"stream_kbit_per_s":0,"seed":1}"#;
        assert!(ask(good).starts_with("{\"scenario\":"));
        let faults = [
            ("\"rtt_ms\":20", "\"rtt_ms\":2000", "round trip: 2000 is not from 0 to 1000"),
            ("fifo:limit=64KiB", "codle", "codel"),
            ("fifo:limit=64KiB", "fifo:limit=99999TiB", "limit"),
            ("cubic", "qubic", "there is no congestion control `qubic`"),
            ("\"seed\":1", "\"sead\":1", "unknown field `sead`"),
            ("{", "", "expected"),
        ];
        for (part, other, told) in faults {
            let answer = ask(&good.replacen(part, other, 1));
            assert!(answer.starts_with("{\"error\":") && answer.contains(told), "{answer}");
        }
        assert!(ask("").starts_with("{\"error\":"));
        assert!(!reserve(usize::MAX).is_null());
    }
}
