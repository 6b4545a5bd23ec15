//! Whether the queues of a device may be replaced, and could be restored.

use serde_json::Value;
use underload_tc::printed::{Filter, Qdisc};
use underload_tc::restore::{self, Unrestorable};

/// The number of our queue at the root of a device: `ul` in ASCII.
pub const HANDLE: &str = "756c:";
/// The number of the queue below it, if the root only limits the rate.
pub const CHILD_HANDLE: &str = "756d:";
/// Queues that limit a rate or emulate a path: another program set them on purpose, so they are not
/// replaced.
const SHAPERS: &[&str] =
    &["cake", "cake_mq", "tbf", "htb", "hfsc", "cbq", "netem", "taprio", "etf"];

/// The reason why the queues of a device are not changed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{device} is already shaped by underload: `underload shape off --dev {device}` first")]
    AlreadyOurs { device: String },
    #[error(
        "{device} has a shaper that underload did not set up: {what}{owner}. Stop it first, or \
         replace it until `underload shape off`: --replace"
    )]
    Foreign { device: String, what: String, owner: String },
    #[error("{device} has queues that underload did not set up: {what}{owner}. Remove them first")]
    Unrestorable { device: String, what: String, owner: String, source: Box<Unrestorable> },
    #[error(
        "{device} has a filter of received packets that underload did not set up: {what}{owner}. \
         --down would bypass it: remove it first, or shape --up alone"
    )]
    Filter { device: String, what: String, owner: String },
}

/// The state of a device before it is shaped.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    pub device: &'a str,
    pub tree: &'a [Qdisc],
    pub filters: &'a [Filter],
    /// Names of all devices: some names reveal another program that shapes.
    pub devices: &'a [String],
}

impl Present<'_> {
    /// Checks that the root may be replaced and could be restored. `may_replace` accepts foreign
    /// shapers.
    ///
    /// # Errors
    /// Returns [`Refusal`].
    pub fn check_root(self, may_replace: bool) -> Result<(), Refusal> {
        let device = self.device.to_owned();
        let Some(root) = self.tree.first() else { return Ok(()) };
        if root.handle == HANDLE {
            return Err(Refusal::AlreadyOurs { device });
        }
        let shaper = self.tree.iter().find(|qdisc| is_foreign_shaper(qdisc));
        if let Err(source) = restore::commands(self.device, self.tree) {
            let what = describe(shaper.unwrap_or(root));
            let (owner, source) = (self.owner(), Box::new(source));
            return Err(Refusal::Unrestorable { device, what, owner, source });
        }
        match shaper {
            Some(shaper) if !may_replace => {
                Err(Refusal::Foreign { device, what: describe(shaper), owner: self.owner() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that no filter of received packets would be bypassed.
    ///
    /// # Errors
    /// Returns [`Refusal::Filter`].
    pub fn check_ingress(self) -> Result<(), Refusal> {
        let Some(filter) = self.filters.first() else { return Ok(()) };
        let what = describe_filter(filter);
        Err(Refusal::Filter { device: self.device.to_owned(), what, owner: self.owner() })
    }

    /// Returns the program that probably set up the queues, in parentheses.
    fn owner(&self) -> String {
        let device = self.device;
        let owners = [
            (format!("ifb4{device}"), "sqm-scripts", "`/etc/init.d/sqm stop`"),
            (format!("ifb-{device}"), "qosmate", "`/etc/init.d/qosmate stop`"),
        ];
        let found = owners.iter().find(|(ifb, ..)| self.devices.contains(ifb));
        found.map_or_else(String::new, |(ifb, name, stop)| {
            format!(" (of {name}, whose device {ifb} exists; {stop} stops it)")
        })
    }
}

fn is_foreign_shaper(qdisc: &Qdisc) -> bool {
    !qdisc.is_default() && SHAPERS.contains(&qdisc.kind.as_str())
}

fn describe_filter(filter: &Filter) -> String {
    let to = filter.redirects_to.as_ref().map(|device| format!(" to {device}"));
    format!("`{}` with pref {}{}", filter.kind, filter.preference, to.unwrap_or_default())
}

/// Returns the kind and number of a queue, and its rate if it has one.
fn describe(qdisc: &Qdisc) -> String {
    let rate = qdisc.limit().map(|rate| format!(" with {} kbit/s", rate.bits_per_second() / 1_000));
    let sorted = qdisc.options.get("diffserv").and_then(Value::as_str);
    let sorted = sorted.map(|sorting| format!(", {sorting}")).unwrap_or_default();
    format!("`{} {}`{}{sorted}", qdisc.kind, qdisc.handle, rate.unwrap_or_default())
}
