// Simulates in its own thread. Each message {id, call, values} is answered with {id, result} or {id, error}.

import { Engine } from './engine.js';

const STEP_MS = 100; // as in benchmarks
const PATIENCE_MS = 40; // then the page gets what there is, and can be used

let module;
let engine;
let simulations = [];
const policies = {};

const calls = {
  /** Takes the module, compressed by gzip, and policies. */
  async load(compressed, given) {
    Object.assign(policies, given);
    const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('gzip'));
    module = await WebAssembly.compile(await new Response(stream).arrayBuffer());
    makeEngine();
    const { flowColumns, linkColumns, algorithms } = engine;
    return { flowColumns, linkColumns, algorithms };
  },

  start(scenarios, seed, given) {
    Object.assign(policies, given);
    for (const [name, bytes] of Object.entries(given)) engine.addPolicy(name, bytes);
    for (const simulation of simulations.splice(0)) simulation.end();
    simulations = scenarios.map((scenario) => engine.start(scenario, seed));
  },

  /** Takes what a scenario can change while it runs. */
  change(scenarios) {
    scenarios.forEach((scenario, run) => simulations[run].change(scenario));
  },

  /** Simulates until a time, or as far as patience goes; returns the rows of the new steps, by run. */
  advance(until_s) {
    const rows = simulations.map(() => ({ time: [], flows: [], link: [] }));
    const begin = performance.now();
    let isOver = false;
    while (!isOver && simulations[0].time() < until_s - 1e-9 && performance.now() - begin < PATIENCE_MS) {
      simulations.forEach((simulation, run) => {
        isOver = simulation.step(STEP_MS);
        rows[run].time.push(simulation.time());
        rows[run].flows.push(simulation.flows().slice());
        rows[run].link.push(simulation.link().slice());
      });
    }
    return { rows, isOver };
  },

  /** Simulates a scenario without rows, and returns the simulated s per s. */
  measure(scenario, repetitions) {
    const seconds = [];
    for (let i = 0; i < repetitions; i++) {
      const begin = performance.now();
      const simulation = engine.start(scenario, 1);
      while (!simulation.step(STEP_MS));
      simulation.end();
      seconds.push((performance.now() - begin) / 1e3);
    }
    return seconds.map((taken) => scenario.duration_s / taken);
  },
};

function makeEngine() {
  simulations = [];
  engine = new Engine(module);
  for (const [name, bytes] of Object.entries(policies)) engine.addPolicy(name, bytes);
}

let queue = Promise.resolve();
self.onmessage = ({ data: { id, call, values } }) => {
  queue = queue.then(async () => {
    try {
      self.postMessage({ id, result: await calls[call](...values) });
    } catch (error) {
      if (module) makeEngine();
      self.postMessage({ id, error: error.message });
    }
  });
};
