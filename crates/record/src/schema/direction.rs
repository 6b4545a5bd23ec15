//! The two directions of a path, and values that exist once for each.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

underload_aqm::named! {
    /// A direction of the path, seen from the client.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum Direction {
        /// From the client to the server.
        #[default]
        Up = "up",
        /// From the server to the client.
        Down = "down",
    }
}

impl Direction {
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

/// A value for each direction of a path. Indexed by [`Direction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct PerDirection<T> {
    pub up: T,
    pub down: T,
}

impl<T> PerDirection<T> {
    pub const fn new(up: T, down: T) -> Self {
        Self { up, down }
    }

    /// Computes the value of each direction, first up, then down.
    pub fn from_fn(mut value: impl FnMut(Direction) -> T) -> Self {
        Self { up: value(Direction::Up), down: value(Direction::Down) }
    }

    pub const fn as_ref(&self) -> PerDirection<&T> {
        PerDirection { up: &self.up, down: &self.down }
    }

    pub fn as_mut(&mut self) -> PerDirection<&mut T> {
        PerDirection { up: &mut self.up, down: &mut self.down }
    }

    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> PerDirection<U> {
        PerDirection { up: f(self.up), down: f(self.down) }
    }

    /// Returns each direction with its value, first up, then down.
    pub fn iter(&self) -> impl Iterator<Item = (Direction, &T)> {
        [(Direction::Up, &self.up), (Direction::Down, &self.down)].into_iter()
    }
}

impl<T> Index<Direction> for PerDirection<T> {
    type Output = T;

    fn index(&self, direction: Direction) -> &T {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

impl<T> IndexMut<Direction> for PerDirection<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl<T> IntoIterator for PerDirection<T> {
    type Item = (Direction, T);
    type IntoIter = std::array::IntoIter<Self::Item, 2>;

    fn into_iter(self) -> Self::IntoIter {
        [(Direction::Up, self.up), (Direction::Down, self.down)].into_iter()
    }
}
