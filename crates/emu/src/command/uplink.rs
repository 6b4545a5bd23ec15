//! The connection from a command's namespace to the host's network: an address range,
//! masquerading, and forwarding that is switched back when the last command ends.
//!
//! All of this ends with this process, except for the `nft` table and the forwarding switches. Both
//! are undone on drop; after a kill, by a child that survives it ([`super::watcher`]); and if the
//! child is killed, too, by the next start. A lock that the kernel releases
//! ([`underload_disk::lock`]) shows whether a table's owner still lives; its name contains the
//! number of the table's network.
//!
//! A host that forwards is a router for everyone who sends packets to it. If it did not forward
//! before, the table only accepts packets from a command's device, and answers to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use underload_disk::lock::Lock;

use super::watcher::Watcher;
use crate::machine::{NamespaceError, Network};

/// Number of address ranges, and so of commands behind a link on one network at a time. They are of
/// the upper half of 198.18.0.0/15, which is for tests of networks (RFC 2544): Tailscale drops
/// packets from 100.64.0.0/10, and some proxies take the lower half.
const SLOTS: u8 = 250;
const TABLE_PREFIX: &str = "underload-";
/// Prefix of the names of the host's devices, before their numbers.
pub(super) const DEVICE_PREFIX: &str = "ul";
/// Switches for forwarding between devices, below `/proc/sys`.
const FORWARD_V4: &str = "net/ipv4/ip_forward";
const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// Why the host's side of a link could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    #[error("all {SLOTS} address ranges 198.19.N.0/30 are in use on this host")]
    NoRange,
    #[error("another underload is still setting up its link (waited {0:?})")]
    Busy(Duration),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// An address range that only this process uses on its network.
#[derive(Debug)]
pub struct Range {
    number: u8,
    _lock: Lock,
}

impl Range {
    /// Takes the first free range. The calling thread must be in the host's network.
    fn take(locks: Locks) -> Result<Self, UplinkError> {
        let local: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
            .into_iter()
            .flatten()
            .filter_map(|device| Some(device.address?.as_sockaddr_in()?.ip().into()))
            .collect();
        (0..SLOTS)
            .filter(|number| {
                let is_inside = |address: &IpAddr| match address {
                    IpAddr::V4(v4) => v4.octets()[..3] == [198, 19, *number],
                    IpAddr::V6(_) => false,
                };
                !local.iter().any(is_inside)
            })
            .find_map(|number| Some(Self { number, _lock: locks.take(&number.to_string())? }))
            .ok_or(UplinkError::NoRange)
    }

    /// Address of the host's end.
    pub fn outer_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.number, 1)
    }

    /// Address of the command's end.
    pub fn inner_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.number, 2)
    }

    /// IPv6 address of the host's end.
    pub fn outer_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd75, 0x6c, 1, u16::from(self.number), 0, 0, 0, 1)
    }

    /// IPv6 address of the command's end.
    pub fn inner_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd75, 0x6c, 1, u16::from(self.number), 0, 0, 0, 2)
    }

    pub fn device(&self) -> String {
        format!("{DEVICE_PREFIX}{}", self.number)
    }

    fn table(&self) -> String {
        format!("{TABLE_PREFIX}{}", self.number)
    }
}

#[derive(Clone, Copy, Debug)]
struct Locks {
    network: u64,
}

impl Locks {
    fn new(host: &Network) -> Result<Self, UplinkError> {
        Ok(Self { network: host.id()? })
    }

    /// Takes the lock `name` of this network; `None` if another process has it.
    fn take(self, name: &str) -> Option<Lock> {
        Lock::take(&format!("link-{}-{name}", self.network))
    }

    /// Takes the lock that keeps set-ups and tear-downs of processes apart.
    fn take_setup(self, limit: Duration) -> Result<Lock, UplinkError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(lock) = self.take("setup") {
                return Ok(lock);
            }
            if Instant::now() >= deadline {
                return Err(UplinkError::Busy(limit));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The host's side of a link.
#[derive(Debug)]
pub struct Uplink {
    host: Network,
    range: Range,
    locks: Locks,
    has_table: bool,
    /// Undoes the changes after a kill; `None` if it could not be started.
    _watcher: Option<Watcher>,
    /// Whether IPv6 reaches beyond the host.
    pub has_v6: bool,
    /// Messages for the user about what does not work.
    pub notes: Vec<String>,
}

/// The forwarding switches before the first of the present commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Before {
    v4: bool,
    v6: bool,
}

impl Before {
    /// Formats the switches for the comment of a table.
    fn to_comment(self) -> String {
        format!("forward4={} forward6={}", u8::from(self.v4), u8::from(self.v6))
    }

    fn from_comment(text: &str) -> Option<Self> {
        let switch = |key: &str| {
            let rest = &text[text.find(key)? + key.len()..];
            Some(rest.starts_with('1'))
        };
        Some(Self { v4: switch("forward4=")?, v6: switch("forward6=")? })
    }
}

const SETUP_LIMIT: Duration = Duration::from_secs(10);

impl Uplink {
    /// Takes an address range of the network of the calling thread, and connects it to that
    /// network. Destinations that cannot be reached become notes.
    pub fn create() -> Result<Self, UplinkError> {
        // Before any thread starts. Without a watcher, the next start cleans up after a kill.
        let watcher = Watcher::start(clean_up_after_a_kill).ok();
        let host = Network::current("host")?;
        let locks = Locks::new(&host)?;
        let _setup = locks.take_setup(SETUP_LIMIT)?;
        let inherited = remove_orphans(&host, locks);
        let range = Range::take(locks)?;
        let mut uplink = Self {
            host,
            range,
            locks,
            has_table: false,
            _watcher: watcher,
            has_v6: false,
            notes: Vec::new(),
        };
        if let Err(error) = uplink.masquerade(inherited) {
            let note = format!("nothing beyond this machine can be reached: {error}");
            uplink.notes.push(note);
        }
        Ok(uplink)
    }

    /// Returns the IPv4 gateway of the host's default route.
    pub fn gateway_v4(&self) -> Option<String> {
        let mut show = Command::new("ip");
        show.args(["-4", "route", "show", "default"]);
        via(&self.host().run(show, "").ok()?)
    }

    pub fn range(&self) -> &Range {
        &self.range
    }

    pub fn host(&self) -> &Network {
        &self.host
    }

    /// Returns the connections of the command that left the host, over IPv4 and IPv6, and the
    /// packets from beyond that came back to the host; `None` without masquerading.
    pub(super) fn counts(&self) -> Option<Vec<u64>> {
        let text = nft(&self.host, &format!("list table inet {}\n", self.range.table())).ok()?;
        let counts = text.split("counter packets ").skip(1);
        counts.map(|rest| rest.split(' ').next()?.parse().ok()).collect()
    }

    fn masquerade(&mut self, inherited: Option<Before>) -> Result<(), NamespaceError> {
        let before = inherited.unwrap_or(Before {
            v4: read_switch(&self.host, FORWARD_V4)?,
            v6: read_switch(&self.host, FORWARD_V6)?,
        });
        self.has_v6 = before.v6 || leads_beyond_v6(&self.host);
        let script = table_script(&self.range, before, self.has_v6);
        nft(&self.host, &script)?;
        self.has_table = true;
        write_switch(&self.host, FORWARD_V4, true)?;
        if self.has_v6 {
            write_switch(&self.host, FORWARD_V6, true)?;
        }
        Ok(())
    }
}

/// The table of a range: masquerades its command's address, and prevents a host that did not
/// forward before from forwarding for others.
fn table_script(range: &Range, before: Before, has_v6: bool) -> String {
    let (name, device, comment) = (range.table(), range.device(), before.to_comment());
    let (v4, v6) = (range.inner_v4(), range.inner_v6());
    let switched_on = [("ipv4", !before.v4), ("ipv6", has_v6 && !before.v6)];
    let mut guards = String::new();
    for (family, _) in switched_on.into_iter().filter(|(_, is_switched_on)| *is_switched_on) {
        // Other links have their own tables, and their commands' packets pass here, too.
        let stranger = format!("meta nfproto {family} iifname != \"{DEVICE_PREFIX}*\"");
        guards.extend([
            format!("{stranger} oifname != \"{DEVICE_PREFIX}*\" drop\n"),
            format!("{stranger} oifname \"{device}\" ct state new drop\n"),
        ]);
    }
    format!(
        "table inet {name} {{\n\
         comment \"{comment}\"\n\
         chain postrouting {{\n\
         type nat hook postrouting priority srcnat;\n\
         ip saddr {v4} oifname != \"{device}\" counter masquerade\n\
         ip6 saddr {v6} oifname != \"{device}\" counter masquerade\n\
         }}\n\
         chain replies {{\n\
         type filter hook prerouting priority mangle;\n\
         ct direction reply ct original ip saddr {v4} counter\n\
         ct direction reply ct original ip6 saddr {v6} counter\n\
         }}\n\
         chain forward {{\n\
         type filter hook forward priority filter;\n\
         {guards}\
         }}\n}}\n"
    )
}

/// Removes the tables of dead processes, and returns the switches before the living ones.
fn remove_orphans(host: &Network, locks: Locks) -> Option<Before> {
    let mut inherited = None;
    for (number, before) in tables(host) {
        match (locks.take(&number), before) {
            (Some(_lock), before) => remove_table(host, &number, before),
            (None, before) => inherited = inherited.or(before),
        }
    }
    inherited
}

/// Runs in the watcher. Errors are ignored, because the next start tries again.
fn clean_up_after_a_kill() {
    let clean_up = || -> Result<(), UplinkError> {
        let host = Network::current("host")?;
        let locks = Locks::new(&host)?;
        let _setup = locks.take_setup(SETUP_LIMIT)?;
        remove_orphans(&host, locks);
        Ok(())
    };
    let _ = clean_up();
}

impl Drop for Uplink {
    fn drop(&mut self) {
        if !self.has_table {
            return;
        }
        let setup = self.locks.take_setup(SETUP_LIMIT);
        let own = self.range.number.to_string();
        let before = tables(&self.host).into_iter().find(|(number, _)| *number == own);
        remove_table(&self.host, &own, before.and_then(|(_, before)| before));
        drop(setup);
    }
}

/// Returns the gateway of the first route in the output of `ip route`.
fn via(routes: &str) -> Option<String> {
    let mut words = routes.lines().next()?.split_whitespace();
    words.find(|word| *word == "via")?;
    let address: Ipv4Addr = words.next()?.parse().ok()?;
    Some(address.to_string())
}

/// Whether there is an IPv6 default route that survives forwarding: a host that becomes a router
/// drops routes from router advertisements.
fn leads_beyond_v6(host: &Network) -> bool {
    let mut show = Command::new("ip");
    show.args(["-6", "route", "show", "default"]);
    let routes = host.run(show, "").unwrap_or_default();
    !routes.trim().is_empty() && !routes.contains("proto ra")
}

/// Returns the number of each of our tables, and the switches in its comment.
fn tables(host: &Network) -> Vec<(String, Option<Before>)> {
    // If `nft` is not installed, no table exists.
    let list = nft(host, "list tables inet\n").unwrap_or_default();
    let prefix = format!("table inet {TABLE_PREFIX}");
    let numbers = list.lines().filter_map(|line| line.trim().strip_prefix(&prefix));
    numbers
        .map(|number| {
            let text = nft(host, &format!("list table inet {TABLE_PREFIX}{number}\n"));
            (number.to_owned(), text.ok().and_then(|text| Before::from_comment(&text)))
        })
        .collect()
}

/// Removes a table. If it was the last, the forwarding switches are restored.
fn remove_table(host: &Network, number: &str, before: Option<Before>) {
    // An error means that the table was removed by hand.
    let _ = nft(host, &format!("delete table inet {TABLE_PREFIX}{number}\n"));
    if !tables(host).is_empty() {
        return;
    }
    if let Some(before) = before {
        let _ = write_switch(host, FORWARD_V4, before.v4);
        let _ = write_switch(host, FORWARD_V6, before.v6);
    }
}

fn nft(host: &Network, script: &str) -> Result<String, NamespaceError> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]);
    host.run(command, script)
}

fn read_switch(host: &Network, path: &str) -> Result<bool, NamespaceError> {
    let text = host.enter(|| std::fs::read_to_string(format!("/proc/sys/{path}")))?;
    Ok(text.is_ok_and(|text| text.trim() == "1"))
}

/// Writes a switch if its value changes, because writing it resets other parameters.
fn write_switch(host: &Network, path: &str, on: bool) -> Result<(), NamespaceError> {
    if read_switch(host, path)? == on {
        return Ok(());
    }
    host.set_parameter(path, if on { "1" } else { "0" })
}

#[cfg(test)]
mod tests {
    use super::{Before, via};

    #[test]
    fn the_neighbour_of_a_default_route_is_found() {
        let told = |routes: &str| via(routes).unwrap_or_default();
        assert_eq!(told("default via 192.0.2.1 dev eth0 proto dhcp metric 100\n"), "192.0.2.1");
        assert_eq!(told("default dev tun0 scope link\n"), "");
        assert_eq!(told("default via inet6 fe80::1 dev eth0\n"), "");
        assert_eq!(told(""), "");
    }

    #[test]
    fn a_table_restores_its_switches() {
        for before in [Before { v4: true, v6: false }, Before { v4: false, v6: true }] {
            let text =
                format!("table inet underload-3 {{\n comment \"{}\"\n}}", before.to_comment());
            assert_eq!(Before::from_comment(&text), Some(before));
        }
        assert_eq!(Before::from_comment("table inet underload-3 {}"), None);
    }
}
