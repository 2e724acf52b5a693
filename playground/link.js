// Links: the settings as text behind #. Anybody can write one, so each value is checked before it is used.

import { MOST_FLOWS, QUEUES, newFlow, settingsOf } from './scenario.js';

/** Longer schedules would make the links, and the page, slow. */
const MOST_CHANGES = 10_000;
const LATEST_S = 300; // the longest run
const MOST_SHOWN = 40; // letters of a bad value

/**
 * Returns the part of a link behind #: the preset, and what differs from it.
 *
 * It is null if no link can have these settings: those of a saved run may be beyond its bounds, or have no control.
 */
export function toHash(settings, data) {
  const usual = settingsOf(data.presets.find(({ name }) => name === settings.preset));
  const changed = Object.entries(settings).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(usual[name]));
  const hash = encodeURIComponent(JSON.stringify({ ...Object.fromEntries(changed), preset: settings.preset }));
  return fromHash(`#${hash}`, data).problem ? null : hash;
}

/**
 * Returns the settings of a link, and a sentence about what is wrong with it, or ''.
 *
 * They are those of the first preset if there is nothing behind #, or anything is wrong.
 *
 * @param data `presets`, `algorithms`, pairs of a name and a description, and `linear.weights`, as many as a link may have.
 */
export function fromHash(hash, data) {
  const usual = settingsOf(data.presets[0]);
  if (hash.length <= 1) return { settings: usual, problem: '' };
  try {
    const given = parse(hash.slice(1));
    settingsRule(data)(given, '');
    const preset = data.presets.find(({ name }) => name === (given.preset ?? usual.preset));
    const settings = { ...settingsOf(preset), ...given };
    settings.flows = settings.flows.map(newFlow);
    return { settings, problem: '' };
  } catch (error) {
    return { settings: usual, problem: `This link is not valid: ${error.message}. The page shows its first experiment.` };
  }
}

function parse(text) {
  try {
    return JSON.parse(decodeURIComponent(text));
  } catch {
    throw new Error('the text behind # is damaged');
  }
}

// A rule takes a value and its name, and throws an error that says what the value must be.

/** What a link may have: with other numbers the engine might run for ever. */
function settingsRule(data) {
  const algorithm = oneOf(data.algorithms.map(([name]) => name));
  const flow = record({
    algorithm,
    versus: algorithm,
    rtt_ms: number(1, 10_000),
    start_s: number(0, LATEST_S - 1),
    jitter_ms: number(0, 10_000),
    rtt_schedule: schedule(1, 10_000),
    preference: number(0, 1),
  });
  return record({
    preset: oneOf(data.presets.map(({ name }) => name)),
    seed: integer(0, 2 ** 31 - 1),
    isComparing: oneOf([true, false]),
    rate_mbps: number(0.1, 1000),
    buffer_bdp: number(0.01, 100),
    queue: oneOf(Object.keys(QUEUES)),
    loss: number(0, 0.9),
    duration_s: number(5, LATEST_S),
    packet_bytes: integer(64, 9000),
    rate_schedule: schedule(0.01, 1000),
    flows: list(1, MOST_FLOWS, flow),
    weights: orNull(list(data.linear.weights.length, data.linear.weights.length, number(-1000, 1000))),
  });
}

function number(low, high) {
  return (value, name) => {
    const isGood = Number.isFinite(value) && low <= value && value <= high;
    demand(isGood, name, `a number from ${low} to ${high}`, value);
  };
}

function integer(low, high) {
  return (value, name) => {
    const isGood = Number.isInteger(value) && low <= value && value <= high;
    demand(isGood, name, `a whole number from ${low} to ${high}`, value);
  };
}

function oneOf(known) {
  return (value, name) => demand(known.includes(value), name, `one of ${known.join(', ')}`, value);
}

function orNull(rule) {
  return (value, name) => { if (value !== null) rule(value, name); };
}

function list(least, most, rule) {
  return (values, name) => {
    const isGood = Array.isArray(values) && least <= values.length && values.length <= most;
    demand(isGood, name, `a list of ${least === most ? least : `${least} to ${most}`} entries`, values);
    values.forEach((value, place) => rule(value, `${name}[${place}]`));
  };
}

/** Pairs of a time in s and a value, with rising times. */
function schedule(low, high) {
  const [time, level] = [number(0, LATEST_S), number(low, high)];
  const pairs = list(0, MOST_CHANGES, list(2, 2, () => {}));
  return (values, name) => {
    pairs(values, name);
    values.forEach((pair, place) => {
      time(pair[0], `${name}[${place}][0]`);
      level(pair[1], `${name}[${place}][1]`);
      const isLater = place === 0 || pair[0] > values[place - 1][0];
      demand(isLater, `${name}[${place}][0]`, 'later than the time before it', pair[0]);
    });
  };
}

/** Own properties only: `constructor` and `__proto__` are no settings. */
function record(rules) {
  return (values, name) => {
    const isRecord = typeof values === 'object' && values !== null && !Array.isArray(values);
    const known = Object.keys(rules).join(', ');
    demand(isRecord, name || 'its text', 'an object of settings', values);
    for (const [key, value] of Object.entries(values)) {
      if (!Object.hasOwn(rules, key)) throw new Error(`unknown setting ${shown(key)}${name && ` in ${name}`}; known: ${known}`);
      rules[key](value, name ? `${name}.${key}` : key);
    }
  };
}

function demand(isGood, name, wanted, value) {
  if (!isGood) throw new Error(`${name} must be ${wanted}, got ${shown(value)}`);
}

function shown(value) {
  const text = typeof value === 'number' ? String(value) : JSON.stringify(value);
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text;
}
