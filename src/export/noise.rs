//! Distinguishes changes from the noise of sampling and between runs of the same program.
//!
//! Special functions are calculated here: only two short ones are needed, and crates bring a library of
//! distributions. The results have about ten digits, enough for an error probability.

/// The probability that sampling alone makes two numbers of samples differ at least this much, if equally
/// many samples are expected per unit of exposure.
///
/// If samples are independent, the share of the second number in the sum has a binomial distribution, which
/// is exact for small numbers, too. The numbers need not be whole: samples with different periods are
/// replaced by the number of equal samples with the same precision.
pub(crate) fn sampling([a, b]: [f64; 2], exposures: [f64; 2]) -> f64 {
    let expected = exposures[1] / (exposures[0] + exposures[1]);
    if !(expected > 0.0 && expected < 1.0) {
        return 1.0;
    }
    let at_least_b = if b <= 0.0 { 1.0 } else { beta_below(b, a + 1.0, expected) };
    let at_least_a = if a <= 0.0 { 1.0 } else { beta_below(a, b + 1.0, 1.0 - expected) };
    (2.0 * at_least_a.min(at_least_b)).min(1.0)
}

/// The variation between runs of the same program, estimated from two sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    mean: f64,
    variance: f64,
    freedom: f64,
}

impl Spread {
    /// The pooled variance of both sides. `None` if no side has two runs.
    pub(crate) fn of(sides: [&[f64]; 2]) -> Option<Spread> {
        let freedom = (sides[0].len() + sides[1].len()).checked_sub(2).filter(|&freedom| freedom > 0)? as f64;
        let variance = (squares(sides[0]) + squares(sides[1])) / freedom;
        Some(Spread { mean: mean(&sides.concat()), variance, freedom })
    }

    /// The variance of sides whose runs took turns, from the differences between runs of a turn. It excludes
    /// what slows both runs of a turn. `None` if there are fewer than two turns.
    pub(crate) fn of_turns(sides: [&[f64]; 2]) -> Option<Spread> {
        let differences: Vec<f64> = sides[0].iter().zip(sides[1]).map(|(a, b)| b - a).collect();
        let freedom = differences.len().checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
        // A difference has the variance of two runs.
        let variance = squares(&differences) / freedom / 2.0;
        Some(Spread { mean: mean(&sides.concat()), variance, freedom })
    }

    /// The variance relative to the mean, as from sampling alone.
    pub(crate) fn relative(self) -> f64 {
        // The median of estimates of a variance is less than the variance (Wilson and Hilferty).
        let median = (1.0 - 2.0 / (9.0 * self.freedom)).powi(3);
        self.variance / self.mean / median
    }

    /// The spread if the typical variance of other values in the same runs counts half as much as its own.
    ///
    /// A variance from a few runs is so uncertain that only large changes exceed it; others help: with five
    /// runs per side, a test that may err once in 280 times needs a change of 3.6 standard errors instead of
    /// 4.1. This is the moderated t test of gene expression (Smyth 2004). Estimating the weight of the
    /// typical variance, as there, was rejected: it may become so large that a noisy value seems changed.
    pub(crate) fn moderated(self, typical: f64) -> Spread {
        let variance = (2.0 * self.variance + typical * self.mean) / 3.0;
        Spread { variance, freedom: 1.5 * self.freedom, ..self }
    }

    /// The probability that two sides with this spread have means at least this different: Student's test.
    pub(crate) fn between(self, [a, b]: [&[f64]; 2]) -> f64 {
        let variance = self.variance_between([a.len(), b.len()]);
        let difference = (mean(a) - mean(b)).powi(2);
        match (difference == 0.0, variance == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => {
                let freedom = self.freedom;
                beta_below(freedom / 2.0, 0.5, freedom / (freedom + difference / variance))
            }
        }
    }

    /// For each probability, the difference of the means of two sides with this many runs that is less
    /// likely; returns their sum.
    pub(crate) fn difference(self, runs: [usize; 2], probabilities: &[f64]) -> f64 {
        let sum: f64 = probabilities.iter().map(|&probability| student(self.freedom, probability)).sum();
        sum * self.variance_between(runs).sqrt()
    }

    fn variance_between(self, [a, b]: [usize; 2]) -> f64 {
        self.variance * (1.0 / a as f64 + 1.0 / b as f64)
    }
}

/// From this many degrees of freedom on, Student's distribution is nearly normal.
pub(crate) const NORMAL: f64 = 1e3;

/// The value that |t| exceeds with this probability.
pub(crate) fn student(freedom: f64, probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        let half = if beta_below(freedom / 2.0, 0.5, middle) < probability { &mut low } else { &mut high };
        *half = middle;
    }
    (freedom * (1.0 / high - 1.0)).sqrt()
}

fn squares(values: &[f64]) -> f64 {
    values.iter().map(|value| (value - mean(values)).powi(2)).sum()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// For each test, a probability and a weight, true if it shows more than noise; any of these is wrong with a
/// probability of at most `error`. Holm's method with weights: the share of the error is that of the weight.
pub(crate) fn beyond_noise(tests: &[(f64, f64)], error: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..tests.len()).filter(|&test| tests[test].1 > 0.0).collect();
    order.sort_by(|&one, &other| {
        (tests[one].0 / tests[one].1).total_cmp(&(tests[other].0 / tests[other].1)).then(one.cmp(&other))
    });
    let mut rest: f64 = order.iter().map(|&test| tests[test].1).sum();
    let mut beyond = vec![false; tests.len()];
    for test in order {
        let (probability, weight) = tests[test];
        if probability > error * weight / rest {
            break;
        }
        beyond[test] = true;
        rest -= weight;
    }
    beyond
}

/// The regularised incomplete beta function: the part of this beta distribution below `x`.
fn beta_below(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_below_mean(b, a, 1.0 - x);
    }
    beta_below_mean(a, b, x)
}

/// For `x` up to about the mean: a continued fraction (NIST Handbook, 8.17.22) by Lentz's method.
fn beta_below_mean(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let logarithm = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    // The number of steps is about the square root of the larger parameter; this suffices for 10^10 samples.
    for step in 0..200_000_u32 {
        let m = f64::from(step / 2);
        let numerator = match step {
            0 => 1.0,
            _ if step % 2 == 0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        };
        d = 1.0 / away_from_zero(1.0 + numerator * d);
        c = away_from_zero(1.0 + numerator / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-13 {
            break;
        }
    }
    // The fraction begins with 1/(1 + …), and `value` with 1 + 1/(1 + …).
    (logarithm.exp() / a * (value - 1.0)).clamp(0.0, 1.0)
}

/// The logarithm of the gamma function of a positive number, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series =
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
    }

    /// Tables of Student's distribution: two-sided probabilities of t.
    #[test]
    fn runs_are_compared_by_students_distribution() {
        for (freedom, t, probability) in [
            (1.0, 12.706_204_736, 0.05),
            (2.0, 4.302_652_730, 0.05),
            (8.0, 2.306_004_135, 0.05),
            (8.0, 5.041_305_433, 0.001),
            (30.0, 2.042_272_456, 0.05),
            (1000.0, 2.580_754_697, 0.01),
        ] {
            near(beta_below(freedom / 2.0, 0.5, freedom / (freedom + t * t)), probability);
        }
        // Student's own data on sleep (1908): t = -1.8608, 18 degrees of freedom.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let of = |sides: [&[f64]; 2]| Spread::of(sides).map(|spread| spread.between(sides));
        near(of([&one, &other]).unwrap(), 0.079_186_71);
        assert_eq!(of([&[1.0], &[2.0]]), None);
        assert_eq!(of([&[1.0, 1.0], &[2.0]]), Some(0.0));
        assert_eq!(of([&[1.0, 3.0], &[2.0, 2.0]]), Some(1.0));
    }

    /// Tables of Student's distribution, and its own differences between two drugs (1908): t = -4.0621.
    #[test]
    fn runs_that_took_turns_are_compared_by_their_differences() {
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let spread = Spread::of_turns([&one, &other]).unwrap();
        near(spread.between([&one, &other]), 0.002_832_89);
        assert_eq!(Spread::of_turns([&[1.0], &[2.0]]), None);
        // R's t.test has an interval of 1.58 ± 0.880.
        assert!((spread.difference([10, 10], &[0.05]) - 0.879_9).abs() < 1e-3);
        for (freedom, probability, t) in
            [(8.0, 0.05, 2.306_004_135), (30.0, 0.05, 2.042_272_456), (1.0, 0.05, 12.706_204_736)]
        {
            near(student(freedom, probability), t);
        }
        assert!((student(NORMAL, 0.05) - 1.959_964).abs() < 3e-3);
    }

    #[test]
    fn what_is_typical_counts_half_as_much_as_the_own_variance() {
        let sides: [&[f64]; 2] = [&[10.0, 12.0, 11.0, 11.0], &[14.0, 18.0]];
        let spread = Spread::of(sides).unwrap();
        assert_eq!(spread, Spread { mean: 76.0 / 6.0, variance: 2.5, freedom: 4.0 });
        let moderated = spread.moderated(7.0 / spread.mean);
        assert_eq!((moderated.variance, moderated.freedom), (4.0, 6.0));
        near(moderated.between(sides), 0.027_811_304_6);
        near(Spread { mean: 5.0, variance: 10.0, freedom: 1e9 }.relative(), 2.0);
    }

    /// Sums of binomial coefficients.
    #[test]
    fn samples_are_compared_by_the_binomial_distribution() {
        near(sampling([0.0, 5.0], [1.0, 1.0]), 2.0 / 32.0);
        near(sampling([2.0, 8.0], [3.0, 3.0]), 2.0 * 56.0 / 1024.0);
        near(sampling([4.0, 0.0], [1.0, 2.0]), 2.0 / 81.0);
        assert_eq!(sampling([5.0, 5.0], [1.0, 1.0]), 1.0);
        assert_eq!(sampling([0.0, 0.0], [1.0, 1.0]), 1.0);
        assert_eq!(sampling([1.0, 2.0], [0.0, 0.0]), 1.0);
        // Nearly the normal distribution: 4.9 standard deviations.
        let probability = sampling([1e10 - 3.46e5, 1e10 + 3.46e5], [1.0, 1.0]);
        assert!((9e-7..1.1e-6).contains(&probability), "{probability}");
        assert!(sampling([1e12, 2e12], [1.0, 1.0]) < 1e-12);
    }

    #[test]
    fn many_tests_share_the_error() {
        let alike = |found: &[f64]| found.iter().map(|&found| (found, 1.0)).collect::<Vec<_>>();
        // Holm's own method: 0.05/4, 0.05/3, 0.05/2, 0.05.
        assert_eq!(beyond_noise(&alike(&[0.01, 0.04, 0.03, 0.005]), 0.05), [true, false, false, true]);
        assert_eq!(beyond_noise(&alike(&[0.012, 0.016, 0.024, 0.05]), 0.05), [true; 4]);
        assert_eq!(beyond_noise(&[(0.02, 1.0), (0.02, 1.0), (0.0, 0.0)], 0.05), [true, true, false]);
        assert_eq!(beyond_noise(&[(0.03, 9.0), (0.006, 1.0)], 0.05), [true, true]);
        assert_eq!(beyond_noise(&[(0.046, 9.0), (0.006, 1.0)], 0.05), [false, false]);
    }
}
