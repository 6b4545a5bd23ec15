//! A queue of events ordered by time.

use underload_aqm::time::Time;

/// Events by the second in which they happen. Each second is sorted when it begins, which is faster
/// than a heap of ten million events.
pub(super) struct Wheel<E> {
    seconds: Vec<Vec<(Time, E)>>,
    /// Events left in the present second, latest first.
    now: Vec<(Time, E)>,
    begun: usize,
}

impl<E: Copy> Wheel<E> {
    pub fn new(seconds: usize) -> Self {
        Self { seconds: (0..seconds).map(|_| Vec::new()).collect(), now: Vec::new(), begun: 0 }
    }

    pub fn len(&self) -> usize {
        self.seconds.len()
    }

    /// Adds an event, whose time must not be before that of an event already returned. Drops events
    /// beyond the last second.
    pub fn add(&mut self, at: Time, event: E) {
        let second = (at.as_nanos() / 1_000_000_000) as usize;
        if second < self.begun {
            let place = self.now.partition_point(|(time, _)| *time > at);
            self.now.insert(place, (at, event));
            return;
        }
        debug_assert!(second < self.seconds.len(), "second {second}");
        if let Some(events) = self.seconds.get_mut(second) {
            events.push((at, event));
        }
    }

    pub fn begin_second(&mut self) {
        self.now = std::mem::take(&mut self.seconds[self.begun]);
        // The sort is stable and the list reversed first, so that events of equal times have the
        // order in which they were added.
        self.now.reverse();
        self.now.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        self.begun += 1;
    }

    /// Removes and returns the next event of the present second.
    pub fn take(&mut self) -> Option<(Time, E)> {
        self.now.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_time_order_including_those_added_meanwhile() {
        let mut wheel = Wheel::new(3);
        for (millis, event) in [(1_900, 4), (100, 1), (1_100, 3), (100, 2)] {
            wheel.add(Time::from_millis(millis), event);
        }
        let mut taken = Vec::new();
        for _ in 0..wheel.len() {
            wheel.begin_second();
            while let Some((time, event)) = wheel.take() {
                taken.push(event);
                if event == 3 {
                    wheel.add(time, 30);
                    wheel.add(Time::from_millis(1_950), 40);
                    wheel.add(Time::from_millis(2_000), 5);
                }
            }
        }
        assert_eq!(taken, [1, 2, 3, 30, 4, 40, 5]);
    }
}
