// The native engine in WebAssembly (envs/wasm/api.cc).

const SUCCESS = 0;
const BAD_DESCRIPTOR = 8; // of WASI: there are no files

export class Engine {
  #exports;
  #printed = '';

  constructor(module) {
    const wasi = {
      environ_sizes_get: (count, size) => this.#write(count, 0) ?? this.#write(size, 0) ?? SUCCESS,
      environ_get: () => SUCCESS,
      fd_write: (_descriptor, vectors, count, written) => this.#print(vectors, count, written),
      proc_exit: () => { throw new Error('exit'); },
    };
    const imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      (imports[from] ??= {})[name] = wasi[name] ?? (() => BAD_DESCRIPTOR);
    }
    this.#exports = new WebAssembly.Instance(module, imports).exports;
    this.#call('_initialize');
    const [flow, link, algorithms] = this.#text(this.#call('names')).split('\n').map((line) => line.split(','));
    Object.assign(this, { flowColumns: flow, linkColumns: link, algorithms });
  }

  addPolicy(name, bytes) {
    this.#with(name, (text) => this.#with(bytes, (pointer) => this.#call('add_policy', text, pointer, bytes.length)));
  }

  start(scenario, seed) {
    const handle = this.#with(JSON.stringify(scenario), (text) => this.#call('start', text, seed));
    const flowNumbers = scenario.flows.length * this.flowColumns.length;
    return {
      step: (ms) => this.#call('step', handle, ms) !== 0,
      change: (changed) => this.#with(JSON.stringify(changed), (text) => this.#call('change', handle, text)),
      time: () => this.#call('time_s', handle),
      flows: () => this.#numbers(this.#call('flow_rows', handle), flowNumbers),
      link: () => this.#numbers(this.#call('link_row', handle), this.linkColumns.length),
      end: () => this.#call('end', handle),
    };
  }

  /** An error of the engine traps; what it printed before says why, and the instance is of no use any more. */
  #call(name, ...values) {
    try {
      return this.#exports[name](...values);
    } catch (error) {
      throw new Error(this.#printed || String(error));
    }
  }

  /** Calls `use` with a pointer to text (as UTF-8 with a 0 at its end) or bytes. */
  #with(given, use) {
    const bytes = typeof given === 'string' ? new TextEncoder().encode(`${given}\0`) : given;
    const pointer = this.#call('allocate', bytes.length);
    new Uint8Array(this.#exports.memory.buffer, pointer, bytes.length).set(bytes);
    const result = use(pointer);
    this.#call('release', pointer);
    return result;
  }

  #numbers(pointer, count) {
    return new Float64Array(this.#exports.memory.buffer, pointer, count);
  }

  #text(pointer) {
    const memory = new Uint8Array(this.#exports.memory.buffer);
    return new TextDecoder().decode(memory.subarray(pointer, memory.indexOf(0, pointer)));
  }

  #print(vectors, count, written) {
    const view = new DataView(this.#exports.memory.buffer);
    let total = 0;
    for (let i = 0; i < count; i++) {
      const length = view.getUint32(vectors + 8 * i + 4, true);
      const bytes = new Uint8Array(view.buffer, view.getUint32(vectors + 8 * i, true), length);
      this.#printed += new TextDecoder().decode(bytes);
      total += length;
    }
    this.#write(written, total);
    return SUCCESS;
  }

  #write(pointer, number) {
    new DataView(this.#exports.memory.buffer).setUint32(pointer, number, true);
  }
}
