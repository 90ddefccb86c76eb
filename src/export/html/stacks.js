// Lays out call stacks as boxes: icicles, flames, inverted, or the callers and callees of one function.

const LEAST = 0.6;
// `lines` has the boxes of each line, from the top and from left to right.
const flame = { lines: [], root: null, focus: null, most: 0 };
let matches = null;

// A name without parameters and template arguments.
function bare(name) {
  const inner = /(?!^)(<[^<>]*>|\([^()]*\))/g;
  // Of nested ones, the inner ones are removed first.
  for (let left = 50, before = null; left && before !== name; left--) [before, name] = [name, name.replace(inner, '')];
  return name;
}

// Interprets the search: a whole name, a part of names, or an expression.
function search() {
  const text = state.search.trim();
  matches = null;
  if (!text) return;
  const expression = /^\/(.+)$/.exec(text);
  if (expression) state.kind = 'expression';
  const isPart = (name) => name.toLowerCase().includes(text.toLowerCase());
  // The part of a bare name if there is one, so that types in parameters do not match.
  const [of] = [bare, (name) => name].filter((of) => functions.some((name) => isPart(of(name))));
  let test = (name) => of != null && isPart(of(name));
  if (state.kind === 'whole') {
    test = (name) => name === text;
  } else if (state.kind === 'expression') {
    try {
      const pattern = new RegExp(expression ? expression[1].replace(/\/$/, '') : text, 'i');
      test = (name) => pattern.test(name);
    } catch (error) {
      $('found').textContent = 'not a regular expression';
      return;
    }
  }
  matches = functions.map(test);
  // Samples with a match anywhere on their stack.
  const inside = new Uint8Array(parent.length);
  const sums = sides.map(() => 0);
  for (let node = 0; node < parent.length; node++) {
    const above = parent[node] >= 0 && inside[parent[node]];
    inside[node] = above || matches[nodeFunction[node]] ? 1 : 0;
    if (inside[node] && !above) sides.forEach((side, at) => (sums[at] += side.total[node]));
  }
  const shares = sides.map((side, at) => percent(ratio(sums[at], side.sum)));
  $('found').textContent = compare ? `found in ${shares[0]} before, ${shares[1]} after` : `found in ${shares[0]}`;
}

// A box stands for nodes of a tree. Below it are the functions that it called (`up` false) or its callers. A box
// of a caller has for each node the callee whose weight it shares.
function boxOf(index, above, up, tree = above.tree) {
  return { index, depth: above ? above.depth + 1 : 0, above, up, tree, values: sides.map(() => 0), nodes: [], from: [] };
}

// The boxes next to a box, the largest first.
function below(box) {
  if (box.kids) return box.kids;
  if (!box.tree) {
    box.tree = treeBelow(box.place);
    fillBox(box);
  }
  const { parent, nodeFunction, childStart, childNodes, sums } = box.tree;
  const kids = new Map();
  const kid = (index, up) => {
    const key = up ? -2 - index : index;
    if (!kids.has(key)) kids.set(key, boxOf(index, box, up));
    return kids.get(key);
  };
  const call = (at) => {
    const node = childNodes[at];
    if (sums.every(({ total }) => !total[node])) return;
    const next = kid(nodeFunction[node], false);
    next.nodes.push(node);
    sums.forEach(({ total }, side) => (next.values[side] += total[node]));
  };
  const calledBy = (node, from) => {
    if (node === NONE) return;
    const next = kid(nodeFunction[node], true);
    next.nodes.push(parent[node]);
    next.from.push(from);
    sums.forEach((sums, side) => (next.values[side] += sums[box.weight][from]));
  };
  if (box.groups) box.groups.forEach((group) => kids.set(group.index, group));
  else {
    if (!box.up) box.nodes.forEach((node) => { for (let at = childStart[node + 1]; at < childStart[node + 2]; at++) call(at); });
    if (box.up || box.isCentre) {
      const [nodes, from] = box.isCentre ? [box.nodes.map((node) => parent[node]), box.nodes] : [box.nodes, box.from];
      nodes.forEach((node, at) => calledBy(node, from[at]));
    }
  }
  for (const next of kids.values()) {
    next.weight = box.weight;
    next.size = Math.max(...next.values.map((value, at) => ratio(value, sides[at].sum)));
  }
  box.kids = [...kids.values()].sort((a, b) => b.size - a.size || (nameOf(a) < nameOf(b) ? -1 : 1));
  return box.kids;
}

// The root box.
function rootBox() {
  const root = boxOf(NONE, null, flame.view === 'inverted', { parent, nodeFunction, childStart, childNodes, sums: sides });
  root.values = sides.map((side) => side.sum);
  if (flame.view === 'callers') return centreBox(root);
  root.weight = flame.view === 'inverted' ? 'own' : 'total';
  fillBox(root);
  if (!state.root) return root;
  root.groups = rootNames().map((_, place) => {
    // The tree is built when the box is opened: most processes are too small to be seen.
    const values = sides.map((side) => side.byRoot[place].sum);
    return Object.assign(boxOf(functions.length + place, root, root.up, null), { place, values });
  }).filter((group) => group.values.some((value) => value));
  return root;
}

// The nodes of a box at the top.
function fillBox(box) {
  if (!box.up) box.nodes = [NONE];
  else {
    const { parent, sums } = box.tree;
    box.nodes = box.from = Array.from(parent.keys()).filter((node) => sums.some(({ own }) => own[node]));
  }
}

// A function between its callers and its callees. A recursive call is among these and not counted again.
function centreBox(all) {
  const index = state.centre === NONE ? heaviest() : state.centre;
  const box = boxOf(index, null, false, all.tree);
  Object.assign(box, { isCentre: true, weight: 'total', values: all.values.map(() => 0) });
  nodeFunction.forEach((called, node) => {
    if (called !== index || repeated[node]) return;
    box.nodes.push(node);
    sides.forEach((side, at) => (box.values[at] += side.total[node]));
  });
  return box;
}

function heaviest() {
  let best = 0;
  const own = sides[sides.length - 1].ownOf;
  own.forEach((weight, index) => { if (weight > own[best]) best = index; });
  return best;
}

function layOut() {
  flame.view = state.view;
  if (flame.view === 'chart') {
    layOutChart();
    return;
  }
  const shown = compare ? +state.width : 0;
  const root = rootBox();
  Object.assign(root, { x: 0, width: 1, onZoom: true, line: 0 });
  const least = LEAST / Math.max(1, $('flame-box').clientWidth);
  const [open, all] = [[root], []];
  Object.assign(flame, { lines: [], focus: null, root, most: 0 });
  while (open.length) {
    const box = open.pop();
    all.push(box);
    if (compare && box.above && !isNoise(box)) flame.most = Math.max(flame.most, Math.abs(moved(box.values)));
    const only = state.zoom[box.depth];
    const within = only != null && box.onZoom;
    const kids = within ? below(box).filter((kid) => kid.index === only) : below(box);
    const x = [box.x, box.x];
    const placed = [];
    for (const kid of kids) {
      kid.width = within ? box.width : box.width * ratio(kid.values[shown], box.values[shown]);
      kid.x = x[+kid.up];
      x[+kid.up] += kid.width;
      kid.onZoom = within;
      kid.line = box.line + (root.isCentre && kid.up ? -1 : 1);
      if (kid.width >= least) placed.push(kid);
    }
    open.push(...placed.reverse());
  }
  const most = all.reduce((most, box) => Math.max(most, box.line), 0);
  const first = all.reduce((first, box) => Math.min(first, box.line), 0);
  for (const box of all) {
    box.line = flame.view === 'flame' ? most - box.line : box.line - first;
    (flame.lines[box.line] ??= []).push(box);
  }
  flame.lines.forEach((line) => line.sort((a, b) => a.x - b.x));
  focusAgain(all);
}

// Selects the same box as before a new layout.
function focusAgain(boxes) {
  flame.focus = flame.root;
  for (const index of state.focus) {
    const next = boxes.find((box) => box.above === flame.focus && box.index === index);
    if (!next) break;
    flame.focus = next;
  }
}

// The functions of a box and of those above it, outermost first.
function pathOf(box) {
  const path = [];
  for (let at = box; at.above; at = at.above) path.push(at.index);
  return path.reverse();
}

const share = (box, at) => ratio(box.values[at], sides[at].sum);
const isFunction = (index) => index !== NONE && index < functions.length;
const nameOf = ({ index, name }) => name ?? (index === NONE ? 'all' : functions[index] ?? rootNames()[index - functions.length]);
const fileOf = (index) => (functionFile[index] >= 0 ? files[functionFile[index]].path : 'no file');

// Lines of text about a box.
function lines(box) {
  if (box.times) return chartLines(box);
  const isTree = isFunction(box.index) && !box.up && box.weight === 'total';
  const own = (at) => box.nodes.reduce((sum, node) => sum + box.tree.sums[at].own[node], 0);
  const numbers = sides.map((side, at) => {
    const alone = isTree && !box.isCentre ? `, itself ${percent(ratio(own(at), side.sum))}` : '';
    return `${compare ? side.title + ': ' : ''}${percent(share(box, at))} (${amount(box.values[at])})${alone}`;
  });
  if (compare && box.above) numbers.push(`change: ${points(moved(box.values))}, ${isNoise(box) ? 'which sampling explains' : 'more than the noise of sampling'}`);
  if (!isFunction(box.index)) return numbers;
  const kind = functionKind[box.index];
  const where = [fileOf(box.index), kind & 4 ? 'inlined' : '', kind & 8 ? 'no symbol' : ''].filter(Boolean);
  return [...numbers, where.join(', ')];
}
