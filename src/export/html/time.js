// Draws the map of samples over time, in which the user selects a span by pointer or keys.

// The most rows of names, and the height in which they scroll.
const AXIS = 20, MOST_ROWS = 2000, SEEN = 320;

// A round width of columns, ns. Rows by parts of a column show a rhythm best if the column is one second.
function columnWidth(span) {
  const most = state.rows === 'parts' ? 240 : 400;
  if (state.rows === 'parts' && span >= 20e9 && span <= most * 1e9) return 1e9;
  let unit = 1;
  for (let step = 0; span / unit > most / 2; step++) unit *= [2, 2.5, 2][step % 3];
  return unit;
}

// True if the periods of the chosen samples are different times, such as waits off the CPU.
function areWaits() {
  const { unit, lasts } = currentEvent();
  if (state.unit !== 'period' || unit !== 'ns' || lasts || state.rows === 'event') return false;
  return sides.some(({ events, event, samples, period }) => {
    const chosen = events.findIndex(({ name }) => name === state.event);
    const times = period.map((time, row) => time / samples[row]).filter((_, row) => event[row] === chosen);
    return times.some((time) => time > 2 * times[0] || times[0] > 2 * time);
  });
}

const sizeOf = (heat, size) => (heat.waits ? duration(size) : count(size));

// Counts the samples of each cell, if the choice has changed.
function heatOf(side) {
  const mode = state.rows;
  const waits = areWaits();
  const counted = JSON.stringify([mode, state.event, waits, KINDS.map((kind) => state[kind]), state.only, state.hide]);
  if (side.heat.counted === counted) return;
  side.heat.counted = counted;
  // Two recordings share one scale of time.
  const [span, step] = ['span', 'step'].map((key) => Math.max(...sides.filter((side) => side.heat).map((side) => side[key])));
  const unit = Math.max(step, columnWidth(span));
  const heat = side.heat;
  heat.unit = unit;
  heat.columns = Math.max(1, Math.ceil(span / unit));
  heat.names = null;
  const events = mode === 'event';
  const takes = side.tasks.map(taken);
  const chosen = side.events.findIndex((event) => event.name === state.event);
  const counts = (row) => (events || side.event[row] === chosen) && takes[side.label[row]] && isKept(side.node[row]);
  const sizes = waits ? side.period : side.samples;
  heat.waits = waits;
  // The row of names that a sample is in.
  let rowOf = null;
  if (mode !== 'parts') {
    const nameOf = events ? (row) => side.events[side.event[row]]?.name ?? '' : (row) => side.tasks[side.label[row]][mode];
    const sums = new Map();
    for (let row = 0; row < side.timed; row++) {
      if (counts(row)) sums.set(nameOf(row), (sums.get(nameOf(row)) ?? 0) + sizes[row]);
    }
    const names = ranked(mode, sums);
    const others = names.splice(MOST_ROWS);
    heat.choosable = names.length;
    if (others.length) names.push(`${others.length} others`);
    const place = new Map(names.map((name, at) => [name, at]));
    rowOf = (row) => place.get(nameOf(row)) ?? names.length - 1;
    heat.names = names;
  }
  // At least two samples a cell on average; at least 10 rows.
  const sum = side.allSamples / heat.columns / 2;
  const parts = [50, 40, 25, 20].find((parts) => parts <= sum) ?? 10;
  heat.rows = heat.names ? Math.max(1, heat.names.length) : Math.max(1, Math.min(parts, Math.floor(unit / step)));
  const bins = new Float64Array(heat.columns * heat.rows);
  const { time } = side;
  for (let row = 0; row < side.timed; row++) {
    if (!counts(row)) continue;
    const column = Math.floor(time[row] / unit);
    const part = rowOf ? rowOf(row) : Math.floor(((time[row] - column * unit) / unit) * heat.rows);
    bins[column * heat.rows + part] += sizes[row];
  }
  heat.bins = bins;
  // Events are sampled at different rates, so each has a scale of its own.
  const mosts = new Map();
  bins.forEach((bin, cell) => {
    if (!bin) return;
    const name = events ? heat.names[cell % heat.rows] : '';
    mosts.set(name, Math.max(mosts.get(name) ?? 0, bin));
  });
  heat.mosts = mosts;
}

// The number of samples with the strongest colour in a row, equal in both recordings.
function mostOf({ names }, row) {
  const name = state.rows === 'event' ? names[row] : '';
  return Math.max(...sides.map((side) => side.heat?.mosts.get(name) ?? 0));
}

// The times that a cell stands for.
function cellSpan({ heat }, column, row) {
  if (heat.names) return [column * heat.unit, (column + 1) * heat.unit];
  const part = heat.unit / heat.rows;
  return [column * heat.unit + row * part, column * heat.unit + (row + 1) * part];
}

function drawHeats() {
  const drawn = sides.filter((side) => side.heat);
  drawn.forEach(heatOf);
  drawn.forEach(drawHeat);
  if (!drawn.length) return;
  const [{ heat }] = drawn;
  const most = state.rows === 'event' ? 'the most of its row' : sizeOf(heat, mostOf(heat, 0));
  $('scale-least').textContent = heat.waits ? 'time in a cell: 0' : `${things()} in a cell: 1`;
  $('scale-most').textContent = most;
}

function drawHeat(side) {
  const { heat } = side;
  const tall = heat.names ? Math.max(20, Math.min(18, Math.max(14, SEEN / heat.rows)) * heat.rows) : Math.max(100, Math.min(200, Math.round(window.innerHeight * 0.15))) / sides.length;
  const height = Math.min(tall, SEEN);
  // Only the visible part is drawn, on a canvas that moves with it.
  heat.tall.style.height = tall + AXIS + 'px';
  heat.scroller.style.height = height + AXIS + 'px';
  const width = heat.canvas.clientWidth;
  // Room for the names of rows.
  const margin = width < 600 ? 70 : 130;
  const pen = surface(heat.canvas, width, height + AXIS);
  const [cell, line] = [(width - margin) / heat.columns, tall / heat.rows];
  Object.assign(heat, { cell, line, height, margin });
  pen.fillStyle = colours['--panel'];
  pen.fillRect(margin, 0, width - margin, height);
  const gap = cell > 5 && line > 3 ? 0.6 : 0;
  const seen = heat.names ? [Math.floor(heat.scroller.scrollTop / line), Math.ceil((heat.scroller.scrollTop + height) / line)] : [0, heat.rows];
  const rows = Array.from({ length: heat.rows }, (_, row) => row).slice(...seen);
  for (const row of rows) {
    const most = mostOf(heat, row);
    for (let column = 0; column < heat.columns; column++) {
      const bin = heat.bins[column * heat.rows + row];
      if (!bin) continue;
      const [from, to] = cellSpan(side, column, row);
      pen.globalAlpha = side.from == null || (from < side.to && to > side.from) ? 1 : 0.22;
      pen.fillStyle = hsl(mix(colours['--heat-low'], colours['--heat-high'], Math.sqrt(bin / most)));
      pen.fillRect(margin + column * cell, heatTop(heat, row), cell - gap, line - gap);
    }
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colours['--weak'];
  pen.font = '11px ' + getComputedStyle(document.body).fontFamily;
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  if (heat.names) {
    for (const row of rows) pen.fillText(shortenedInside(heat.names[row] ?? '', Math.floor((margin - 8) / 6.6)), margin - 8, heatTop(heat, row) + line / 2);
  } else {
    pen.fillText('+' + duration(heat.unit).replace(/\.?0+ /, ' '), margin - 8, 7);
    pen.fillText('+0', margin - 8, height - 6);
  }
  // The axis is below the rows, also if the last row is cut.
  pen.clearRect(0, height, width, AXIS);
  pen.textAlign = 'center';
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((every) => every * cell > 64) ?? 1000;
  // One unit for the whole axis: parts of a second if that is short.
  const [size, unit] = UNITS.find(([size]) => heat.unit * heat.columns >= 2 * size) ?? [1, ' ns'];
  const digits = [0, 1, 2, 3, 4, 5, 6].find((digits) => Number.isInteger(+((heat.unit * every) / size * 10 ** digits).toFixed(6))) ?? 9;
  for (let column = 0; column < heat.columns; column += every) {
    pen.fillText(((column * heat.unit) / size).toFixed(digits) + unit, margin + column * cell, height + 11);
  }
  if (heat.cursor && document.activeElement === heat.canvas) {
    pen.strokeStyle = colours['--text'];
    pen.lineWidth = 2;
    pen.strokeRect(margin + heat.cursor[0] * cell, heatTop(heat, heat.cursor[1]), cell, line);
  }
}

const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + '…' : text);
// The end of a name has the number of its process, or the last part of its path.
function shortenedInside(text, most) {
  const end = Math.ceil(most / 2);
  return text.length > most ? `${text.slice(0, most - end - 1)}…${text.slice(-end)}` : text;
}
// Parts of a second run upwards, as in FlameScope; rows with names downwards.
const heatTop = (heat, row) => (heat.names ? row * heat.line - heat.scroller.scrollTop : (heat.rows - 1 - row) * heat.line);

function cellAt(side, event) {
  const { heat } = side;
  const box = heat.canvas.getBoundingClientRect();
  const within = (value, most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
  const column = within((event.clientX - box.left - heat.margin) / heat.cell, heat.columns);
  const seen = Math.min(event.clientY - box.top, heat.height - 1);
  const row = within((seen + heat.scroller.scrollTop) / heat.line, heat.rows);
  return [column, heat.names ? row : heat.rows - 1 - row];
}

// Scrolls until a row is seen.
function showRow({ names, scroller, line, height }, row) {
  if (!names) return;
  scroller.scrollTop = Math.min(row * line, Math.max(scroller.scrollTop, (row + 1) * line - height));
}

// A click on a row's name selects it as in the lists above the map; a second click shows all rows.
function chooseRow({ heat }, row) {
  if (!heat.names || row >= heat.choosable) return;
  const [kind, name] = [state.rows, heat.names[row]];
  state[kind] = state[kind] === name && kind !== 'event' ? '' : name;
  if (kind === 'event') chooseUnit();
  fillTasks();
  refresh();
}

function choose(side, from, to) {
  const order = (a, b) => cellSpan(side, ...a)[0] - cellSpan(side, ...b)[0];
  const [first, last] = order(from, to) <= 0 ? [from, to] : [to, from];
  setSpan(side, cellSpan(side, ...first)[0], cellSpan(side, ...last)[1]);
}

function setSpan(side, from, to) {
  Object.assign(side, { from, to });
  sayCell(side, null);
  refreshSoon();
}

// The recording's own clock, as perf shows it.
function clock(side, time) {
  const ns = BigInt(side.first_time) + BigInt(Math.round(time));
  return `${ns / 1000000000n}.${String(ns % 1000000000n).padStart(9, '0')}`;
}

function sayCell(side, cell) {
  const { heat } = side;
  const digits = currentEvent().lasts ? 9 : 4;
  let said = side.from == null ? '' : `Span: ${seconds(side.from, digits)} s to ${seconds(Math.min(side.to, side.span), digits)} s, `
    + `perfx filter --time ${clock(side, side.from)},${clock(side, side.to)}`;
  if (cell) {
    const [from, to] = cellSpan(side, ...cell);
    const name = heat.names ? `${heat.names[cell[1]] ?? ''}, ` : '';
    said = `${name}${seconds(from, digits)} s to ${seconds(to, digits)} s: ${sizeOf(heat, heat.bins[cell[0] * heat.rows + cell[1]])}${heat.waits ? '' : ' ' + things()}`;
  }
  $('heat-said').textContent = compare && said ? `${side.title}: ${said}` : said;
}

function makeHeat(side) {
  if (!side.timed || side.span <= 0) {
    const why = side.rows ? 'its samples have no time' : 'it has no samples';
    $('heats').append(make('p', { className: 'hint' }, `${side.about.name}: ${why}.`));
    return;
  }
  const canvas = make('canvas', { tabIndex: 0 });
  canvas.setAttribute('role', 'application');
  canvas.setAttribute('aria-label', `${side.title}: samples over time`);
  canvas.setAttribute('aria-describedby', 'heat-said');
  const tall = make('div', {}, canvas);
  const scroller = make('div', { className: 'map', tabIndex: -1, onscroll: () => drawHeat(side) }, tall);
  side.heat = { canvas, tall, scroller, cursor: null };
  const rounded = side.step > 1 ? ` There are so many samples that their times are rounded down to ${duration(side.step).replace(/\.?0+ /, ' ')}.` : '';
  const timeless = side.timeless ? ` Some samples have no time; they are in the whole recording only.` : '';
  const caption = `${compare ? side.title + '. ' : ''}0 s is ${clock(side, 0)} of the recording's clock.${rounded}${timeless}`;
  $('heats').append(make('figure', { className: 'heat' }, scroller, make('figcaption', {}, caption)));
  let anchor = null;
  canvas.addEventListener('pointerdown', (event) => {
    const [left, cell] = [canvas.getBoundingClientRect().left, cellAt(side, event)];
    if (event.clientX - left < side.heat.margin) {
      chooseRow(side, cell[1]);
      return;
    }
    anchor = cell;
    side.heat.cursor = anchor;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (anchor) choose(side, anchor, cellAt(side, event)); else sayCell(side, cellAt(side, event));
  });
  canvas.addEventListener('pointerup', (event) => {
    if (anchor) choose(side, anchor, cellAt(side, event));
    anchor = null;
  });
  canvas.addEventListener('pointerleave', () => anchor || sayCell(side, null));
  let held = null;
  canvas.addEventListener('keydown', (event) => {
    const { heat } = side;
    const [column, row] = heat.cursor ?? [0, 0];
    const up = heat.names ? -1 : 1;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, up], ArrowDown: [0, -up] }[event.key];
    if (step) {
      const within = (value, most) => Math.min(most - 1, Math.max(0, value));
      const cell = [within(column + step[0], heat.columns), within(row + step[1], heat.rows)];
      held = event.shiftKey ? held ?? heat.cursor ?? cell : null;
      heat.cursor = cell;
      showRow(heat, cell[1]);
      if (held) choose(side, held, cell); else { drawHeat(side); sayCell(side, cell); }
    } else if (event.key === 'Enter') {
      choose(side, [column, 0], [column, heat.rows - 1]);
    } else if (event.key === ' ') {
      chooseRow(side, row);
    } else if (event.key === 'Escape') {
      setSpan(side, null, null);
    } else return;
    event.preventDefault();
  });
  for (const kind of ['focus', 'blur']) canvas.addEventListener(kind, () => (heatOf(side), drawHeat(side)));
}
