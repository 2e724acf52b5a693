// How the flows of a run share the link: bbrgym.envs.sharing and Trace.summary, in JavaScript.

export const WARMUP = 0.25; // fraction of the duration that is not measured, as in benchmarks
const HEADER_BYTES = 40;
const WORST_STEPS = 50; // 5 s

const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * Returns the score of the steps since the warm-up; null before it has ended, and with finite flows.
 *
 * `rows` has `time`, `flows` and `link`, an array of columns per step; `column` maps a flow's column to its index.
 */
export function scoreOf(scenario, rows, column) {
  const from = WARMUP * scenario.duration_s;
  const end = rows.time.at(-1) ?? 0;
  if (end <= from + 1e-9 || scenario.flows.some((flow) => flow.size_bytes)) return null;
  const flows = scenario.flows.map((_, flow) => summaryOf(rows, flow, scenario.flows.length, from, column));
  const fair = fairShares(scenario, from, end);
  const there = fair.flows.map((_, flow) => flow).filter((flow) => fair.flows[flow].mbps > 0);
  const longest = Math.max(...there.map((flow) => fair.flows[flow].base_ms));
  const shares = there.map((flow) => flows[flow].throughput_mbps / fair.flows[flow].mbps);
  const delays = there.filter((flow) => flows[flow].rtt_ms > 0)
    .map((flow) => Math.max(0, flows[flow].rtt_ms - fair.flows[flow].base_ms) / longest);
  const squares = sum(shares.map((share) => share ** 2));
  const jain = squares > 0 ? sum(shares) ** 2 / (shares.length * squares) : 0;
  const received = sum(flows.map((flow) => flow.received_bytes)) * 8e-6;
  const utilisation = fair.capacity_mbit > 0 ? Math.min(1, received / fair.capacity_mbit) : 0;
  const delay = delays.length ? sum(delays) / delays.length : 0;
  there.forEach((flow, place) => { flows[flow].share = shares[place]; });
  const worst = worstShare(scenario, rows, from, column);
  return { fairPower: jain * utilisation / (1 + delay), jain, utilisation, delay, worst, flows };
}

/** The smallest share of the link, over an equal one, that any flow gets for `WORST_STEPS` steps in which all are active. */
function worstShare(scenario, rows, from, column) {
  const count = scenario.flows.length;
  const received = scenario.flows.map(() => 0);
  const least = scenario.flows.map(() => Infinity);
  const since = Math.max(from, ...scenario.flows.map((flow) => flow.start_s));
  const add = (step, sign) => received.forEach((_, flow) => {
    const row = rows.flows[step];
    received[flow] += sign * row[flow * (row.length / count) + column.received_bytes];
  });
  const first = rows.time.findIndex((time) => time > since + 1e-9);
  for (let step = first; first >= 0 && step < rows.time.length; step++) {
    add(step, 1);
    if (step >= first + WORST_STEPS) add(step - WORST_STEPS, -1);
    const total = sum(received);
    if (step < first + WORST_STEPS - 1 || total <= 0) continue;
    received.forEach((bytes, flow) => { least[flow] = Math.min(least[flow], bytes * count / total); });
  }
  return Math.min(...least);
}

/** Throughput and mean RTT of a flow in the steps that start at `from` or later. */
function summaryOf(rows, flow, flowCount, from, column) {
  let [active_s, received_bytes, delivered, weighted_rtt] = [0, 0, 0, 0];
  rows.time.forEach((time, step) => {
    const start = step ? rows.time[step - 1] : 0;
    if (start < from - 1e-9) return;
    const row = rows.flows[step];
    const value = (name) => row[flow * (row.length / flowCount) + column[name]];
    active_s += (time - start) * value('is_active');
    received_bytes += value('received_bytes');
    const rtt = value('rtt_mean_ms');
    if (Number.isNaN(rtt)) return;
    delivered += value('delivered_packets');
    weighted_rtt += rtt * value('delivered_packets');
  });
  return { received_bytes, throughput_mbps: active_s ? received_bytes * 8e-6 / active_s : 0, rtt_ms: weighted_rtt / delivered };
}

/** What each flow would have if all were equal between two times, and what the link can carry. */
function fairShares(scenario, from, end) {
  const payload = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES);
  const schedules = [scenario.rate_schedule, ...scenario.flows.map((flow) => flow.rtt_schedule)];
  const spans = scenario.flows.map((flow) => [flow.start_s, flow.stop_s ?? Infinity]);
  const changes = [from, end, ...schedules.flat().map(([time]) => time), ...spans.flat()];
  const edges = [...new Set(changes)].filter((time) => time >= from && time <= end).sort((a, b) => a - b);
  const flows = scenario.flows.map(() => ({ mbit: 0, seconds: 0, weighted_ms: 0 }));
  let capacity_mbit = 0;
  edges.slice(1).forEach((until, place) => {
    const begin = edges[place];
    const isActive = spans.map(([start, stop]) => start <= begin && begin < stop);
    const active = isActive.filter(Boolean).length;
    if (!active) return;
    const mbit = payload * valueAt(scenario.rate_mbps, scenario.rate_schedule, begin) * (until - begin);
    capacity_mbit += mbit;
    scenario.flows.forEach((flow, index) => {
      if (!isActive[index]) return;
      flows[index].mbit += mbit / active;
      flows[index].seconds += until - begin;
      flows[index].weighted_ms += mbit / active * valueAt(flow.rtt_ms, flow.rtt_schedule, begin);
    });
  });
  return {
    capacity_mbit,
    flows: flows.map(({ mbit, seconds, weighted_ms }) => ({ mbps: mbit / seconds, base_ms: weighted_ms / mbit })),
  };
}

function valueAt(first, schedule, time) {
  return schedule.findLast(([from]) => from <= time)?.[1] ?? first;
}
