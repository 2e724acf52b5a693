// What the visitor has set, and what is made of it: scenarios, links and files.

export const LINEAR = 'linear'; // an algorithm here: `policy` with the weights of agents/linear
export const MOST_FLOWS = 8;
const DEFAULT_PREFERENCE = 0.25; // of AgentParameters

/** Returns the settings of a preset. */
export function settingsOf(preset) {
  const { scenario, versus } = preset;
  return {
    preset: preset.name,
    seed: 1,
    isComparing: versus !== null,
    rate_mbps: scenario.rate_mbps,
    buffer_bdp: scenario.buffer_bdp,
    queue: scenario.queue ?? 'droptail',
    loss: scenario.loss,
    duration_s: scenario.duration_s,
    packet_bytes: scenario.packet_bytes,
    rate_schedule: scenario.rate_schedule,
    flows: scenario.flows.map((flow, index) => newFlow({
      algorithm: flow.policy === LINEAR ? LINEAR : flow.algorithm,
      versus: versus?.[index] ?? flow.algorithm,
      rtt_ms: flow.rtt_ms,
      start_s: flow.start_s,
      jitter_ms: flow.jitter_ms ?? 0,
      rtt_schedule: flow.rtt_schedule ?? [],
      preference: flow.parameters.preference ?? DEFAULT_PREFERENCE,
    })),
    weights: null, // or those of the linear policy that the visitor has set
  };
}

export function newFlow(given) {
  const usual = { algorithm: 'bbr', versus: 'bbr', rtt_ms: 40, start_s: 0, jitter_ms: 0, rtt_schedule: [] };
  return { ...usual, preference: DEFAULT_PREFERENCE, ...given };
}

/** Returns the scenarios to run: one, or two that differ in their algorithms. */
export function scenariosOf(settings) {
  const { rate_mbps, buffer_bdp, queue, loss, duration_s, packet_bytes, rate_schedule } = settings;
  const sides = settings.isComparing ? ['algorithm', 'versus'] : ['algorithm'];
  return sides.map((side) => ({
    ...{ rate_mbps, buffer_bdp, queue, loss, duration_s, packet_bytes, rate_schedule },
    flows: settings.flows.map((flow) => {
      const { rtt_ms, start_s, jitter_ms, rtt_schedule } = flow;
      const isPolicy = [LINEAR, 'policy'].includes(flow[side]);
      return {
        algorithm: isPolicy ? 'policy' : flow[side],
        ...{ rtt_ms, jitter_ms, rtt_schedule },
        start_s: Math.min(start_s, duration_s - 1),
        parameters: isPolicy && flow.preference !== DEFAULT_PREFERENCE ? { preference: flow.preference } : {},
        policy: isPolicy ? (flow[side] === LINEAR ? LINEAR : 'reference') : null,
      };
    }),
  }));
}

/** Sets the rate of a scenario that is running from `time_s` on. */
export function setRate(scenario, time_s, rate_mbps) {
  // A microsecond later, so that a repetition by the schedule has the same order of events.
  const at = (Math.round(time_s * 1e9) + 1000) / 1e9;
  scenario.rate_schedule = [...scenario.rate_schedule.filter(([time]) => time <= time_s), [at, rate_mbps]];
}

/** Returns the part of a link behind #: the preset, and what differs from it. */
export function toHash(settings, preset) {
  const usual = settingsOf(preset);
  const changed = Object.entries(settings).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(usual[name]));
  return encodeURIComponent(JSON.stringify({ ...Object.fromEntries(changed), preset: preset.name }));
}

/** Returns the settings of a link; those of the first preset if it has none. */
export function fromHash(hash, presets) {
  let given = {};
  try {
    given = JSON.parse(decodeURIComponent(hash.slice(1)));
  } catch {
    // An empty or a damaged link.
  }
  const preset = presets.find(({ name }) => name === given.preset) ?? presets[0];
  const usual = settingsOf(preset);
  const known = Object.entries(given).filter(([name]) => name in usual && name !== 'preset');
  const settings = { ...usual, ...Object.fromEntries(known) };
  settings.flows = settings.flows.slice(0, MOST_FLOWS).map(newFlow);
  for (const record of [settings, ...settings.flows]) keepBounds(record);
  return settings;
}

/** What a link may have: with other numbers the engine might run for ever. */
const BOUNDS = {
  rate_mbps: [0.1, 1000], buffer_bdp: [0.01, 100], loss: [0, 0.9], duration_s: [5, 300], packet_bytes: [64, 9000], seed: [0, 2 ** 31 - 1],
  rtt_ms: [1, 10_000], start_s: [0, 299], jitter_ms: [0, 10_000], preference: [0, 1],
};

function keepBounds(record) {
  for (const [name, [low, high]] of Object.entries(BOUNDS)) {
    if (name in record) record[name] = Math.min(high, Math.max(low, Number(record[name]) || low));
  }
}

/** Returns an experiment for `bbrgym benchmark`: the scenarios as they ran. JSON within YAML is YAML. */
export function toYaml(scenarios, seed, notes) {
  const plain = scenarios.map((scenario) => ({
    ...scenario,
    flows: scenario.flows.map((flow) => ({ ...flow, policy: flow.policy === LINEAR ? 'agents/linear' : null })),
  }));
  return `# @package _global_
# Save it as FOLDER/experiment/playground.yaml and run it in a checkout of bbrgym:
#     bbrgym benchmark --config-dir FOLDER experiment=playground
${notes.map((note) => `# ${note}\n`).join('')}defaults:
  - override /engine: native
  - override /tracking: none
name: playground
benchmark:
  competitors: [{name: as-given, algorithm: bbr}]
  roles: [] # flows keep their algorithms
  seeds: [${seed}]
  scenarios:
${plain.map((scenario, run) => `    run-${'ab'[run]}: ${JSON.stringify(scenario)}\n`).join('')}`;
}

/** Returns all rows of all runs, one line per run, step and flow. */
export function toCsv(runs, flowColumns, linkColumns) {
  const lines = [['run', 'time_s', 'flow', ...flowColumns, ...linkColumns.map((name) => `link_${name}`)].join()];
  const text = (value) => (Number.isNaN(value) ? '' : value);
  runs.forEach((rows, run) => rows.time.forEach((time, step) => {
    const width = flowColumns.length;
    for (let flow = 0; flow * width < rows.flows[step].length; flow++) {
      const values = [...rows.flows[step].slice(flow * width, (flow + 1) * width), ...rows.link[step]];
      lines.push(['ab'[run], time, flow, ...values.map(text)].join());
    }
  }));
  return `${lines.join('\n')}\n`;
}
