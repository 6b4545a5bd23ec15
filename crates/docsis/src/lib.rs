//! Cable modem configuration files: text, model and bytes.
//!
//! A DOCSIS modem gets its service flows, queue sizes and queue management from a file of
//! type-length-value settings. This crate decodes and encodes such files; it does no I/O:
//!
//! - [`tlv`]: the model, which preserves order, pads and unknown settings.
//! - [`decode`] and [`encode`]: bytes to model and back, exactly.
//! - [`schema`]: name, unit and meaning of each setting; [`value`]: its spelling.
//! - [`text`]: TOML and the `Main { ... }` form of the open `docsis` encoder, read and written.
//! - [`describe`](mod@describe): the file as a serialisable tree.
//! - [`mic`]: the three message integrity checks.
//! - [`qos`]: the settings that affect latency, as types.
//! - [`aggregate`]: a Low Latency DOCSIS upstream as one value.
//! - [`check`](mod@check): rules for files; each finding has a place and a fix.
//! - [`modem`]: which buffer a modem selects, or why it rejects the flow.
//! - [`recommend`]: candidates for a tier, and the choice among their simulated outcomes.
//!
//! ```
//! use underload_docsis::qos::{BufferControl, Direction, ServiceFlow};
//! use underload_docsis::{Config, mic::Secret, tlv::Tlv};
//!
//! let mut up = ServiceFlow::new(Direction::Upstream, 1);
//! up.rates.sustained_bit_per_s = Some(10_000_000);
//! up.buffer = Some(BufferControl::target(51_200));
//! let down = ServiceFlow::new(Direction::Downstream, 2);
//!
//! let mut config = Config::new([Tlv::u8(3, 1), up.to_tlv(), down.to_tlv()]);
//! config.seal(Some(&Secret::new(b"a secret")))?;
//! let bytes = config.encode()?;
//! assert_eq!(Config::decode(&bytes)?, config);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod aggregate;
pub mod check;
pub mod classes;
mod code;
pub mod decode;
pub mod describe;
pub mod encode;
mod hexadecimal;
pub mod mic;
pub mod modem;
pub mod qos;
pub mod recommend;
pub mod schema;
mod snmp;
pub mod text;
pub mod tlv;
pub mod value;

pub use decode::{DecodeError, Limits};
pub use encode::EncodeError;
pub use tlv::{Config, Ending, Item, Path, Tlv, Value};
