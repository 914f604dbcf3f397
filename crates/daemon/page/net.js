// Requests to the API, by the cookie that the browser has.

/// The server refused, or failed.
export class Refusal extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

/// No answer came.
export class Silence extends Error {}

export const get = (path, options) => ask('GET', path, undefined, options);
export const post = (path, body) => ask('POST', path, body ?? null, { patience_ms: ACT_PATIENCE_MS });

async function ask(method, path, body, { patience_ms = PATIENCE_MS, signal } = {}) {
  const stop = AbortSignal.timeout(patience_ms);
  const headers = { 'x-aquifer-page': '1' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response, text;
  try {
    response = await fetch('/v1' + path, {
      method, headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([stop, signal]) : stop,
      cache: 'no-store',
    });
    text = await response.text();
  } catch (error) {
    throw new Silence(error.message);
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Silence('the answer makes no sense');
  }
  if (!response.ok) throw new Refusal(response.status, answer.kind, answer.message);
  return answer;
}

/// A query of names and values; what is undefined is left out.
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return '?' + new URLSearchParams(given).toString();
}

const PATIENCE_MS = 15_000;
/// An act takes as long as it takes: a disk may be slow.
const ACT_PATIENCE_MS = 600_000;
