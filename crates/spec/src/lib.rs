//! The words in which queues and links are described: times, rates, header fields, and SPECs.
//!
//! ```
//! use underload_spec::config::Spec;
//! use underload_spec::rate::Rate;
//! use underload_spec::time::Span;
//!
//! let spec = Spec::parse("codel:target=5ms").expect("a SPEC");
//! assert_eq!((spec.name.as_str(), spec.items.len()), ("codel", 1));
//! let rate = Rate::from_megabits_per_second(10);
//! assert_eq!(rate.time_for(1_500), Some(Span::from_micros(1_200)));
//! ```
//!
//! The crate is `no_std` and has no dependencies. It knows no queue and no link; `aqm` re-exports
//! its modules.
#![no_std]
#![warn(missing_docs)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod latency_bins;
mod named;
pub mod packet;
pub mod rate;
pub mod remark;
pub mod time;
