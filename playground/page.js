// The page: it asks the worker for rows in every frame, and shows them.

import { Charts, number } from './charts.js';
import { showControls } from './controls.js';
import { scoreOf } from './score.js';
import { fromHash, toHash } from './link.js';
import { isSavedTrace, readTrace } from './trace.js';
import { LINEAR, scenariosOf, setRate, settingsOf, settingsOfSaved, toCsv, toYaml } from './scenario.js';

const byId = (id) => document.getElementById(id);
const savedRuns = byId('runs');
window.addEventListener('unhandledrejection', ({ reason }) => { byId('error').textContent = reason?.message ?? reason; });
window.addEventListener('error', ({ message }) => { byId('error').textContent = message; });

const data = JSON.parse(byId('data').textContent);
// Of a blob, because a page that was opened from a folder starts no worker by its path.
const script = URL.createObjectURL(new Blob([data.worker], { type: 'text/javascript' }));
const worker = new Worker(script);
const answers = new Map();
let lastId = 0;

worker.onmessage = ({ data: { id, result, error } }) => {
  const { resolve, reject } = answers.get(id);
  answers.delete(id);
  if (error === undefined) resolve(result);
  else reject(new Error(error));
};

worker.onerror = ({ message }) => { byId('error').textContent = message ?? 'This browser starts no worker for this page.'; };

/** Calls a function of worker.js. */
export function call(name, ...values) {
  worker.postMessage({ id: ++lastId, call: name, values });
  return new Promise((resolve, reject) => answers.set(lastId, { resolve, reject }));
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const policies = Object.fromEntries(Object.entries(data.policies).map(([name, base64]) => [name, bytesOf(base64)]));
const names = await call('load', bytesOf(data.engine), policies);
const indexOf = (columns) => Object.fromEntries(columns.map((name, index) => [name, index]));
const columns = { flow: indexOf(names.flowColumns), link: indexOf(names.linkColumns) };
data.linear.weights = weightsOf(policies[LINEAR]);
data.docs = document.querySelector('meta[name=docs]').content;
if (data.docs) Object.assign(byId('docs'), { href: `${data.docs}index.html`, hidden: false });
const isLab = location.search === '?lab';

let settings;
let charts;
let isRunning = true;
let toStart = true; // at the next frame
let toChange = false;
let toShow = null; // a saved run
let trace = null; // the file that the link's rate follows: its bytes, name and schedule
let catchUp_s = 0; // simulated at once, without a look at the speed
/** What runs: scenarios as they are now, rows, how far it should be, and what cannot be repeated. */
let run = null;

/** The weights and constants of a linear policy, at the end of its bytes. */
function weightsOf(bytes) {
  const count = 2 * (data.linear.inputs.length + 1);
  const view = new DataView(bytes.buffer, bytes.length - 4 * count);
  return Array.from({ length: count }, (_, place) => view.getFloat32(4 * place, true));
}

function withWeights(bytes, weights) {
  const copy = bytes.slice();
  const view = new DataView(copy.buffer);
  weights.forEach((weight, place) => view.setFloat32(copy.length - 4 * (weights.length - place), weight, true));
  return copy;
}

function open(given, problem = '') {
  const preset = data.presets.find(({ name }) => name === given.preset);
  restart(0);
  showSettings(given, preset.text, preset.title);
  byId('notice').textContent = problem;
}

function openLink() {
  const { settings: given, problem } = fromHash(location.hash, data);
  open(given, problem);
}

function showSettings(given, story, title = null) {
  settings = given;
  byId('story').textContent = story;
  for (const button of byId('presets').children) {
    const isChosen = button.textContent === title;
    button.setAttribute('aria-pressed', isChosen);
    if (isChosen) button.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
  showControls(settings, data, onChange);
}

function setLink() {
  byId('notice').textContent = '';
  history.replaceState(null, '', `#${toHash(settings, data) ?? ''}`);
}

function onChange(kind) {
  // A longer run needs more of the file.
  if (trace !== null && settings.rate_schedule === trace.schedule && settings.duration_s !== trace.duration_s) followTrace(trace);
  if (kind === 'live' && run !== null && !toStart && run.time_s > 0 && !run.isOver) toChange = true;
  else restart(Math.max(run?.time_s ?? 0, catchUp_s)); // which it may not have reached yet
  setLink();
}

/** Starts again, and simulates at once what was shown before. */
function restart(until_s) {
  catchUp_s = until_s;
  toStart = true;
  toShow = null;
  if (savedRuns.value) byId('story').textContent = 'The scenario of a saved run, simulated in this page.';
  savedRuns.value = '';
}

async function start() {
  toStart = toChange = false;
  const scenarios = scenariosOf(settings);
  const weights = settings.weights ? withWeights(policies[LINEAR], settings.weights) : policies[LINEAR];
  await call('start', scenarios, settings.seed, { [LINEAR]: weights });
  byId('error').textContent = '';
  run = { scenarios, rows: scenarios.map(() => ({ time: [], flows: [], link: [] })), time_s: 0, target_s: 0, isOver: false, notes: [] };
  makeCharts();
}

function makeCharts() {
  charts?.end();
  charts = new Charts(byId('charts'), run.scenarios, run.scenarios.map((_, side) => settings.flows.map(
    (flow, index) => `${index + 1} ${side ? flow.versus : flow.algorithm}`)), columns);
}

/** Adds rows to a run of the worker, until a time or as far as its patience goes. */
async function advance(of, until_s) {
  const { rows, isOver } = await call('advance', until_s);
  rows.forEach((one, place) => {
    const own = of.rows.at(place - rows.length); // a saved run lies in front
    for (const part of ['time', 'flows', 'link']) own[part].push(...one[part]);
  });
  of.time_s = of.rows.at(-1).time.at(-1) ?? 0;
  of.isOver = isOver;
}

/** Gives the run what the visitor has moved. */
async function change() {
  toChange = false;
  for (const scenario of run.scenarios) {
    if (settings.rate_mbps !== (run.rate_mbps ?? scenario.rate_mbps)) setRate(scenario, run.time_s, settings.rate_mbps);
    scenario.loss = settings.loss;
    scenario.flows.forEach((flow, index) => { flow.jitter_ms = settings.flows[index].jitter_ms; });
  }
  run.rate_mbps = settings.rate_mbps;
  run.notes = ['Loss and jitter have the values of the end, if they were moved while it ran.'];
  await call('change', run.scenarios);
}

let lastFrame = 0;

async function frame(now) {
  const elapsed_s = Math.min(0.1, (now - lastFrame) / 1e3);
  lastFrame = now;
  try {
    if (toShow !== null) await showSaved();
    if (toStart) await start();
    if (toChange) await change();
    if (run !== null && !run.isOver && (isRunning || run.time_s < catchUp_s)) {
      run.target_s = Math.max(catchUp_s, Math.min(run.target_s, run.time_s + 1) + elapsed_s * Number(byId('speed').value));
      const current = run; // the visitor may open another one meanwhile
      await advance(current, run.target_s);
      if (run === current) show();
    }
  } catch (error) {
    run = null;
    byId('error').textContent = error.message;
  }
  requestAnimationFrame(frame);
}

function show() {
  charts.draw(run.rows);
  if (!performance.getEntriesByName('first picture').length) performance.mark('first picture');
  const duration_s = run.scenarios[0].duration_s;
  Object.assign(byId('progress'), { max: duration_s, value: run.time_s });
  byId('clock').textContent = `${run.time_s.toFixed(1)} of ${duration_s} s`;
  const scores = run.scenarios.map((scenario, side) => scoreOf(scenario, run.rows[side], columns.flow));
  showScores(scores);
  showButton();
  if (run.isOver) {
    byId('announcement').textContent = `The run is over. ${scores.map((score, side) => (
      `Fair power of run ${'AB'[side]}: ${score.fairPower.toFixed(2)}`)).join('. ')}.`;
  }
}

function showScores(scores) {
  const fixed = (digits) => (value) => (Number.isFinite(value) ? value.toFixed(digits) : '–');
  const percent = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(0)} %` : '–');
  const lines = [
    ['Fair power, 0 to 1', (score) => score.fairPower, fixed(3)],
    ['Jain’s index of the shares', (score) => score.jain, fixed(3)],
    ['Utilisation', (score) => score.utilisation, percent],
    ['Delay, in base RTTs', (score) => score.delay, fixed(2)],
    ...(settings.flows.length > 1 ? [['Smallest share in any 5 s', (score) => score.worst, percent]] : []),
    ...settings.flows.flatMap((_, flow) => [
      [`Flow ${flow + 1}: throughput, Mbit/s`, (score) => score.flows[flow].throughput_mbps, number],
      [`Flow ${flow + 1}: of its fair share`, (score) => score.flows[flow].share, percent],
    ]),
  ];
  const cell = (tag, text, scope) => Object.assign(document.createElement(tag), { textContent: text, ...(scope && { scope }) });
  const head = document.createElement('tr');
  head.append(cell('td', ''), ...scores.map((_, side) => cell('th', scores.length > 1 ? `Run ${'AB'[side]}` : 'This run', 'col')));
  const body = lines.map(([label, value, text], place) => {
    const row = document.createElement('tr');
    row.className = place ? '' : 'main';
    row.append(cell('th', label, 'row'), ...scores.map((score) => cell('td', score === null ? '–' : text(value(score)))));
    return row;
  });
  const table = byId('scores');
  table.replaceChildren(document.createElement('thead'), document.createElement('tbody'));
  table.tHead.append(head);
  table.tBodies[0].append(...body);
}

function showButton() {
  byId('run').textContent = run?.isOver ? 'Run again' : isRunning ? 'Pause' : 'Run';
}

function download(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Lists the runs that `bbrgym lab` has. */
async function listSaved() {
  const { runs, count } = await (await fetch('saved/')).json();
  const found = runs.length < count ? `Saved runs: the newest ${runs.length} of ${count}` : `Saved runs: ${count}`;
  savedRuns.append(new Option(count ? found : 'No saved runs in runs/', ''));
  let group;
  for (const { key, group: label, title } of runs) { // sorted by group
    if (group?.label !== label) {
      group = Object.assign(document.createElement('optgroup'), { label });
      savedRuns.append(group);
    }
    group.append(new Option(title, key));
  }
  byId('saved').hidden = false;
}

/** Opens a file: rates over time become the link's, a trace that bbrgym saved is shown. */
async function openFile(file) {
  byId('error').textContent = '';
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (isSavedTrace(bytes)) {
    await openSaved(file.name, bytes);
    return;
  }
  const story = followTrace({ bytes, name: file.name });
  restart(0);
  isRunning = true;
  showSettings(settings, story);
  setLink();
}

/** Lets the link follow the rates of a file for as long as the run lasts, and says so. */
function followTrace({ bytes, name }) {
  const { duration_s } = settings;
  const schedule = readTrace(bytes, name, duration_s);
  trace = { bytes, name, duration_s, schedule };
  settings.rate_schedule = schedule;
  const rates = schedule.map(([, rate]) => rate);
  return `The link follows ${name}: ${rates.length} rates, ${number(Math.min(...rates))} to `
    + `${number(Math.max(...rates))} Mbit/s. The size of the buffer stays that of ${number(settings.rate_mbps)} Mbit/s.`;
}

async function openSaved(name, bytes) {
  if (!isLab) throw new Error(`${name} is a saved trace, which needs \`bbrgym lab\`: start it, and drop the file on its page.`);
  const answer = await fetch(`saved/?${encodeURIComponent(name)}`, {
    method: 'POST', headers: { 'Content-Type': 'application/vnd.apache.parquet' }, body: bytes,
  });
  const saved = await answer.json();
  if (saved.error) throw new Error(saved.error);
  savedRuns.value = '';
  toStart = toChange = false;
  toShow = { ...saved, name };
}

/** Opens a file, or says why not. */
async function tryToOpen(file) {
  try {
    await openFile(file);
  } catch (error) {
    byId('error').textContent = error.message;
  }
}

async function chooseSaved() {
  const key = savedRuns.value;
  if (!key) return;
  const answer = await fetch(`saved/${key.split('/').map(encodeURIComponent).join('/')}`);
  const saved = await answer.json();
  if (savedRuns.value !== key) return; // the visitor has chosen something else meanwhile
  if (saved.error) throw new Error(saved.error);
  toStart = toChange = false;
  const { label } = savedRuns.selectedOptions[0].parentElement;
  toShow = { ...saved, name: `${label}, ${savedRuns.selectedOptions[0].text}` };
}

/** Shows a saved run, and beside it the same scenario, simulated here. */
async function showSaved() {
  const saved = toShow;
  toShow = run = null;
  const number = (value) => value ?? NaN;
  const complete = (flow) => ({ jitter_ms: 0, rtt_schedule: [], ...flow });
  const scenario = { ...saved.scenario, flows: saved.scenario.flows.map(complete) };
  const rows = { time: saved.time, flows: saved.flows.map((row) => row.map(number)), link: saved.link.map((row) => row.map(number)) };
  const own = scenario.flows.every((flow) => !flow.policy && data.algorithms.some(([name]) => name === flow.algorithm));
  const scenarios = own ? [scenario, scenario] : [scenario];
  const story = `Run A is ${saved.name}, as the engine ${saved.engine} saved it. ${own
    ? 'Run B is the same scenario with the same seed, simulated in this page.' : 'This page cannot run its algorithms.'}`;
  showSettings(settingsOfSaved({ ...saved, scenario }, data.presets[0]), story);
  setLink();
  const recorded = { scenarios, rows: [rows], time_s: scenario.duration_s, target_s: 0, isOver: true, notes: [] };
  if (own) {
    const here = { ...scenario, flows: scenario.flows.map((flow) => (
      flow.algorithm === 'policy' ? { ...flow, policy: 'reference' } : flow)) };
    await call('start', [here], saved.seed, {});
    recorded.rows.push({ time: [], flows: [], link: [] });
    do await advance(recorded, Infinity); while (!recorded.isOver && !toStart && toShow === null);
    if (!recorded.isOver) return;
  }
  run = recorded;
  makeCharts();
  show();
}

byId('presets').append(...data.presets.map((preset) => {
  const button = document.createElement('button');
  Object.assign(button, { type: 'button', textContent: preset.title });
  button.onclick = () => {
    isRunning = true;
    open(settingsOf(preset));
    setLink();
  };
  return button;
}));
byId('run').onclick = () => {
  isRunning = run?.isOver ? true : !isRunning;
  if (run?.isOver) restart(0);
  showButton();
};
byId('restart').onclick = () => { isRunning = true; restart(0); showButton(); };
byId('share').onclick = async () => {
  if (toHash(settings, data) === null) {
    byId('notice').textContent = 'No link can have these settings: they are beyond its bounds, or have no control here.';
    return;
  }
  const isCopied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  byId('share').textContent = isCopied ? 'Link copied' : 'Copy the address of this page';
};
byId('yaml').onclick = () => run && download('playground.yaml', toYaml(run.scenarios, settings.seed, run.notes));
byId('csv').onclick = () => run && download('playground.csv', toCsv(run.rows, names.flowColumns, names.linkColumns));
window.addEventListener('hashchange', openLink);
window.addEventListener('resize', () => charts?.resize());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  showControls(settings, data, onChange);
  if (run !== null) makeCharts();
  if (run !== null && run.time_s > 0) show();
});

savedRuns.onchange = chooseSaved;
byId('choose').onclick = () => byId('file').click();
byId('file').onchange = ({ target }) => {
  const [file] = target.files;
  target.value = ''; // so that the same file can be chosen again
  if (file) tryToOpen(file);
};
const hasFile = ({ dataTransfer }) => [...dataTransfer.types].includes('Files');
let depth = 0; // of the elements that a dragged file is over
window.addEventListener('dragenter', (event) => { if (hasFile(event)) document.body.classList.toggle('is-over', ++depth > 0); });
window.addEventListener('dragleave', (event) => { if (hasFile(event)) document.body.classList.toggle('is-over', --depth > 0); });
window.addEventListener('dragover', (event) => { if (hasFile(event)) event.preventDefault(); });
window.addEventListener('drop', (event) => {
  if (!hasFile(event)) return;
  event.preventDefault(); // else the browser leaves the page for the file
  depth = 0;
  document.body.classList.remove('is-over');
  tryToOpen(event.dataTransfer.files[0]);
});

openLink();
requestAnimationFrame(frame);
if (isLab) await listSaved();

/** For tests and measurements: what ran, and how it shares the link. */
window.playground = {
  call,
  state: () => run && { ...run, settings, scores: run.scenarios.map((one, side) => scoreOf(one, run.rows[side], columns.flow)) },
};
