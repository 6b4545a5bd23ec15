//! Plans, undo and confirmation, on a device that follows the commands as the kernel does.

use std::collections::BTreeSet;

use proptest::prelude::*;
use underload_aqm::config::Spec;
use underload_aqm::rate::Rate;
use underload_record::schema::{Direction, PerDirection};
use underload_record::text::shell_word;
use underload_shape::judge::Present;
use underload_shape::permanent::Format;
use underload_shape::plan::{self, Remains, ifb_name};
use underload_shape::rate::{Bucket, Limit, error_number, requested};
use underload_shape::record::{Action, Phase, Record, is_abandoned, watch};
use underload_shape::request::{Framing, LINE_KINDS, Overhead, Request};
use underload_tc::printed::{Device, Filter, Qdisc};
use underload_tc::{Command, Program};

fn request(up: Option<u64>, down: Option<u64>, queue: &str, overhead: &str) -> Request {
    Request {
        device: "eth0".to_owned(),
        rates: PerDirection::new(up, down).map(|rate| rate.map(Rate::from_megabits_per_second)),
        queue: Spec::parse(queue).expect("a queue"),
        down_queue: None,
        overhead: Overhead::parse(overhead).expect("a kind of line"),
    }
}

fn device() -> Device {
    Device { name: "eth0".to_owned(), index: 2, link_type: "ether".to_owned(), tx_queues: 1 }
}

fn qdisc(kind: &str, handle: &str) -> Qdisc {
    Qdisc {
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        parent: None,
        options: serde_json::Map::new(),
        is_unknown: false,
    }
}

fn commands(request: &Request) -> String {
    let commands = plan::shape(request, &device(), false).expect("a plan");
    commands.iter().map(|command| format!("{command}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn a_changed_rate_changes_its_direction_and_replaces_nothing() {
    let change = |queue: &str, up: u64, down: u64| {
        let before = request(Some(18), Some(90), queue, "docsis");
        let after = request(Some(up), Some(down), queue, "docsis");
        plan::change(&before, &after, &device()).expect("a plan")
    };
    let mbit = Rate::from_megabits_per_second;
    assert_eq!(change("cake", 12, 90), [("eth0".to_owned(), Limit::Cake("cake", mbit(12)))]);
    assert_eq!(change("cake", 18, 90), []);
    let wanted = request(Some(18), Some(70), "fq-codel", "docsis");
    let bucket = Limit::Bucket(Bucket::new(&wanted, mbit(70), &device()));
    assert_eq!(change("fq-codel", 18, 70), [("ifb-u2".to_owned(), bucket)]);
    // The kernel gives a fifo below `tbf` the limit of `tbf`, in other units.
    for (queue, limit) in [
        ("fifo:limit=100p", Limit::Fifo("pfifo", 100)),
        ("fifo:limit=64KiB", Limit::Fifo("bfifo", 65_536)),
    ] {
        let changes = change(queue, 12, 70);
        let limits: Vec<Limit> = changes.iter().map(|(_, limit)| *limit).collect();
        let [Limit::Bucket(_), up, Limit::Bucket(_), down] = limits[..] else {
            panic!("{limits:?}")
        };
        assert_eq!([up, down], [limit; 2]);
    }
}

/// The bytes of `tc qdisc change` of iproute2 6.1, without its table of times (`TCA_TBF_RTAB`), its
/// sequence number and what of CAKE does not change.
#[test]
#[cfg(target_endian = "little")]
fn a_rate_is_changed_with_the_bytes_that_tc_sends() {
    const BUCKET: [u8; 36] = *b"\x00\x01\x04\x00\xff\xff\x40\x00\xb0\x83\x85\x00\
        \0\0\0\0\0\0\0\0\0\0\0\0\x26\x7c\x0d\x00\0\0\0\0\0\0\0\0";
    let mbit = Rate::from_megabits_per_second;
    let wanted = request(Some(70), None, "fq-codel", "docsis");
    let bucket = Bucket::new(&wanted, mbit(70), &device());
    let message = Limit::Bucket(bucket).message(3);
    let head =
        b"\x24\x00\x05\x00\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\x6c\x75\xff\xff\xff\xff\0\0\0\0";
    assert_eq!(message[..4], (message.len() as u32).to_ne_bytes());
    assert_eq!(message[4..36], *head);
    assert_eq!(message[36..44], *b"\x08\x00\x01\x00tbf\0");
    assert_eq!(message[44..52], *b"\x40\x00\x02\x00\x28\x00\x01\x00");
    assert_eq!(message[52..88], BUCKET);
    assert_eq!(message[88..100], *b"\x0c\x00\x04\x00\xb0\x83\x85\0\0\0\0\0");
    assert_eq!(message[100..], *b"\x08\x00\x06\x00\x2e\x22\x00\x00");
    let message = Limit::Fifo("pfifo", 100).message(3);
    assert_eq!(message[24..36], *b"\0\0\x6d\x75\x01\0\x6c\x75\0\0\0\0");
    assert_eq!(message[36..], *b"\x0a\x00\x01\x00pfifo\0\0\0\x08\x00\x02\x00\x64\0\0\0");
    let message = Limit::Cake("cake", mbit(12)).message(3);
    assert_eq!(message[4..36], *head);
    assert_eq!(message[36..48], *b"\x09\x00\x01\x00cake\0\0\0\0");
    assert_eq!(message[48..], *b"\x10\x00\x02\x00\x0c\x00\x02\x00\x60\xe3\x16\0\0\0\0\0");
}

#[test]
fn the_answer_of_the_kernel_and_the_rate_that_tc_prints_are_read() {
    let answer = |kind: u16, number: i32| {
        [&[36, 0, 0, 0], &kind.to_ne_bytes()[..], &[0; 10], &number.to_ne_bytes(), &[0; 16]]
            .concat()
    };
    assert_eq!(error_number(&answer(2, 0)), Some(0));
    assert_eq!(error_number(&answer(2, -2)), Some(2));
    assert_eq!(error_number(&answer(2, i32::MIN)), Some(i32::MAX));
    assert_eq!(error_number(&answer(3, 0)), None);
    assert_eq!(error_number(&answer(2, 0)[..19]), None);
    let printed = |kind: &str, key: &str, bytes: u64| {
        let mut queue = qdisc(kind, "756c:");
        queue.options.insert(key.to_owned(), bytes.into());
        queue
    };
    let [none, vdsl2] = ["none", "vdsl2"].map(|kind| Overhead::parse(kind).expect("a kind"));
    let mbit = |rate: Option<Rate>| rate.map(|rate| rate.bits_per_second().div_ceil(100_000));
    assert_eq!(mbit(requested(&printed("cake", "bandwidth", 2_500_000), vdsl2)), Some(200));
    assert_eq!(mbit(requested(&printed("tbf", "rate", 2_461_536), vdsl2)), Some(200));
    assert_eq!(mbit(requested(&printed("tbf", "rate", 2_461_536), none)), Some(197));
    assert_eq!(requested(&qdisc("fq_codel", "0:"), none), None);
}

#[test]
fn cake_with_several_parts_needs_a_device_with_several_queues() {
    let cake = request(Some(18), Some(90), "cake_mq:tins=diffserv4", "docsis");
    let refused = plan::shape(&cake, &device(), false).expect_err("one queue").to_string();
    assert!(refused.contains("eth0 has one transmit queue"), "{refused}");
    let several = Device { tx_queues: 4, ..device() };
    let commands = plan::shape(&cake, &several, false).expect("a plan");
    let text: Vec<String> = commands.iter().map(ToString::to_string).collect();
    assert_eq!(text[0], "ip link add name ifb-u2 numtxqueues 4 type ifb");
    for (place, line) in [("ifb-u2", &text[1]), ("eth0", &text[5])] {
        let start = format!("tc qdisc replace dev {place} root handle 756c: cake_mq bandwidth ");
        assert!(line.starts_with(&start) && line.contains(" diffserv4 "), "{line}");
    }
    let slower = request(Some(12), Some(90), "cake_mq:tins=diffserv4", "docsis");
    let changes = plan::change(&cake, &slower, &several).expect("a change");
    assert_eq!(changes[0].1, Limit::Cake("cake_mq", Rate::from_megabits_per_second(12)));
    let write =
        |queue: &str| Format::OpenWrt.write(&request(Some(18), Some(90), queue, "docsis"), None);
    let text = write("cake_mq").expect("a file");
    assert!(text.contains("sqm-scripts, 1.7.2 or newer"), "{text}");
    assert!(text.contains("\toption qdisc 'cake'\n") && text.contains("\toption use_mq '1'\n"));
    assert!(!write("cake").expect("a file").contains("use_mq"));
    assert!(write("cake_mq:tins=diffserv4").expect("a file").contains("use_mq"));
    // Another program's `cake_mq` is restored from its root alone: the kernel creates the parts
    // below it.
    let tree =
        [qdisc("cake_mq", "1:"), Qdisc { parent: Some("1:1".to_owned()), ..qdisc("cake", "0:") }];
    let present = Present { device: "eth0", tree: &tree, filters: &[], devices: &[] };
    assert!(present.check_root(true).is_ok() && present.check_root(false).is_err());
}

#[test]
fn cake_shapes_by_itself_and_others_below_a_token_bucket() {
    assert_eq!(
        commands(&request(Some(18), Some(90), "cake", "docsis")),
        "ip link add name ifb-u2 type ifb\n\
         tc qdisc replace dev ifb-u2 root handle 756c: cake bandwidth 90mbit diffserv3 \
         triple-isolate internet mpu 64 noatm ingress overhead 18\n\
         ip link set dev ifb-u2 up\n\
         tc qdisc add dev eth0 clsact\n\
         tc filter add dev eth0 ingress protocol all pref 49152 u32 match u32 0 0 action mirred \
         egress redirect dev ifb-u2\n\
         tc qdisc replace dev eth0 root handle 756c: cake bandwidth 18mbit diffserv3 \
         triple-isolate internet mpu 64 noatm overhead 18\n"
    );
    let text = commands(&request(Some(18), None, "fq-codel", "docsis"));
    // The line adds 18 bytes to the IP packet, and tbf already counts 14 of them.
    assert!(
        text.starts_with(
            "tc qdisc replace dev eth0 root handle 756c: tbf rate 18000000bit burst 3028b latency \
         100ms overhead 4 mpu 64\n\
         tc qdisc replace dev eth0 parent 756c:1 handle 756d: fq_codel limit "
        ),
        "{text}"
    );
    let text = commands(&request(Some(65), None, "codel", "vdsl2"));
    assert!(text.contains("tbf rate 64000000bit burst 8000b latency 100ms overhead 8\n"), "{text}");
    let text = commands(&request(Some(8), None, "codel", "adsl-pppoe"));
    assert!(text.contains(" overhead 26 linklayer atm\n"), "{text}");
}

#[test]
fn requests_that_cannot_be_met_say_what_is_accepted() {
    let port = Some(Rate::from_megabits_per_second(100));
    let mut zero = request(None, None, "cake", "none");
    zero.rates.up = Some(Rate::default());
    let odd = |device: &str| Request {
        device: device.to_owned(),
        ..request(Some(1), None, "cake", "none")
    };
    for (request, expected) in [
        (zero, "--up: a rate of 0bit lets nothing pass; expected at least 8kbit"),
        (request(None, Some(101), "cake", "none"), "--down: eth0 passes 100mbit at most"),
        (request(None, None, "cake", "none"), "expected --up RATE, --down RATE, or both"),
        (request(Some(1), None, "cake:rate=5mbit", "none"), "leave out `rate=`"),
        (request(Some(1), None, "cake:mpu=64B", "docsis"), "`mpu=` of --queue say the same"),
        (request(Some(1), None, "bode", "none"), "--queue"),
        (odd("--help"), "no name of a device"),
        (odd("a/b"), "no name of a device"),
        (odd(".."), "no name of a device"),
        (odd(""), "no name of a device"),
        (odd("a-very-long-name"), "at most 15 letters"),
        (odd("eth0 root"), "no name of a device"),
    ] {
        let error = request.check(port).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(request(Some(100), Some(100), "cake", "docsis").check(port).is_ok());
    let error = Overhead::parse("docsi").expect_err("no kind");
    assert!(error.contains("did you mean docsis?"), "{error}");
}

fn refusal(tree: &[Qdisc], devices: &[&str], may_replace: bool) -> Option<String> {
    let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let present = Present { device: "eth0", tree, filters: &[], devices: &devices };
    present.check_root(may_replace).err().map(|error| error.to_string())
}

#[test]
fn shapers_of_others_are_refused_by_name() {
    let cake = [qdisc("cake", "8001:")];
    let text = refusal(&cake, &["eth0", "ifb4eth0"], false).expect("refused");
    assert!(text.contains("`cake 8001:`") && text.contains("sqm-scripts"), "{text}");
    assert!(text.contains("--replace"), "{text}");
    assert_eq!(refusal(&cake, &["eth0"], true), None);
    let text = refusal(&[qdisc("htb", "1:")], &["eth0"], true).expect("refused in any case");
    assert!(text.contains("`htb 1:`") && text.contains("Remove them first"), "{text}");
    let text = refusal(&[qdisc("cake", "756c:")], &["eth0"], true).expect("ours");
    assert!(text.contains("underload shape off --dev eth0"), "{text}");
    for harmless in ["fq_codel", "pfifo_fast", "noqueue", "fq"] {
        assert_eq!(refusal(&[qdisc(harmless, "8001:")], &[], false), None, "{harmless}");
    }
    let filter = Filter { preference: 1, kind: "bpf".to_owned(), redirects_to: None };
    let present = Present { device: "eth0", tree: &[], filters: &[filter], devices: &[] };
    let text = present.check_ingress().expect_err("a filter").to_string();
    assert!(text.contains("`bpf` with pref 1") && text.contains("--up alone"), "{text}");
}

#[test]
fn without_confirmation_the_change_is_undone() {
    let applying = Phase::Applying { since_ms: 1_000 };
    let pending = Phase::Pending { deadline_ms: 31_000 };
    assert_eq!(watch(Some(applying), true, 2_000), Action::Wait);
    assert_eq!(watch(Some(applying), true, 61_000), Action::Undo, "tc hangs");
    assert_eq!(watch(Some(applying), false, 1_001), Action::Undo, "killed in the middle");
    assert_eq!(watch(Some(pending), false, 30_999), Action::Wait, "a closed terminal");
    assert_eq!(watch(Some(pending), true, 31_000), Action::Undo);
    assert_eq!(watch(Some(Phase::Confirmed), false, 99_000), Action::Leave);
    let temporary = Phase::Temporary { deadline_ms: 31_000 };
    assert_eq!(watch(Some(temporary), true, 30_999), Action::Wait);
    assert_eq!(watch(Some(temporary), true, 31_000), Action::Undo);
    assert_eq!(watch(Some(temporary), false, 5), Action::Undo, "its process was killed");
    assert!(!is_abandoned(temporary, 33_999) && is_abandoned(temporary, 34_000));
    assert_eq!(watch(None, true, 2_000), Action::Leave, "undone by another process");
    assert!(is_abandoned(applying, 1_001), "the caller has the applier's lock");
    assert!(!is_abandoned(pending, 31_001), "its watcher is about to undo it");
    assert!(is_abandoned(pending, 34_000));
    assert!(!is_abandoned(Phase::Confirmed, u64::MAX));
    assert!(!is_abandoned(Phase::Pending { deadline_ms: u64::MAX }, 5));
}

#[test]
fn a_record_is_read_back_and_a_damaged_one_is_not() {
    let mut record = Record::new("eth0", 2, 5);
    record.before = Some(vec![qdisc("fq_codel", "0:")]);
    let text = record.to_text().expect("text");
    assert_eq!(Record::parse(&text).expect("a record"), record);
    for cut in (0..text.len() - 1).step_by(7) {
        assert!(Record::parse(&text[..cut]).is_err(), "{cut}");
    }
    let newer = text.replacen("\"version\": 1", "\"version\": 2", 1);
    let error = Record::parse(&newer).expect_err("another version").to_string();
    assert!(error.contains("another version"), "{error}");
}

/// A device that follows commands as the kernel does, as far as plans go.
#[derive(Debug, Clone, PartialEq)]
struct Kernel {
    root: String,
    ingress: bool,
    filters: Vec<Filter>,
    devices: BTreeSet<String>,
    ready: BTreeSet<String>,
}

impl Kernel {
    fn new(root: &str, ingress: bool) -> Self {
        let devices = BTreeSet::from(["eth0".to_owned(), "lo".to_owned()]);
        let root = root.to_owned();
        Self { root, ingress, filters: Vec::new(), devices, ready: BTreeSet::new() }
    }

    fn run(&mut self, command: &Command) {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        match (command.program, words.as_slice()) {
            (Program::Ip, ["link", "add", "name", ifb, ..]) => {
                self.devices.extend([(*ifb).to_owned()]);
            }
            (Program::Ip, ["link", "set", "dev", ifb, "up"]) => {
                self.ready.extend([(*ifb).to_owned()]);
            }
            (Program::Ip, ["link", "del", "dev", ifb]) => {
                self.devices.remove(*ifb);
                self.ready.remove(*ifb);
            }
            (Program::Tc, ["qdisc", "replace", "dev", "eth0", "root", "handle", handle, ..]) => {
                (*handle).clone_into(&mut self.root);
            }
            (Program::Tc, ["qdisc", "del", "dev", "eth0", "root"]) => {
                "0:".clone_into(&mut self.root);
            }
            (Program::Tc, ["qdisc", "add", "dev", "eth0", "clsact"]) => self.ingress = true,
            (Program::Tc, ["qdisc", "del", "dev", "eth0", "clsact"]) => {
                self.ingress = false;
                self.filters.clear();
            }
            (Program::Tc, ["filter", "add", "dev", "eth0", "ingress", .., ifb]) => {
                self.filters.push(Filter {
                    preference: 49_152,
                    kind: "u32".to_owned(),
                    redirects_to: Some((*ifb).to_owned()),
                });
            }
            (Program::Tc, ["filter", "del", "dev", "eth0", "ingress", .., preference]) => {
                self.filters.retain(|filter| filter.preference.to_string() != *preference);
            }
            // Queues of the ifb device, and queues below a root queue.
            (Program::Tc, ["qdisc", "replace", "dev", ..]) => {}
            other => panic!("an unknown command: {other:?}"),
        }
        self.assert_that_packets_pass();
    }

    /// No packet is redirected to a device that is missing or down.
    fn assert_that_packets_pass(&self) {
        for filter in &self.filters {
            let target = filter.redirects_to.as_ref().expect("a redirection");
            assert!(self.devices.contains(target) && self.ready.contains(target), "{self:?}");
        }
    }

    fn remains(&self) -> Remains {
        let devices: Vec<String> = self.devices.iter().cloned().collect();
        let ingress = self.ingress.then_some("clsact");
        Remains::new(Some(&self.root), ingress, &self.filters, &ifb_name(2), &devices)
    }
}

proptest! {
    /// Commands stop anywhere; the undoing stops anywhere, too, and is repeated.
    #[test]
    fn undoing_an_interrupted_change_restores_the_device(
        up in proptest::option::of(1_u64..1000),
        down in proptest::option::of(1_u64..1000),
        queue in prop_oneof![Just("cake"), Just("fq-codel"), Just("fifo")],
        root in prop_oneof![Just("0:"), Just("8001:")],
        has_ingress: bool,
        stop in 0_usize..10,
        undone in 0_usize..6,
    ) {
        let request = request(up, down, queue, "docsis");
        let before = Kernel::new(root, has_ingress);
        let mut record = Record::new("eth0", 2, 0);
        record.before = up.map(|_| vec![qdisc("fq_codel", root)]);
        record.adds_ingress = down.is_some() && !has_ingress;
        let mut kernel = before.clone();
        let commands = plan::shape(&request, &device(), has_ingress).expect("a plan");
        for command in commands.iter().take(stop) {
            kernel.run(command);
        }
        for limit in [undone, usize::MAX] {
            let remains = kernel.remains();
            let undo = plan::undo("eth0", &ifb_name(2), Some(&record), &remains).expect("undo");
            for command in undo.iter().take(limit) {
                kernel.run(command);
            }
        }
        // An ingress queue without filters passes every packet, so it may remain.
        let idle = Kernel { ingress: before.ingress, ..kernel.clone() };
        prop_assert_eq!(&idle, &before);
        prop_assert!(!kernel.remains().is_any());
    }
}

#[test]
fn permanent_files_name_their_path() {
    let both = request(Some(18), Some(90), "cake", "docsis");
    let write = |format: Format, request: &Request| format.write(request, Some(&device()));
    let text = write(Format::Systemd, &both).expect("a service");
    assert!(text.starts_with("# /etc/systemd/system/shape-eth0.service\n"), "{text}");
    assert!(text.contains("\nExecStart=/usr/bin/env tc qdisc replace dev eth0 root "), "{text}");
    assert!(text.contains("\nExecStopPost=-/usr/bin/env tc qdisc del dev eth0 root\n"), "{text}");
    let text = write(Format::OpenWrt, &both).expect("a section");
    assert!(text.contains("\toption download '90000'\n\toption upload '18000'\n"), "{text}");
    let codel = request(Some(1), None, "codel", "none");
    let error = write(Format::OpenWrt, &codel).expect_err("no queue of sqm-scripts").to_string();
    assert!(error.contains("only cake, cake_mq and fq"), "{error}");
}

/// How sqm-scripts applies a section: `layer_cake.qos` gives CAKE `bandwidth`, its defaults and
/// the options; other queues get `stab`, which adds its overhead to the 14 bytes that the kernel
/// counts of an Ethernet device.
#[test]
fn openwrt_gets_the_queue_that_was_tried() {
    let option = |text: &str, name: &str| -> String {
        let start = format!("\toption {name} '");
        let line = text.lines().find_map(|line| line.strip_prefix(&start)).expect(name);
        line.trim_end_matches('\'').to_owned()
    };
    let write = |request: &Request| Format::OpenWrt.write(request, None).expect("a section");
    let cake = request(Some(18), Some(90), "CAKE:tins=diffserv4,ack-filter=on", "vdsl2-pppoe");
    let text = write(&cake);
    for (direction, name) in [(Direction::Up, "eqdisc_opts"), (Direction::Down, "iqdisc_opts")] {
        let rate = cake.rates[direction].expect("a rate");
        let tried = cake.queue_words(direction, rate).expect("Linux has it").join(" ");
        let written = format!("cake bandwidth {rate} {}", option(&text, name));
        assert_eq!(written, tried);
        assert_eq!(written.contains("ingress"), direction == Direction::Down);
        assert!(written.contains("diffserv4") && written.contains(" ack-filter"), "{written}");
        assert!(written.contains("overhead 30") && written.contains(" ptm "), "{written}");
    }
    for (name, value) in [
        ("script", "layer_cake.qos"),
        ("squash_dscp", "0"),
        ("squash_ingress", "0"),
        ("linklayer", "none"),
    ] {
        assert_eq!(option(&text, name), value, "{name}");
    }
    assert!(text.contains("apk add sqm-scripts"), "{text}");
    for kind in LINE_KINDS.iter().filter(|kind| kind.overhead.is_some()) {
        let text = write(&request(Some(65), None, "fq_codel:target=10ms", kind.name));
        let of_stab: i64 = option(&text, "overhead").parse().expect("a number");
        assert_eq!(of_stab + 14, i64::from(kind.overhead.bytes), "{}", kind.name);
        let layer = if kind.overhead.framing == Framing::Atm { "atm" } else { "ethernet" };
        assert_eq!(option(&text, "linklayer"), layer, "{}", kind.name);
        let upload = if kind.overhead.framing == Framing::Ptm { "64000" } else { "65000" };
        assert_eq!(option(&text, "upload"), upload, "{}", kind.name);
        assert!(option(&text, "eqdisc_opts").contains("target 10ms"), "{text}");
    }
    // The kernel counts no header of a device of PPP.
    let ppp =
        Request { device: "pppoe-wan".to_owned(), ..request(Some(1), None, "fq_codel", "docsis") };
    assert_eq!(option(&write(&ppp), "overhead"), "18");
}

#[test]
fn cake_has_the_kernels_own_options_and_a_queue_for_each_direction() {
    let both = Request {
        down_queue: Some(Spec::parse("fq_codel").expect("a queue")),
        ..request(Some(18), Some(90), "cake:nat=on,wash=on,ack-filter=aggressive", "none")
    };
    let text = commands(&both);
    assert!(
        text.contains("bandwidth 18mbit diffserv3 triple-isolate internet mpu 0 noatm nat wash "),
        "{text}"
    );
    assert!(text.contains(" ack-filter-aggressive\n"), "{text}");
    assert!(text.contains("dev ifb-u2 parent 756c:1 handle 756d: fq_codel "), "{text}");
    assert!(both.apply_command().ends_with(" --down-queue fq_codel"), "{}", both.apply_command());
    assert!(Format::OpenWrt.write(&both, None).is_err(), "one script for both directions");
    let wrong = request(Some(1), None, "cake:ack-filter=fast", "none");
    let error = wrong.check(None).expect_err("refused");
    let source = std::error::Error::source(&error).expect("of the parameter").to_string();
    assert!(source.contains("off or on or aggressive"), "{source}");
}

/// Scripts and configuration files would interpret such a name, and the kernel allows it.
#[test]
fn names_that_a_shell_interprets_are_quoted_or_refused() {
    for name in ["a;id", "$(id)", "`id`", "d'x", "a%i", "a\\"] {
        let device = Device { name: name.to_owned(), ..device() };
        let request =
            Request { device: name.to_owned(), ..request(Some(18), None, "cake", "none") };
        for (_, format) in Format::ALL {
            let error = format.write(&request, Some(&device)).expect_err(name).to_string();
            assert!(error.contains("rename the device"), "{error}");
        }
        let quoted = shell_word(name);
        let commands = plan::shape(&request, &device, false).expect("commands");
        assert!(commands[0].to_string().contains(&format!(" dev {quoted} root")), "{commands:?}");
        assert!(request.apply_command().contains(&format!(" --dev {quoted} ")));
    }
}

#[test]
fn a_request_prints_the_command_that_repeats_it() {
    let request = request(None, Some(18), "cake:tins=diffserv4", "docsis");
    assert_eq!(
        request.apply_command(),
        "sudo underload shape apply --dev eth0 --down 18mbit --queue cake:tins=diffserv4 \
         --overhead docsis"
    );
    assert_eq!(request.to_string(), "eth0: shaped by cake:tins=diffserv4, down 18mbit");
    let odd = Overhead { bytes: 44, ..Overhead::NONE };
    assert_eq!(Overhead::parse(&odd.name()), Ok(odd));
}
