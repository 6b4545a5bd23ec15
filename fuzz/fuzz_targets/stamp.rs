//! Checks that no datagram makes the STAMP parsers or the reflector panic, or gets an answer larger
//! than itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underload_probe::wire::{
    Arrival, BASE_LEN, ClassOfService, MarkingPolicy, NtpTimestamp, ReflectorPacket, reflect,
    tlv_type,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((_, tlvs)) = ReflectorPacket::decode(bytes) {
        let _ = tlvs.find(tlv_type::CLASS_OF_SERVICE).map(|tlv| ClassOfService::decode(tlv.value));
    }
    let arrival = Arrival { received: NtpTimestamp::UNKNOWN, traffic_class: 0xb5, ttl: 64 };
    let mut out = vec![0; bytes.len().max(BASE_LEN)];
    if let Ok(reply) = reflect(bytes, arrival, MarkingPolicy::PUBLIC, &mut out) {
        assert!(reply.len <= bytes.len());
    }
});
