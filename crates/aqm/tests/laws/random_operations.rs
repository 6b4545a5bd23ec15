//! Random sequences of operations on every subject, checked by the ledger.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use underload_aqm::time::Span;
use underload_laws::{Operation, STARTS, perform};

use crate::subject::subjects;

fn operation() -> impl Strategy<Value = Operation> {
    // Full packets, small ones, 64 kB super-packets, and the empty and huge ones of a hostile edge.
    let len = prop_oneof![
        8 => Just(1_500_u32),
        4 => 40..1_500_u32,
        1 => Just(65_535_u32),
        1 => prop_oneof![Just(0_u32), Just(1_u32), Just(40_000_000_u32)],
    ];
    let wait = prop_oneof![
        6 => (0..3_000_000_u64).prop_map(Span::from_nanos),
        3 => (0..60_u64).prop_map(Span::from_millis),
        1 => (0..20_u64).prop_map(Span::from_secs),
        // Waits beyond the wrap of 32 bits of microseconds (72 min) and of 1024 ns (73 min).
        1 => (4_290..4_400_u64).prop_map(Span::from_secs),
    ];
    prop_oneof![
        8 => (0..12_u32, len, 0..4_u8)
            .prop_map(|(flow, len, ecn)| Operation::Enqueue { flow, len, ecn }),
        4 => Just(Operation::Dequeue),
        4 => wait.prop_map(Operation::Wait),
    ]
}

#[test]
fn every_queue_conserves_packets_under_random_operations() {
    for subject in subjects() {
        let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let strategy =
            (prop::sample::select(STARTS.to_vec()), prop::collection::vec(operation(), 1..250));
        let outcome = runner.run(&strategy, |(start, operations)| {
            catch_unwind(AssertUnwindSafe(|| perform(&subject, start, &operations)))
                .map_err(|panic| TestCaseError::fail(message(panic.as_ref())))
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(why, (start, operations))) => {
                panic!("{}: {why}\nfrom {start:?}: {operations:#?}", subject.name());
            }
            Err(error) => panic!("{}: {error}", subject.name()),
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text").to_string()
}
