// What the visitor has set, and what is made of it: scenarios and files.

export const LINEAR = 'linear'; // an algorithm here: `policy` with the weights of agents/linear
export const MOST_FLOWS = 8;
export const QUEUES = { droptail: 'drop-tail', codel: 'CoDel', pie: 'PIE', fq_codel: 'FQ-CoDel', dualpi2: 'DualPI2' };
const DEFAULT_PREFERENCE = 0.25; // of AgentParameters

/** Returns the settings of a preset. */
export function settingsOf(preset) {
  return { preset: preset.name, ...settingsOfScenario(preset.scenario, preset.versus) };
}

function settingsOfScenario(scenario, versus) {
  return {
    seed: 1,
    isComparing: versus !== null,
    rate_mbps: scenario.rate_mbps,
    buffer_bdp: scenario.buffer_bdp,
    queue: scenario.queue ?? 'droptail',
    loss: scenario.loss,
    duration_s: scenario.duration_s,
    packet_bytes: scenario.packet_bytes,
    rate_schedule: scenario.rate_schedule ?? [],
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

const DRIVER = ['parameters', 'policy', 'file', 'server', 'client', 'data_from', 'transport'];
const ON_THE_LINK = ['rate_mbps', 'buffer_bdp', 'buffer_packets', 'queue', 'loss', 'duration_s', 'packet_bytes', 'rate_schedule', 'flows'];
const OF_A_FLOW = ['algorithm', 'rtt_ms', 'start_s', 'jitter_ms', 'rtt_schedule'];

const isGiven = (value) => value !== null && !(typeof value === 'object' && Object.keys(value).length === 0);
const pick = (record, isWanted) => (
  Object.fromEntries(Object.entries(record).filter(([name, value]) => isGiven(value) && isWanted(name))));

/**
 * Returns the settings of a saved run, as if changed from a preset.
 *
 * Their `others`, and those of flows, are what the scenario has beyond the controls; `driver` is what belongs to a flow's
 * algorithm alone.
 */
export function settingsOfSaved({ scenario, seed }, preset) {
  const longest_ms = Math.max(...scenario.flows.map(({ rtt_ms }) => rtt_ms));
  const bdp_packets = scenario.rate_mbps * 1e3 * longest_ms / 8 / scenario.packet_bytes;
  const buffer_bdp = scenario.buffer_packets ? scenario.buffer_packets / bdp_packets : scenario.buffer_bdp ?? 1;
  const settings = { preset: preset.name, ...settingsOfScenario({ ...scenario, buffer_bdp }, null), seed };
  const others = pick(scenario, (name) => !ON_THE_LINK.includes(name));
  if (isGiven(others)) settings.others = others;
  settings.flows.forEach((flow, index) => {
    const saved = scenario.flows[index];
    const { preference, ...parameters } = saved.parameters;
    const driver = pick({ ...saved, parameters }, (name) => DRIVER.includes(name));
    const beyond = pick(saved, (name) => ![...DRIVER, ...OF_A_FLOW].includes(name));
    if (isGiven(driver)) flow.driver = { ...driver, algorithm: saved.algorithm };
    if (isGiven(beyond)) flow.others = beyond;
  });
  return settings;
}

/** Returns the scenarios to run: one, or two that differ in their algorithms. */
export function scenariosOf(settings) {
  const { rate_mbps, buffer_bdp, queue, loss, duration_s, packet_bytes, rate_schedule } = settings;
  const sides = settings.isComparing ? ['algorithm', 'versus'] : ['algorithm'];
  return sides.map((side) => ({
    ...settings.others,
    ...{ rate_mbps, buffer_bdp, queue, loss, duration_s, packet_bytes, rate_schedule },
    flows: settings.flows.map((flow) => {
      const { rtt_ms, start_s, jitter_ms, rtt_schedule } = flow;
      const isPolicy = [LINEAR, 'policy'].includes(flow[side]);
      const driver = flow.driver?.algorithm === flow[side] ? flow.driver : {};
      const preference = isPolicy && flow.preference !== DEFAULT_PREFERENCE ? { preference: flow.preference } : {};
      return {
        ...flow.others,
        algorithm: isPolicy ? 'policy' : flow[side],
        ...{ rtt_ms, jitter_ms, rtt_schedule },
        start_s: Math.min(start_s, duration_s - 1),
        policy: isPolicy ? (flow[side] === LINEAR ? LINEAR : 'reference') : null,
        ...driver,
        parameters: { ...driver.parameters, ...preference },
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
