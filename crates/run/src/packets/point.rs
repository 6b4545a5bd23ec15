//! Points at which packets are recorded: `client`, `up.departure`, `down.2.drop`.

use std::fmt;
use std::str::FromStr;

use underload_aqm::qdisc::DropReason;
use underload_record::schema::Direction;
use underload_sim::net::{Event, HopConfig, Sighting};
use underload_sim::trial::SimConfig;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// The client's interface, in both directions.
    Client,
    /// The server's interface, in both directions.
    Server,
    /// An event at a link of one direction.
    Link {
        direction: Direction,
        /// Name of the link, or its number from 1; empty for a direction with one link.
        hop: String,
        at: At,
    },
}

underload_aqm::named! {
    /// The events of packets at a link.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum At {
        Arrival = "arrival",
        /// CE mark by the queue.
        Mark = "mark",
        Drop = "drop",
        /// Start of the transmission.
        Departure = "departure",
        /// Arrival at the far end of the link.
        Delivery = "delivery",
    }
}

impl At {
    const fn matches(self, event: Event) -> bool {
        matches!(
            (self, event),
            (Self::Arrival, Event::Arrival)
                | (Self::Mark, Event::Mark(_))
                | (Self::Drop, Event::Drop(_))
                | (Self::Departure, Event::Departure { .. })
                | (Self::Delivery, Event::Delivery)
        )
    }
}

/// Names of each direction's links in tables, in order; empty for a direction with one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopNames([Vec<String>; 2]);

impl HopNames {
    pub fn new(config: &SimConfig) -> Self {
        let names = |hops: &[HopConfig]| hops.iter().map(|hop| hop.name.clone()).collect();
        Self::named([names(&config.up), names(&config.down)])
    }

    fn named(names: [Vec<String>; 2]) -> Self {
        Self(names.map(|mut names| {
            if names.len() > 1 {
                for (index, name) in names.iter_mut().enumerate().filter(|(_, n)| n.is_empty()) {
                    *name = (index + 1).to_string();
                }
            }
            names
        }))
    }

    /// Returns the name of a link; empty at an endpoint.
    pub fn name(&self, direction: Direction, hop: Option<usize>) -> &str {
        hop.and_then(|hop| self.0[direction as usize].get(hop)).map_or("", String::as_str)
    }

    /// Rejects a point at a link that does not exist.
    pub fn check(&self, point: &Point) -> Result<(), String> {
        let Point::Link { direction, hop, .. } = point else { return Ok(()) };
        let names = &self.0[*direction as usize];
        if names.iter().any(|name| name == hop) {
            return Ok(());
        }
        let known = names.join(", ");
        match (hop.as_str(), known.as_str()) {
            (_, "") => Err(format!("`{point}`: the {direction} link has no name; expected none")),
            ("", _) => Err(format!("`{point}`: no {direction} link; expected one of {known}")),
            _ => Err(format!("`{point}`: no {direction} link `{hop}`; expected one of {known}")),
        }
    }
}

impl Point {
    pub fn sees(&self, sighting: &Sighting<'_>, names: &HopNames) -> bool {
        match self {
            Self::Client => is_at(sighting, Direction::Up, Direction::Down),
            Self::Server => is_at(sighting, Direction::Down, Direction::Up),
            Self::Link { direction, hop, at } => {
                at.matches(sighting.event)
                    && *direction == sighting.direction
                    && names.name(*direction, sighting.hop) == hop
            }
        }
    }

    /// Whether the sighting is a drop before this point.
    pub fn misses(&self, sighting: &Sighting<'_>, names: &HopNames) -> bool {
        let Self::Link { direction, hop, at } = self else { return false };
        let Event::Drop(reason) = sighting.event else { return false };
        let before = match at {
            At::Departure => reason != DropReason::Loss,
            At::Delivery => true,
            At::Arrival | At::Mark | At::Drop => false,
        };
        before && *direction == sighting.direction && names.name(*direction, sighting.hop) == hop
    }
}

fn is_at(sighting: &Sighting<'_>, sends: Direction, receives: Direction) -> bool {
    match sighting.event {
        Event::Sent => sighting.direction == sends,
        Event::Received => sighting.direction == receives,
        _ => false,
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('.').collect();
        let (direction, hop, at) = match parts.as_slice() {
            ["client"] => return Ok(Self::Client),
            ["server"] => return Ok(Self::Server),
            [direction, at] => (*direction, "", *at),
            [direction, hop @ .., at] if !hop.is_empty() => {
                (*direction, &text[direction.len() + 1..text.len() - at.len() - 1], *at)
            }
            _ => return Err(unknown(text)),
        };
        let direction = match direction {
            "up" => Direction::Up,
            "down" => Direction::Down,
            _ => return Err(unknown(text)),
        };
        let at = At::ALL.into_iter().find(|known| known.name() == at);
        let at = at.ok_or_else(|| unknown(text))?;
        Ok(Self::Link { direction, hop: hop.to_owned(), at })
    }
}

fn unknown(text: &str) -> String {
    format!(
        "`{text}`: expected client, server, or up or down, the link's name where there are \
         several, and arrival, mark, drop, departure or delivery: for example up.departure"
    )
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Server => f.write_str("server"),
            Self::Link { direction, hop, at } if hop.is_empty() => {
                write!(f, "{direction}.{}", at.name())
            }
            Self::Link { direction, hop, at } => write!(f, "{direction}.{hop}.{}", at.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_points_parse_as_they_print() {
        for text in ["client", "server", "up.arrival", "down.2.drop", "up.wi-fi 2.4.delivery"] {
            assert_eq!(text.parse::<Point>().map(|point| point.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "up", "sideways.drop", "up.departed", "client.drop"] {
            let problem = text.parse::<Point>().expect_err("no such point");
            assert!(problem.contains("up.departure"), "{problem}");
        }
    }

    #[test]
    fn a_capture_point_must_name_an_existing_link() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let one = HopNames::named([names(&[""]), names(&["modem"])]);
        let two = HopNames::named([names(&["", ""]), names(&[])]);
        let home = HopNames::named([names(&["wifi", "modem"]), names(&["modem", "wifi"])]);
        let check = |names: &HopNames, text: &str| names.check(&text.parse().expect("a point"));
        assert_eq!(check(&one, "up.drop"), Ok(()));
        assert_eq!(check(&one, "down.modem.drop"), Ok(()));
        assert_eq!(check(&two, "up.2.drop"), Ok(()));
        assert_eq!(check(&home, "up.modem.departure"), Ok(()));
        assert_eq!(home.name(Direction::Down, Some(0)), "modem");
        let problem = check(&home, "up.departure").expect_err("which?");
        assert!(problem.contains("expected one of wifi, modem"), "{problem}");
        for (names, text) in [(&one, "up.modem.drop"), (&one, "down.drop"), (&two, "up.drop")] {
            assert!(check(names, text).is_err(), "{text}");
        }
    }
}
