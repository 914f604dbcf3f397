// Numbers as the command line writes them.

/// Bytes with a unit of 1024 and three digits that count: 1.50G.
export const size = (bytes) => (bytes == null ? '?' : scaled(bytes, 1024, 'B'));

/// A count with K, M, G for powers of 1000.
export const count = (number) => (number < 1000 ? String(Math.floor(number)) : scaled(number, 1000, ''));

/// A rate: small ones with a tenth.
export function rate(number) {
  if (number < 10) return (Math.floor(number * 10) / 10).toFixed(1);
  return count(number);
}

function scaled(number, base, unit) {
  let [whole, name] = [number, unit];
  for (const next of ['K', 'M', 'G', 'T', 'P', 'E']) {
    if (whole < base) break;
    [whole, name] = [whole / base, next];
  }
  return name === unit ? Math.floor(number) + unit : cut(whole, base === 1024) + name;
}

/// Three digits, rounded down; a whole number of 1024s has no fraction.
function cut(number, whole_alone) {
  const hundredths = Math.floor(number * 100 + 1e-9);
  if (whole_alone && hundredths % 100 === 0) return String(hundredths / 100);
  if (number < 10) return (hundredths / 100).toFixed(2);
  if (number < 100) return (Math.floor(hundredths / 10) / 10).toFixed(1);
  return String(Math.floor(number));
}

/// A time that an operation took.
export function took(ns) {
  if (ns < 1000) return Math.floor(ns) + 'ns';
  const [unit, name] = ns < 1e6 ? [1e3, 'us'] : ns < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
  return cut(ns / unit, false) + name;
}

/// How long something has gone on.
export function span(seconds) {
  if (seconds < 60) return Math.floor(seconds) + ' s';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min';
  if (seconds < 172_800) return Math.floor(seconds / 3600) + ' h';
  return Math.floor(seconds / 86_400) + ' days';
}

const two = (number) => String(number).padStart(2, '0');

/// A moment, as people here read clocks.
export function moment(ns) {
  const at = new Date(ns / 1e6);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const plural = (number, one, many) => `${number} ${number === 1 ? one : many ?? one + 's'}`;

/// The end of a hold, as the command line takes it: 30d, 12h, 2027-01-31; in seconds since 1970, and
/// null for none.
export function until(text) {
  const given = (text ?? '').trim();
  if (given === '') return null;
  const span = /^([0-9]+)([smhdw])$/.exec(given);
  const units = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };
  const day = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(given) ? Date.parse(given + 'T00:00:00Z') / 1000 : NaN;
  const end = span ? Math.floor(Date.now() / 1000) + Number(span[1]) * units[span[2]] : day;
  if (!Number.isSafeInteger(end)) throw new Error(`"${given}" is no time: say 90d, 12h, or 2027-01-31`);
  return end;
}
