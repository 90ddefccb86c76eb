// Draws call stacks as icicles, flames or inverted, with search, zoom and keys.

const LINE = 19, LEAST = 0.6;
const flame = { levels: [], focus: null, most: 0 };
let matches = null;
// The function that was clicked; a search that is typed takes every name with the text in it.
let clicked = null;

function search() {
  const text = $('search').value.trim();
  matches = null;
  if (clicked != null && functions[clicked].trim() !== text) clicked = null;
  $('search').setCustomValidity('');
  if (!text) return;
  let test = (name) => name.toLowerCase().includes(text.toLowerCase());
  const expression = /^\/(.+)\/?$/.exec(text);
  if (clicked != null) {
    test = (_, index) => index === clicked;
  } else if (expression) {
    try {
      const pattern = new RegExp(expression[1].replace(/\/$/, ''), 'i');
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

// The boxes called from a box: of the tree, or of the inverted tree, in which a box has the nodes it stands for.
function below(box) {
  if (box.kids) return box.kids;
  const kids = new Map();
  const kid = (index) => {
    if (!kids.has(index)) kids.set(index, { index, depth: box.depth + 1, up: box, values: sides.map(() => 0), nodes: [] });
    return kids.get(index);
  };
  if (flame.view === 'inverted') {
    box.nodes.forEach(([node, from]) => {
      if (node < 0) return;
      const next = kid(nodeFunction[node]);
      sides.forEach((side, at) => (next.values[at] += side.own[from]));
      next.nodes.push([parent[node], from]);
    });
  } else {
    for (let at = childStart[box.node + 1]; at < childStart[box.node + 2]; at++) {
      const node = childNodes[at];
      if (sides.every((side) => !side.total[node])) continue;
      const next = kid(nodeFunction[node]);
      next.node = node;
      next.values = sides.map((side) => side.total[node]);
    }
  }
  const size = (box) => Math.max(...box.values.map((value, at) => ratio(value, sides[at].sum)));
  box.kids = [...kids.values()].sort((a, b) => size(b) - size(a) || (functions[a.index] < functions[b.index] ? -1 : 1));
  return box.kids;
}

function layOut() {
  flame.view = $('view').value;
  const shown = compare ? +$('width').value : 0;
  const root = { index: NONE, depth: 0, up: null, node: NONE, values: sides.map((side) => side.sum), x: 0, width: 1, onZoom: true };
  root.nodes = flame.view !== 'inverted' ? [] : Array.from(parent.keys())
    .filter((node) => sides.some((side) => side.own[node])).map((node) => [node, node]);
  const least = LEAST / Math.max(1, $('flame-box').clientWidth);
  const open = [root];
  Object.assign(flame, { levels: [], focus: null, root, most: 0 });
  while (open.length) {
    const box = open.pop();
    (flame.levels[box.depth] ??= []).push(box);
    if (box.depth) flame.most = Math.max(flame.most, Math.abs(change(box)));
    const only = state.zoom[box.depth];
    const within = only != null && box.onZoom;
    const kids = within ? below(box).filter((kid) => kid.index === only) : below(box);
    let x = box.x;
    const placed = [];
    for (const kid of kids) {
      kid.width = within ? box.width : box.width * ratio(kid.values[shown], box.values[shown]);
      kid.x = x;
      x += kid.width;
      kid.onZoom = within;
      if (kid.width >= least) placed.push(kid);
    }
    open.push(...placed.reverse());
  }
  flame.levels.forEach((level) => level.sort((a, b) => a.x - b.x));
  const wanted = state.focus;
  flame.focus = root;
  for (const index of wanted) {
    const next = flame.levels[flame.focus.depth + 1]?.find((box) => box.up === flame.focus && box.index === index);
    if (!next) break;
    flame.focus = next;
  }
  $('unzoom').disabled = !state.zoom.length;
}

// The functions of a box and of those above it, outermost first.
function pathOf(box) {
  const path = [];
  for (let at = box; at.up; at = at.up) path.push(at.index);
  return path.reverse();
}

const share = (box, at) => ratio(box.values[at], sides[at].sum);
const change = (box) => (compare ? share(box, 1) - share(box, 0) : 0);
const nameOf = (box) => (box.index === NONE ? 'all' : functions[box.index]);
const fileOf = (index) => (functionFile[index] >= 0 ? files[functionFile[index]].path : 'no file');
const flameTop = (depth) => (flame.view === 'flame' ? flame.levels.length - 1 - depth : depth) * LINE;

function drawFlame() {
  const holder = $('flame-box');
  const height = flame.levels.length * LINE;
  const seen = Math.min(height, Math.max(240, Math.min(620, Math.round(window.innerHeight * 0.62))));
  holder.style.height = seen + 2 + 'px';
  const width = holder.clientWidth;
  const pen = surface($('flame'), width, seen);
  // The canvas stays where it is seen, and only what is seen is drawn.
  $('flame-tall').style.height = height + 'px';
  pen.font = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
  pen.textBaseline = 'middle';
  const char = pen.measureText('0').width;
  const searching = matches != null;
  flame.levels.forEach((level, depth) => {
    const top = flameTop(depth) - holder.scrollTop;
    if (top < -LINE || top > seen) return;
    for (const box of level) {
      const [x, wide] = [box.x * width, box.width * width];
      const found = searching && box.index !== NONE && matches[box.index];
      const ancestor = box.depth < state.zoom.length;
      pen.globalAlpha = (searching && !found ? 0.4 : 1) * (ancestor ? 0.7 : 1);
      pen.fillStyle = found ? colours['--mark'] : box.index === NONE ? colours['--line'] : compare ? changeColour(change(box)) : colourOf(box.index);
      pen.fillRect(x, top, Math.max(wide - (wide > 3 ? 1 : 0), 0.5), LINE - 1);
      if (box === flame.focus && document.activeElement === $('flame')) {
        pen.globalAlpha = 1;
        pen.strokeStyle = colours['--text'];
        pen.lineWidth = 2;
        pen.strokeRect(x + 1, top + 1, Math.max(1, wide - 3), LINE - 3);
      }
      const room = Math.floor((wide - 8) / char);
      if (room < 2) continue;
      pen.globalAlpha = 1;
      pen.fillStyle = found ? '#fff' : box.index === NONE ? colours['--text'] : colours['--ink'];
      const name = box.index === NONE ? `all: ${state.event}` : nameOf(box);
      pen.fillText(shortened(name, room), x + 4, top + LINE / 2);
    }
  });
  pen.globalAlpha = 1;
}

function boxAt(event) {
  const place = $('flame').getBoundingClientRect();
  const line = Math.floor((event.clientY - place.top + $('flame-box').scrollTop) / LINE);
  const depth = flame.view === 'flame' ? flame.levels.length - 1 - line : line;
  const x = (event.clientX - place.left) / place.width;
  return flame.levels[depth]?.find((box) => x >= box.x && x < box.x + box.width);
}

// What a box says about itself, in lines.
function lines(box) {
  const own = (at) => (box.index === NONE || flame.view === 'inverted' ? null : sides[at].own[box.node]);
  const numbers = sides.map((side, at) => {
    const alone = own(at) == null ? '' : `, itself ${percent(ratio(own(at), side.sum))}`;
    return `${compare ? side.title + ': ' : ''}${percent(share(box, at))} (${amount(box.values[at])})${alone}`;
  });
  if (compare) numbers.push(`change: ${points(change(box))}`);
  if (box.index === NONE) return numbers;
  const kind = functionKind[box.index];
  const where = [fileOf(box.index), kind & 4 ? 'inlined' : '', kind & 8 ? 'no symbol' : ''].filter(Boolean);
  return [...numbers, where.join(', ')];
}

// Selects a box. The focus stays where it is; the text below says what was selected.
function showFocus(say = true) {
  const box = flame.focus;
  if (say) $('flame-said').textContent = `${nameOf(box)}: ${lines(box).join('; ')}`;
  const chain = [];
  for (let at = box; at; at = at.up) chain.unshift(at);
  $('path').replaceChildren(...chain.map((at) => {
    const button = make('button', { type: 'button', onclick: () => zoom(at) }, nameOf(at));
    if (at === box) button.setAttribute('aria-current', 'true');
    return make('li', {}, button);
  }));
}

function select(box) {
  if (!box) return;
  flame.focus = box;
  state.focus = pathOf(box);
  const [holder, top] = [$('flame-box'), flameTop(box.depth)];
  if (top < holder.scrollTop) holder.scrollTop = top;
  if (top + LINE > holder.scrollTop + holder.clientHeight) holder.scrollTop = top + LINE - holder.clientHeight;
  drawFlame();
  showFocus();
}

function zoom(box) {
  state.zoom = state.focus = pathOf(box);
  layOut();
  if (flame.view === 'flame') $('flame-box').scrollTop = flame.levels.length * LINE;
  select(flame.focus);
}

function flameKey(event) {
  const box = flame.focus;
  const level = flame.levels[box.depth];
  const deeper = () => flame.levels[box.depth + 1]?.filter((kid) => kid.up === box).sort((a, b) => b.width - a.width)[0];
  const [down, up] = flame.view === 'flame' ? ['ArrowUp', 'ArrowDown'] : ['ArrowDown', 'ArrowUp'];
  const action = {
    [down]: () => select(deeper()),
    [up]: () => select(box.up),
    ArrowRight: () => select(level[level.indexOf(box) + 1]),
    ArrowLeft: () => select(level[level.indexOf(box) - 1]),
    Home: () => select(flame.root),
    Enter: () => zoom(box),
    Escape: () => zoom(flame.root),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function showTip(event) {
  const box = boxAt(event);
  const tip = $('tip');
  tip.hidden = !box;
  if (!box) return;
  tip.replaceChildren(make('b', {}, nameOf(box)), ...lines(box).map((line) => make('span', {}, line)));
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + 'px';
  const low = event.clientY + 18 + tip.offsetHeight > window.innerHeight;
  tip.style.top = (low ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
}
