// Reads the data of the page: functions, stacks as a tree, and the samples of each recording. src/export/html.rs
// describes its format. Names come from the recording and are only ever set as text, never as markup.
'use strict';

const $ = (id) => document.getElementById(id);
const NONE = -1;
let functions, files, code, functionFile, functionKind, sides, compare;
// Stacks as recorded and as shown: see shape.js.
let recorded, parent, nodeFunction, childStart, childNodes, repeated;
// The number of each node in a subtree while it is built; otherwise NONE.
let numberOf;
// The user's choices, also kept in the address of the page: see link.js.
const state = {
  event: '', unit: 'period', process: '', thread: '', cpu: '', cgroup: '', rows: 'parts', spans: [],
  root: '', view: 'icicle', width: '1', by: 'shares', least: '1', centre: NONE, zoom: [], focus: [],
  merge: [], only: [], hide: [], recursion: false, search: '', kind: 'part', tab: 'functions', listed: NONE, sort: '',
};

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child != null));
  return element;
}

// Numbers with thousands separators and units.
const count = (number) => Math.round(number).toLocaleString('en-US');
const percent = (share) => (100 * share).toFixed(2) + '%';
const points = (change) => (change > 0 ? '+' : change < 0 ? '−' : '') + percent(Math.abs(change));
const ratio = (part, whole) => (whole > 0 ? part / whole : 0);
const UNITS = [[1e9, ' s'], [1e6, ' ms'], [1e3, ' µs']];
const duration = (ns) => {
  const [size, unit] = UNITS.find(([size]) => ns >= size) ?? UNITS[2];
  return (ns / size).toFixed(3) + unit;
};
const seconds = (ns, digits = 3) => (ns / 1e9).toFixed(digits);
const currentEvent = () => sides.flatMap((side) => side.events).find((event) => event.name === state.event) ?? {};
const amount = (number) => (state.unit === 'period' && currentEvent().unit === 'ns' ? duration(number) : count(number));
// The word for samples: calls, if the event has durations.
const things = () => (currentEvent().lasts ? 'calls' : 'samples');
const basename = (path) => path.slice(path.lastIndexOf('/') + 1) || path;

// Escapes control characters and those that change the order, position or width of others, as a terminal does.
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const visible = (_, value) => (typeof value === 'string' ? value.replace(HIDDEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`) : value);

async function unpack(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let at = 0; at < packed.length; at++) packed[at] = binary.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(bytes.subarray(4, at));
  // JSON writes control characters as \u00…. Few recordings have any, and a look at each name takes time.
  const head = JSON.parse(json, json.includes('\\u00') || json.search(HIDDEN) >= 0 ? visible : undefined);
  const columns = head.columns.map((size) => bytes.subarray(at, (at += size)));
  return { head, next: (Type) => numbers(columns.shift(), Type) };
}

// LEB128.
function numbers(bytes, Type) {
  let length = 0;
  for (let at = 0; at < bytes.length; at++) length += bytes[at] < 128 ? 1 : 0;
  const all = new Type(length);
  for (let at = 0, to = 0, value = 0, scale = 1; at < bytes.length; at++) {
    if (bytes[at] < 128) {
      all[to++] = value + bytes[at] * scale;
      value = 0;
      scale = 1;
    } else {
      value += (bytes[at] - 128) * scale;
      scale *= 128;
    }
  }
  return all;
}

function load({ head, next }) {
  ({ functions, files, code } = head);
  code.reduce((sum, { instructions }, at) => (codeStart[at] = sum) + instructions.length, 0);
  functionFile = next(Int32Array).map((file) => file - 1);
  functionKind = next(Uint8Array);
  recorded = { parent: next(Int32Array).map((distance, node) => (distance ? node - distance : NONE)), nodeFunction: next(Uint32Array) };
  sides = head.recordings.map((recording) => {
    const time = next(Float64Array);
    for (let at = 0, now = 0; at < time.length; at++) time[at] = now += time[at] * recording.step;
    const [label, event, node] = [next(Uint32Array), next(Uint32Array), next(Int32Array).map((node) => node - 1)];
    const timed = recording.rows - recording.timeless;
    const span = timed ? time[timed - 1] + recording.step : 0;
    const side = { ...recording, time, label, event, node, samples: next(Float64Array), period: next(Float64Array), spot: next(Int32Array) };
    const lasts = side.events.map((event) => event.lasts);
    const end = time.reduce((end, start, row) => (row < timed && lasts[event[row]] ? Math.max(end, start + side.period[row]) : end), span);
    return Object.assign(side, { timed, span: end, from: null, to: null });
  });
  compare = sides.length > 1;
  sides.forEach(nameTasks);
}

// Text of a label, and the keys that samples can be chosen by.
const KINDS = ['process', 'thread', 'cpu', 'cgroup'];

// Processes and threads of labels. Two recordings are compared by name, because their numbers differ.
function nameTasks(side) {
  const weight = side.samplesOf = new Float64Array(side.labels.length);
  // A process has the last name of its main thread: before exec, that is the name of its parent.
  const last = new Float64Array(side.labels.length);
  side.label.forEach((label, row) => {
    weight[label] += side.samples[row];
    last[label] = row;
  });
  side.allSamples = weight.reduce((sum, samples) => sum + samples, 0);
  const best = new Map();
  side.labels.forEach(([comm, [pid, tid]], label) => {
    const rank = pid === tid ? 1e18 + last[label] * 1e6 : weight[label];
    if (!best.has(pid) || best.get(pid).rank < rank) best.set(pid, { rank, comm });
  });
  side.tasks = side.labels.map(([comm, [pid, tid, cpu], path]) => {
    const name = (comm, number) => (compare || number == null ? comm || '(no name)' : `${comm || '(no name)'} (${number | 0})`);
    const places = { cpu: cpu == null ? 'no CPU' : 'CPU ' + cpu, cgroup: path ?? 'no cgroup' };
    const { comm: program } = best.get(pid);
    return { process: name(program, pid), program: program || '(no name)', thread: name(comm, tid), ...places, pid, tid, comm: program };
  });
}

// Processes, threads, CPUs or cgroups with their sums: CPUs by number, others the heaviest first.
function ranked(kind, sums) {
  const compared = kind === 'cpu' ? (a, b) => a.localeCompare(b, 'en', { numeric: true }) : (a, b) => sums.get(b) - sums.get(a) || (a < b ? -1 : 1);
  return [...sums.keys()].sort(compared);
}

// Names that stacks can begin with. Their numbers follow those of functions.
const roots = { '': [] };
function rootNames() {
  if (roots[state.root]) return roots[state.root];
  const sums = new Map();
  for (const side of sides) {
    side.tasks.forEach((task, label) => sums.set(task[state.root], (sums.get(task[state.root]) ?? 0) + side.samplesOf[label]));
  }
  return (roots[state.root] = ranked(state.root, sums));
}
