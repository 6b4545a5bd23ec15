//! Delays in fixed logarithmic bins, whose counts add exactly, in any order, on any machine.
//!
//! The bin of a delay of `x` microseconds is `ceil(ln(x) / ln(1.02))`: each bin's upper edge is
//! 2 % above its lower edge, so that a quantile of the bins is within 1 % of the exact one.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ratio of a bin's upper to its lower edge.
pub const GAMMA: f64 = 1.02;
/// The last bin, from about 100 s; longer delays are also in it.
pub const BIN_MAX: u16 = 931;

/// Counts of delays by bin; empty bins are not stored. As JSON a list of `[bin, count]`, in binary
/// formats the bytes of [`Bins::to_bytes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    /// Bins in ascending order, without zeros; a typical series has some tens.
    counts: Vec<(u16, u64)>,
}

/// Returns the bin of a delay; 1 microsecond and less is in bin 0.
pub fn bin_of(micros: f64) -> u16 {
    let bin = libm::ceil(libm::log(micros.max(1.0)) / libm::log(GAMMA));
    // A float above the largest integer is cast to the largest.
    (bin as u16).min(BIN_MAX)
}

/// Returns the delay that represents a bin, microseconds: all delays of the bin are within 1 % of
/// it.
pub fn value_of(bin: u16) -> f64 {
    libm::pow(GAMMA, f64::from(bin)) * 2.0 / (1.0 + GAMMA)
}

impl Bins {
    pub fn add(&mut self, micros: f64) {
        self.add_to(bin_of(micros), 1);
    }

    /// Adds `count` delays to a bin.
    pub fn add_to(&mut self, bin: u16, count: u64) {
        let bin = bin.min(BIN_MAX);
        match self.counts.last() {
            _ if count == 0 => {}
            Some((last, _)) if *last >= bin => {
                match self.counts.binary_search_by_key(&bin, |(bin, _)| *bin) {
                    Ok(place) => {
                        let sum = &mut self.counts[place].1;
                        *sum = sum.saturating_add(count);
                    }
                    Err(place) => self.counts.insert(place, (bin, count)),
                }
            }
            _ => self.counts.push((bin, count)),
        }
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.counts.len() + other.counts.len());
        let mut own = self.counts.iter().copied().peekable();
        for (bin, count) in other.iter() {
            while let Some(smaller) = own.next_if(|(own, _)| *own < bin) {
                merged.push(smaller);
            }
            let known = own.next_if(|(own, _)| *own == bin).map_or(0, |(_, count)| count);
            merged.push((bin, known.saturating_add(count)));
        }
        merged.extend(own);
        self.counts = merged;
    }

    /// Removes counts that were added before.
    pub fn subtract(&mut self, other: &Self) {
        for (bin, count) in &mut self.counts {
            let place = other.counts.binary_search_by_key(bin, |(bin, _)| *bin);
            *count = count.saturating_sub(place.map_or(0, |place| other.counts[place].1));
        }
        self.counts.retain(|(_, count)| *count > 0);
    }

    /// Returns the bins and their counts in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.counts.iter().copied()
    }

    pub fn count(&self) -> u64 {
        self.iter().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Encodes, for each bin, the difference to the one before and the count, as LEB128.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        let mut before = 0;
        for (bin, count) in self.iter() {
            push_number(&mut bytes, u64::from(bin - before));
            push_number(&mut bytes, count);
            before = bin;
        }
        bytes
    }

    /// Returns the smallest delay that at least the share `share` of the delays, from 0 to 1, does
    /// not exceed, in microseconds and within 1 %; `None` without delays.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let rank = (libm::ceil(share.clamp(0.0, 1.0) * count as f64) as u64).max(1);
        let mut seen = 0;
        let found = self.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|(bin, _)| value_of(bin))
    }
}

/// The error for a list that is not valid as bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bins are [bin, count], rising, each bin at most {BIN_MAX}, each count more than 0")]
pub struct NotBins;

impl TryFrom<Vec<(u16, u64)>> for Bins {
    type Error = NotBins;

    fn try_from(list: Vec<(u16, u64)>) -> Result<Self, NotBins> {
        let rises = list.is_sorted_by(|before, after| before.0 < after.0);
        let total = list.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count));
        let is_good = |&(bin, count): &(u16, u64)| bin <= BIN_MAX && count > 0;
        if !rises || total.is_none() || !list.iter().all(is_good) {
            return Err(NotBins);
        }
        Ok(Self { counts: list })
    }
}

impl Serialize for Bins {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            self.counts.serialize(to)
        } else {
            to.serialize_bytes(&self.to_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for Bins {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Self::try_from(Vec::deserialize(from)?).map_err(D::Error::custom);
        }
        let mut bins = Self::default();
        visit_bins(<&[u8]>::deserialize(from)?, |bin, count| bins.add_to(bin, count))
            .ok_or_else(|| D::Error::custom(NotBins))?;
        Ok(bins)
    }
}

/// Calls `see` with each bin of [`Bins::to_bytes`] and its count; `None` if the bytes are damaged.
pub fn visit_bins(mut bytes: &[u8], mut see: impl FnMut(u16, u64)) -> Option<()> {
    let mut bin = 0_u64;
    while !bytes.is_empty() {
        bin = bin.checked_add(take_number(&mut bytes)?)?;
        let count = take_number(&mut bytes)?;
        see(u16::try_from(bin).ok().filter(|bin| *bin <= BIN_MAX)?, count);
    }
    Some(())
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Bins {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ArrayBuilder, ArrayItems, SchemaType};
        use utoipa::openapi::{ObjectBuilder, Schema, Type};
        let integer = |least: u64, most: Option<u16>| {
            ObjectBuilder::new()
                .schema_type(SchemaType::new(Type::Integer))
                .minimum(Some(least))
                .maximum(most)
                .build()
        };
        let pair = ArrayBuilder::new()
            .items(ArrayItems::False)
            .prefix_items::<_, Schema>([integer(0, Some(BIN_MAX)).into(), integer(1, None).into()])
            .min_items(Some(2));
        ArrayBuilder::new().items(pair).into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Bins {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_the_formula_and_values_are_within_one_percent() {
        assert_eq!([0.0, 1.0, 1.01, 1.02, 1.03, f64::NAN].map(bin_of), [0, 0, 1, 1, 2, 0]);
        assert_eq!(bin_of(f64::INFINITY), BIN_MAX);
        for micros in (1..2_000_000).step_by(97) {
            let micros = f64::from(micros);
            let error = value_of(bin_of(micros)) / micros - 1.0;
            assert!(error.abs() <= 0.010_001, "{micros}: {error}");
        }
    }

    #[test]
    fn a_quantile_is_of_the_nearest_rank() {
        let mut bins = Bins::default();
        assert_eq!(bins.quantile(0.5), None);
        (1..=100).for_each(|milli| bins.add(f64::from(milli) * 1_000.0));
        for (share, exact) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = bins.quantile(share).expect("it has some") / 1_000.0;
            assert!((found / exact - 1.0).abs() < 0.011, "{share}: {found}");
        }
    }

    #[test]
    fn invalid_sets_of_bins_are_refused() {
        for bad in ["[[1,0]]", "[[2,1],[1,1]]", "[[1,1],[1,1]]", "[[932,1]]", "[[1,-1]]"] {
            assert!(serde_json::from_str::<Bins>(bad).is_err(), "{bad}");
        }
        let full = format!("[[1,{}],[2,1]]", u64::MAX);
        assert!(serde_json::from_str::<Bins>(&full).is_err(), "more than can be counted");
        let good: Bins = serde_json::from_str("[[1,2],[931,3]]").expect("it is good");
        assert_eq!(serde_json::to_string(&good).expect("it is"), "[[1,2],[931,3]]");
    }
}
