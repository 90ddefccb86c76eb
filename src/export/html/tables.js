// Shows the tables: functions, processes, files, bytes, and what was recorded.

// Tables that the user has sorted: name, column, and direction.
const sorted = () => new Map(state.sort.split('_').filter(Boolean).map((one) => one.split('.')).map(([key, place, order]) => [key, [+place, order]]));
// The most rows shown of each table.
const mosts = {};

// Wide tables scroll, also by keys.
function scroll(name, ...children) {
  const box = make('div', { className: 'scroll', tabIndex: 0, ariaLabel: name }, ...children);
  box.setAttribute('role', 'group');
  return box;
}

// A table that is sorted by a click on a column, which has a title, the value of a row, and its text.
function table(key, caption, columns, rows) {
  const [place, order] = sorted().get(key) ?? [columns.findIndex((column) => column.first), 'down'];
  const column = columns[place] ?? columns[0];
  const most = (mosts[key] ??= 100);
  const value = column.size ?? column.value;
  const compared = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  // Equal values are ordered by the last column with names, so that the order is always the same.
  const tie = columns.find((column) => column.kind === 'name') ?? column;
  rows = rows.slice().sort((a, b) => compared(value(a), value(b)) * (order === 'down' ? -1 : 1) || compared(tie.value(a), tie.value(b)));
  const heads = columns.map((column, at) => {
    const toggle = () => {
      const isDown = columns[place] === column ? order !== 'down' : column.kind !== 'name';
      const all = sorted().set(key, [at, isDown ? 'down' : 'up']);
      state.sort = Array.from(all, (one) => one.flat().join('.')).join('_');
      showPanel();
      remember();
      document.querySelectorAll(`#panels [data-table="${key}"] thead button`)[at].focus();
    };
    const head = make('th', { scope: 'col', className: classOf(column, column.kind === 'name' ? '' : 'number') },
      make('button', { type: 'button', onclick: toggle }, column.title));
    if (column === columns[place]) head.ariaSort = order === 'down' ? 'descending' : 'ascending';
    return head;
  });
  const body = make('tbody', {}, ...rows.slice(0, most).map((row) => make('tr', {}, ...columns.map((column) => cell(column, row)))));
  const all = make('table', {}, make('caption', {}, caption), make('thead', {}, make('tr', {}, ...heads)), body);
  all.dataset.table = key;
  const more = rows.length <= most ? null : make('button', {
    type: 'button',
    onclick: () => { mosts[key] += 1000; showPanel(); },
  }, `Show more: ${count(rows.length - most)} rows left`);
  return scroll(caption, all, more);
}

// Narrow screens leave out some columns.
const classOf = (column, name) => (column.extra ? name + ' extra' : name);

function cell(column, row) {
  const value = column.value(row);
  const isQuiet = column.verdict && column.verdict(row) !== 'changed';
  const className = { name: 'name', share: 'number share', change: 'number ' + (isQuiet ? 'noise' : value > 0 ? 'more' : value < 0 ? 'less' : '') };
  const show = { share: percent, change: points, amount, count }[column.kind] ?? ((text) => text);
  const made = make('td', { className: classOf(column, className[column.kind] ?? 'number') });
  if (column.kind === 'share') made.style.setProperty('--share', percent(value));
  if (column.kind !== 'name') made.dataset.value = value;
  const text = value == null ? '' : show(value);
  made.append(column.click && text ? make('button', { type: 'button', onclick: () => column.click(row) }, text) : text);
  return made;
}

// Columns of weights: a share and an amount; for two recordings both shares or amounts, and the change.
function weights(title, of, first, verdict) {
  const part = (row, at) => ratio(of(row, at), sides[at].sum);
  if (!compare) {
    return [
      { title: title + ' %', kind: 'share', value: (row) => part(row, 0), first },
      { title, kind: 'amount', value: (row) => of(row, 0), extra: true },
    ];
  }
  const change = (row) => moved(sides.map((_, at) => of(row, at)));
  const size = (row) => Math.abs(change(row));
  const [kind, value] = state.by === 'shares' ? ['share', part] : ['amount', of];
  const columns = [
    { title: title + ' before', kind, value: (row) => value(row, 0), extra: true },
    { title: title + ' after', kind, value: (row) => value(row, 1), extra: !first },
    { title: 'change', kind: 'change', value: change, size, verdict, first: first && !verdict, extra: !first },
  ];
  // Changes beyond noise come first, the largest first.
  if (verdict) columns.push({ title: 'verdict', value: verdict, size: (row) => ['', 'noise', 'changed'].indexOf(verdict(row)) * 1e9 + size(row), first, extra: !first });
  return columns;
}

function showFunction(index) {
  showCallers(index);
  $('flame-title').scrollIntoView({ block: 'nearest' });
}

function functionsPanel() {
  const rows = [];
  for (let index = 0; index < functions.length; index++) {
    if (sides.some((side) => side.totalOf[index]) && (!matches || matches[index])) rows.push(index);
  }
  const which = matches ? 'Functions that match the search. ' : '';
  const how = compare ? ' Verdicts are those of perfx diff --profile: changed is more than the noise of sampling; how much one run differs from the next is not known.' : '';
  const verdict = (of) => (compare ? (index) => verdicts[of][index] : null);
  return [table('functions', `${which}Self: ${currentEvent().lasts ? 'time' : 'samples'} in the function. Total: also in what it called. A name shows its callers and what it calls.${how}`, [
    ...weights('Self', (index, at) => sides[at].ownOf[index], true, verdict('own')),
    ...weights('Total', (index, at) => sides[at].totalOf[index], false, verdict('total')),
    { title: 'Function', kind: 'name', value: (index) => functions[index], click: showFunction },
    { title: 'File', kind: 'name', value: fileOf, extra: true },
  ], rows)];
}

function processesPanel() {
  const rows = new Map();
  sides.forEach((side, at) => side.tasks.forEach((task, label) => {
    if (!side.samplesByLabel[label]) return;
    if (!rows.has(task.process)) {
      rows.set(task.process, { key: task.process, pid: task.pid, comm: task.comm, threads: new Set(), samples: 0, sums: sides.map(() => 0) });
    }
    const row = rows.get(task.process);
    row.threads.add(compare ? task.thread : task.tid);
    row.samples += side.samplesByLabel[label];
    row.sums[at] += side.byLabel[label];
  }));
  const only = (row) => { Object.assign(state, { process: row.key, thread: '' }); fillTasks(); refresh(); };
  const numbers = compare ? [] : [
    { title: 'Samples', kind: 'count', value: (row) => row.samples },
    { title: 'PID', value: (row) => (row.pid == null ? '' : row.pid | 0) },
  ];
  return [table('processes', 'A name shows only that process.', [
    ...weights('Weight', (row, at) => row.sums[at], true),
    ...numbers,
    { title: 'Threads', kind: 'count', value: (row) => row.threads.size },
    { title: 'Process', kind: 'name', value: (row) => row.comm || '(no name)', click: only },
  ], [...rows.values()])];
}

function filesPanel() {
  const rows = [...files.map((file) => ({ ...file })), { path: '(no file)', has_symbols: false }]
    .map((file) => ({ ...file, count: 0, sums: sides.map(() => 0) }));
  for (let index = 0; index < functions.length; index++) {
    const row = rows[functionFile[index] < 0 ? files.length : functionFile[index]];
    if (!sides.some((side) => side.totalOf[index])) continue;
    row.count++;
    sides.forEach((side, at) => (row.sums[at] += side.ownOf[index]));
  }
  const used = rows.filter((row) => row.count);
  const without = ratio(used.filter((row) => !row.has_symbols).reduce((sum, row) => sum + row.sums[sides.length - 1], 0), sides[sides.length - 1].sum);
  const said = `Symbols were found for ${used.filter((row) => row.has_symbols).length} of ${used.length} files; ${percent(without)} of the weight is in the others.`;
  return [table('files', said, [
    ...weights('Self', (row, at) => row.sums[at], true),
    { title: 'Names', kind: 'count', value: (row) => row.count },
    { title: 'Symbols', kind: 'name', value: (row) => (row.has_symbols ? 'found' : 'not found') },
    { title: 'File', kind: 'name', value: (row) => row.path },
  ], used)];
}

// A column for each recording.
function perSide(content) {
  const column = (side) => make('div', {}, compare ? make('h3', {}, `${side.title}: ${side.about.name}`) : null, ...content(side));
  return [make('div', { className: 'sides' }, ...sides.map(column))];
}

const wall = (parts) => make('div', { className: 'wall' }, ...parts);

const bytesPanel = () => perSide((side) => [wall(side.about.bytes.map(({ title, rows }) => {
  const columns = [
    { title: title[0].toUpperCase() + title.slice(1), kind: 'name', value: (row) => row.name },
    { title: 'Bytes', kind: 'count', value: (row) => row.bytes },
    { title: 'Share', kind: 'share', value: (row) => (row.of == null ? null : ratio(row.bytes, row.of)) },
    { title: 'Records', kind: 'count', value: (row) => row.records },
  ].filter((column, at) => at < 2 || rows.some((row) => column.value(row) != null));
  const head = columns.map((column) => make('th', { scope: 'col', className: column.kind === 'name' ? '' : 'number' }, column.title));
  const body = rows.map((row) => make('tr', {}, ...columns.map((column) => cell(column, row))));
  return scroll(title, make('table', {}, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...body)));
}))]);

function pairs(title, rows) {
  const head = (label) => (label ? make('th', { scope: 'row' }, label) : make('td', {}));
  const line = ([label, text]) => make('tr', {}, head(label), make('td', {}, text));
  return scroll(title, make('table', { className: 'pair' }, make('tbody', {}, ...rows.map(line))));
}

const recordingPanel = () => perSide((side) => [wall(side.about.info.filter(([, rows]) => rows.length)
  .map(([heading, rows]) => make('div', {}, make('h3', {}, heading), pairs(heading, rows))))]);

const soundnessPanel = () => perSide((side) => {
  const { doctor, lost, warnings } = side.about;
  const rows = [['verdict', `${doctor.verdict}, ${count(+doctor.records)} records examined`],
    ['lost', `${count(+lost.lost)} records; ${count(+lost.filtered_samples)} dropped by a filter; AUX data ${count(lost.aux_records)} times`],
    ...warnings.map((line) => ['warning', line])];
  const finding = (found) => {
    const places = found.places.map((place) => [[place.file, place.offset, place.kind].filter(Boolean).join(' '), place.what]);
    const repair = found.repair ? ` perfx ${found.repair} repairs it.` : '';
    const reaction = `perf 6.1 ${found['perf_6.1']}, perf 7.3 ${found['perf_7.3']}.${repair}`;
    return [make('h3', {}, `${found.severity}: ${found.code}, ${count(+found.count)} times`), make('p', {}, `${found.about}. ${reaction}`), pairs(found.code, places)];
  };
  return [pairs('Soundness', rows), ...doctor.findings.flatMap(finding)];
});

const TABS = { functions: ['Functions', functionsPanel], processes: ['Processes', processesPanel], files: ['Files', filesPanel],
  code: ['Code', codePanel], bytes: ['Bytes', bytesPanel], recording: ['Recording', recordingPanel], soundness: ['Soundness', soundnessPanel] };

function makeTabs() {
  const names = Object.keys(TABS);
  for (const name of names) {
    const tab = make('button', { type: 'button', id: 'tab-' + name, role: 'tab', onclick: () => { state.tab = name; showPanel(); remember(); } }, TABS[name][0]);
    tab.setAttribute('aria-controls', 'panel-' + name);
    tab.addEventListener('keydown', (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      state.tab = names[(names.indexOf(name) + by + names.length) % names.length];
      showPanel();
      remember();
      $('tab-' + state.tab).focus();
    });
    const panel = make('div', { id: 'panel-' + name, role: 'tabpanel' });
    panel.setAttribute('aria-labelledby', 'tab-' + name);
    $('tabs').append(tab);
    $('panels').append(panel);
  }
}

// True if the tables are beside the call stacks, on a wide screen: tables with few columns.
let wasBeside = true;

function showPanel() {
  for (const name of Object.keys(TABS)) {
    const active = name === state.tab;
    $('tab-' + name).ariaSelected = String(active);
    $('tab-' + name).tabIndex = active ? 0 : -1;
    $('panel-' + name).hidden = !active;
    $('panel-' + name).replaceChildren(...(active ? TABS[name][1]() : []));
  }
  const isBeside = !compare && ['functions', 'processes', 'files'].includes(state.tab);
  if ($('both').classList.toggle('beside', isBeside) !== wasBeside) {
    wasBeside = isBeside;
    layOut();
    drawFlame();
  }
  if (state.tab === 'code') showHottest();
}
