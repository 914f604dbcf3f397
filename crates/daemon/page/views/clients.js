// Clients, and the locks that they hold.

import { h, card, table, button } from '../dom.js';
import { flow, seconds, mean_ns } from '../rates.js';
import { size, rate, took, span, plural } from '../words.js';

export const clients = {
  title: 'Clients',
  needs: () => ({
    locks: { path: '/locks', every_ms: 10_000 },
  }),
  draw: (_, app) => {
    const { now, then } = app.answers.nfs ?? {};
    if (!now) return card(null, h('p', { class: 'empty' }, 'One moment…'));
    return [list(now, then), locks(app)];
  },
};

function list(now, then) {
  const span_s = seconds(now, then);
  const time = (ns) => (ns == null ? '–' : took(ns));
  const all = now.clients.map((client) => {
    const old = then?.clients.find((old) => old.client === client.client);
    return { name: client.client, errors: client.errors, ...flow(client, old) };
  });
  all.sort((a, b) => b.busy_ns - a.busy_ns || (a.name < b.name ? -1 : 1));
  const rows = all.map(({ name, reads, writes, others, errors }) => ({
    key: name,
    cells: [
      name, rate(reads.count / span_s), rate(writes.count / span_s), size(reads.bytes / span_s),
      size(writes.bytes / span_s), time(mean_ns(reads)), time(mean_ns(writes)), rate(others / span_s), String(errors),
    ],
  }));
  const columns = [
    { key: 'client', head: 'Client' }, { key: 'reads', head: 'Reads/s', num: true },
    { key: 'writes', head: 'Writes/s', num: true }, { key: 'read_bytes', head: 'Read B/s', num: true, wide: true },
    { key: 'write_bytes', head: 'Written B/s', num: true, wide: true },
    { key: 'read_ns', head: 'Read', num: true, wide: true }, { key: 'write_ns', head: 'Write', num: true },
    { key: 'others', head: 'Other/s', num: true, wide: true }, { key: 'errors', head: 'Errors', num: true },
  ];
  const load = now.load;
  return h('section', { class: 'card', key: 'clients' }, h('h2', null, 'Clients'),
    table({ name: 'Clients', columns, rows, empty: 'No client has called since NFS began to listen.' }),
    h('p', { class: 'hint' }, now.uptime_ns === 0
      ? 'NFS is not served: no pool is in service.'
      : `${plural(load.connections, 'connection')} open, ${load.accepted} since NFS began to listen ${span(now.uptime_ns / 1e9)} ago, ${load.turned_away} turned away.`));
}

function locks(app) {
  const { now, error } = app.answers.locks ?? {};
  if (!now) return card('Locks', h('p', { class: 'empty' }, error ?? 'One moment…'));
  const columns = [
    { key: 'file', head: 'File' }, { key: 'dataset', head: 'Dataset', wide: true },
    { key: 'client', head: 'Client' }, { key: 'address', head: 'Address', wide: true },
    { key: 'extent', head: 'Kind', wide: true }, { key: 'state', head: 'State' }, { key: 'acts', head: 'Acts' },
  ];
  const rows = now.locks.map((lock, at) => ({
    key: `${lock.object} ${lock.client} ${lock.svid} ${lock.offset} ${at}`,
    cells: [
      lock.file ?? '#' + lock.object, lock.dataset, lock.client, lock.address,
      typeof lock.extent === 'string' ? lock.extent : 'reservation', lock.state,
      button('End all of this client…', () => app.ask({
        title: 'End the locks of a client', label: 'End them', danger: true, confirm: lock.client,
        text: `All locks of ${lock.client} at ${lock.address} end. If it still runs, another host may start the same disk, and both destroy it: be sure that it is dead.`,
        run: () => app.act('/locks/clear', { address: lock.address, client: lock.client }, `The locks of ${lock.client} have ended.`),
      })),
    ],
  }));
  return h('section', { class: 'card', key: 'locks' }, h('h2', null, 'Locks'),
    now.grace && h('p', { class: 'fault' }, 'The grace period runs: only locks from before the restart are granted.'),
    table({ name: 'Locks', columns, rows, empty: 'No client holds a lock.' }));
}
