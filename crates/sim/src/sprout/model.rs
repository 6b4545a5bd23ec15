//! The receiver's model of the link: delivery is a Poisson process whose rate is in Brownian
//! motion, with outages that tend to last (section 3.1 of the paper).

use std::sync::LazyLock;

use underload_aqm::time::Span;

pub(super) const TICK: Span = Span::from_millis(20);
pub(super) const FORECAST_TICKS: usize = 8;
/// Payload of a full packet, which is the unit of all counts.
pub(super) const PACKET_BYTES: u16 = 1_440;
/// Number of rates in the model, evenly from 0 to [`MAX_RATE`].
const RATES: usize = 256;
// Packets per second.
const MAX_RATE: f64 = 1_000.0;
/// Standard deviation of the rate after a second, packets per second.
const SIGMA: f64 = 200.0;
/// Rate at which outages end, per second.
const OUTAGE_ESCAPE: f64 = 1.0;
/// The rate changes by at most five deviations in a tick: 36.07 steps between neighbours.
const REACH: usize = 37;
/// Largest number of packets per tick in forecasts; larger numbers count as this one.
const MAX_PER_TICK: usize = 30;
/// Probability that a link delivers less than forecast.
const CAUTION: f64 = 0.05;

/// Tables that depend only on the constants, 1.7 MB, computed once per process.
struct Tables {
    /// Probabilities of the rate after a tick, by the rate before; zero beyond [`REACH`].
    evolution: Vec<[f64; RATES]>,
    /// Probability of a number of packets in a tick, by number and rate.
    in_a_tick: Vec<[f64; RATES]>,
    /// Probability that at most a number of packets are delivered, by ticks, number and rate.
    delivered: Vec<Vec<[f32; RATES]>>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::compute);

/// Probability distribution over the link's rate.
#[derive(Debug)]
pub(super) struct Belief {
    /// Probability of each rate; sums to 1.
    rates: Box<[f64; RATES]>,
}

impl Default for Belief {
    /// All rates are equally likely.
    fn default() -> Self {
        Self { rates: Box::new([1.0 / RATES as f64; RATES]) }
    }
}

impl Belief {
    /// Advances the model by a tick.
    pub(super) fn evolve(&mut self) {
        *self.rates = TABLES.evolve(&self.rates);
    }

    /// Updates the model with `packets` that arrived in `time` during which the link was busy.
    pub(super) fn observe(&mut self, packets: u32, time: Span) {
        let (count, seconds) = (f64::from(packets), time.as_secs_f64());
        // Relative to the likeliest rate, to avoid underflow.
        let best = MAX_RATE.min(count / seconds.max(1e-9)).max(packets_per_second(1));
        let greatest = count * libm::log(best) - best * seconds;
        for (index, probability) in self.rates.iter_mut().enumerate() {
            let rate = packets_per_second(index);
            *probability *= match index {
                0 if packets > 0 => 0.0,
                0 => libm::exp(-greatest),
                _ => libm::exp(count * libm::log(rate) - rate * seconds - greatest),
            };
        }
        self.normalise();
    }

    /// Updates the model with a tick in which at least one packet arrived.
    pub(super) fn observe_life(&mut self) {
        for (probability, none) in self.rates.iter_mut().zip(&TABLES.in_a_tick[0]) {
            *probability *= 1.0 - none;
        }
        self.normalise();
    }

    fn normalise(&mut self) {
        let total: f64 = self.rates.iter().sum();
        if total < f64::MIN_POSITIVE {
            // The observation was impossible in the model.
            *self = Self::default();
            return;
        }
        for rate in self.rates.iter_mut() {
            *rate /= total;
        }
    }

    /// Returns the packets delivered with 95 % probability within one, two and more ticks.
    pub(super) fn forecast(&self) -> [u8; FORECAST_TICKS] {
        let mut forecast = [0; FORECAST_TICKS];
        let mut least = 0;
        for (forecast, delivered) in forecast.iter_mut().zip(&TABLES.delivered) {
            let share = |at_most: &[f32; RATES]| -> f64 {
                self.rates.iter().zip(at_most).map(|(rate, share)| rate * f64::from(*share)).sum()
            };
            least += delivered[least..].partition_point(|at_most| share(at_most) < CAUTION);
            *forecast = least as u8;
        }
        forecast
    }

    /// Returns the expected rate, packets per second.
    #[cfg(test)]
    fn mean(&self) -> f64 {
        self.rates.iter().enumerate().map(|(index, rate)| rate * packets_per_second(index)).sum()
    }
}

impl Tables {
    fn compute() -> Self {
        let in_a_tick = (0..MAX_PER_TICK)
            .map(|packets| {
                std::array::from_fn(|index| poisson(packets_per_second(index) * TICK_S, packets))
            })
            .collect();
        let evolution = (0..RATES).map(movement).collect();
        let mut tables = Self { evolution, in_a_tick, delivered: Vec::new() };
        tables.delivered = (1..=FORECAST_TICKS)
            .map(|ticks| vec![[0.0; RATES]; ticks * MAX_PER_TICK + 1])
            .collect();
        for index in 0..RATES {
            tables.compute_delivered(index);
        }
        tables
    }

    fn evolve(&self, rates: &[f64; RATES]) -> [f64; RATES] {
        let mut evolved = [0.0; RATES];
        for (index, &probability) in rates.iter().enumerate() {
            let near = index.saturating_sub(REACH)..(index + REACH + 1).min(RATES);
            let row = &self.evolution[index][near.clone()];
            for (evolved, share) in evolved[near].iter_mut().zip(row) {
                *evolved += probability * share;
            }
        }
        evolved
    }

    /// Computes the deliveries in one to eight ticks of a link with the rate of `index`, assuming
    /// that the counts of different ticks are independent given this rate.
    fn compute_delivered(&mut self, index: usize) {
        let mut rates = [0.0; RATES];
        rates[index] = 1.0;
        let mut total = vec![1.0];
        for ticks in 0..FORECAST_TICKS {
            total = sum_of(&total, &self.in_one_tick(&rates));
            let mut at_most = 0.0;
            for (packets, probability) in total.iter().enumerate() {
                at_most += probability;
                self.delivered[ticks][packets][index] = at_most as f32;
            }
            rates = self.evolve(&rates);
        }
    }

    fn in_one_tick(&self, rates: &[f64; RATES]) -> [f64; MAX_PER_TICK + 1] {
        let mut counts = [0.0; MAX_PER_TICK + 1];
        for (count, shares) in counts.iter_mut().zip(&self.in_a_tick) {
            *count = shares.iter().zip(rates).map(|(share, rate)| share * rate).sum();
        }
        let fewer: f64 = counts[..MAX_PER_TICK].iter().sum();
        counts[MAX_PER_TICK] = (1.0 - fewer).max(0.0);
        counts
    }
}

/// Returns the probabilities of the rate a tick after the rate of `index`. The rate stays within
/// the ends; the lower end is an outage, which ends with the probability of an escape.
fn movement(index: usize) -> [f64; RATES] {
    let deviation = SIGMA * libm::sqrt(TICK_S);
    let step = MAX_RATE / (RATES - 1) as f64;
    let below =
        |boundary: f64| normal_below((boundary * step - packets_per_second(index)) / deviation);
    let mut row = [0.0; RATES];
    let near = index.saturating_sub(REACH)..(index + REACH + 1).min(RATES);
    for (to, share) in row.iter_mut().enumerate().take(near.end).skip(near.start) {
        let lower = if to == 0 { 0.0 } else { below(to as f64 - 0.5) };
        let upper = if to == RATES - 1 { 1.0 } else { below(to as f64 + 0.5) };
        *share = upper - lower;
    }
    if index == 0 {
        let stays = libm::exp(-TICK_S * OUTAGE_ESCAPE);
        row[0] = 0.0;
        scale(&mut row, 1.0 - stays);
        row[0] = stays;
    } else {
        scale(&mut row, 1.0);
    }
    row
}

fn scale(row: &mut [f64; RATES], total: f64) {
    let sum: f64 = row.iter().sum();
    for share in row {
        *share *= total / sum;
    }
}

/// Returns the distribution of the sum of two independent counts.
fn sum_of(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; a.len() + b.len() - 1];
    for (index, a) in a.iter().enumerate() {
        for (sum, b) in sum[index..].iter_mut().zip(b) {
            *sum += a * b;
        }
    }
    sum
}

fn packets_per_second(index: usize) -> f64 {
    MAX_RATE * index as f64 / (RATES - 1) as f64
}

fn poisson(mean: f64, count: usize) -> f64 {
    if mean == 0.0 {
        return if count == 0 { 1.0 } else { 0.0 };
    }
    let count = count as f64;
    libm::exp(count * libm::log(mean) - mean - libm::lgamma(count + 1.0))
}

/// Distribution function of the standard normal distribution.
fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// Length of a tick in seconds.
const TICK_S: f64 = TICK.as_secs_f64();

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the belief after two seconds with `packets` packets in each tick.
    fn after(packets: u32) -> Belief {
        let mut belief = Belief::default();
        for _ in 0..100 {
            belief.evolve();
            belief.observe(packets, TICK);
        }
        belief
    }

    #[test]
    fn the_sum_of_probabilities_stays_one() {
        for (index, row) in TABLES.evolution.iter().enumerate() {
            let sum: f64 = row.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "from {index}: {sum}");
        }
        for (ticks, delivered) in TABLES.delivered.iter().enumerate() {
            for (index, last) in delivered[delivered.len() - 1].iter().enumerate() {
                assert!((last - 1.0).abs() < 1e-5, "{ticks} ticks from {index}: {last}");
            }
        }
    }

    #[test]
    fn a_steady_link_is_recognised() {
        // Near zero the distribution cannot be symmetric.
        for packets in [5, 10, 15] {
            let mean = after(packets).mean();
            let expected = f64::from(packets) / TICK_S;
            assert!((mean / expected - 1.0).abs() < 0.15, "{packets}: {mean}, not {expected}");
        }
    }

    #[test]
    fn the_forecast_is_cautious_and_grows_with_the_horizon_and_the_rate() {
        // At 5 packets per tick, 25 are expected within 100 ms. The 5th percentile of a Poisson
        // count alone would be 17; the forecast is lower, because the rate may fall.
        let forecast = after(5).forecast();
        assert!(forecast.is_sorted(), "{forecast:?}");
        assert!((10..=17).contains(&forecast[4]), "{forecast:?}");
        let faster = after(15).forecast();
        assert!(forecast.iter().zip(&faster).all(|(slow, fast)| slow <= fast), "{faster:?}");
    }

    #[test]
    fn the_forecast_is_the_least_count_that_reaches_five_percent() {
        let belief = after(3);
        for (ticks, &forecast) in belief.forecast().iter().enumerate() {
            let at_most = |packets: usize| -> f64 {
                let shares = &TABLES.delivered[ticks][packets];
                belief.rates.iter().zip(shares).map(|(rate, share)| rate * f64::from(*share)).sum()
            };
            let packets = usize::from(forecast);
            assert!(at_most(packets) >= CAUTION);
            assert!(packets == 0 || at_most(packets - 1) < CAUTION, "{ticks}: {packets}");
        }
    }

    #[test]
    fn long_silence_becomes_a_persistent_outage() {
        let mut belief = after(10);
        for _ in 0..25 {
            belief.evolve();
            belief.observe(0, TICK);
        }
        assert!(belief.rates[0] > 0.9, "{}", belief.rates[0]);
        assert_eq!(belief.forecast(), [0; FORECAST_TICKS]);
        // The outage ends as fast as it began: three ticks of packets restore the forecast.
        for _ in 0..3 {
            belief.evolve();
            belief.observe(10, TICK);
        }
        assert!(belief.forecast()[4] > 5, "{:?}", belief.forecast());
    }

    #[test]
    fn heartbeats_prevent_the_belief_in_an_outage() {
        let mut unseen = after(10);
        let mut seen = after(10);
        for _ in 0..100 {
            unseen.evolve();
            seen.evolve();
            seen.observe_life();
        }
        assert_eq!(unseen.forecast()[4], 0, "an outage may have begun");
        assert!(seen.forecast()[4] > 0, "{:?}", seen.forecast());
    }

    #[test]
    fn an_impossible_observation_resets_the_model() {
        let mut belief = Belief::default();
        belief.rates.fill(0.0);
        belief.rates[0] = 1.0;
        belief.observe(1, TICK);
        assert!((belief.rates.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
