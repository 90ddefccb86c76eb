// Shows the source lines and the instructions of a function with their weights.

// The number of the first instruction of each function.
const codeStart = [];
// Code without symbols has the name of its file.
const codeOf = (index) => {
  const name = functionKind[index] & 8 ? fileOf(index) : functions[index];
  return code.findIndex((one) => one.name === name && one.file === fileOf(index));
};

// Reasons why a function has no code, by kind of code.
const FEW = 'it is not one of those with the most samples (--annotate takes a larger number)';
const LACKS = [FEW, FEW, 'code of JIT compilers is not listed'];

function showCode(index) {
  Object.assign(state, { tab: 'code', listed: index });
  showPanel();
  remember();
  $('panel-code').scrollIntoView({ block: 'start' });
}

// A table in the order of the code. A row has a weight, cells, and a flag for source lines.
function codeTable(name, heads, rows) {
  const [side] = sides;
  const head = make('tr', {}, ...heads.map((title, at) => make('th', { scope: 'col', className: at ? '' : 'number' }, title)));
  const body = rows.map(({ weight, cells }) => {
    const shown = weight ? percent(ratio(weight, side.sum)) : '';
    const first = make('td', { className: 'number share' }, shown);
    if (weight) first.style.setProperty('--share', shown);
    first.dataset.value = weight;
    return make('tr', {}, first, ...cells.map((text) => make('td', { className: 'code' }, text)));
  });
  const table = make('table', {}, make('caption', {}, name), make('thead', {}, head), make('tbody', {}, ...body));
  return scroll(name, table);
}

function codePanel() {
  if (!code.length) {
    return [make('p', {}, 'The page has no code. perfx export html --annotate 20 adds the source lines and instructions of the 20 functions with the most samples.')];
  }
  const listed = state.listed === NONE ? 0 : codeOf(state.listed);
  const list = make('select', { onchange: () => { state.listed = functions.findIndex((_, index) => codeOf(index) === +list.value); showPanel(); remember(); } });
  fill(list, [...(listed === NONE ? [[NONE, 'none']] : []), ...code.map(({ name }, at) => [at, name])], listed);
  const choice = make('p', {}, make('label', {}, 'Function ', list));
  if (listed === NONE) return [choice, make('p', {}, `The page does not have the code of ${functions[state.listed]}: ${LACKS[functionKind[state.listed] & 3]}.`)];
  const { file, instructions, lines, lack } = code[listed];
  if (lack) return [choice, make('p', {}, `${file}: ${lack}.`)];
  const weights = instructions.map((_, at) => sides[0].bySpot[codeStart[listed] + at]);
  const ofLines = lines.map(() => 0);
  instructions.forEach(([, , line], at) => { if (line != null) ofLines[line] += weights[at]; });
  const source = lines.flatMap(({ file, number, text }, at) => {
    const before = lines[at - 1];
    const gap = before?.file === file ? (before.number + 1 < number ? [{ weight: 0, cells: ['', '…'] }] : []) : [{ weight: 0, cells: ['', file] }];
    return [...gap, { weight: ofLines[at], cells: [number, text ?? '(its file was not read)'] }];
  });
  const place = (line) => (line == null ? '' : `${basename(lines[line].file)}:${lines[line].number}`);
  const listing = instructions.map(([address, text, line], at) => ({ weight: weights[at], cells: [address, text, place(line)] }));
  const parts = [codeTable(`Instructions, ${file}`, ['Self %', 'Address', 'Instruction', 'Line'], listing)];
  if (lines.length) parts.unshift(codeTable('Source', ['Self %', 'Line', 'Text'], source));
  else choice.append(' Its file has no line numbers.');
  return [choice, make('div', { className: 'sides' }, ...parts.map((part) => make('div', {}, part))), heldSources()];
}

// Scrolls each listing to its heaviest line.
function showHottest() {
  const weight = (row) => +row.firstChild.dataset.value;
  for (const box of document.querySelectorAll('#panel-code .scroll')) {
    const hottest = [...box.querySelectorAll('tbody tr')].reduce((best, row) => (!best || weight(row) > weight(best) ? row : best), null);
    if (!hottest || !weight(hottest)) continue;
    hottest.className = 'hot';
    box.scrollTop = hottest.offsetTop - box.clientHeight / 2;
  }
}

// Files whose text the page holds, so that nobody sends them by accident.
function heldSources() {
  const held = [...new Set(code.flatMap(({ lines }) => lines.filter(({ text }) => text != null).map(({ file }) => file)))].sort();
  const what = held.length ? `The page holds source of these files: ${held.join(', ')}.` : 'The page holds no source.';
  return make('p', {}, what);
}
