//! The lists in which the flows of a tin wait for their turn. Unlike those of a plain fair queue
//! they are chained both ways: a flow that wakes leaves the decaying list from its middle.

/// A flow's neighbours in its list; small, since it is in each flow's cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u16,
    after: u16,
}

const NONE: u16 = u16::MAX;

impl Links {
    pub const LOOSE: Self = Self { before: NONE, after: NONE };
}

pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// Numbers of flows in order of service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    first: u16,
    last: u16,
}

impl Rotation {
    pub const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Returns the flow whose turn it is.
    #[inline]
    pub const fn first(self) -> Option<usize> {
        if self.first == NONE { None } else { Some(self.first as usize) }
    }

    /// Appends a flow that is in no list.
    pub fn push<F: Linked>(&mut self, index: usize, flows: &mut [F]) {
        let number = index as u16;
        *flows[index].links() = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = number,
            last => flows[last as usize].links().after = number,
        }
        self.last = number;
    }

    pub fn remove<F: Linked>(&mut self, index: usize, flows: &mut [F]) {
        let Links { before, after } = core::mem::replace(flows[index].links(), Links::LOOSE);
        match before {
            NONE => self.first = after,
            before => flows[before as usize].links().after = after,
        }
        match after {
            NONE => self.last = before,
            after => flows[after as usize].links().before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    impl Linked for Links {
        fn links(&mut self) -> &mut Links {
            self
        }
    }

    fn order(list: Rotation, flows: &[Links]) -> Vec<usize> {
        let next = |index: &usize| {
            let after = flows[*index].after;
            (after != NONE).then_some(after as usize)
        };
        core::iter::successors(list.first(), next).collect()
    }

    #[test]
    fn a_flow_leaves_from_either_end_and_from_the_middle() {
        for (taken, left) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
            let mut flows = [Links::LOOSE; 3];
            let mut list = Rotation::EMPTY;
            (0..3).for_each(|index| list.push(index, &mut flows));
            assert_eq!(order(list, &flows), [0, 1, 2]);
            list.remove(taken, &mut flows);
            assert_eq!(order(list, &flows), left);
            list.push(taken, &mut flows);
            assert_eq!(order(list, &flows), [left[0], left[1], taken]);
        }
    }

    #[test]
    fn removing_the_last_flow_empties_the_rotation() {
        let mut flows = [Links::LOOSE; 1];
        let mut list = Rotation::EMPTY;
        list.push(0, &mut flows);
        list.remove(0, &mut flows);
        assert_eq!(list.first(), None);
        list.push(0, &mut flows);
        assert_eq!(list.first(), Some(0));
    }
}
