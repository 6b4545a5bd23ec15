//! The order in which the flows of a tin have their turns.
//!
//! New and decaying flows are in lists that are chained both ways: a flow that wakes leaves the
//! decaying list from its middle. Old flows leave from the front alone, and are in a ring. A packet
//! costs as many turns as its host has bulk flows, so a turn in the ring is an addition to a number
//! beside the next one, and the flows that had a turn move behind the others together.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ways::Shares;
use crate::rng::Rng;

/// Lists of numbers, each number in one list at most. A list begins and ends at a number of its
/// own, which no flow has.
#[derive(Debug)]
pub(super) struct Lists(Vec<Links>);

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u16,
    after: u16,
}

impl Lists {
    /// Returns lists of these numbers, each a list by itself.
    pub fn new(numbers: usize) -> Self {
        let alone = |number| Links { before: number as u16, after: number as u16 };
        Self((0..numbers).map(alone).collect())
    }

    /// Returns the flow whose turn it is.
    #[inline]
    pub fn first(&self, list: usize) -> Option<usize> {
        let first = usize::from(self.0[list].after);
        (first != list).then_some(first)
    }

    /// Appends a flow that is in no list.
    pub fn push(&mut self, list: usize, flow: usize) {
        let links = Links { before: self.0[list].before, after: list as u16 };
        self.join(links.before, flow as u16);
        self.join(flow as u16, links.after);
    }

    /// Removes a flow from its list.
    pub fn remove(&mut self, flow: usize) {
        let Links { before, after } = self.0[flow];
        self.join(before, after);
    }

    fn join(&mut self, before: u16, after: u16) {
        self.0[usize::from(before)].after = after;
        self.0[usize::from(after)].before = before;
    }
}

/// A flow in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub queue: u16,
    /// Bytes that the flow may still send in this turn.
    pub deficit: i32,
}

/// Gives turns to the flows of a ring until the deficit of one is positive, and returns that flow.
/// Those that had a turn are behind it.
#[inline]
pub(super) fn rotate(ring: &mut VecDeque<Seat>, shares: &Shares, rng: &mut Rng) -> Option<usize> {
    // A copy is in registers, where writing to the ring cannot change it.
    let mut draws = rng.clone();
    let mut may_send = |seat: &mut Seat| {
        if seat.deficit <= 0 {
            seat.deficit += shares.turn_bytes(usize::from(seat.queue), &mut draws);
            return false;
        }
        true
    };
    let mut turns = None;
    while turns.is_none() && !ring.is_empty() {
        // If all had a turn, their order is the same.
        turns = ring.iter_mut().position(&mut may_send);
    }
    *rng = draws;
    ring.rotate_left(turns?);
    ring.front().map(|seat| usize::from(seat.queue))
}

#[cfg(test)]
mod tests {
    use super::super::config::Isolation;
    use super::*;
    use crate::packet::Meta;

    const LIST: usize = 3;

    fn order(lists: &Lists) -> Vec<usize> {
        let next = |flow: &usize| {
            let after = usize::from(lists.0[*flow].after);
            (after != LIST).then_some(after)
        };
        core::iter::successors(lists.first(LIST), next).collect()
    }

    #[test]
    fn a_flow_leaves_from_either_end_and_from_the_middle() {
        for (taken, left) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
            let mut lists = Lists::new(LIST + 2);
            (0..3).for_each(|flow| lists.push(LIST, flow));
            assert_eq!(order(&lists), [0, 1, 2]);
            lists.remove(taken);
            assert_eq!(order(&lists), left);
            lists.push(LIST, taken);
            assert_eq!(order(&lists), [left[0], left[1], taken]);
            assert_eq!(lists.first(LIST + 1), None);
        }
    }

    #[test]
    fn removing_the_last_flow_empties_the_list() {
        let mut lists = Lists::new(LIST + 1);
        lists.push(LIST, 0);
        lists.remove(0);
        assert_eq!(lists.first(LIST), None);
        lists.push(LIST, 0);
        assert_eq!(lists.first(LIST), Some(0));
    }

    /// Flows of one host and of several, of which none, the first or a later one may send at once.
    #[test]
    fn rotating_gives_the_turns_that_flows_get_one_by_one() {
        let mut random = Rng::new(4);
        for round in 0..2_000 {
            let flows = 1 + random.below(60);
            let mut shares = Shares::new(300 + random.below(1_215), Isolation::Triple);
            let mut ring = VecDeque::new();
            for flow in 0..flows {
                let meta =
                    Meta { src: random.below(4), dst: random.below(2), ..Meta::new(0, flow) };
                shares.assign(flow as usize, &meta);
                shares.enter(flow as usize);
                let deficit = 20 - random.below(1_500) as i32;
                ring.push_back(Seat { queue: flow as u16, deficit });
            }
            let (mut expected, mut draws) = (ring.clone(), random.child("turns"));
            let mut rng = draws.clone();
            while expected[0].deficit <= 0 {
                let mut seat = expected.pop_front().expect("a flow");
                seat.deficit += shares.turn_bytes(usize::from(seat.queue), &mut draws);
                expected.push_back(seat);
            }
            let first = rotate(&mut ring, &shares, &mut rng);
            assert_eq!(first, Some(usize::from(expected[0].queue)), "round {round}");
            assert_eq!((ring, rng.next_u64()), (expected, draws.next_u64()), "round {round}");
        }
    }
}
