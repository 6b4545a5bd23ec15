//! From text to disciplines and links: grammar, units, parameter tables, errors.
//!
//! A discipline or link states each parameter once, in a table of [`Key`]s (`params!`); parsing,
//! range checks, defaults, error messages and `underload queues` all read that table.
//!
//! ```text
//! SPEC  = NAME [ ":" item { "," item } ]        codel:profile=linux,target=5ms
//! item  = [ key "=" ] value                     trace:FILE has an item without a key
//! value = text | "[" SPEC "]"                   diffserv:high=[bode:bound=50ms]
//! ```

mod error;
mod facts;
mod key;
mod nearest;
mod number;
mod quantity;
mod rules;
mod spec;
mod table;
mod tc;

pub use error::ConfigError;
pub use facts::LinkFacts;
pub use key::{
    Bytes, BytesOrSpan, Count, DscpSet, Fallback, Key, Millionths, Packets, PacketsOrBytes, Param,
    Probability, Quantity,
};
pub use key::{choices, from_values, params, profiles};
pub use nearest::closest;
pub use number::join;
pub use quantity::{Kind, Value};
pub use rules::{REMARK_PROFILES, RemarkProfile};
pub use spec::{Item, Spec};
pub use table::{Definition, InnerText, Profile, Values};
pub use tc::from_tc;
