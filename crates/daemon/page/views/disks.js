// VM disks: the files that clients work with, the busiest first.

import { h, card, table, link, button } from '../dom.js';
import { flow, seconds, mean_ns, quantile_ns, file_key } from '../rates.js';
import { size, rate, took } from '../words.js';
import { flows } from './overview.js';
import { past, charts } from './past.js';

const TOP = 50;

export const disks = {
  title: 'VM disks',
  needs: ([chosen], app) => {
    const open = app.answers.nfs?.now?.disks.find((disk) => file_key(disk) === chosen);
    const locks = { path: '/locks', every_ms: 10_000 };
    return { locks, ...(open?.dataset ? past(pool_of(open), chosen, app) : {}) };
  },
  draw: ([chosen], app) => {
    const { now, then } = app.answers.nfs ?? {};
    if (!now) return card(null, h('p', { class: 'empty' }, 'One moment…'));
    const open = now.disks.find((disk) => file_key(disk) === chosen);
    return [open && detail(open, chosen, app), open?.dataset && charts(`${open.file} in the past`, past(pool_of(open), chosen, app), app), list(now, then, chosen, app)];
  },
};

const pool_of = (disk) => disk.dataset.split('/')[0];

const COLUMNS = [
  { key: 'file', head: 'File', sort: true }, { key: 'dataset', head: 'Dataset', wide: true, sort: true },
  { key: 'client', head: 'Client', wide: true, sort: true },
  { key: 'reads', head: 'Reads/s', num: true, sort: true }, { key: 'writes', head: 'Writes/s', num: true, sort: true },
  { key: 'read_bytes', head: 'Read B/s', num: true, sort: true, wide: true },
  { key: 'write_bytes', head: 'Written B/s', num: true, sort: true, wide: true },
  { key: 'read_ns', head: 'Read', num: true, sort: true, wide: true },
  { key: 'write_ns', head: 'Write', num: true, sort: true },
  { key: 'write_p99_ns', head: 'Write p99', num: true, sort: true, wide: true },
  { key: 'locked', head: 'Locked by', wide: true },
];

function list(now, then, chosen, app) {
  const span_s = seconds(now, then);
  const before = new Map((then?.disks ?? []).map((disk) => [file_key(disk), disk]));
  const locks = new Map();
  for (const lock of app.answers.locks?.now?.locks ?? []) {
    locks.set(`${lock.dataset}:${lock.object}`, lock.client);
  }
  const all = now.disks.map((disk) => {
    const done = flow(disk, before.get(file_key(disk)));
    return {
      key: file_key(disk), file: disk.file, dataset: disk.dataset,
      client: disk.client + (disk.shared ? '+' : ''),
      reads: done.reads.count / span_s, writes: done.writes.count / span_s,
      read_bytes: done.reads.bytes / span_s, write_bytes: done.writes.bytes / span_s,
      read_ns: mean_ns(done.reads), write_ns: mean_ns(done.writes),
      write_p99_ns: quantile_ns(done.writes, 990), busy: done.busy_ns,
      locked: locks.get(`${disk.dataset}:${disk.object}`) ?? '',
    };
  });
  // As the command line: by the time that its calls were under way.
  const sorted = app.kept.disks ?? { column: 'busy', falls: true };
  const of = (disk) => disk[sorted.column] ?? -1;
  const up = (a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : a.key < b.key ? -1 : 1);
  all.sort((a, b) => (sorted.falls ? up(b, a) : up(a, b)));
  const wanted = (app.kept.filter ?? '').toLowerCase();
  const found = all.filter((disk) => (disk.dataset + '/' + disk.file).toLowerCase().includes(wanted));
  const time = (ns) => (ns == null ? '–' : took(ns));
  const rows = found.slice(0, app.kept.all_disks ? undefined : TOP).map((disk) => ({
    key: disk.key, open: disk.key === chosen,
    cells: [
      link(['disks', disk.key], disk.file), disk.dataset, disk.client, rate(disk.reads), rate(disk.writes),
      size(disk.read_bytes), size(disk.write_bytes), time(disk.read_ns), time(disk.write_ns),
      time(disk.write_p99_ns), disk.locked,
    ],
  }));
  return h('section', { class: 'card', key: 'list' },
    h('div', { class: 'row' }, h('h2', null, 'VM disks'),
      h('label', { class: 'filter' }, h('span', null, 'Filter'),
        h('input', { type: 'search', value: app.kept.filter ?? '', onInput: (event) => app.keep({ filter: event.target.value }) }))),
    table({
      name: 'VM disks', columns: COLUMNS, rows, sorted, onSort: (disks) => app.keep({ disks }),
      empty: wanted ? 'No file has this in its name.' : 'No client has used a file since NFS began to listen.',
    }),
    found.length > rows.length && h('p', null, `The first ${rows.length} of ${found.length}. `,
      button('Show all', () => app.keep({ all_disks: true }))));
}

/// Snapshots of a file stand with those of its dataset, where it is rolled back.
function snapshot({ dataset, file }, app) {
  if (!file.startsWith('/')) return null;
  const of = `${dataset}:${file.slice(1)}`;
  return button('Snapshot…', () => app.ask({
    title: 'Take a snapshot of this file', label: 'Take it',
    fields: [{ name: 'short', label: `Name of the snapshot of ${of}` }],
    run: ({ short }) => app.act('/snapshots', { names: [`${of}@${short}`] }, `${of}@${short} is taken.`),
  }), { 'data-act': 'snapshot' });
}

function detail(disk, key, app) {
  const points = app.history.files.get(key) ?? [];
  return h('section', { class: 'card', key: 'detail' },
    h('div', { class: 'row' }, h('h2', null, disk.file), h('div', { class: 'row acts' }, snapshot(disk, app), h('a', { href: '#/disks' }, 'Close'))),
    h('p', null, 'Of ', link(['datasets', disk.dataset], disk.dataset), `, used by ${disk.client}`,
      disk.shared && ' and others'),
    points.length > 1
      ? h('div', { class: 'cards charts' }, flows(points))
      : h('p', { class: 'empty' }, 'Measuring…'));
}
