// Keeps the user's choices in the address, so that a reload or a link shows the same, and "back" undoes them.

const start = {};
let remembered = '', changed = -Infinity;

const isList = (value) => Array.isArray(value);

function address() {
  state.spans = sides.map((side) => (side.from == null ? '' : `${side.from}-${side.to}`));
  const fields = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    const text = isList(value) ? value.join('_') : String(value);
    if (text !== start[key]) fields.set(key, text);
  }
  return fields.toString();
}

// The defaults, which the address omits.
function begin() {
  address();
  for (const [key, value] of Object.entries(state)) start[key] = isList(value) ? value.join('_') : String(value);
}

// Changes in quick succession, as in a drag, are one step for "back".
function remember() {
  const now = address();
  if (now === remembered) return;
  const quick = performance.now() - changed < 700;
  changed = performance.now();
  remembered = now;
  history[quick ? 'replaceState' : 'pushState'](null, '', now ? `#${now}` : location.pathname + location.search);
}

// Applies an address, as far as this page has its names.
function recall() {
  remembered = location.hash.slice(1);
  const fields = new URLSearchParams(remembered);
  const number = (text) => (/^\d+$/.test(text) ? +text : NONE);
  for (const key of Object.keys(start)) {
    const text = fields.get(key) ?? start[key];
    if (key === 'spans') state.spans = text.split('_');
    else if (isList(state[key])) state[key] = text.split('_').map(number).filter((index) => index !== NONE);
    else if (typeof state[key] === 'number') state[key] = number(text);
    else state[key] = typeof state[key] === 'boolean' ? text === 'true' : text;
  }
  for (const key of ['merge', 'only', 'hide']) state[key] = state[key].filter(isFunction);
  for (const key of ['centre', 'listed']) if (!isFunction(state[key])) state[key] = NONE;
  sides.forEach((side, at) => {
    const [from, to] = (state.spans[at] || '').split('-').map(parseFloat);
    const isSpan = side.heat && from >= 0 && to > from;
    Object.assign(side, isSpan ? { from, to } : { from: null, to: null });
  });
  for (const id of CHOICES) {
    const known = [...$(id).options].map((option) => option.value);
    if (!KINDS.includes(id) && !known.includes(state[id])) state[id] = start[id];
  }
  if (!TABS[state.tab]) state.tab = start.tab;
  fillTasks();
  // The same choices may be written in another way.
  remembered = address();
  refresh();
  sides.forEach((side) => side.heat && sayCell(side, null));
}
