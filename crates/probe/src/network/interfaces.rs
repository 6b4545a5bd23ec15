//! Byte counters of network interfaces, which count the traffic of all programs.

use std::fs;
use std::time::Duration;

/// The network interfaces whose traffic counts as traffic of the access line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Line {
    /// No interface is read.
    #[default]
    Ignored,
    OfDefaultRoutes,
    Named(Vec<String>),
}

/// Default of the traffic below which a line counts as quiet: 250 kbit/s.
pub const QUIET_BELOW_BIT_PER_S: u64 = 250_000;

/// Returns the rate of the busier direction between two readings of [`Line::bytes`], bit/s.
pub fn busier_bit_per_s(before: [u64; 2], after: [u64; 2], between: Duration) -> u64 {
    let bytes = (0..2).map(|way| after[way].saturating_sub(before[way])).max().unwrap_or(0);
    let bits = u128::from(bytes) * 8_000_000_000 / between.as_nanos().max(1);
    u64::try_from(bits).unwrap_or(u64::MAX)
}

impl Line {
    /// Returns the bytes that these interfaces have received and sent, in the network of the
    /// calling thread; `None` for [`Line::Ignored`], or if no such interface exists.
    pub fn bytes(&self) -> Option<[u64; 2]> {
        let names = self.names();
        if names.is_empty() {
            return None;
        }
        bytes_of(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, &names)
    }

    /// Returns the names of these interfaces, in the network of the calling thread.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Line::Ignored => Vec::new(),
            Line::Named(names) => names.clone(),
            Line::OfDefaultRoutes => {
                // The sockets are in the network of this thread, which may differ from the
                // process's.
                let read = |name: &str| {
                    fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
                };
                default_interfaces(&read("route"), &read("ipv6_route"))
            }
        }
    }
}

/// Returns the bytes received and sent by the interfaces `names`, from the text of `/proc/net/dev`;
/// `None` if it has none of them.
fn bytes_of(counters: &str, names: &[String]) -> Option<[u64; 2]> {
    let mut sum: Option<[u64; 2]> = None;
    for line in counters.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        if !names.iter().any(|wanted| wanted == name.trim()) {
            continue;
        }
        let numbers: Vec<u64> =
            numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
        if let (Some(received), Some(sent)) = (numbers.first(), numbers.get(8)) {
            let [all_received, all_sent] = sum.unwrap_or_default();
            sum = Some([all_received.saturating_add(*received), all_sent.saturating_add(*sent)]);
        }
    }
    sum
}

/// Returns the interfaces of default routes, from the texts of `/proc/net/route` and
/// `/proc/net/ipv6_route`.
fn default_interfaces(routes: &str, routes_v6: &str) -> Vec<String> {
    const ANY_V6: &str = "00000000000000000000000000000000";
    let mut names: Vec<String> = Vec::new();
    for line in routes.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if let [name, "00000000", _, _, _, _, _, "00000000", ..] = fields[..] {
            names.push(name.to_owned());
        }
    }
    for line in routes_v6.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if let [ANY_V6, "00", .., name] = fields[..]
            && name != "lo"
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0: 500 5 0 0 0 0 0 0 700 7 0 0 0 0 0 0
  eth1:20 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0
";
    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    /// A line of `/proc/net/ipv6_route`.
    fn route_v6(destination: &str, prefix_len: &str, name: &str) -> String {
        let [any, metrics] = ["0".repeat(32), "00000400 00000001 00000000 00000003".to_owned()];
        format!("{destination} {prefix_len} {any} 00 {any} {metrics}     {name}\n")
    }

    #[test]
    fn counters_of_the_interfaces_that_default_routes_lead_to_are_added_up() {
        let any = "0".repeat(32);
        let routes_v6 = route_v6(&format!("fe80{}", "0".repeat(28)), "40", "eth0")
            + &route_v6(&any, "00", "wlan0")
            + &route_v6(&any, "00", "lo");
        let names = default_interfaces(ROUTES, &routes_v6);
        assert_eq!(names, ["eth0", "wlan0"]);
        assert_eq!(bytes_of(COUNTERS, &names), Some([500, 700]));
        let both = ["eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(bytes_of(COUNTERS, &both), Some([520, 730]));
        assert_eq!(bytes_of(COUNTERS, &["eth9".to_owned()]), None);
        assert_eq!(default_interfaces("nonsense\n", "\n"), Vec::<String>::new());
    }

    #[test]
    fn the_busier_direction_counts() {
        let second = Duration::from_secs(1);
        assert_eq!(busier_bit_per_s([10, 20], [110, 1_020], second), 8_000);
        assert_eq!(busier_bit_per_s([10, 20], [5, 20], second), 0, "counters that were reset");
        assert_eq!(busier_bit_per_s([0, 0], [u64::MAX, 0], Duration::ZERO), u64::MAX);
    }

    #[test]
    fn the_interfaces_of_this_machine_can_be_read() {
        assert!(Line::Named(vec!["lo".to_owned()]).bytes().is_some());
    }
}
