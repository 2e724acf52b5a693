// The settings: each control writes into `settings` and says whether the run must start again.

import { flowColour } from './charts.js';
import { LINEAR, MOST_FLOWS, QUEUES, newFlow } from './scenario.js';

/** Positions of a slider that moves by equal ratios. */
const RATIO_STEPS = 200;
const byId = (id) => document.getElementById(id);

/**
 * Fills the panel.
 *
 * @param settings what the controls change.
 * @param data `algorithms`, pairs of a name and a description, `preferring`, those of them that heed a preference, and
 *   `linear`: inputs and weights.
 * @param changed is called with 'live' for what a run takes at once, with 'start' for what needs another run.
 */
export function showControls(settings, data, changed) {
  const refresh = () => showControls(settings, data, changed);
  const set = (record, name, kind) => (value) => { record[name] = value; changed(kind); };

  byId('live').replaceChildren(
    slider(settings.rate_schedule.length ? 'Rate, instead of the trace' : 'Rate', settings.rate_mbps, 1, 200, 'Mbit/s', (value) => {
      settings.rate_schedule = [];
      set(settings, 'rate_mbps', 'live')(value);
    }, { isRatio: true }),
    slider('Random loss', settings.loss * 100, 0, 10, '%', (value) => set(settings, 'loss', 'live')(value / 100), { step: 0.1 }),
    ...settings.flows.map((flow, index) => slider(
      `Jitter of flow ${index + 1}, up to`, flow.jitter_ms, 0, 100, 'ms', set(flow, 'jitter_ms', 'live'), { step: 1 })),
  );
  byId('compare').checked = settings.isComparing;
  byId('compare').onchange = ({ target }) => { settings.isComparing = target.checked; refresh(); changed('start'); };
  byId('flows').replaceChildren(...settings.flows.map((flow, index) => flowCard(flow, index, settings, data, refresh, changed)));
  byId('add').disabled = settings.flows.length >= MOST_FLOWS;
  byId('add').onclick = () => {
    settings.flows.push(newFlow({ ...settings.flows.at(-1), rtt_schedule: [] }));
    refresh();
    changed('start');
  };
  byId('link').replaceChildren(
    slider('Buffer', settings.buffer_bdp, 0.1, 10, 'BDP', set(settings, 'buffer_bdp', 'start'), { isRatio: true }),
    select('Queue', settings.queue, Object.entries(QUEUES), set(settings, 'queue', 'start')),
    field('Duration, s', settings.duration_s, 5, 300, set(settings, 'duration_s', 'start')),
    field('Seed', settings.seed, 0, 2 ** 31 - 1, set(settings, 'seed', 'start'), 1),
  );
  showWeights(settings, data.linear, changed, refresh);
}

function flowCard(flow, index, settings, data, refresh, changed) {
  const card = document.createElement('div');
  card.className = 'flow';
  card.style.setProperty('--colour', flowColour(index));
  card.setAttribute('role', 'group');
  card.setAttribute('aria-label', `Flow ${index + 1}`);
  const title = document.createElement('h3');
  title.append(`Flow ${index + 1}`);
  if (settings.flows.length > 1) {
    const remove = document.createElement('button');
    remove.type = 'button';
    remove.textContent = 'Remove';
    remove.setAttribute('aria-label', `Remove flow ${index + 1}`);
    remove.onclick = () => {
      settings.flows.splice(index, 1);
      refresh();
      changed('start');
      byId('add').focus();
    };
    title.append(remove);
  }
  const set = (name) => (value) => { flow[name] = value; changed('start'); };
  const setAlgorithm = (name) => (value) => { set(name)(value); refresh(); };
  const labels = settings.isComparing ? ['In run A', 'In run B'] : ['Algorithm'];
  const chosen = ['algorithm', 'versus'].slice(0, labels.length);
  card.append(title, ...chosen.map((name, run) => {
    const list = select(labels[run], flow[name], data.algorithms.map(([one]) => [one, one]), setAlgorithm(name));
    list.title = data.algorithms.find(([one]) => one === flow[name])?.[1] ?? '';
    return list;
  }));
  const pages = [...new Set(chosen.map((name) => flow[name]))].filter((name) => data.docs && data.algorithms.some(([one]) => one === name));
  if (pages.length) card.append(aboutAlgorithms(pages, data.docs));
  const pair = document.createElement('div');
  pair.className = 'pair';
  pair.append(
    field(flow.rtt_schedule.length ? 'RTT, no trace' : 'RTT, ms', flow.rtt_ms, 1, 1000, (value) => { flow.rtt_schedule = []; set('rtt_ms')(value); }),
    field('Start, s', flow.start_s, 0, 299, set('start_s')),
  );
  card.append(pair);
  if (chosen.some((name) => data.preferring.includes(flow[name]))) {
    card.append(slider('Preference: short queue to throughput', flow.preference, 0, 1, '', set('preference'), { step: 0.05 }));
  }
  return card;
}

/** Returns links to the pages of algorithms. */
function aboutAlgorithms(names, docs) {
  const line = document.createElement('p');
  line.className = 'about';
  names.forEach((name, place) => {
    const link = document.createElement('a');
    link.href = name === LINEAR ? `${docs}playground.html` : `${docs}algorithms/${name}.html`;
    link.textContent = name;
    line.append(place ? ' and ' : 'About ', link);
  });
  return line;
}

function showWeights(settings, linear, changed, refresh) {
  const isUsed = settings.flows.some((flow) => flow.algorithm === LINEAR || (settings.isComparing && flow.versus === LINEAR));
  byId('weights').hidden = !isUsed;
  if (!isUsed) return;
  const weights = settings.weights ?? linear.weights;
  const inputs = [...linear.inputs, ['constant', 'always 1']];
  const change = (place) => (value) => {
    settings.weights = [...(settings.weights ?? linear.weights)];
    settings.weights[place] = value;
    changed('start');
  };
  // In the order of a layer: the weights of the window, those of the rate, and both constants.
  const place = (input, output) => (input < linear.inputs.length ? output * linear.inputs.length + input : weights.length - 2 + output);
  byId('sliders').replaceChildren(...inputs.flatMap(([input, meaning], index) => {
    const title = Object.assign(document.createElement('h4'), { textContent: input });
    const text = Object.assign(document.createElement('p'), { textContent: meaning });
    const pair = document.createElement('div');
    pair.className = 'pair';
    pair.append(...['window', 'pacing'].map((output, row) => {
      const at = place(index, row);
      const most = Math.max(0.5, 3 * Math.abs(linear.weights[at]));
      const made = slider(output, weights[at], -most, most, '', change(at), { step: most / 100 });
      made.querySelector('input').setAttribute('aria-label', `Weight of ${input} for ${output}`);
      return made;
    }));
    return [title, text, pair];
  }));
  byId('forget').onclick = () => { settings.weights = null; refresh(); changed('start'); };
}

let last = 0;

/** Returns a row with a label and what it names. */
function control(label, input, className = 'control') {
  const row = document.createElement('div');
  row.className = className;
  const text = document.createElement('label');
  text.textContent = label;
  input.id = `control-${last++}`;
  text.htmlFor = input.id;
  row.append(text, input);
  return row;
}

function slider(label, value, low, high, unit, set, { step = 1, isRatio = false } = {}) {
  const input = document.createElement('input');
  const output = document.createElement('output');
  output.setAttribute('aria-live', 'off'); // aria-valuetext says it
  const toValue = (position) => (isRatio ? Number((low * (high / low) ** (position / RATIO_STEPS)).toPrecision(3)) : position);
  Object.assign(input, isRatio ? { type: 'range', min: 0, max: RATIO_STEPS, step: 1 } : { type: 'range', min: low, max: high, step });
  input.value = isRatio ? RATIO_STEPS * Math.log(value / low) / Math.log(high / low) : value;
  const show = (shown) => {
    output.textContent = `${Number(shown.toPrecision(3))} ${unit}`;
    input.setAttribute('aria-valuetext', output.textContent);
  };
  show(value);
  input.oninput = () => { show(toValue(input.valueAsNumber)); set(toValue(input.valueAsNumber)); };
  const row = control(label, input);
  row.insertBefore(output, input);
  return row;
}

function field(label, value, low, high, set, step = 'any') {
  const input = document.createElement('input');
  Object.assign(input, { type: 'number', min: low, max: high, step, value });
  input.onchange = () => {
    const given = Number.isNaN(input.valueAsNumber) ? value : input.valueAsNumber;
    const kept = Math.min(high, Math.max(low, given));
    input.valueAsNumber = step === 'any' ? kept : Math.round(kept);
    set(input.valueAsNumber);
  };
  return control(label, input);
}

function select(label, value, known, set) {
  const input = document.createElement('select');
  const isKnown = known.some(([name]) => name === value); // an algorithm of a saved run may not be
  const choices = isKnown ? known : [[value, `${value}, not in this page`], ...known];
  input.append(...choices.map(([name, text]) => new Option(text, name, false, name === value)));
  input.onchange = () => set(input.value);
  return control(label, input);
}
