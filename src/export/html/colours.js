// Gives canvases the colours of page.css.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const triple = (name) => style(name).split(' ').map(parseFloat);
const hsl = ([hue, saturation, light]) => `hsl(${hue} ${saturation}% ${light}%)`;
const mix = (from, to, part) => from.map((value, at) => value + (to[at] - value) * part);
const PLACES = ['--user', '--kernel', '--jit'];
let colours = {};

function readColours() {
  colours = { byFunction: [] };
  for (const name of ['--text', '--weak', '--line', '--ink', '--mark', '--back', '--panel', '--link']) colours[name] = style(name);
  for (const name of [...PLACES, '--inlined', '--nameless', '--more', '--less', '--same', '--heat-low', '--heat-high']) colours[name] = triple(name);
}

function colourOf(index) {
  if (colours.byFunction[index]) return colours.byFunction[index];
  const kind = functionKind[index];
  const base = colours[kind & 8 ? '--nameless' : kind & 4 ? '--inlined' : PLACES[kind & 3]];
  let hash = 7;
  for (const char of functions[index]) hash = (hash * 31 + char.codePointAt(0)) >>> 0;
  const colour = [base[0] + (hash % 23) - 11, base[1], base[2] + ((hash >>> 8) % 9) - 4];
  return (colours.byFunction[index] = hsl(colour));
}

// Stacks over time show one recording.
const showsChanges = () => compare && state.view !== 'chart';

function changeColour(box) {
  const change = isNoise(box) ? 0 : moved(box.values);
  const part = Math.sqrt(Math.min(1, Math.abs(change) / (flame.most || 1)));
  const to = colours[change > 0 ? '--more' : '--less'];
  return hsl([to[0], ...mix(colours['--same'], to, part).slice(1)]);
}

// Prepares a canvas of this many CSS pixels for drawing.
function surface(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.height = height + 'px';
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
