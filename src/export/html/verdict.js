// Separates changes between two recordings from the noise of sampling, with the numbers and names of
// `perfx diff --profile`: src/export/noise.rs and changes.rs explain them.

const ERROR = 0.05, ERROR_OF_ALL = 1 / 3;

// The logarithm of the gamma function of a positive number, by Stirling's series.
function logGamma(x) {
  let below = 0;
  for (; x < 10; x++) below += Math.log(x);
  const square = x * x;
  const series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - below;
}

// The share of the beta distribution with these parameters below x: a continued fraction that converges fast
// on one side of the mean.
function betaBelow(a, b, x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaBelow(b, a, 1 - x);
  const awayFromZero = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
  const logarithm = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x);
  let [value, c, d] = [1, 1, 0];
  for (let step = 0; step < 200000; step++) {
    const m = step >> 1;
    const numerator = !step ? 1 : step % 2 ? (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)) : (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / awayFromZero(1 + numerator * d);
    c = awayFromZero(1 + numerator / c);
    value *= c * d;
    if (Math.abs(c * d - 1) < 1e-13) break;
  }
  return Math.min(1, Math.max(0, (Math.exp(logarithm) / a) * (value - 1)));
}

// The numbers of equal samples with the same relative error as these weights, and the expected ones.
function samplesOf(values) {
  const ofSample = sides.map((side) => ratio(side.squares, side.sum));
  const samples = (weight, at) => ratio(weight, ofSample[at]);
  return [values.map(samples), sides.map((side, at) => samples(state.by === 'shares' ? side.sum : 1, at))];
}

// The probability that sampling alone makes weights before and after differ by this much or more.
function probability(values) {
  const [[a, b], exposures] = samplesOf(values);
  const expected = ratio(exposures[1], exposures[0] + exposures[1]);
  if (!(expected > 0 && expected < 1)) return 1;
  const atLeastB = b <= 0 ? 1 : betaBelow(b, a + 1, expected);
  const atLeastA = a <= 0 ? 1 : betaBelow(a, b + 1, 1 - expected);
  return Math.min(1, 2 * Math.min(atLeastA, atLeastB));
}

// The change of a weight: of its share, or in parts of the total before.
function moved(values) {
  const [before, after] = sides.map((side) => side.sum);
  return state.by === 'shares' ? ratio(values[1], after) - ratio(values[0], before) : ratio(values[1] - values[0], before);
}
const shareOfBoth = (values) => ratio(values[0], sides[0].sum) + ratio(values[1], sides[1].sum);
const isLess = (change) => change === 0 || Math.abs(change) < state.least / 100;

// The verdict for each part and for all: '' for a change below the threshold. A part gets as much of the error as its
// share (Holm).
function judge(parts) {
  const canCount = (values) => (state.by === 'shares' ? shareOfBoth(values) : ratio(values[0] + values[1], sides[0].sum));
  const tests = [];
  parts.forEach((values, at) => {
    if (shareOfBoth(values) && canCount(values) >= state.least / 100) tests.push({ at, values, weight: shareOfBoth(values) });
  });
  if (state.by === 'weights') {
    const share = (tests.reduce((sum, { weight }) => sum + weight, 0) * ERROR_OF_ALL) / (1 - ERROR_OF_ALL);
    tests.push({ at: parts.length, values: sides.map((side) => side.sum), weight: share || 1 });
  }
  for (const test of tests) test.probability = probability(test.values);
  tests.sort((a, b) => a.probability / a.weight - b.probability / b.weight || a.at - b.at);
  let rest = tests.reduce((sum, { weight }) => sum + weight, 0), isNoise = false;
  const verdicts = Array(parts.length + 1).fill('');
  for (const { at, values, weight, probability } of tests) {
    isNoise ||= probability > (ERROR * weight) / rest;
    rest -= weight;
    verdicts[at] = isLess(moved(values)) ? '' : isNoise ? 'noise' : 'changed';
  }
  return verdicts;
}

// Verdicts of functions by own weight and in total; the last one is of the whole.
let verdicts = { own: [], total: [] };
function judgeFunctions() {
  const of = (sums) => judge(functions.map((_, index) => sides.map((side) => side[sums][index])));
  verdicts = { own: of('ownOf'), total: of('totalOf') };
}

// True if sampling alone explains the change of a box. Each line of boxes has the whole error, and a box as much
// of it as its share.
function isNoise(box) {
  if (box.isNoise == null) {
    const [[a, b], [before, after]] = samplesOf(box.values);
    // Most boxes are well within the noise; the normal distribution is a cheap test for that.
    const isNear = (a * after - b * before) ** 2 < 2 * before * after * (a + b);
    box.isNoise = isNear || probability(box.values) > (ERROR * shareOfBoth(box.values)) / 2;
  }
  return box.isNoise;
}
