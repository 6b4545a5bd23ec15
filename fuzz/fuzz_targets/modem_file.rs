//! Checks any bytes as the configuration file of `docsis-lld:config=FILE`: the result is an error,
//! or a queue that can be built and used and whose SPEC describes it without the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_aqm::config::Spec;
use underload_aqm::packet::{Dscp, Meta, Packet};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_scenario::modem_file;

fuzz_target!(|bytes: &[u8]| {
    let mut load = |_: &str| Ok(bytes.to_vec());
    let spec = |text| Spec::parse(text).expect("a SPEC");
    let spec_of_link = spec("docsis:config=modem.bin,map=2ms");
    let Ok(link) = modem_file::link(&spec_of_link, &mut load) else { return };
    let spec_of_queue = spec("docsis-lld:config=modem.bin");
    let Ok(queue) = modem_file::queue(&spec_of_queue, &link.facts(), &mut load) else { return };
    let label = link.label.to_string();
    let again = LinkSetup::parse(&label).expect("a label is a SPEC");
    assert_eq!(again.label, link.label);
    let label = queue.label.to_string();
    let again = QueueSetup::parse(&label, &link.facts()).expect("a label is a SPEC");
    assert_eq!(again.label, queue.label);

    let rng = Rng::new(1);
    let mut link = link.build(queue.build(&rng), &rng);
    for number in 0..20_u64 {
        let mut meta = Meta::new(1_000, number as u32 % 3);
        meta.dscp = if number % 2 == 0 { Dscp::NON_QUEUE_BUILDING } else { Dscp::DEFAULT };
        let now = Time::from_micros(number * 700);
        link.send(now, Packet { meta, payload: () }, &mut ());
        while link.poll(now, &mut ()).is_some() {}
    }
});
