//! The reflector for STAMP and TWAMP-light senders over loopback: whom it answers, with how many
//! bytes.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use underload_compat::stamp::{StampConfig, StampServer};
use underload_probe::wire::{BASE_LEN, NtpTimestamp, ReflectorPacket};

fn reflector(config: StampConfig) -> StampServer {
    StampServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), config).unwrap()
}

fn listing(source: &str) -> StampConfig {
    StampConfig { sources: vec![source.parse().unwrap()], ..StampConfig::default() }
}

/// Waits for a condition; the machine may be busy.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn sender() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

/// Sends a datagram and returns the answer.
fn asked(socket: &UdpSocket, reflector: &StampServer, datagram: &[u8]) -> Vec<u8> {
    socket.send_to(datagram, reflector.address()).unwrap();
    let mut answer = [0; 2048];
    let (len, from) = socket.recv_from(&mut answer).expect("an answer within 30 s");
    assert_eq!(from, reflector.address());
    answer[..len].to_vec()
}

/// Forges one packet from one reflector to another and carries their answers over a path with a
/// delay. Returns how many packets crossed the path, with the forged one.
fn packets_between(make: impl Fn() -> StampConfig, forged: &[u8]) -> u64 {
    let ends = [reflector(make()), reflector(make())];
    // A packet from an end to relay n arrives at the other end from relay 1 - n. Each end sees the
    // other at a relay, with the relay's port.
    let relays = [sender(), sender()];
    let addresses = ends.each_ref().map(StampServer::address);
    for relay in &relays {
        relay.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    }
    relays[0].send_to(forged, addresses[1]).unwrap();
    let mut carried = 1;
    let judged = |end: &StampServer| {
        let counts = end.counts();
        counts.answered + counts.reflectors + counts.strangers + counts.limited + counts.refused
    };
    let mut quiet_since = Instant::now();
    let mut datagram = [0; 2048];
    let until = Instant::now() + Duration::from_mins(1);
    // All packets on the path have been processed, and no more follow for a while.
    while judged(&ends[0]) + judged(&ends[1]) < carried
        || quiet_since.elapsed() < Duration::from_millis(300)
    {
        assert!(Instant::now() < until, "carried {carried}");
        for (index, relay) in relays.iter().enumerate() {
            while let Ok((len, _)) = relay.recv_from(&mut datagram) {
                // A packet to relay 0 is for end 0, and is sent from relay 1.
                relays[1 - index].send_to(&datagram[..len], addresses[index]).unwrap();
                carried += 1;
                quiet_since = Instant::now();
                if carried > 20 {
                    return carried;
                }
            }
        }
    }
    carried
}

#[test]
fn two_reflectors_answer_one_forged_packet_at_most_once() {
    let mut long = vec![0; 1400];
    long[..4].copy_from_slice(&7u32.to_be_bytes());
    for forged in [&long[..], &long[..BASE_LEN], &long[..14]] {
        for make in [StampConfig::default, || listing("127.0.0.0/8")] {
            let carried = packets_between(make, forged);
            assert!(carried <= 2, "{carried} packets after one of {} bytes", forged.len());
        }
    }
}

#[test]
fn the_reflectors_own_port_and_those_of_services_are_not_answered() {
    let reflector = reflector(StampConfig::default());
    let address: SocketAddr = ([127, 0, 0, 9], reflector.address().port()).into();
    let other = UdpSocket::bind(address).unwrap();
    other.send_to(&[0; BASE_LEN], reflector.address()).unwrap();
    wait_for("it is counted", || reflector.counts().reflectors == 1);
    assert_eq!(reflector.counts().answered, 0);
}

/// The default packet of `twampy sender`: sequence, time, error estimate, no padding.
#[test]
fn a_sender_on_the_list_gets_a_whole_answer_to_14_bytes() {
    let listed = reflector(listing("127.0.0.0/8"));
    let mut datagram = [0; 14];
    datagram[..4].copy_from_slice(&5u32.to_be_bytes());
    datagram[4..12].copy_from_slice(&NtpTimestamp::from_unix_nanos(1 << 60).to_bytes());
    datagram[12..].copy_from_slice(&[0x3f, 0xff]);
    let answer = asked(&sender(), &listed, &datagram);
    assert_eq!(answer.len(), BASE_LEN, "twampy reads 41");
    let (packet, _) = ReflectorPacket::decode(&answer).unwrap();
    assert_eq!((packet.sequence, packet.sender.sequence), (5, 5));
    assert_eq!(packet.sender.timestamp, NtpTimestamp::from_unix_nanos(1 << 60));
    assert!(packet.received.0 > 0 && packet.timestamp >= packet.received && packet.sender_ttl > 0);

    let open = reflector(StampConfig::default());
    let socket = sender();
    socket.send_to(&datagram, open.address()).unwrap();
    wait_for("it is counted", || open.counts().strangers == 1);
    // A sender that is not on the list gets as many bytes as it sent.
    assert_eq!(asked(&socket, &open, &[0; BASE_LEN]).len(), BASE_LEN);
    let elsewhere = reflector(listing("192.0.2.0/24"));
    socket.send_to(&[0; BASE_LEN], elsewhere.address()).unwrap();
    wait_for("it is counted", || elsewhere.counts().strangers == 1);
}
