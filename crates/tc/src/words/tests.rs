//! Arguments in the units of iproute2, and refusals.

use super::*;
use underload_aqm::rate::Rate;

fn link() -> LinkFacts {
    LinkFacts::of_rate(Rate::from_megabits_per_second(20))
}

fn written(text: &str) -> Result<String, String> {
    let spec = Spec::parse(text).expect(text);
    let words = arguments(&spec, &link(), None).map_err(|error| error.to_string())?;
    Ok(words.join(" "))
}

/// Defaults in the units of iproute2's `tc`: they equal those of the kernel.
#[test]
fn each_queue_of_linux_has_its_arguments() {
    for (spec, expected) in [
        ("fifo", "pfifo limit 1000"),
        ("fifo:limit=256KiB", "bfifo limit 262144"),
        ("buffer-control:250ms", "bfifo limit 624640"),
        ("head-drop:limit=50p", "pfifo_head_drop limit 50"),
        ("codel", "codel limit 1000 target 5ms interval 100ms noecn"),
        (
            "codel:target=1500us,ecn=on,ce-threshold=1ms",
            "codel limit 1000 target 1500us interval 100ms ce_threshold 1ms ecn",
        ),
        (
            "fq-codel",
            "fq_codel limit 10240 flows 1024 target 5ms interval 100ms quantum 1514 \
             memory_limit 33554432 drop_batch 64 ecn",
        ),
        ("pie", "pie limit 1000 target 15ms tupdate 15ms alpha 2 beta 20 noecn"),
        (
            "fq-pie",
            "fq_pie limit 10240 flows 1024 target 15ms tupdate 15ms alpha 2 beta 20 quantum 1514 \
             memory_limit 33554432 ecn_prob 10 noecn",
        ),
        ("cake", "cake diffserv3 triple-isolate internet mpu 0 noatm unlimited"),
        (
            "cake:rate=19500kbit,tins=besteffort,isolation=dual-srchost,rtt=40ms,overhead=18B,\
             mpu=64B,framing=ptm,memory=4MiB,ingress=on",
            "cake bandwidth 19500kbit besteffort dual-srchost rtt 40ms mpu 64 ptm \
             memlimit 4194304 ingress overhead 18",
        ),
        (
            "cake:path=interplanetary",
            "cake diffserv3 triple-isolate rtt 3600s mpu 0 noatm unlimited",
        ),
        (
            "red:limit=400000B,min=30000B,max=90000B,max-p=2%,weight=3.125%,gentle=off",
            "red limit 400000 min 30000 max 90000 avpkt 1000 probability 0.02 burst 50 \
             bandwidth 20mbit",
        ),
        (
            "sfb",
            "sfb limit 1000 max 25 target 20 increment 0.0005 decrement 0.00005 penalty_rate 10 \
             penalty_burst 20 rehash 600000 db 60000",
        ),
        (
            "dualpi2:profile=linux",
            "dualpi2 target 15ms tupdate 16ms alpha 0.16015625 beta 3.19921875 coupling_factor 2 \
             step_thresh 1ms min_qlen_step 0 classic_protection 10% drop_dequeue \
             drop_on_overload l4s_ect",
        ),
        (
            "dualpi2:profile=linux,limit=500p,step-packets=30p,max-rtt=90ms,drop=enqueue,\
             overload=overflow,ecn=any",
            "dualpi2 limit 500 max_rtt 90ms coupling_factor 2 step_thresh 30p min_qlen_step 0 \
             classic_protection 10% drop_enqueue overflow any_ect",
        ),
    ] {
        assert_eq!(written(spec).as_deref(), Ok(expected), "{spec}");
    }
}

#[test]
fn queues_that_linux_lacks_are_refused_by_name() {
    for (spec, expected) in [
        (
            "bode:bound=20ms",
            "there is no Linux queue `bode`; known: fifo, buffer-control, head-drop, ",
        ),
        ("docsis-pie", "there is no Linux queue `docsis-pie`"),
        ("x", "there is no Linux queue `x`; known: fifo, buffer-control, head-drop, "),
        ("codel:profile=rfc", "`codel`: `profile=rfc`: expected linux, the only one that Linux"),
        ("dualpi2", "`dualpi2`: `profile=rfc`: expected linux, the only one that Linux has"),
        ("codel:limit=64KiB", "`codel`: `limit=64KiB`: expected packets, such as 1000p"),
        (
            "buffer-control:250ms,packets=9p",
            "`buffer-control`: `packets=9p`: expected no limit, which Linux does not let change",
        ),
        ("codel:mtu=3000B", "`codel`: `mtu=3000B`: expected 1514B, which Linux does not let"),
        ("codel:target=1500ns", "`codel`: `target=1500ns`: expected whole microseconds"),
        ("fq-pie:alpha=0.1", "`fq-pie`: `alpha=0.1`: expected whole sixteenths up to 2"),
        ("fq-pie:ecn-prob=0.5%", "`fq-pie`: `ecn-prob=0.005`: expected whole percents, such"),
        ("fq-codel:memory=4096MiB", "`fq-codel`: `memory=4096MiB`: expected at most 4294967295"),
        ("red", "`red`: `limit=1000p`: expected bytes, such as 64KiB"),
        ("red:limit=1MiB,gentle=off", "`red` needs `min=`: bytes, such as 30000B: Linux has no"),
        (
            "red:limit=1MiB,gentle=off,min=30kB,max=90kB",
            "`red` needs `weight=`: a power of two such as 3.125%",
        ),
        (
            "red:limit=1MiB,gentle=off,min=30kB,max=90kB,weight=3%",
            "`red`: `weight=0.03`: expected a power of two such as 3.125%",
        ),
        (
            "red:limit=1MiB,min=30kB,max=90kB",
            "`red`: `gentle=on`: expected off, which Linux does not let change",
        ),
        ("sfb:rehash=1500us", "`sfb`: `rehash=1500us`: expected whole milliseconds"),
        ("codel:no=1", "`codel` has no parameter `no`"),
    ] {
        let error = written(spec).expect_err(spec);
        assert!(error.starts_with(expected), "{spec}: {error}");
    }
}

/// A parameter that is added to a queue needs a row here.
#[test]
fn every_parameter_has_a_row() {
    for queue in QUEUES {
        let entry = QueueEntry::find(queue.name).expect(queue.name);
        let keys: Vec<&str> = entry.definition.all_params().map(|param| param.key).collect();
        for key in &keys {
            assert!(queue.rows.iter().any(|row| row.key == *key), "{}: {key}", queue.name);
        }
        for row in queue.rows {
            assert!(keys.contains(&row.key), "{}: {}", queue.name, row.key);
            for other in row.unless {
                assert!(keys.contains(other), "{}: {other}", queue.name);
            }
        }
    }
}

/// Values at the ends of every range are written or refused, and never panic.
#[test]
fn every_value_is_written_or_refused() {
    for queue in QUEUES {
        let entry = QueueEntry::find(queue.name).expect(queue.name);
        for param in entry.definition.all_params() {
            let bounds = param.range.into_iter().flat_map(|(low, high)| [low, high]);
            for value in bounds.chain(["on", "off", "100%", "0%", "7p", "9B", "3ns", "1"]) {
                let mut spec = Spec::new(queue.name).with(param.key, value);
                if let Some(profile) = queue.profile {
                    spec = spec.with("profile", profile);
                }
                let _ = arguments(&spec, &link(), Some(14));
            }
        }
    }
}

#[test]
fn cake_charges_what_the_link_adds() {
    let words = |text: &str, overhead| {
        let spec = Spec::parse(text).expect(text);
        arguments(&spec, &link(), overhead).expect(text).join(" ")
    };
    assert!(words("cake:rate=20mbit", Some(14)).ends_with("noatm overhead 14"));
    assert!(words("cake:rate=20mbit,overhead=4B", Some(14)).ends_with("overhead 18"));
    assert!(words("cake", Some(0)).ends_with("unlimited overhead 0"));
    assert!(!words("cake", None).contains("overhead"));
}
