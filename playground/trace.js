// Files of a rate over time, read as envs/rate_trace.py reads them (docs/traces.md#formats), with its errors. Those of
// other formats, with dates, or compressed are refused: Python reads them.

const MOST_BYTES = 100_000_000;
const BIN_MS = 100;
const OPPORTUNITY_MBPS = 12 / BIN_MS; // 1500 bytes per bin
const LAST_MS = 10 ** 12;
const STEP_MS = 100;
const LOWEST_MBPS = 0.01;
const MOST_MBPS = 10_000;
const MOST_SAMPLES = 1_000_000;
const IRTT = 'timestamp rtt uplink downlink';
const TIME_WORDS = [['time', 'timestamp', 't'], ['date', 'datetime']];
const RATE_WORDS = ['rate', 'throughput', 'bandwidth', 'bw', 'goodput', 'bitrate', 'capacity'];
const SEPARATORS = { ';': 'semicolons', '\t': 'tabs', ',': 'commas', ' ': 'blanks' };
const ELSEWHERE = 'which this page does not read: give bbrgym the file as rate_trace (docs/traces.md)';

/** Units as factor x 10^exponent of Mbit/s. */
const RATES = {
  'bit/s': [-6, 1], 'kbit/s': [-3, 1], 'Mbit/s': [0, 1], 'Gbit/s': [3, 1],
  'B/s': [-6, 8], 'kB/s': [-3, 8], 'MB/s': [0, 8], 'GB/s': [3, 8],
  'KiB/s': [-6, 8 * 2 ** 10], 'MiB/s': [-6, 8 * 2 ** 20], 'GiB/s': [-6, 8 * 2 ** 30],
};
const anyCase = (pattern) => pattern.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`);
const PER = `/(?:${anyCase('s|secs?|seconds?')})`;
const RATE = new RegExp(`^((?:[kKmMgG]i?)?)(?:(b|${anyCase('bits?')})(?:${PER}|ps)|(?:B|${anyCase('bytes?')})${PER})$`);
const PER_S = { s: 1, ms: 1e3, us: 1e6, ns: 1e9 };
const TIME_NAMES = {
  s: ['s', 'sec', 'secs', 'second', 'seconds'],
  ms: ['ms', 'MS', 'msec', 'msecs', 'millis', 'millisecond', 'milliseconds'],
  us: ['us', 'µs', 'μs', 'usec', 'usecs', 'micros', 'microsecond', 'microseconds'],
  ns: ['ns', 'nsec', 'nsecs', 'nanos', 'nanosecond', 'nanoseconds'],
};

/** Whether a file is a trace that bbrgym saved, in Parquet. */
export const isSavedTrace = (bytes) => String.fromCharCode(...bytes.subarray(0, 4)) === 'PAR1';

/**
 * Returns the rates of a file as a schedule: pairs of a time in s, from 0 to below `duration_s`, and Mbit/s.
 *
 * @param bytes the file's content.
 * @param name what errors call it.
 * @throws Error naming the file, its line and what must hold.
 */
export function readTrace(bytes, name, duration_s) {
  const table = readTable(linesOf(bytes, name), name);
  if (table.width === 1 && table.names === null) return mahimahi(table.lines, name, duration_s);
  if (table.width === 6 && table.names === null) refuse(`${name}:1: six columns without names are of the format hsdpa, ${ELSEWHERE}`);
  const { times, values, end } = table.width === 1 ? readSteps(table) : readSeries(table);
  return scheduleOf(times, values, end, name, duration_s).map(([time, rate]) => [time, Math.max(rate, LOWEST_MBPS)]);
}

function refuse(message) {
  throw new Error(message);
}

function linesOf(bytes, name) {
  const begins = (...magic) => magic.every((byte, place) => bytes[place] === byte);
  if (begins(0x1f, 0x8b) || begins(0x42, 0x5a, 0x68) || begins(0xfd, 0x37, 0x7a) || begins(0x28, 0xb5, 0x2f, 0xfd)) {
    refuse(`${name}: the file is compressed, ${ELSEWHERE}`);
  }
  if (bytes.length > MOST_BYTES) refuse(`${name}: a file must have at most ${MOST_BYTES / 1e6} MB: keep a part of it`);
  const isUtf16 = begins(0xff, 0xfe) ? 'utf-16le' : begins(0xfe, 0xff) ? 'utf-16be' : null;
  const text = new TextDecoder(isUtf16 ?? 'utf-8').decode(bytes).replaceAll(/\r\n?/g, '\n');
  const control = text.search(/[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]/); // eslint-disable-line no-control-regex
  if (control >= 0) {
    const line = text.slice(0, control).split('\n').length;
    const code = text.charCodeAt(control).toString(16).padStart(2, '0');
    refuse(`${name}:${line}: this is no text file, it has the character '\\x${code}'`);
  }
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

const isJson = (lines) => (lines[0] ?? '').trimStart().startsWith('{');
const isNumber = (text) => /^\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)\s*$/i.test(text);
const isDate = (text) => /^\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}:\d{2}|\d{1,2} [A-Za-z]{3,} \d{4})/.test(text);
const oneBlank = (text) => text.trim().split(/\s+/).join(' ');
/** As Python shows a text. */
const quoted = (text) => (text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll('\\', '\\\\').replaceAll('\t', '\\t').replaceAll("'", "\\'")}'`);

/** As Python shows a number, with 12 digits at most where `digits` is 12. */
function shown(value, digits = 17) {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value < 0 ? '-inf' : 'inf';
  const rounded = digits < 17 ? Number(value.toPrecision(digits)) : value;
  const size = Math.abs(rounded);
  const text = size !== 0 && (size < 1e-4 || size >= (digits < 17 ? 10 ** digits : 1e16)) ? rounded.toExponential() : String(rounded);
  const padded = text.replace(/e([+-])(\d)$/, 'e$10$2');
  return digits === 17 && Number.isInteger(rounded) && size < 1e16 ? `${padded}.0` : padded;
}

/** Reads the names of the columns, if there are any, and yields the columns of each line. */
function readTable(lines, name) {
  if (isJson(lines)) refuse(`${name}: the file is JSON, ${ELSEWHERE}`);
  let count = 1;
  let first = lines[0] ?? '';
  while (first.split('"').length % 2 === 0 && count < Math.min(lines.length, 1000)) first += `\n${lines[count++]}`;
  const separator = separatorOfHeader(first);
  const header = first.trim().replace(/^#+/, '').trim();
  const [names] = [...split(name, [header], separator, 1)].map(([, columns]) => columns);
  const table = { name, lines, names: null, separator };
  if ((names ?? []).some((one) => isNumber(one) || isDate(one))) {
    table.separator = separatorOfNumbers(first);
    Object.assign(table, peeked(split(name, lines.map((line) => line.trim()), table.separator, 1)));
    table.width = table.first[1].length;
    return table;
  }
  Object.assign(table, peeked(split(name, lines.slice(count), separator, 1 + count)));
  if (!names || table.first === null) refuse(`${name}:1: a file must have at least one line of numbers`);
  const isOneColumn = separator === null && table.first[1].length === 1;
  table.names = isOneColumn ? [oneBlank(header)] : names.map(oneBlank);
  table.width = table.names.length;
  if (table.names.join(' ') === IRTT) refuse(`${name}: a rate must not be of the format irtt`);
  return table;
}

/** The first of some records, which are read one by one: an error is of the first bad line. */
function peeked(records) {
  const { value, done } = records.next();
  const all = function* all() {
    if (!done) yield value;
    yield* records;
  };
  return { first: done ? null : value, records: all() };
}

function separatorOfHeader(line) {
  const unquoted = line.trim().replaceAll(/"[^"]*"/g, '');
  return unquoted.match(/[;\t]/)?.[0] ?? (unquoted.includes(',') ? ',' : null);
}

/** Commas separate numbers, unless one is in a number: two with a blank between them are then in one of the parts. */
function separatorOfNumbers(line) {
  const separator = separatorOfHeader(line);
  const parts = line.replaceAll(/"[^"]*"/g, '').split(separator ?? /\s+/);
  const isWithin = separator === ',' && parts.some((part) => {
    const inside = part.trim().split(/\s+/);
    return inside.length > 1 && inside.every(isNumber);
  });
  return isWithin ? null : separator;
}

/** Yields the number of each line, the first of which is `number`, and its columns, with quotes as in RFC 4180. */
function* split(name, lines, separator, number) {
  let blank = 0;
  for (let at = 0; at < lines.length; at++) {
    const begin = number + at;
    let line = lines[at];
    while (line.split('"').length % 2 === 0) { // a line break within quotes
      if (++at >= lines.length) refuse(`${name}:${begin}: unexpected end of data`);
      line += `\n${lines[at]}`;
    }
    const columns = separator === null ? columnsOf(oneBlank(line), ' ') : columnsOf(line, separator);
    if (!columns.some((column) => column !== '')) {
      blank ||= begin;
      continue;
    }
    if (blank) refuse(`${name}:${blank}: a line between others must not be blank`);
    yield [begin, columns];
  }
}

function columnsOf(line, separator) {
  const columns = [];
  let at = 0;
  for (;;) {
    if (separator !== ' ') while (line[at] === ' ') at++;
    let column = '';
    if (line[at] === '"') {
      for (at++; at < line.length; at++) {
        if (line[at] !== '"') column += line[at];
        else if (line[at + 1] === '"') column += line[at++];
        else break;
      }
      at++;
    }
    const next = line.indexOf(separator, at);
    columns.push(column + line.slice(at, next < 0 ? undefined : next));
    if (next < 0) return columns;
    at = next + 1;
  }
}

/** Yields the columns of each line, and the line as errors name it. */
function* rowsOf(table, width) {
  for (const [number, columns] of table.records) {
    const where = `${table.name}:${number}`;
    if (columns.length === width + 1 && columns.at(-1) === '') columns.pop(); // the line ends with a separator
    if (columns.length !== width) {
      const separator = table.separator ?? ' ';
      refuse(`${where}: a line must have ${width} column(s), got ${columns.length} in ${quoted(columns.join(separator).slice(0, 40))}, `
        + `which ${SEPARATORS[separator]} separate (a decimal comma must be a point)`);
    }
    yield [columns, where];
  }
}

function numberOf(columns, column, where, [exponent, factor] = [0, 1]) {
  const text = columns[column].trim();
  if (isNumber(text)) {
    const lowered = text.toLowerCase();
    if (/nan/.test(lowered)) return NaN;
    if (/inf/.test(lowered)) return lowered.startsWith('-') ? -Infinity : Infinity;
    const [mantissa, power] = lowered.split('e');
    return Number(`${mantissa}e${Number(power ?? 0) + exponent}`) * factor;
  }
  const point = text.replaceAll(',', '.');
  const hint = text.includes(',') && isNumber(point) ? `: a decimal comma must be a point, ${point.slice(0, 40)}` : '';
  return refuse(`${where}: column ${column + 1} must be a number, got ${quoted(text.slice(0, 40))}${hint}`);
}

function timeOf(columns, column, where, per_s) {
  const time = numberOf(columns, column, where) / per_s;
  const must = Number.isFinite(time) ? '>= 0' : 'a finite number >= 0';
  if (!(time >= 0 && time < Infinity)) refuse(`${where}: column ${column + 1}, a time in s, must be ${must}, got ${shown(time)}`);
  return time;
}

function rateOf(columns, column, where, unit) {
  const rate = numberOf(columns, column, where, unit);
  const must = `${Number.isFinite(rate) ? '' : 'a finite number '}in [0, ${MOST_MBPS}]`;
  if (!(rate >= 0 && rate <= MOST_MBPS)) refuse(`${where}: column ${column + 1}, the rate in Mbit/s, must be ${must}, got ${shown(rate)}`);
  return rate;
}

/** Returns the index of the column whose name has one of some words; later words count where none of the first is. */
function columnOf(table, key, ...words) {
  const { name, names } = table;
  let found = [];
  for (const some of words) {
    found = names.flatMap((one, index) => ((one.toLowerCase().match(/[a-z]+/g) ?? []).some((word) => some.includes(word)) ? [index] : []));
    if (found.length) break;
  }
  if (found.length === 1) return found[0];
  if (found.length) {
    refuse(`${name}:1: the columns ${found.map((index) => names[index]).join(' and ')} are alike: give one as rate_trace.${key}, `
      + `by its name or its number (${found.map((index) => index + 1).join(' or ')})`);
  }
  const without = words[0] === TIME_WORDS[0] ? ', or step_ms if lines have no times' : '';
  return refuse(`${name}:1: the name of one column must have one of ${words[0].join(', ')}, or give it as rate_trace.${key}${without}, `
    + `got ${names.join(', ')}`);
}

function unitsIn(text) {
  const per = text.replaceAll(/[\s_]*(?<![A-Za-z])per(?![A-Za-z])[\s_]*/g, '/');
  return [...(per.match(/[A-Za-z]+\/[A-Za-z]+/g) ?? []), ...(per.match(/[A-Za-zµμ]+/g) ?? [])];
}

function nameOfRate(text) {
  const found = text.match(RATE);
  if (!found) return null;
  const [, prefix, bits] = found;
  const scale = prefix.includes('i') ? `${prefix[0].toUpperCase()}i` : { '': '', k: 'k', m: 'M', g: 'G' }[prefix.toLowerCase()];
  const name = `${scale}${bits ? 'bit' : 'B'}/s`;
  return name in RATES ? name : null;
}

function nameOfTime(text) {
  const lowered = text.length <= 2 ? text : text.toLowerCase();
  return Object.keys(TIME_NAMES).find((name) => TIME_NAMES[name].includes(lowered)) ?? null;
}

/** Returns the unit that the name of a column says; null if columns have no names. */
function unitOf(table, column, nameOf, known, key) {
  if (table.names === null) return null;
  const stated = new Set(unitsIn(table.names[column]).map(nameOf).filter((name) => name !== null));
  if (stated.size !== 1) {
    refuse(`${table.name}:1: the unit of column ${column + 1} ${quoted(table.names[column])} must be said once, by its name or rate_trace.${key}: `
      + Object.keys(known).join(', '));
  }
  return [...stated][0];
}

/** Reads a value per line, which holds for `STEP_MS`. */
function readSteps(table) {
  const column = columnOf(table, 'column', RATE_WORDS);
  const unit = RATES[unitOf(table, column, nameOfRate, RATES, 'unit')];
  const values = [...rowsOf(table, 1)].map(([columns, where]) => rateOf(columns, column, where, unit));
  return { times: values.map((_, index) => index * STEP_MS / 1e3), values, end: values.length * STEP_MS / 1e3 };
}

/** Reads a time and a value per line, which holds from then on. */
function readSeries(table) {
  const [ofTime, ofRate] = table.names ? [columnOf(table, 'time_column', ...TIME_WORDS), columnOf(table, 'column', RATE_WORDS)] : [0, 1];
  const [number, first] = table.first;
  if (ofTime < first.length && !isNumber(first[ofTime]) && isDate(first[ofTime])) {
    refuse(`${table.name}:${number}: column ${ofTime + 1} has dates, ${ELSEWHERE}`);
  }
  if (!table.names) {
    refuse(`${table.name}:1: the columns have no names, so give rate_trace.time_unit of the first one, ${Object.keys(PER_S).join(', ')} `
      + '(a decimal comma must be a point)');
  }
  const per_s = PER_S[unitOf(table, ofTime, nameOfTime, PER_S, 'time_unit')];
  const unit = RATES[unitOf(table, ofRate, nameOfRate, RATES, 'unit')];
  const [times, values] = [[], []];
  for (const [columns, where] of rowsOf(table, table.width)) {
    const time = timeOf(columns, ofTime, where, per_s);
    const value = rateOf(columns, ofRate, where, unit);
    if (times.length && time <= times.at(-1)) refuse(`${where}: times must rise, got ${shown(time, 12)} s after ${shown(times.at(-1), 12)} s`);
    times.push(time);
    values.push(value);
  }
  return { times, values, end: null };
}

function scheduleOf(times, values, end, name, duration_s) {
  if (times[0] >= duration_s) {
    refuse(`${name} is from ${shown(times[0], 12)} to ${shown(end ?? times.at(-1), 12)} s, so that from_s=0 and duration_s=${duration_s} must `
      + `overlap it: from_s=${shown(times[0], 12)} begins with its first sample`);
  }
  const repetitions = end === null ? 1 : Math.ceil(duration_s / end);
  if (repetitions > 1 && repetitions * times.length > MOST_SAMPLES) refuse(`${name}: its repetitions must have at most 1,000,000 samples`);
  let changes = [];
  for (let repetition = 0; repetition < repetitions; repetition++) {
    times.forEach((time, place) => {
      const at = Number((time + repetition * (end ?? 0)).toFixed(9));
      if (at <= 0) changes = [[0, values[place]]];
      else if (at < duration_s && (!changes.length || changes.at(-1)[1] !== values[place])) changes.push([at, values[place]]);
    });
  }
  return changes;
}

/** Reads times in ms at which 1500 bytes can pass, as envs/mahimahi.py. */
function mahimahi(lines, name, duration_s) {
  const times = [];
  let last = 0;
  lines.forEach((line, place) => {
    const text = line.trim();
    if (!/^\d{1,13}$/.test(text) || Number(text) > LAST_MS) {
      refuse(`${name}:${place + 1}: a line must be an integer of ms in [0, 1e+12], got ${quoted(line.slice(0, 40))}`);
    }
    const time = Number(text);
    if (time < last) refuse(`${name}:${place + 1}: times must not fall, got ${time} after ${last}`);
    times.push(time);
    last = time;
  });
  if (last === 0) refuse(`${name}:${times.length || 1}: the last time must be > 0: the trace repeats from there`);
  const changes = [];
  /** How many of the times are at most this one. */
  const count = (time) => {
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  let before = 0; // A bin is (begin, end], and what the trace has at 0 is in the first one.
  const bins = Math.ceil(duration_s * 1e3 / BIN_MS);
  for (let bin = 0; bin < bins; bin++) {
    const end = (bin + 1) * BIN_MS;
    const until = Math.floor(end / last) * times.length + count(end % last);
    const rate = Math.max((until - before) * OPPORTUNITY_MBPS, OPPORTUNITY_MBPS);
    if (rate !== changes.at(-1)?.[1]) changes.push([bin * BIN_MS / 1e3, rate]);
    before = until;
  }
  return changes;
}
