//! Checks that no bytes make the parsers of an iperf3 control connection or of its datagrams panic,
//! and that accepted parameters are within the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_compat::iperf3::{
    Datagram, Iperf3Limits, Parameters, Reception, check_results,
};

fuzz_target!(|bytes: &[u8]| {
    let limits = Iperf3Limits::default();
    if let Ok(parameters) = Parameters::decode(bytes, &limits) {
        assert!((1..=limits.streams_max).contains(&parameters.streams));
        assert!(parameters.duration + parameters.omit <= limits.duration_max);
        assert!((1..=1 << 20).contains(&parameters.len));
        assert_eq!(parameters.traffic_class & 3, 0);
    }
    let _ = check_results(bytes);
    let mut reception = Reception::default();
    for (place, datagram) in bytes.chunks(17).enumerate() {
        if let Some(header) = Datagram::decode(datagram, place % 2 == 0) {
            reception.note(header, datagram.len(), place as u64);
        }
    }
    assert!(reception.bytes <= bytes.len() as u64 && reception.jitter_s.is_finite());
});
