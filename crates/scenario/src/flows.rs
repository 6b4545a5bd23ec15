//! The flows of an entry of a scenario, with the same names in every world.
//!
//! | entry | flows |
//! |---|---|
//! | `bulk`, one flow, one way | `bulk` |
//! | `bulk`, both directions | `bulk-up`, `bulk-down`; a video call likewise |
//! | `bulk`, two flows, both directions | `bulk-up-0`, `bulk-up-1`, `bulk-down-0`, `bulk-down-1` |
//! | `ping`, one class | `ping` |
//! | `ping`, a second class | `ping`, `ping-dscp-45-ect1` |
//! | `ping` with `closed_loop` | also `ping-request-response` |

use underload_record::schema::{Direction, FlowDirection, Marking};

/// Returns names and directions of `count` equal flows in each of the directions. A name has only
/// the parts that distinguish the flows.
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

/// Returns the open-loop probes of an entry, by class; the first is the headline, with its name.
pub fn probes(entry: &str, classes: &[Marking]) -> impl Iterator<Item = (String, Marking)> {
    let named = move |(index, class): (usize, &Marking)| match index {
        0 => (entry.to_owned(), *class),
        _ => (format!("{entry}-{}", class.label().replace(' ', "-")), *class),
    };
    classes.iter().enumerate().map(named)
}

pub fn request_response(entry: &str) -> String {
    format!("{entry}-request-response")
}

#[cfg(test)]
mod tests {
    use underload_aqm::packet::Ecn;

    use super::*;

    fn names(direction: FlowDirection, count: u32) -> Vec<String> {
        loads("bulk", direction, count).map(|(way, name)| format!("{way} {name}")).collect()
    }

    #[test]
    fn names_of_loads_have_only_distinguishing_parts() {
        assert_eq!(names(FlowDirection::Down, 1), ["down bulk"]);
        assert_eq!(names(FlowDirection::Up, 2), ["up bulk-0", "up bulk-1"]);
        assert_eq!(names(FlowDirection::Both, 1), ["up bulk-up", "down bulk-down"]);
        assert_eq!(names(FlowDirection::Both, 0), [""; 0]);
        let both = ["up bulk-up-0", "up bulk-up-1", "down bulk-down-0", "down bulk-down-1"];
        assert_eq!(names(FlowDirection::Both, 2), both);
    }

    #[test]
    fn probes_are_named_by_their_classes() {
        let classes = [(0, Ecn::NotEct), (45, Ecn::Ect1), (45, Ecn::NotEct)];
        let classes = classes.map(|(dscp, ecn)| Marking { dscp, ecn });
        let found: Vec<String> = probes("ping", &classes).map(|(name, _)| name).collect();
        assert_eq!(found, ["ping", "ping-dscp-45-ect1", "ping-dscp-45"]);
        assert_eq!(request_response("ping"), "ping-request-response");
    }
}
