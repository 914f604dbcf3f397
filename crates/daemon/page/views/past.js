// The load of the past, as the pools keep it: of a day, or of a month.

import { h, button } from '../dom.js';
import { Chart } from '../charts.js';
import { size } from '../words.js';
import { flows, POWERS } from './overview.js';

/// Steps, so that a chart has as many points as a screen can show.
const SPANS = {
  day: { label: 'Day', step_s: 60, every_ms: 60_000 },
  month: { label: 'Month', step_s: 1800, every_ms: 600_000 },
};

const chosen = (app) => SPANS[app.kept.past] ? app.kept.past : 'day';

/// What is asked for: `of` is `disks`, `clients`, or a file.
export function past(pool, of, app) {
  const span = chosen(app);
  const { step_s, every_ms } = SPANS[span];
  const path = `/pools/${encodeURIComponent(pool)}/load?span=${span}&of=${encodeURIComponent(of)}&step_s=${step_s}`;
  return { past: { path, every_ms } };
}

/// The charts of what was asked for, and the choice of the span.
export function charts(title, asked, app) {
  const span = chosen(app);
  const answer = app.answers.past?.path === asked.past.path ? app.answers.past : null;
  const points = answer?.now ? points_of(answer.now) : [];
  const choice = Object.entries(SPANS).map(([name, { label }]) =>
    button(label, () => { app.keep({ past: name }); app.refresh(); }, { 'data-act': 'past-' + name, 'aria-pressed': String(name === span) }));
  return h('section', { class: 'card', key: 'past', 'data-past': span, 'data-points': points.length },
    h('div', { class: 'row' }, h('h2', null, title), h('div', { class: 'row acts' }, choice)),
    answer?.error && h('p', { class: 'refusal' }, answer.error),
    points.length > 1
      ? h('div', { class: 'cards charts' }, flows(points, span), used(points, answer.now, span))
      : !answer?.error && h('p', { class: 'empty' }, 'Nothing is known of that time yet.'));
}

function used(points, { used_bytes }, span) {
  return used_bytes.length > 0 && h(Chart, {
    key: 'used ' + span, title: 'In use', points, format: size, incrs: POWERS, dates: span !== 'day',
    series: [{ label: 'Bytes', color: 'read', of: (point) => point.used }],
  });
}

/// Lists of numbers as points; where steps are missing, the line breaks.
function points_of({ step_s, at_s, reads, writes, used_bytes }) {
  const points = [];
  at_s.forEach((at, index) => {
    if (index > 0 && at > at_s[index - 1] + step_s) points.push({ ...NOTHING, at: at - step_s });
    const part = (of) => {
      const count = of.operations[index];
      const time = (ns) => (count > 0 ? ns[index] : null);
      return { rate: count / step_s, bytes: of.bytes[index] / step_s, mean: time(of.mean_ns), p99: time(of.p99_ns) };
    };
    const [read, write] = [part(reads), part(writes)];
    points.push({
      at, reads: read.rate, writes: write.rate, read_bytes: read.bytes, write_bytes: write.bytes,
      read_ns: read.mean, write_ns: write.mean, write_p99_ns: write.p99, used: used_bytes[index] ?? null,
    });
  });
  return points;
}

const NOTHING = {
  reads: null, writes: null, read_bytes: null, write_bytes: null, read_ns: null, write_ns: null,
  write_p99_ns: null, used: null,
};
