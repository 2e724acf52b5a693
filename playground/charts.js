// Four plots of a run, drawn as it is simulated.

/* global uPlot */

const HEIGHT = 165;
const LABEL_GAP = 14; // px between the names at the right
const DASHED_FROM = 4; // flows with the fifth colour and later ones

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const flowColour = (flow) => css(`--flow-${flow + 1}`);

/** The plots: title, least top of the axis, and lines for each flow or of the link. Those of the link have no colour. */
const PLOTS = [
  { title: 'Throughput', unit: 'Mbit/s', least: 1, flow: 'throughput_mbps', link: [['link', 'rate_mbps']] },
  { title: 'Round-trip time', unit: 'ms', least: 10, flow: 'rtt_mean_ms', link: [] },
  { title: 'Queueing delay', unit: 'ms', least: 5, link: [['mean', 'queue_mean_ms'], ['largest', 'queue_max_ms']] },
  { title: 'Packets dropped, per 0.1 s', unit: '', least: 5, link: [['by queue', 'drops'], ['at random', 'random_losses']] },
];

const LINK_NAME_LENGTHS = PLOTS.flatMap(({ link }) => link.map(([name]) => name.length));

export class Charts {
  #plots = [];

  /** Makes the plots of the runs in `element`. `columns` has {flow, link}, which map columns to indices. */
  constructor(element, scenarios, names, columns) {
    element.replaceChildren();
    element.style.setProperty('--runs', scenarios.length);
    const sync = uPlot.sync(`${Math.random()}`);
    scenarios.forEach((scenario, run) => {
      const section = document.createElement('section');
      if (scenarios.length > 1) {
        const title = document.createElement('h2');
        title.textContent = `Run ${'AB'[run]}`;
        section.append(title);
      }
      element.append(section);
      for (const plot of PLOTS) this.#plots.push(makePlot(section, plot, scenario, names[run], run, columns, sync));
    });
  }

  /** Draws the rows of each run. */
  draw(runs) {
    for (const plot of PLOTS) {
      const same = this.#plots.filter((one) => one.plot === plot);
      for (const one of same) one.read(runs[one.run]);
      const top = 1.08 * Math.max(plot.least, ...same.map((one) => one.largest));
      for (const one of same) one.show(top);
    }
  }

  resize() {
    for (const { chart, box } of this.#plots) chart.setSize({ width: box.clientWidth, height: HEIGHT });
  }

  end() {
    for (const { chart } of this.#plots) chart.destroy();
  }
}

function makePlot(section, plot, scenario, names, run, columns, sync) {
  // The same for all plots, so that their times are one below the other.
  const right = 7 * Math.max(...LINK_NAME_LENGTHS, ...names.map((name) => name.length)) + 12;
  const box = document.createElement('div');
  box.className = 'chart';
  box.setAttribute('role', 'img');
  const heading = document.createElement('h3');
  const reading = document.createElement('span');
  heading.append(`${plot.title}${plot.unit ? `, ${plot.unit}` : ''}`, reading);
  box.append(heading);
  section.append(box);

  const lines = plot.flow ? names.map((name, flow) => ({ name, colour: flowColour(flow), flow })) : [];
  plot.link.forEach(([name, column], place) => {
    const isThin = Boolean(plot.flow) || place > 0;
    lines.push({ name, colour: css(isThin ? '--soft' : '--ink'), index: columns.link[column], isThin });
  });
  const font = '12px system-ui, "DejaVu Sans", sans-serif';
  const axis = { stroke: css('--soft'), grid: { stroke: css('--grid'), width: 1 }, ticks: { show: false }, font };
  const one = { plot, run, largest: 0, top: plot.least };
  const chart = new uPlot({
    width: box.clientWidth,
    height: HEIGHT,
    padding: [8, right, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false, range: [0, scenario.duration_s] }, y: { range: () => [0, one.top] } },
    axes: [{ ...axis, size: 26, values: (_, splits) => splits.map((second) => `${second} s`) }, { ...axis, size: 54 }],
    series: [{}, ...lines.map((line) => ({
      stroke: line.colour,
      width: line.isThin ? 1.2 : 1.8,
      dash: line.isThin ? [2, 3] : line.flow >= DASHED_FROM ? [7, 4] : undefined,
      points: { show: false },
    }))],
    hooks: { draw: [(self) => drawNames(self, lines)], setCursor: [(self) => { reading.textContent = read(self, lines); }] },
  }, [[], ...lines.map(() => [])], box);

  Object.assign(one, { chart, box });
  let data;
  one.read = (rows) => {
    const count = names.length;
    data = [rows.time, ...lines.map(({ flow, index }) => rows.time.map((_, step) => {
      const row = index === undefined ? rows.flows[step] : rows.link[step];
      const value = row[index ?? flow * (row.length / count) + columns.flow[plot.flow]];
      const isThere = index !== undefined || row[flow * (row.length / count) + columns.flow.is_active] > 0;
      return isThere && !Number.isNaN(value) ? value : null;
    }))];
    one.largest = Math.max(0, ...data.slice(1).flat());
  };
  one.show = (top) => {
    one.top = top;
    chart.setData(data);
    box.setAttribute('aria-label', `${plot.title} of run ${'AB'[run]}: ${lines.map(({ name }, line) => {
      const value = data[line + 1].at(-1);
      return `${name} ${value === null || value === undefined ? 'nothing' : number(value)} ${plot.unit}`.trim();
    }).join(', ')}`);
  };
  return one;
}

/** Writes the name of each line where it ends, one below the other where they are close. */
function drawNames(chart, lines) {
  const { ctx } = chart;
  const ratio = devicePixelRatio;
  const ends = lines.map(({ name, colour }, line) => {
    const step = chart.data[line + 1].findLastIndex((value) => value !== null);
    if (step < 0) return null;
    return { name, colour, x: chart.data[0][step], y: chart.valToPos(chart.data[line + 1][step], 'y', true) };
  }).filter((end) => end !== null).sort((a, b) => a.y - b.y);
  const gap = LABEL_GAP * ratio;
  const bottom = chart.bbox.top + chart.bbox.height;
  ends.forEach((end, place) => { if (place) end.y = Math.max(end.y, ends[place - 1].y + gap); });
  ends.toReversed().forEach((end, place, all) => { end.y = Math.min(end.y, place ? all[place - 1].y - gap : bottom); });
  ctx.save();
  ctx.font = `600 ${12 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'left';
  for (const { name, colour, x, y } of ends) {
    ctx.fillStyle = colour;
    ctx.fillText(name, chart.valToPos(x, 'x', true) + 5 * ratio, y);
  }
  ctx.restore();
}

function read(chart, lines) {
  const step = chart.cursor.idx;
  if (step === null || step === undefined || chart.data[0][step] === undefined) return '';
  const values = lines.map(({ name, flow }, line) => [flow === undefined ? name : flow + 1, chart.data[line + 1][step]]);
  const shown = values.filter(([, value]) => value !== null).map(([name, value]) => `${name}: ${number(value)}`);
  return [`${chart.data[0][step].toFixed(1)} s`, ...shown].join(' · ');
}

export const number = (value) => value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
