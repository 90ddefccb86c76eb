// Adds up the samples that the user chose, and draws everything that shows them.

const taken = (task) => KINDS.every((kind) => !state[kind] || task[kind] === state[kind]);

// The first row at or after a time.
function rowAt(side, time) {
  let [low, high] = [0, side.timed];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (side.time[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

// Adds up the chosen samples of the chosen span, by node, function and label.
function addUp(side) {
  const all = side.from == null;
  const takes = side.tasks.map(taken);
  const event = side.events.findIndex((event) => event.name === state.event);
  // A sample with a duration may have begun before the span.
  const { lasts } = currentEvent();
  const cuts = !all && lasts;
  const [first, end] = all ? [0, side.rows] : [cuts ? 0 : rowAt(side, side.from), rowAt(side, side.to)];
  const periods = state.unit === 'period';
  const own = new Float64Array(parent.length);
  side.byLabel = new Float64Array(side.labels.length);
  side.samplesByLabel = new Float64Array(side.labels.length);
  side.squares = 0;
  const { event: events, label: labels, node: nodes, samples, period, byLabel, samplesByLabel } = side;
  const places = new Map(rootNames().map((name, at) => [name, at]));
  const rootOf = state.root ? side.tasks.map((task) => places.get(task[state.root])) : null;
  side.bySpot = new Float64Array(code.reduce((sum, { instructions }) => sum + instructions.length, 0));
  side.byRoot = rootNames().map(() => ({ sum: 0, nodes: [], weights: [] }));
  for (let row = first; row < end; row++) {
    const label = labels[row];
    if (events[row] !== event || !takes[label] || !isKept(nodes[row])) continue;
    const begun = cuts && side.time[row] < side.from;
    if (begun && side.time[row] + period[row] <= side.from) continue;
    const part = cuts ? Math.min(side.to, side.time[row] + period[row]) - Math.max(side.from, side.time[row]) : period[row];
    const calls = begun ? 0 : samples[row];
    // As in folded lines, a sample without a period counts 1, unless periods are times.
    const weight = periods && (part || lasts) ? part : calls;
    const node = nodeOf && nodes[row] !== NONE ? nodeOf[nodes[row]] : nodes[row];
    if (node !== NONE) own[node] += weight;
    if (side.spot[row]) side.bySpot[side.spot[row] - 1] += weight;
    // Samples that are stored as one count are assumed to have equal periods.
    side.squares += (weight * weight) / (calls || 1);
    byLabel[label] += weight;
    samplesByLabel[label] += calls;
    if (!rootOf) continue;
    const root = side.byRoot[rootOf[label]];
    root.sum += weight;
    if (node !== NONE) {
      root.nodes.push(node);
      root.weights.push(weight);
    }
  }
  const sum = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
  Object.assign(side, { sum: sum(byLabel), sampleSum: sum(samplesByLabel) });
  const total = totals(own, parent);
  const [ownOf, totalOf] = [new Float64Array(functions.length), new Float64Array(functions.length)];
  for (let node = parent.length - 1; node >= 0; node--) {
    ownOf[nodeFunction[node]] += own[node];
    if (!repeated[node]) totalOf[nodeFunction[node]] += total[node];
  }
  Object.assign(side, { own, total, ownOf, totalOf });
}

// The nodes with samples of a process, thread, CPU or cgroup as a separate tree with sums.
function treeBelow(place) {
  const roots = sides.map((side) => side.byRoot[place]);
  const found = [];
  for (const { nodes } of roots) {
    for (const node of nodes) {
      for (let at = node; at !== NONE && numberOf[at] === NONE; at = parent[at]) {
        numberOf[at] = 0;
        found.push(at);
      }
    }
  }
  // A parent comes before its children, as in the whole tree.
  const all = Int32Array.from(found).sort();
  all.forEach((node, at) => (numberOf[node] = at));
  const above = all.map((node) => (parent[node] === NONE ? NONE : numberOf[parent[node]]));
  const sums = roots.map(({ nodes, weights }) => {
    const own = new Float64Array(all.length);
    nodes.forEach((node, at) => (own[numberOf[node]] += weights[at]));
    return { own, total: totals(own, above) };
  });
  for (const node of all) numberOf[node] = NONE;
  return { parent: above, nodeFunction: all.map((node) => nodeFunction[node]), ...childrenOf(above), sums };
}

// Weights of nodes, including all nodes below them.
function totals(own, parent) {
  const total = own.slice();
  for (let node = parent.length - 1; node >= 0; node--) {
    if (parent[node] !== NONE) total[parent[node]] += total[node];
  }
  return total;
}

function refresh() {
  shape();
  sides.forEach(addUp);
  if (compare) judgeFunctions();
  const said = sides.map((side) => `${count(side.sampleSum)} ${things()}` + (state.unit === 'period' ? `, ${amount(side.sum)}` : ''));
  const [before, after] = sides.map((side) => side.sum);
  const verdict = verdicts.own.at(-1);
  const grown = before > 0 ? ` (${points(after / before - 1)}${verdict ? ': ' + verdict : ''})` : '';
  $('shown').textContent = compare ? `before ${said[0]}; after ${said[1]}${grown}` : said[0];
  $('shown').dataset.sums = sides.map((side) => side.sum).join(' ');
  $('found').textContent = '';
  search();
  layOut();
  drawHeats();
  drawFlame();
  // The figures of a selected box follow the choice of what is counted.
  showFocus($('flame-said').textContent !== '');
  showPanel();
  showChoices();
  remember();
}

let pending = 0;
function refreshSoon() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(refresh);
}
