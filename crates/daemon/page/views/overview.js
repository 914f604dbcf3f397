// Is everything all right, and what is the server doing?

import { h, card, link, state, bar, commands } from '../dom.js';
import { Chart } from '../charts.js';
import { size, rate, took, plural } from '../words.js';

export const overview = {
  title: 'Overview',
  needs: (_, app) => ({
    pools: { path: '/pools', every_ms: 2000 },
    alerts: { path: '/alerts', every_ms: 4000 },
    ...statuses(app),
  }),
  draw: (_, app) => [health(app), h('div', { class: 'cards' }, capacity(app)), ...load(app)],
};

/// The status of each pool, which says what is wrong with it.
export function statuses(app) {
  const pools = app.answers.pools?.now ?? [];
  const need = (pool) => ['pool ' + pool.name, { path: '/pools/' + encodeURIComponent(pool.name), every_ms: 4000 }];
  return Object.fromEntries(pools.map(need));
}

/// All that is wrong, the worst first: of each pool's status, and what a status does not say.
function problems(app) {
  const found = [];
  for (const pool of app.answers.pools?.now ?? []) {
    const status = app.answers['pool ' + pool.name]?.now;
    for (const problem of status?.problems ?? []) found.push({ pool: pool.name, ...problem });
  }
  for (const alert of app.answers.alerts?.now?.active ?? []) {
    const is = (one) => one.code === alert.code && one.pool === alert.pool;
    if (!found.some(is)) found.push(alert);
  }
  const rank = { error: 0, warning: 1, info: 2 };
  return found.sort((a, b) => rank[a.severity] - rank[b.severity]);
}

function health(app) {
  const pools = app.answers.pools?.now;
  if (!pools) return card(null, h('p', { class: 'empty' }, 'One moment…'));
  const all = problems(app);
  const bad = all.filter((problem) => problem.severity !== 'info');
  const sick = pools.filter((pool) => pool.health !== 'ONLINE');
  const level = bad.some((problem) => problem.severity === 'error') ? 'bad'
    : bad.length + sick.length > 0 ? 'fair' : 'good';
  let sentence;
  if (bad.length > 0) sentence = bad[0].status;
  else if (pools.length === 0) sentence = 'There is no pool yet: aquifer pool create makes one.';
  else if (sick.length > 0) sentence = sick.map((pool) => `Pool ${pool.name} is ${pool.health.toLowerCase()}.`).join(' ');
  else sentence = `All is well: ${plural(pools.length, 'pool')} in service.`;
  return h('section', { class: 'card health ' + level, 'data-health': level },
    h('h1', null, h('i', { class: 'dot', 'aria-hidden': 'true' }), sentence),
    all.length > 0 && h('ul', { class: 'problems' }, all.map((problem, at) =>
      h('li', { key: problem.pool + problem.code + problem.status, 'data-code': problem.code },
        h('p', null, state(problem.severity), ' ', problem.pool && link(['pools', problem.pool], problem.pool),
          problem.pool && (at > 0 || bad.length === 0) && ': ', (at > 0 || bad.length === 0) && problem.status, ' ', h('code', { class: 'code' }, problem.code)),
        problem.action && h('p', { class: 'action' }, commands(problem.action)),
        problem.see && h('p', { class: 'see' }, 'More: ', h('code', null, problem.see), ' on the server')))));
}

function capacity(app) {
  return (app.answers.pools?.now ?? []).map((pool) =>
    h('section', { class: 'card pool', key: pool.name, 'data-pool': pool.name },
      h('h2', null, link(['pools', pool.name], pool.name), ' ', state(pool.health)),
      bar(pool.allocated_bytes, pool.size_bytes, `${pool.name} in use`),
      h('p', null, h('b', { 'data-value': 'allocated' }, size(pool.allocated_bytes)), ' of ',
        h('span', { 'data-value': 'size' }, size(pool.size_bytes)), ' in use, ',
        h('span', { 'data-value': 'free' }, size(pool.free_bytes)), ' free'),
      pool.reason && h('p', { class: 'refusal' }, pool.reason)));
}

function load(app) {
  const nfs = app.answers.nfs?.now;
  const points = app.history.all;
  const last = points[points.length - 1];
  if (!nfs || !last) return [card('Load', h('p', { class: 'empty' }, 'Measuring…'))];
  const tile = (label, value, more) =>
    h('div', { class: 'tile' }, h('span', null, label), h('b', null, value), h('small', null, more));
  const time = (ns) => (ns == null ? '–' : took(ns));
  return [
    h('div', { class: 'tiles', key: 'tiles' },
      tile('Reads', rate(last.reads) + '/s', size(last.read_bytes) + '/s'),
      tile('Writes', rate(last.writes) + '/s', size(last.write_bytes) + '/s'),
      tile('Read latency', time(last.read_ns), 'p99 ' + time(last.read_p99_ns)),
      tile('Write latency', time(last.write_ns), 'p99 ' + time(last.write_p99_ns)),
      tile('Clients', String(nfs.clients.length), plural(nfs.load.connections, 'connection'))),
    h('div', { class: 'cards charts', key: 'charts' }, flows(points)),
  ];
}

/// Steps of bytes.
export const POWERS = Array.from({ length: 50 }, (_, bits) => 2 ** bits);

/// The charts of the traffic of all, or of one file: of minutes, or of another `span`.
export function flows(points, span = 'minutes') {
  const dates = span === 'month';
  const two = (read, write) => [
    { label: 'Reads', color: 'read', of: read },
    { label: 'Writes', color: 'write', of: write },
  ];
  return [
    h(Chart, {
      key: 'ops ' + span, title: 'Operations a second', points, format: rate, dates,
      series: two((point) => point.reads, (point) => point.writes),
    }),
    h(Chart, {
      key: 'bytes ' + span, title: 'Bytes a second', points, format: size, incrs: POWERS, dates,
      series: two((point) => point.read_bytes, (point) => point.write_bytes),
    }),
    h(Chart, {
      key: 'times ' + span, title: 'Latency of operations', points, format: took, dates,
      // Between two calls nothing was to be measured; of a day, that may be hours.
      spans: span === 'minutes',
      series: [
        { label: 'Reads, mean', color: 'read', of: (point) => point.read_ns },
        { label: 'Writes, mean', color: 'write', of: (point) => point.write_ns },
        { label: 'Writes, p99', color: 'slow', of: (point) => point.write_p99_ns },
      ],
    }),
  ];
}
