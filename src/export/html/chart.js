// Lays out call stacks in the order of time, one thread below the other.

// The most threads, and the number of boxes after which no further thread is drawn.
const MOST_THREADS = 200, MOST_BOXES = 200000;
// Numbers of threads among functions follow those of all names that stacks can begin with.
const FIRST_THREAD = 1e9;

// Threads of the chosen samples, the heaviest first.
function chartThreads(side) {
  const sums = new Map();
  side.tasks.forEach((task, label) => side.byLabel[label] && sums.set(task.thread, (sums.get(task.thread) ?? 0) + side.byLabel[label]));
  return ranked('thread', sums);
}

// Chosen samples of each thread that have a time.
function chartRows(side, threads) {
  const [first, end] = side.from == null ? [0, side.timed] : [rowAt(side, side.from), rowAt(side, side.to)];
  const event = side.events.findIndex((event) => event.name === state.event);
  const rows = threads.map(() => []);
  const places = new Map(threads.map((thread, place) => [thread, place]));
  const placeOf = side.tasks.map((task) => (taken(task) ? places.get(task.thread) : null));
  for (let row = first; row < end; row++) {
    const place = placeOf[side.label[row]];
    if (side.event[row] === event && place != null && isKept(side.node[row])) rows[place].push(row);
  }
  // A sample with a duration may have begun before the span: the last one of each thread.
  const before = new Set(threads.keys());
  for (let row = first - 1; row >= 0 && before.size && side.events[event]?.lasts; row--) {
    const place = placeOf[side.label[row]];
    if (side.event[row] !== event || place == null || !before.delete(place)) continue;
    if (isKept(side.node[row]) && side.time[row] + side.period[row] > side.from) rows[place].unshift(row);
  }
  return rows;
}

// A sample stands for the time up to the next one, at most twice the usual distance: longer, the thread slept.
function longest(side, rows) {
  const gaps = rows.slice(1).map((row, at) => side.time[row] - side.time[rows[at]]).filter((gap) => gap > 0).sort((a, b) => a - b);
  return gaps.length ? 2 * gaps[gaps.length >> 1] : Math.max(1, side.span);
}

// A single thread is named by the root; each of several has a line with its name above its stacks.
function layOutChart() {
  const side = sides[compare ? +state.width : 0];
  const all = chartThreads(side);
  const threads = all.slice(0, MOST_THREADS);
  const rows = chartRows(side, threads);
  const [from, to] = side.from == null ? [0, Math.max(1, side.span)] : [side.from, Math.min(side.to, side.span)];
  const cell = Math.max((to - from) * LEAST / Math.max(1, $('flame-box').clientWidth), 1);
  const box = (index, above, line, rows, start, end) => ({
    index, above, line, depth: line, values: sides.map(() => 0), times: { side, rows, from: start, to: end },
  });
  const root = box(NONE, null, 0, rows.flat(), from, to);
  Object.assign(flame, { lines: [[root]], root, most: 0, threads: [] });
  const chart = { side, from, to, cell, box, boxes: 0, hidden: false };
  if (threads.length < 2) {
    root.name = threads[0] ?? 'no samples with a time';
    layOutThread(chart, root, rows[0] ?? []);
  } else {
    for (let place = 0; place < threads.length && chart.boxes < MOST_BOXES; place++) {
      if (!rows[place].length) continue;
      const thread = box(functions.length + FIRST_THREAD + place, root, flame.lines.length, rows[place], from, to);
      thread.name = threads[place];
      flame.lines.push([thread]);
      flame.threads.push(thread);
      layOutThread(chart, thread, rows[place]);
    }
    const shown = flame.threads.length;
    root.name = shown < all.length ? `${count(shown)} of ${count(all.length)} threads, those with the most ${things()}` : `${count(shown)} threads`;
  }
  if (chart.hidden) root.name += `, calls shorter than ${duration(cell)} may be hidden: choose a span of time to see them`;
  const boxes = flame.lines.flat();
  for (const { times } of boxes) times.to = Math.min(times.to, to);
  for (const box of boxes) {
    box.x = (box.times.from - from) / (to - from);
    box.width = (box.times.to - box.times.from) / (to - from);
  }
  focusAgain(boxes);
}

// Lays out the stacks of a thread below its box. Of samples that share a pixel, only the heaviest is
// drawn. So the work depends on the width and on the depth of stacks, not on the number of samples.
function layOutThread(chart, thread, rows) {
  const { side, from, to, cell, box } = chart;
  const { lasts } = currentEvent();
  const most = lasts ? 0 : longest(side, rows);
  const lastOf = (row) => side.time[row] + side.period[row];
  // The boxes that the previous sample was in, outermost first.
  let open = [];
  let drawn = 0;
  for (let at = 0; at < rows.length;) {
    const start = Math.max(from, side.time[rows[at]]);
    let best = rows[at];
    const first = at;
    let last = lastOf(best);
    for (at++; at < rows.length && side.time[rows[at]] < start + cell; at++) {
      if (side.period[rows[at]] > side.period[best]) best = rows[at];
      last = Math.max(last, lastOf(rows[at]));
    }
    drawn++;
    const next = at < rows.length ? side.time[rows[at]] : to;
    const end = Math.max(Math.min(next, lasts ? last : start + most), start + cell);
    const path = [];
    let node = side.node[best];
    if (nodeOf && node !== NONE) node = nodeOf[node];
    for (; node !== NONE; node = parent[node]) path.push(node);
    path.reverse();
    let same = 0;
    while (same < path.length && open[same]?.node === path[same] && open[same].times.to >= start) same++;
    // The function was called again.
    if (lasts && at - first === 1 && side.samples[best]) same = Math.min(same, path.length - 1);
    open = open.slice(0, same);
    open.forEach((box) => (box.times.to = end));
    for (const node of path.slice(same)) {
      const above = open[open.length - 1] ?? thread;
      const made = Object.assign(box(nodeFunction[node], above, above.line + 1, rows, start, end), { node });
      open.push(made);
      chart.boxes++;
      (flame.lines[made.line] ??= []).push(made);
    }
  }
  if (lasts && cell > 1 && drawn < rows.length) chart.hidden = true;
}

// Lines of text about a box.
function chartLines({ index, times: { side, rows, from, to } }) {
  const samples = rows.reduce((sum, row) => sum + (side.time[row] >= from && side.time[row] < to ? side.samples[row] : 0), 0);
  const places = currentEvent().lasts ? [from, to].map((time) => seconds(time, 9)) : [from, to].map((time) => seconds(time, 6));
  const about = [`${places.join(' s to ')} s: ${duration(to - from)}, ${count(samples)} ${things()}`];
  return isFunction(index) ? [...about, fileOf(index)] : about;
}
