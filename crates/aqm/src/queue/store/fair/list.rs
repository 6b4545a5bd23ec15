//! A first-in first-out list of flows, chained by index through the flows themselves.

/// An item with the index of its successor in a list.
pub(super) trait Linked {
    /// The successor's index, [`LAST`] or [`UNLISTED`].
    fn next(&mut self) -> &mut u32;
}

/// The successor of the last flow of a list.
const LAST: u32 = u32::MAX - 1;
/// The successor of a flow that is in no list.
pub(super) const UNLISTED: u32 = u32::MAX;

/// Indices of flows in order of service.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowList {
    /// The first and the last flow.
    ends: Option<(u32, u32)>,
}

impl FlowList {
    pub(super) const EMPTY: Self = Self { ends: None };

    pub(super) fn first(&self) -> Option<usize> {
        self.ends.map(|(first, _)| first as usize)
    }

    /// Appends a flow that is in no list.
    pub(super) fn push<F: Linked>(&mut self, index: usize, flows: &mut [F]) {
        *flows[index].next() = LAST;
        let index = index as u32;
        self.ends = match self.ends {
            None => Some((index, index)),
            Some((first, last)) => {
                *flows[last as usize].next() = index;
                Some((first, index))
            }
        };
    }

    /// Removes the first flow, if any.
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        let Some((first, last)) = self.ends else { return };
        let next = core::mem::replace(flows[first as usize].next(), UNLISTED);
        self.ends = if first == last { None } else { Some((next, last)) };
    }
}
