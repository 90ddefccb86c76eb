// Fills the head of the page and its lists, and connects the controls.

function fill(select, options, value) {
  select.replaceChildren(...options.map(([value, text]) => make('option', { value }, text)));
  select.value = value;
}

function fillTasks() {
  for (const kind of KINDS) {
    const sums = new Map();
    for (const side of sides) {
      side.tasks.forEach((task, label) => {
        if (kind === 'thread' && state.process && task.process !== state.process) return;
        sums.set(task[kind], (sums.get(task[kind]) ?? 0) + side.samplesOf[label]);
      });
    }
    const names = ranked(kind, sums);
    const all = `all ${count(names.length)}`;
    const shown = names.filter((name, at) => at < 1000 || name === state[kind]);
    fill($(kind), [['', all], ...shown.map((name) => [name, `${name}: ${count(sums.get(name))}`])], state[kind]);
    $(kind).parentElement.hidden = (kind === 'cpu' || kind === 'cgroup') && names.length < 2;
  }
}

// Events are counted by periods, as in folded lines, unless the user chooses otherwise.
function chooseUnit() {
  const { unit = 'samples' } = currentEvent();
  state.unit = unit === 'samples' ? 'samples' : 'period';
  document.querySelector('option[value="period"]').textContent = unit === 'ns' ? 'time' : unit === 'samples' ? 'by period' : unit;
}

// Lists whose choice is stored under the list's own name.
const CHOICES = ['event', 'unit', ...KINDS, 'rows', 'root', 'view', 'width', 'by', 'least', 'kind'];

// With more processes than this, stacks begin with the names of programs.
const MOST_PROCESSES = 50;

// Meaning of the colours of call stacks.
function showLegend() {
  const what = state.by === 'shares' ? 'share' : 'weight';
  const changes = { '--more': `larger ${what} after`, '--less': `smaller ${what} after`, '--same': 'no more than the noise of sampling' };
  const places = { '--user': 'program', '--kernel': 'kernel', '--jit': 'JIT code', '--inlined': 'inlined call', '--nameless': 'no symbol' };
  $('legend').replaceChildren(...Object.entries(showsChanges() ? changes : places).map(([colour, text]) => {
    const made = make('span', {}, text);
    made.style.setProperty('--colour', `var(${colour})`);
    return made;
  }));
}

// Shows a choice in all controls, wherever it was made.
function showChoices() {
  showLegend();
  for (const id of CHOICES) $(id).value = state[id];
  if ($('search').value !== state.search) $('search').value = state.search;
  $('recursion').checked = state.recursion;
  $('unzoom').disabled = !state.zoom.length;
  $('whole').disabled = sides.every((side) => side.from == null);
  showChanges();
}

function makeFront() {
  sides.forEach((side, at) => (side.title = compare ? ['before', 'after'][at] : side.about.name));
  const name = sides.map((side) => side.about.name).join(' → ');
  document.title = name + ': perfx';
  $('name').textContent = name;
  for (const side of sides) {
    const list = make('ul', { className: 'facts', ariaLabel: `Summary of ${side.about.name}` });
    const fact = (text, className = '') => list.append(make('li', { className }, text));
    const { doctor, lost, warnings, broken_chains } = side.about;
    if (compare) fact(side.title, 'title');
    fact(doctor.verdict, doctor.verdict === 'sound' ? 'good' : 'bad');
    const isTrace = side.events[side.first_event]?.lasts;
    fact(count(side.allSamples) + (isTrace ? ' calls' : ' samples'));
    if (side.span > 0) fact(duration(side.span));
    const losses = +lost.lost;
    if (losses) fact(`${count(losses)} lost while recording`, 'bad');
    if (lost.aux_records) fact(`AUX data lost ${count(lost.aux_records)} times`, 'bad');
    if (!losses && !lost.aux_records) fact('nothing lost while recording');
    if (warnings.length) fact(warnings.length === 1 ? '1 warning' : `${warnings.length} warnings`, 'bad');
    for (const broken of broken_chains) fact(broken, 'bad');
    $('facts').append(list);
  }
  const sums = new Map();
  for (const side of sides) {
    // The last one is for samples whose event is unknown.
    const ofEvent = new Float64Array(side.events.length + 1);
    side.event.forEach((event, row) => (ofEvent[Math.min(event, side.events.length)] += side.samples[row]));
    ofEvent.forEach((sum, event) => {
      const name = side.events[event]?.name ?? '';
      if (sum) sums.set(name, (sums.get(name) ?? 0) + sum);
    });
  }
  state.event = sides.map((side) => side.events[side.first_event]?.name).find((name) => name != null) ?? '';
  fill($('event'), [...sums].map(([name, sum]) => [name, `${name}: ${count(sum)}`]), state.event);
  chooseUnit();
  if (currentEvent().lasts) {
    state.view = 'chart';
    document.querySelector('option[value="samples"]').textContent = 'calls';
  }
  const processes = new Set(sides.flatMap((side) => side.tasks.map((task) => task.process)));
  // Most of very many processes are short runs of the same programs.
  if (processes.size > 1) Object.assign(state, { rows: 'process', root: processes.size > MOST_PROCESSES ? 'program' : 'process' });
  fillTasks();
  if ($('cgroup').parentElement.hidden) document.querySelectorAll('option[value="cgroup"]').forEach((option) => option.remove());
  for (const id of ['width', 'by', 'least']) $(id).parentElement.hidden = !compare;
  sides.forEach(makeHeat);
  makeTabs();
  makeActions();
}

function listen() {
  const on = (id, kind, action) => $(id).addEventListener(kind, action);
  const choice = (id, also = () => {}) => on(id, 'change', () => { state[id] = $(id).value; also(); refresh(); });
  choice('event', chooseUnit);
  choice('unit');
  for (const kind of ['thread', 'cpu', 'cgroup']) choice(kind);
  choice('process', () => { state.thread = ''; fillTasks(); });
  on('filters', 'submit', (event) => event.preventDefault());
  choice('rows', () => sides.forEach((side) => side.heat && (side.heat.cursor = null)));
  on('whole', 'click', () => sides.forEach((side) => side.heat && setSpan(side, null, null)));
  choice('root', () => Object.assign(state, { zoom: [], focus: [] }));
  on('view', 'change', () => {
    const { index } = flame.focus;
    const isCentred = $('view').value === 'callers';
    Object.assign(state, { view: $('view').value, zoom: [], focus: [] });
    if (isCentred) state.centre = isFunction(index) ? index : NONE;
    refresh();
    if (flame.view === 'flame') $('flame-box').scrollTop = 1e9;
  });
  for (const id of ['width', 'by', 'least']) choice(id);
  choice('kind');
  on('recursion', 'change', () => { Object.assign(state, { recursion: $('recursion').checked, zoom: [], focus: [] }); refresh(); });
  on('search', 'input', () => { state.search = $('search').value; refreshSoon(); });
  on('unzoom', 'click', () => zoom(flame.root));
  on('flame-box', 'scroll', drawFlame);
  on('flame', 'click', (event) => { const box = boxAt(event); if (box) zoom(box); });
  on('flame', 'mousemove', showTip);
  on('flame', 'mouseleave', () => ($('tip').hidden = true));
  on('flame', 'keydown', flameKey);
  for (const kind of ['focus', 'blur']) on('flame', kind, () => { drawFlame(); if (kind === 'focus') showFocus(); });
  const redraw = () => { readColours(); layOut(); drawHeats(); drawFlame(); };
  window.addEventListener('resize', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  window.addEventListener('popstate', recall);
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || /^(INPUT|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    $('search').focus();
  });
}

async function showPage() {
  load(await unpack($('data').textContent));
  $('data').remove();
  $('page').hidden = false;
  makeFront();
  readColours();
  begin();
  listen();
  recall();
  document.body.dataset.ready = 'true';
}

showPage().catch((error) => {
  $('failure').textContent = `This page can't be shown: ${error.message}. It needs a browser of 2023 or later.`;
  $('failure').hidden = false;
});
