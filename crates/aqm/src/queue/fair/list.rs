//! A first-in first-out list of flows, chained by index through the flows themselves.

/// Has room for the index of its successor.
pub(super) trait Linked {
    /// The successor's index; meaningful only while in a list that goes on.
    fn next(&mut self) -> &mut u32;
}

/// Indices of flows in order of service.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowList {
    /// First and last, where there is any.
    ends: Option<(u32, u32)>,
}

impl FlowList {
    pub(super) const EMPTY: Self = Self { ends: None };

    pub(super) fn first(&self) -> Option<usize> {
        self.ends.map(|(first, _)| first as usize)
    }

    /// Adds a flow that is in no list.
    pub(super) fn push<F: Linked>(&mut self, index: usize, flows: &mut [F]) {
        let index = index as u32;
        self.ends = match self.ends {
            None => Some((index, index)),
            Some((first, last)) => {
                *flows[last as usize].next() = index;
                Some((first, index))
            }
        };
    }

    /// Takes the first flow out, if any.
    pub(super) fn pop<F: Linked>(&mut self, flows: &mut [F]) {
        self.ends = match self.ends {
            Some((first, last)) if first != last => Some((*flows[first as usize].next(), last)),
            _ => None,
        };
    }
}
