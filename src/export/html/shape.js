// Shapes the stacks: functions merged into their callers, recursion as one frame, and stacks that
// are hidden.

// For each recorded node the shown one, and whether stacks that end in it are kept; null if nothing is changed.
let nodeOf = null, keeps = null, shaped = null;

function shape() {
  const wanted = JSON.stringify([state.merge, state.recursion, state.only, state.hide]);
  if (wanted === shaped) return;
  shaped = wanted;
  nodeOf = keeps = null;
  plant(state.merge.length || state.recursion ? reduced() : recorded);
  if (state.only.length || state.hide.length) keeps = kept();
}

// The tree without frames of merged functions and of direct recursion.
function reduced() {
  const [parents, indices, known] = [[], [], new Map()];
  nodeOf = new Int32Array(recorded.parent.length);
  const merged = new Set(state.merge);
  recorded.nodeFunction.forEach((index, node) => {
    const above = recorded.parent[node] === NONE ? NONE : nodeOf[recorded.parent[node]];
    if (merged.has(index) || (state.recursion && above !== NONE && indices[above] === index)) {
      nodeOf[node] = above;
      return;
    }
    const key = (above + 1) * functions.length + index;
    if (!known.has(key)) {
      known.set(key, parents.length);
      parents.push(above);
      indices.push(index);
    }
    nodeOf[node] = known.get(key);
  });
  return { parent: Int32Array.from(parents), nodeFunction: Uint32Array.from(indices) };
}

// Stacks with all functions of `only`, and none of `hide`.
function kept() {
  const bits = new Map(state.only.slice(0, 30).map((index, at) => [index, 1 << at]));
  const all = (1 << bits.size) - 1;
  const HIDDEN = 1 << 30;
  state.hide.forEach((index) => bits.set(index, HIDDEN));
  const has = new Int32Array(recorded.parent.length);
  recorded.nodeFunction.forEach((index, node) => {
    const above = recorded.parent[node];
    has[node] = (above === NONE ? 0 : has[above]) | (bits.get(index) ?? 0);
  });
  return Uint8Array.from(has, (bits) => (bits === all ? 1 : 0));
}

// True if the samples of a row are shown.
const isKept = (node) => !keeps || (node === NONE ? !state.only.length : keeps[node] === 1);

// The children of each node in one list; nodes without a parent come first.
function childrenOf(parent) {
  const childStart = new Uint32Array(parent.length + 2);
  for (const above of parent) childStart[above + 2]++;
  for (let at = 1; at < childStart.length; at++) childStart[at] += childStart[at - 1];
  const childNodes = new Uint32Array(parent.length);
  const free = childStart.slice();
  parent.forEach((above, node) => (childNodes[free[above + 1]++] = node));
  return { childStart, childNodes };
}

function plant(tree) {
  ({ parent, nodeFunction } = tree);
  ({ childStart, childNodes } = childrenOf(parent));
  numberOf = new Int32Array(parent.length).fill(NONE);
  findRepeated();
}

// For each node, true if one of its callers is the same function: totals count such nodes once.
function findRepeated() {
  repeated = new Uint8Array(parent.length);
  const open = new Uint32Array(functions.length);
  const path = [];
  const next = [childStart[0]];
  while (next.length) {
    const above = path.length ? path[path.length - 1] : NONE;
    if (next[next.length - 1] < childStart[above + 2]) {
      const node = childNodes[next[next.length - 1]++];
      repeated[node] = open[nodeFunction[node]]++ ? 1 : 0;
      path.push(node);
      next.push(childStart[node + 1]);
    } else {
      next.pop();
      if (path.length) open[nodeFunction[path.pop()]]--;
    }
  }
}
