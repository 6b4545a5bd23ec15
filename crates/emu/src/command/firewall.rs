//! Whether the host's firewall drops the packets of a link's command, and which chain may do so.
//!
//! A table of ours cannot overrule another's: a packet passes only if no chain drops it. So packets
//! to the host and to a machine beyond are written to the link's device, as if the command had sent
//! them, over IPv4 and IPv6, and are observed where they must arrive. The way back is tried with
//! answers: the host's own, and that of the first router, if it sends one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use underload_aqm::checksum::{fold, sum};

use super::uplink::{DEVICE_PREFIX, Uplink};
use crate::machine::{Network, Tun};
use crate::packet::VnetHeader;

/// Longest wait for a packet that nothing drops; it arrives at once.
const ARRIVAL_MAX: Duration = Duration::from_millis(200);
/// Packets that must all be lost before a firewall is blamed.
const TRIES: u32 = 3;
/// Chains that a message names.
const NAMED_MAX: usize = 3;
/// Addresses reserved for documentation (RFC 5737, RFC 3849): packets to them end at the first
/// router.
const BEYOND_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const BEYOND_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The UDP port that discards (RFC 863).
const DISCARD: u16 = 9;
const PROTOCOL_UDP: u8 = 17;
/// Longest frame that is read; longer ones are cut.
const FRAME_MAX: usize = 2_048;

/// Returns messages about packets of the command, and answers to it, that the host's firewall drops.
/// `device` is the host's end of the link, which no gateway reads yet.
pub(super) fn blocked(uplink: &Uplink, device: &Tun) -> Vec<String> {
    let range = uplink.range();
    let (v4, v6) = ((range.inner_v4(), range.outer_v4()), (range.inner_v6(), range.outer_v6()));
    let ways = [
        Way { uplink, device, command: v4.0.into(), host: v4.1.into(), beyond: BEYOND_V4.into() },
        Way { uplink, device, command: v6.0.into(), host: v6.1.into(), beyond: BEYOND_V6.into() },
    ];
    let mut found: Vec<Vec<Chain>> = Vec::new();
    let mut messages = Vec::new();
    for (way, probe) in ways.iter().flat_map(|way| PROBES.iter().map(move |probe| (way, probe))) {
        let is_lost = (0..TRIES).all(|_| (probe.passes)(way) == Some(false));
        let mut suspects = if is_lost { chains(uplink.host(), probe.hooks) } else { Vec::new() };
        suspects.retain(|chain| chain.sees(way.command));
        if !found.contains(&suspects) {
            messages.extend(message(probe.what, &suspects, probe.places));
            found.push(suspects);
        }
    }
    // Refusals, which the gateway would send on to the command.
    let mut buffer = [0; FRAME_MAX];
    while matches!(device.read(&mut buffer), Ok(Some(_))) {}
    messages
}

/// Packets that are tried, and the places at which a firewall can drop them.
struct Probe {
    /// The packets, for a message.
    what: &'static str,
    /// Whether a packet passes; `None` if that is unknown.
    passes: fn(&Way<'_>) -> Option<bool>,
    hooks: &'static [&'static str],
    /// The keywords of nft, `iifname` and `oifname`, for the link's device in the suggested rules.
    places: &'static [&'static str],
}

const PROBES: [Probe; 4] = [
    Probe {
        what: "the command sends to this machine",
        passes: |way| way.reaches_host(),
        hooks: &["input", "prerouting"],
        places: &["iifname"],
    },
    Probe {
        what: "this machine sends to the command",
        passes: |way| way.host_answers(),
        hooks: &["output", "postrouting"],
        places: &["oifname"],
    },
    Probe {
        what: "the command sends to hosts beyond this machine",
        passes: |way| way.passes_host(),
        hooks: &["forward", "prerouting"],
        places: &["iifname", "oifname"],
    },
    Probe {
        what: "hosts beyond this machine send to the command",
        passes: |way| way.answers_return(),
        hooks: &["forward", "postrouting"],
        places: &["oifname"],
    },
];

/// The addresses of one IP version between a command and its destinations.
struct Way<'a> {
    uplink: &'a Uplink,
    device: &'a Tun,
    command: IpAddr,
    host: IpAddr,
    /// An address beyond the host, which a packet reaches if the host has a route.
    beyond: IpAddr,
}

impl Way<'_> {
    /// Whether a new packet from the command reaches a socket of the host.
    fn reaches_host(&self) -> Option<bool> {
        Some(self.ask_host()?.recv(&mut [0; 64]).is_ok())
    }

    /// Whether an answer of the host reaches the command; `None` if nothing can be answered.
    fn host_answers(&self) -> Option<bool> {
        let socket = self.ask_host()?;
        let (_, sender) = socket.recv_from(&mut [0; 64]).ok()?;
        // If the host drops the packet on its way out, sending fails at once.
        let is_sent = socket.send_to(&[], sender).is_ok();
        Some(is_sent && self.arrives(|source| source == self.host))
    }

    /// Sends a packet from the command to a new socket of the host.
    fn ask_host(&self) -> Option<UdpSocket> {
        let socket = self.uplink.host().open(|| UdpSocket::bind((self.host, 0))).ok()?;
        socket.set_read_timeout(Some(ARRIVAL_MAX)).ok()?;
        let port = socket.local_addr().ok()?.port();
        self.send(DISCARD, (self.host, port))?;
        Some(socket)
    }

    /// Whether a new packet from the command leaves the host; `None` if the host has no route.
    fn passes_host(&self) -> Option<bool> {
        self.leaves(0)
    }

    /// Whether an answer from beyond, such as a router's that the time to live ended, reaches the
    /// command; `None` if no answer reached the host.
    fn answers_return(&self) -> Option<bool> {
        self.leaves(2)?.then(|| self.arrives(|source| source != self.host))
    }

    /// Sends a packet from the command to an address beyond, and returns whether a counter of the
    /// uplink's rises. `counter` is the index of the IPv4 counter; the IPv6 counter is the next
    /// one. `None` without a route.
    fn leaves(&self, counter: usize) -> Option<bool> {
        let somewhere_beyond = || somewhere_beyond(self.beyond);
        let (target, port) = self.uplink.host().enter(somewhere_beyond).ok()??;
        let count = || {
            let counts = self.uplink.counts()?;
            counts.get(counter + usize::from(self.command.is_ipv6())).copied()
        };
        let before = count()?;
        self.send(port, (target, DISCARD))?;
        Some(waited(|| count() > Some(before)))
    }

    /// Whether a packet for the command comes from a source that is wanted.
    fn arrives(&self, is_wanted: impl Fn(IpAddr) -> bool) -> bool {
        let mut buffer = [0; FRAME_MAX];
        waited(|| {
            while let Ok(Some(length)) = self.device.read(&mut buffer) {
                let ends = buffer[..length].get(VnetHeader::LEN..).and_then(ends);
                if ends.is_some_and(|(from, to)| to == self.command && is_wanted(from)) {
                    return true;
                }
            }
            false
        })
    }

    /// Writes a UDP packet of the command to the host's end of the link. Its time to live ends at
    /// the first router behind the host.
    fn send(&self, from_port: u16, to: (IpAddr, u16)) -> Option<()> {
        // Ports, a length of 8 bytes, and no checksum, which IPv6 requires.
        let mut udp = [from_port.to_be_bytes(), to.1.to_be_bytes(), [0, 8], [0, 0]].concat();
        let mut packet = match (self.command, to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut head = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 2, PROTOCOL_UDP, 0, 0];
                head.extend([from.octets(), to.octets()].concat());
                let checksum = !fold(sum(&head));
                head[10..12].copy_from_slice(&checksum.to_be_bytes());
                head
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let ends = [from.to_bits(), to.to_bits()].map(u128::to_be_bytes).concat();
                let pseudo = [ends.as_slice(), &[0, 8, 0, PROTOCOL_UDP], &udp].concat();
                udp[6..].copy_from_slice(&(!fold(sum(&pseudo))).to_be_bytes());
                [vec![0x60, 0, 0, 0, 0, 8, PROTOCOL_UDP, 2], ends].concat()
            }
            _ => return None,
        };
        packet.append(&mut udp);
        self.device.write(&VnetHeader::default().to_bytes(), &packet).ok()
    }
}

/// Whether a condition holds within [`ARRIVAL_MAX`].
fn waited(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > ARRIVAL_MAX {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the source and the destination of an IP packet.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| packet.get(at..)?.first_chunk::<4>().copied().map(IpAddr::from);
    let v6 = |at: usize| packet.get(at..)?.first_chunk::<16>().copied().map(IpAddr::from);
    match packet.first()? >> 4 {
        4 => v4(12).zip(v4(16)),
        _ => v6(8).zip(v6(24)),
    }
}

/// Returns an address beyond the calling thread's network: `beyond` if a route leads there, else a
/// neighbour's over IPv4. The port is another one each time, because only the first packet of a
/// connection, which the kernel remembers for a while, is masqueraded anew.
fn somewhere_beyond(beyond: IpAddr) -> Option<(IpAddr, u16)> {
    let any = if beyond.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    let port = socket.local_addr().ok()?.port();
    if socket.connect((beyond, DISCARD)).is_ok() {
        return Some((beyond, port));
    }
    nix::ifaddrs::getifaddrs().into_iter().flatten().find_map(|device| {
        let address = device.address?.as_sockaddr_in()?.ip();
        let is_other = !address.is_loopback()
            && device.interface_name != "lo"
            && !device.interface_name.starts_with(DEVICE_PREFIX);
        // A neighbour's address may be the network's broadcast address, which such a socket refuses.
        let mut neighbours = (1..4).map(|bits| Ipv4Addr::from_bits(address.to_bits() ^ bits));
        let found = neighbours.find(|it| is_other && socket.connect((*it, DISCARD)).is_ok())?;
        Some((found.into(), port))
    })
}

/// Returns the message about packets that did not arrive; `None` without a chain that may drop them:
/// then the machine was busy, or something else lost them.
fn message(what: &str, chains: &[Chain], places: &[&str]) -> Option<String> {
    let first = chains.first()?;
    let names: Vec<String> = chains.iter().take(NAMED_MAX).map(Chain::to_string).collect();
    let commands: Vec<String> = places.iter().map(|place| first.let_pass(place)).collect();
    Some(format!(
        "the firewall of this machine drops what {what}: {}; to let it pass: {}",
        names.join(", or "),
        commands.join(" && ")
    ))
}

/// A chain of the firewall that drops or rejects packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Address family and name of its table, as `nft` writes them.
    table: String,
    name: String,
    /// Whether the chain's policy drops packets that no rule accepts.
    is_closed: bool,
}

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = if self.is_closed { "policy drop of " } else { "" };
        write!(f, "{policy}chain {} of table {}", self.name, self.table)
    }
}

impl Chain {
    /// Whether the chain sees packets of the IP version of `address`.
    fn sees(&self, address: IpAddr) -> bool {
        let others: &[&str] = if address.is_ipv4() { &["ip6 "] } else { &["ip ", "iptables"] };
        !others.iter().any(|family| self.table.starts_with(family))
    }

    /// Returns the command that lets packets of links pass; `place` is `iifname` or `oifname`.
    fn let_pass(&self, place: &str) -> String {
        let Self { table, name, .. } = self;
        match table.as_str() {
            "iptables" => {
                let option = if place == "iifname" { "-i" } else { "-o" };
                format!("iptables -I {name} {option} {DEVICE_PREFIX}+ -j ACCEPT")
            }
            // firewalld owns its table and replaces foreign rules.
            "inet firewalld" => "firewall-cmd --zone=trusted --add-source=198.19.0.0/16".to_owned(),
            _ => format!("nft 'insert rule {table} {name} {place} \"{DEVICE_PREFIX}*\" accept'"),
        }
    }
}

/// Returns the chains at `hooks` of a network that may drop packets: first those that drop what no
/// rule accepts.
pub(super) fn chains(network: &Network, hooks: &[&str]) -> Vec<Chain> {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        network.run(command, "").unwrap_or_default()
    };
    // Without counters and the elements of sets, which may be many.
    let mut found = from_nft(&run("nft", &["-s", "-t", "list", "ruleset"]), hooks);
    if found.is_empty() {
        found = from_iptables(&run("iptables-save", &["-t", "filter"]), hooks);
    }
    found.sort_by_key(|chain| !chain.is_closed);
    found
}

/// Parses the output of `nft list ruleset`.
fn from_nft(ruleset: &str, hooks: &[&str]) -> Vec<Chain> {
    let mut chains: Vec<(Chain, bool, Vec<&str>)> = Vec::new();
    let mut table = "";
    for line in ruleset.lines().map(str::trim) {
        let header = |word: &str| line.strip_prefix(word)?.strip_suffix(" {");
        if let Some(name) = header("table ") {
            table = name;
        } else if let Some(name) = header("chain ") {
            let chain = Chain { table: table.to_owned(), name: name.to_owned(), is_closed: false };
            chains.push((chain, false, Vec::new()));
        } else if let Some((chain, is_hooked, rules)) = chains.last_mut() {
            match line.strip_prefix("type filter hook ") {
                Some(hook) => {
                    *is_hooked = hooks.iter().any(|name| hook.starts_with(name));
                    chain.is_closed = line.contains("policy drop");
                }
                None => rules.push(line),
            }
        }
    }
    let refuses = |rule: &str| rule.split(' ').any(|word| matches!(word, "drop" | "reject"));
    let leads_to = |rule: &str, chain: &str| {
        let mut words = rule.split(' ').skip_while(|word| !matches!(*word, "jump" | "goto"));
        words.nth(1) == Some(chain)
    };
    // Only the chains that a hooked chain jumps to directly are searched, not those behind them.
    let drops = |(chain, _, rules): &(Chain, bool, Vec<&str>)| {
        chain.is_closed
            || rules.iter().any(|rule| {
                refuses(rule)
                    || chains.iter().any(|(other, _, rules)| {
                        other.table == chain.table
                            && leads_to(rule, &other.name)
                            && rules.iter().any(|rule| refuses(rule))
                    })
            })
    };
    let is_ours = |chain: &Chain| chain.table.starts_with("inet underload-");
    let suspects = chains.iter().filter(|it| it.1 && !is_ours(&it.0) && drops(it));
    suspects.map(|(chain, ..)| chain.clone()).collect()
}

/// Parses the output of `iptables-save`, for tables that `nft` does not show.
fn from_iptables(rules: &str, hooks: &[&str]) -> Vec<Chain> {
    let names = ["INPUT", "FORWARD"].into_iter();
    let wanted = names.filter(|name| hooks.contains(&name.to_lowercase().as_str()));
    let chain = |name: &str| {
        let is_closed = rules.contains(&format!(":{name} DROP"));
        let refuses = |line: &str| {
            line.starts_with(&format!("-A {name} "))
                && (line.contains("-j DROP") || line.contains("-j REJECT"))
        };
        let drops = is_closed || rules.lines().any(refuses);
        let table = "iptables".to_owned();
        drops.then(|| Chain { table, name: name.to_owned(), is_closed })
    };
    wanted.filter_map(chain).collect()
}

/// Returns a message if the firewall of the calling thread's network drops packets that no rule
/// accepts, and no rule names the port; `None`, too, without the right to list its rules.
pub fn closed_port(port: u16) -> Option<String> {
    let host = Network::current("host").ok()?;
    let closed = chains(&host, &["input"]).into_iter().find(|chain| chain.is_closed)?;
    let mut list = Command::new("nft");
    list.args(["-s", "list", "ruleset"]);
    let is_named = |text: String| text.split([' ', ',']).any(|word| word == port.to_string());
    if host.run(list, "").is_ok_and(is_named) {
        return None;
    }
    Some(format!(
        "the firewall of this machine ({closed}) has no rule with port {port}: clients elsewhere \
         may not reach it; open TCP and UDP port {port} (ufw: `ufw allow {port}`; firewalld: \
         `firewall-cmd --add-port={port}/tcp --add-port={port}/udp`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULESET: &str = r#"
table ip filter {
	chain DOCKER-USER {
		counter return
	}
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
		counter jump DOCKER-USER
	}
	chain INPUT {
		type filter hook input priority filter; policy accept;
		counter jump ts-input
	}
	chain ts-input {
		iifname != "tailscale0" ip saddr 100.64.0.0/10 counter drop
	}
}
table inet underload-0 {
	chain forward {
		type filter hook forward priority filter; policy accept;
		meta nfproto ipv4 iifname != "ul*" oifname "ul0" ct state new drop
	}
}
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		reject with icmpx admin-prohibited
	}
}
"#;

    #[test]
    fn chains_that_may_drop_are_named_with_the_command_that_lets_links_pass() {
        let named = |hook: &str| {
            let chains = from_nft(RULESET, &[hook]);
            let line = |it: &Chain| format!("{it}: {}", it.let_pass("iifname"));
            chains.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            named("forward"),
            [
                "policy drop of chain FORWARD of table ip filter: nft 'insert rule ip filter FORWARD \
              iifname \"ul*\" accept'"
            ]
        );
        let input = named("input");
        assert!(input[0].starts_with("chain INPUT of table ip filter: "), "{input:?}");
        assert!(
            input[1].ends_with("firewall-cmd --zone=trusted --add-source=198.19.0.0/16"),
            "{input:?}"
        );
        let legacy = from_iptables(":INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n", &["forward"]);
        assert_eq!(legacy[0].let_pass("oifname"), "iptables -I FORWARD -o ul+ -j ACCEPT");
    }
}
