// Draws the boxes of call stacks, and handles pointer and keys.

const LINE = 19;

function drawFlame() {
  const holder = $('flame-box');
  const height = flame.lines.length * LINE;
  const seen = Math.min(height, Math.max(240, Math.min(620, Math.round(window.innerHeight * 0.62))));
  holder.style.height = seen + 2 + 'px';
  const width = holder.clientWidth;
  const pen = surface($('flame'), width, seen);
  // Only the visible part is drawn, on a canvas that moves with it.
  $('flame-tall').style.height = height + 'px';
  pen.font = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
  pen.textBaseline = 'middle';
  const char = pen.measureText('0').width;
  const searching = matches != null;
  flame.lines.forEach((line, at) => {
    const top = at * LINE - holder.scrollTop;
    if (top < -LINE || top > seen) return;
    for (const box of line) {
      const [x, wide] = [box.x * width, box.width * width];
      const plain = !isFunction(box.index);
      const found = searching && !plain && matches[box.index];
      const ancestor = box.depth < state.zoom.length;
      pen.globalAlpha = (searching && !found ? 0.4 : 1) * (ancestor ? 0.7 : 1);
      pen.fillStyle = found ? colours['--mark'] : showsChanges() && box.index !== NONE ? changeColour(box) : plain ? colours['--line'] : colourOf(box.index);
      pen.fillRect(x, top, Math.max(wide - (wide > 3 ? 1 : 0), 0.5), LINE - 1);
      if (box.isCentre || (box === flame.focus && document.activeElement === $('flame'))) {
        pen.globalAlpha = 1;
        pen.strokeStyle = colours['--text'];
        pen.lineWidth = 2;
        pen.strokeRect(x + 1, top + 1, Math.max(1, wide - 3), LINE - 3);
      }
      const room = Math.floor((wide - 8) / char);
      if (room < 2) continue;
      pen.globalAlpha = 1;
      pen.fillStyle = found ? '#fff' : plain ? colours['--text'] : colours['--ink'];
      const name = box.index === NONE ? `${nameOf(box)}: ${state.event}` : nameOf(box);
      pen.fillText(shortened(name, room), x + 4, top + LINE / 2);
    }
  });
  pen.globalAlpha = 1;
}

function boxAt(event) {
  const place = $('flame').getBoundingClientRect();
  const line = Math.floor((event.clientY - place.top + $('flame-box').scrollTop) / LINE);
  const x = (event.clientX - place.left) / place.width;
  return flame.lines[line]?.find((box) => x >= box.x && x < box.x + box.width);
}

// Selects a box. The focus stays where it is; the text below says what was selected.
function showFocus(say = true) {
  const box = flame.focus;
  if (say) $('flame-said').textContent = `${nameOf(box)}: ${lines(box).join('; ')}`;
  const chain = [];
  for (let at = box; at; at = at.above) chain.unshift(at);
  $('path').replaceChildren(...chain.map((at) => {
    const button = make('button', { type: 'button', onclick: () => zoom(at) }, nameOf(at));
    if (at === box) button.setAttribute('aria-current', 'true');
    return make('li', {}, button);
  }));
  for (const button of $('actions').querySelectorAll('button')) button.disabled = !isFunction(box.index);
}

function select(box) {
  if (!box) return;
  flame.focus = box;
  state.focus = pathOf(box);
  const [holder, top] = [$('flame-box'), box.line * LINE];
  if (top < holder.scrollTop) holder.scrollTop = top;
  if (top + LINE > holder.scrollTop + holder.clientHeight) holder.scrollTop = top + LINE - holder.clientHeight;
  drawFlame();
  showFocus();
  remember();
}

// Gives a box the whole width; between callers and callees, puts its function in the middle.
function zoom(box) {
  if (flame.root.isCentre) {
    if (box !== flame.root && isFunction(box.index)) showCallers(box.index); else select(box);
    return;
  }
  if (box.times) {
    const { side } = box.times;
    // A click on a thread's name shows that thread alone; a second one, with all its time shown, all threads.
    const isAll = box === flame.root && side.from == null && state.thread;
    if (flame.threads.includes(box) || isAll) {
      state.thread = isAll ? '' : box.name;
      state.focus = [];
      fillTasks();
      refresh();
      return;
    }
    setSpan(side, ...(box === flame.root ? [null, null] : [box.times.from, box.times.to]));
    return;
  }
  state.zoom = state.focus = pathOf(box);
  layOut();
  showChoices();
  if (flame.view === 'flame') $('flame-box').scrollTop = flame.lines.length * LINE;
  select(flame.focus);
}

function showCallers(index) {
  Object.assign(state, { view: 'callers', centre: index, zoom: [], focus: [] });
  refresh();
  $('flame-box').scrollTop = (flame.root.line + 1) * LINE - $('flame-box').clientHeight / 2;
  showFocus();
}

function flameKey(event) {
  const box = flame.focus;
  const line = flame.lines[box.line];
  // A neighbour on the next line: the widest child, or the parent.
  const next = (step) => flame.lines[box.line + step]?.filter((to) => to.above === box || to === box.above).sort((a, b) => b.width - a.width)[0];
  // Over time, threads are below each other.
  const threads = flame.view === 'chart' ? flame.threads : [];
  const action = {
    ArrowDown: () => select(next(1) ?? threads.find((thread) => thread.line > box.line)),
    ArrowUp: () => select(next(-1) ?? threads.findLast((thread) => thread.line < box.line)),
    ArrowRight: () => select(line[line.indexOf(box) + 1]),
    ArrowLeft: () => select(line[line.indexOf(box) - 1]),
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
  tip.style.top = Math.max(4, low ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + 'px';
}

// For each change of the stacks: the text of its button, and the text in the list of changes.
const CHANGES = {
  only: ['Only stacks with it', 'only stacks with'],
  hide: ['Hide stacks with it', 'without stacks with'],
  merge: ['Merge into callers', 'merged into its callers:'],
};

function makeActions() {
  const button = (text, action) => make('button', { type: 'button', disabled: true, onclick: () => action(flame.focus) }, text);
  const shapes = Object.entries(CHANGES).map(([key, [text]]) => button(text, ({ index }) => {
    Object.assign(state, { [key]: [...new Set([...state[key], index])], zoom: [], focus: [] });
    refresh();
  }));
  const stack = (box) => pathOf(box).map((index) => nameOf({ index })).join('\n');
  $('actions').append(
    button('Callers and callees', ({ index }) => showCallers(index)),
    ...shapes,
    ...(code.length ? [button('Code', ({ index }) => showCode(index))] : []),
    button('Copy name', (box) => copy(nameOf(box))),
    button('Copy stack', (box) => copy(stack(box))),
  );
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    $('flame-said').textContent = `Copied: ${text.replaceAll('\n', ' › ')}`;
  } catch (error) {
    $('flame-said').textContent = `The browser does not let this page copy: ${error.message}`;
  }
}

// Changes of the stacks, each with a button that undoes it.
function showChanges() {
  const list = Object.entries(CHANGES).flatMap(([key, [, text]]) => state[key].map((index) => {
    const undo = () => { state[key] = state[key].filter((other) => other !== index); refresh(); };
    return make('li', {}, `${text} ${functions[index]} `, make('button', { type: 'button', onclick: undo }, 'Undo'));
  }));
  $('changes').replaceChildren(...list);
  $('changes').hidden = !list.length;
}
