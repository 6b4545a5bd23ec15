//! Real packets through a real gateway: reachability, delay, loss, marks, integrity, both IP
//! versions. Traffic stays in the namespaces of the test, and no test depends on speed.

#![expect(clippy::print_stderr, reason = "tests print why they were skipped")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_emu::gateway::{Gateway, GatewayConfig, LaneConfig, Offload};
use underload_emu::machine::privilege::can_create_namespaces;
use underload_emu::machine::{Clock, Lab, LabConfig, SERVER_V4, SERVER_V6};
use underload_record::link::packets;
use underload_record::schema::{Direction, Phase, SeriesKind};

fn lab(test: &str) -> Option<Lab> {
    if !can_create_namespaces() {
        eprintln!("SKIPPED {test}: this process may not create network namespaces (run as root)");
        return None;
    }
    Some(Lab::create(&LabConfig::default()).expect("a lab"))
}

fn config(link: &str, queue: &str, offload: Offload) -> GatewayConfig {
    let link = LinkSetup::parse(link).expect("a link");
    let queue = QueueSetup::parse(queue, &link.facts()).expect("a queue");
    let lane = LaneConfig { link, queue };
    GatewayConfig { offload, realtime: false, ..GatewayConfig::new(lane.clone(), lane) }
}

fn start(lab: &Lab, config: GatewayConfig) -> Gateway {
    Gateway::start(config, lab.devices(), Clock::start()).expect("a gateway")
}

/// Sends `bytes` from the client to the server by TCP, and returns what arrived.
fn transfer(lab: &Lab, server: IpAddr, bytes: &[u8]) -> Vec<u8> {
    let address = SocketAddr::new(server, 0);
    let listener = lab.server().enter(|| TcpListener::bind(address)).unwrap().expect("listening");
    let target = listener.local_addr().unwrap();
    let limit = Some(Duration::from_mins(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connected = lab.client().enter(|| TcpStream::connect(target)).unwrap();
            let mut stream = connected.expect("connecting");
            stream.set_write_timeout(limit).unwrap();
            stream.write_all(bytes).expect("sending");
        });
        let (mut stream, _) = listener.accept().expect("accepting");
        stream.set_read_timeout(limit).unwrap();
        let mut arrived = Vec::new();
        stream.read_to_end(&mut arrived).expect("receiving");
        arrived
    })
}

fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn tcp_arrives_intact_with_and_without_offload_over_both_ip_versions() {
    let test = "tcp_arrives_intact_with_and_without_offload_over_both_ip_versions";
    let Some(lab) = lab(test) else { return };
    let sent = pattern(4_000_000);
    for offload in [Offload::On, Offload::Off] {
        for server in [IpAddr::V4(SERVER_V4), IpAddr::V6(SERVER_V6)] {
            // Losses and a short queue split super-packets.
            let config = config("400mbit:delay=1ms,loss=0.2%", "fifo:limit=100p", offload);
            let gateway = start(&lab, config);
            let arrived = transfer(&lab, server, &sent);
            let report = gateway.stop().expect("a report");
            assert!(arrived == sent, "{offload:?} {server}: {} bytes", arrived.len());
            let up = report.lane(Direction::Up).expect("up");
            let losses: u64 = up.recording.whole.link.counts.dropped_packets();
            assert!(losses > 0, "the premise: something was lost");
            assert_eq!(up.io.super_packets_read > 0, offload == Offload::On, "{offload:?}");
            assert!(up.recording.whole.gateway.input_drops.is_empty());
        }
    }
}

#[test]
fn every_packet_has_one_fate() {
    let Some(lab) = lab("every_packet_has_one_fate") else { return };
    let config = config("50mbit:delay=2ms,overhead=14B", "fifo:limit=20p", Offload::On);
    let gateway = start(&lab, config);
    transfer(&lab, SERVER_V4.into(), &pattern(1_000_000));
    let report = gateway.stop().expect("a report");
    for (direction, lane) in &report.lanes {
        let whole = &lane.recording.whole;
        let counts = &whole.link.counts;
        let left = lane.left_in_queue;
        let fates = counts.sent.packets + counts.dropped_packets() + u64::from(left.packets);
        assert_eq!(counts.offered.packets, fates, "{direction}");
        let dropped_bytes: u64 = counts.drops().map(|(_, count)| count.bytes).sum();
        let fates_bytes = counts.sent.bytes + dropped_bytes + left.bytes;
        assert_eq!(counts.offered.bytes, fates_bytes, "{direction}");
        assert_eq!(lane.io.packets, counts.offered.packets);
        assert!(whole.gateway.lateness.count() <= counts.sent.packets);
    }
}

#[test]
fn each_direction_adds_at_least_its_delay() {
    let Some(lab) = lab("each_direction_adds_at_least_its_delay") else { return };
    let gateway = start(&lab, config("1gbit:delay=10ms", "fifo:limit=100p", Offload::Off));
    let echo = lab.server().enter(|| UdpSocket::bind((SERVER_V4, 0))).unwrap().unwrap();
    let target = echo.local_addr().unwrap();
    let probe = lab.client().enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    for socket in [&echo, &probe] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    let mut buffer = [0; 100];
    for _ in 0..20 {
        let sent = Instant::now();
        probe.send_to(&[1; 64], target).unwrap();
        let (length, from) = echo.recv_from(&mut buffer).expect("the request");
        echo.send_to(&buffer[..length], from).unwrap();
        probe.recv_from(&mut buffer).expect("the answer");
        assert!(sent.elapsed() >= Duration::from_millis(20), "{:?}", sent.elapsed());
    }
    let report = gateway.stop().expect("a report");
    assert_eq!(report.lateness().expect("packets").count, 40);
}

#[test]
fn phases_are_counted_apart_and_curves_cover_the_trial() {
    let Some(lab) = lab("phases_are_counted_apart_and_curves_cover_the_trial") else { return };
    let gateway = start(&lab, config("100mbit", "fifo:limit=100p", Offload::Auto));
    gateway.begin(Phase::Idle);
    std::thread::sleep(Duration::from_millis(100));
    gateway.begin(Phase::Load);
    transfer(&lab, SERVER_V4.into(), &pattern(500_000));
    std::thread::sleep(Duration::from_millis(30));
    let live = gateway.read(Direction::Up);
    let report = gateway.stop().expect("a report");
    let bottlenecks = report.bottlenecks();
    let sent = |phase: Phase| {
        let is_it = |b: &&underload_record::schema::BottleneckSummary| {
            b.direction == Direction::Up && b.window.phase == phase
        };
        bottlenecks.iter().find(is_it).expect("the phase").sent
    };
    assert_eq!(sent(Phase::Idle).packets, 0);
    assert!(sent(Phase::Load).bytes > 500_000);
    assert!(bottlenecks.iter().all(|b| b.window.phase != Phase::Whole), "{bottlenecks:?}");
    let whole = report.lane(Direction::Up).expect("the lane").recording.whole.link.counts.sent;
    assert_eq!(packets(whole), sent(Phase::Load));
    assert!(live.sent_bytes > 500_000 && live.sent_bytes <= whole.bytes);
    let series = report.series(0);
    let name = SeriesKind::Throughput.name(Direction::Up);
    let curve = series.iter().find(|curve| curve.name == name).expect("throughput");
    assert!(curve.points.len() >= 5, "{}", curve.points.len());
    assert!(curve.points.iter().any(|point| point.value > 1e6));
}

#[test]
fn a_gateway_can_follow_another_in_the_same_lab() {
    let Some(lab) = lab("a_gateway_can_follow_another_in_the_same_lab") else { return };
    for _ in 0..3 {
        let gateway = start(&lab, config("100mbit", "fifo:limit=100p", Offload::Auto));
        assert_eq!(transfer(&lab, SERVER_V6.into(), b"hello"), b"hello");
        assert!(gateway.is_running());
        drop(gateway);
    }
}

/// Segments of one super-packet leave with different markings, each with its own header, checksum
/// and length.
#[test]
fn remarked_tcp_arrives_intact_over_both_ip_versions() {
    let Some(_) = lab("remarked_tcp_arrives_intact_over_both_ip_versions") else { return };
    let lab = Lab::create(&LabConfig { ecn: true, ..LabConfig::default() }).expect("a lab");
    let sent = pattern(1_000_000);
    let link = "400mbit:delay=1ms,remark=ecn:ect0>ect1@0%..50%+dscp:0>45@30%..60%";
    for offload in [Offload::On, Offload::Off] {
        for server in [IpAddr::V4(SERVER_V4), IpAddr::V6(SERVER_V6)] {
            let gateway = start(&lab, config(link, "fifo:limit=1000p", offload));
            let arrived = transfer(&lab, server, &sent);
            let report = gateway.stop().expect("a report");
            assert!(arrived == sent, "{offload:?} {server}: {} bytes", arrived.len());
            let up = report.lane(Direction::Up).expect("up");
            let changed = up.recording.whole.link.counts.remarks();
            assert!(changed[0] > 50 && changed[1] > 50, "{offload:?} {server}: {changed:?}");
            assert_eq!(up.name.rules.len(), 2);
        }
    }
}

/// Unmarked packets count as marked here, so that TCP keeps the low latency queue long.
#[test]
fn flows_redirected_by_queue_protection_are_named_by_ports() {
    let Some(lab) = lab("flows_redirected_by_queue_protection_are_named_by_ports") else {
        return;
    };
    let queue = "docsis-lld:dscp=0,sanctioned-dscp=8,low-latency-histogram=1ms";
    let gateway = start(&lab, config("20mbit:delay=1ms", queue, Offload::Auto));
    gateway.begin(Phase::Load);
    let sent = pattern(500_000);
    let arrived = transfer(&lab, SERVER_V4.into(), &sent);
    assert!(arrived == sent, "{} bytes", arrived.len());
    let report = gateway.stop().expect("a report");
    let bottlenecks = report.bottlenecks();
    let mut up = bottlenecks.iter().filter(|link| link.direction == Direction::Up);
    let up = up.next().expect("the load phase");
    let [sanction] = &up.sanctions[..] else { panic!("{:?}", up.sanctions) };
    assert!(sanction.flow.starts_with("tcp ") && sanction.flow.contains(" to "), "{sanction:?}");
    let [histogram] = &up.latency_histograms[..] else { panic!("of one service flow") };
    let stayed: u64 = histogram.packets.iter().sum();
    assert!(stayed > 0 && stayed < up.sent.packets, "{histogram:?} of {:?}", up.sent);
}

#[test]
fn marks_reach_the_receiver_in_place_of_drops() {
    let Some(_) = lab("marks_reach_the_receiver_in_place_of_drops") else { return };
    let lab = Lab::create(&LabConfig { ecn: true, ..LabConfig::default() }).expect("a lab");
    for offload in [Offload::On, Offload::Off] {
        for server in [IpAddr::V4(SERVER_V4), IpAddr::V6(SERVER_V6)] {
            let queue = "codel:profile=linux,target=1ms,interval=10ms,ecn=on";
            let gateway = start(&lab, config("50mbit:delay=5ms", queue, offload));
            let sent = pattern(4_000_000);
            let arrived = transfer(&lab, server, &sent);
            let report = gateway.stop().expect("a report");
            assert!(arrived == sent, "{offload:?} {server}: {} bytes", arrived.len());
            let up = &report.lane(Direction::Up).expect("up").recording.whole.link;
            let marks = up.counts.marked_packets();
            assert!(marks > 0, "{offload:?} {server}: the premise: something was marked");
            // A sender without feedback about marks fills the queue until it overflows; a sender
            // with feedback keeps it near the target.
            let median = up.delays.sojourn.quantile(500);
            assert!(median < 50_000_000, "{offload:?} {server}: median sojourn {median} ns");
        }
    }
}
