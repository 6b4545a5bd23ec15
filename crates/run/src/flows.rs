//! The flows that an entry of a scenario stands for, named alike in every world.
//!
//! | entry | flows |
//! |---|---|
//! | `bulk`, one flow, one way | `bulk` |
//! | `bulk`, both ways | `bulk-up`, `bulk-down`; so is a video call |
//! | `bulk`, two flows, both ways | `bulk-up-0`, `bulk-up-1`, `bulk-down-0`, `bulk-down-1` |
//! | `ping`, one class | `ping` |
//! | `ping`, a second class | `ping`, `ping-dscp-45-ect1` |
//! | `ping` with `closed_loop` | `ping-request-response` besides |

use underload_record::schema::{Direction, FlowDirection};

use crate::scenario::{Class, ProbeFlow};

/// Names and directions of `count` equal flows each way that `direction` says: no more of a name
/// than tells them apart.
pub fn loads(
    entry: &str,
    direction: FlowDirection,
    count: u32,
) -> impl Iterator<Item = (Direction, String)> {
    let of = move |way: &Direction| {
        let name = match direction {
            FlowDirection::Both => format!("{entry}-{way}"),
            FlowDirection::Up | FlowDirection::Down => entry.to_owned(),
        };
        let way = *way;
        (0..count).map(move |number| match count {
            1 => (way, name.clone()),
            _ => (way, format!("{name}-{number}")),
        })
    };
    direction.ways().iter().flat_map(of)
}

/// The open-loop probes of an entry, one for each class; the first is the headline and keeps the
/// entry's name.
pub fn probes(entry: &str, probe: &ProbeFlow) -> impl Iterator<Item = (String, Class)> {
    let first = probe.classes.first().map(|class| (entry.to_owned(), *class));
    let others = probe.classes.iter().skip(1).map(|class| (of_class(entry, *class), *class));
    first.into_iter().chain(others)
}

/// The probe of a class that is not the entry's first.
fn of_class(entry: &str, class: Class) -> String {
    format!("{entry}-{}", class.label().replace(' ', "-"))
}

/// The second view of an entry by request and response, where it asks for one: in its first class.
pub fn request_response(entry: &str, probe: &ProbeFlow) -> Option<(String, Class)> {
    let class = probe.classes.first().filter(|_| probe.closed_loop)?;
    Some((format!("{entry}-request-response"), *class))
}

#[cfg(test)]
mod tests {
    use underload_aqm::packet::Ecn;
    use underload_aqm::time::Span;

    use super::*;

    fn names(direction: FlowDirection, count: u32) -> Vec<String> {
        loads("bulk", direction, count).map(|(way, name)| format!("{way} {name}")).collect()
    }

    #[test]
    fn loads_are_named_by_no_more_than_tells_them_apart() {
        assert_eq!(names(FlowDirection::Down, 1), ["down bulk"]);
        assert_eq!(names(FlowDirection::Up, 2), ["up bulk-0", "up bulk-1"]);
        assert_eq!(names(FlowDirection::Both, 1), ["up bulk-up", "down bulk-down"]);
        assert_eq!(names(FlowDirection::Both, 0), [""; 0]);
        let both = ["up bulk-up-0", "up bulk-up-1", "down bulk-down-0", "down bulk-down-1"];
        assert_eq!(names(FlowDirection::Both, 2), both);
    }

    #[test]
    fn probes_are_named_by_their_classes() {
        let class = |dscp, ecn| Class::new(dscp, ecn).expect("a class");
        let classes = vec![class(0, Ecn::NotEct), class(45, Ecn::Ect1), class(45, Ecn::NotEct)];
        let (interval, timeout) = (Span::from_millis(10), Span::from_secs(1));
        let mut probe = ProbeFlow { interval, classes, timeout, closed_loop: false };
        let found: Vec<String> = probes("ping", &probe).map(|(name, _)| name).collect();
        assert_eq!(found, ["ping", "ping-dscp-45-ect1", "ping-dscp-45"]);
        assert_eq!(request_response("ping", &probe), None);
        probe.closed_loop = true;
        let second = request_response("ping", &probe).expect("asked for");
        assert_eq!(second, ("ping-request-response".to_owned(), probe.classes[0]));
    }
}
