// Pools and their disks, as `aquifer pool status` shows them, and acts on them.

import { h, card, link, state, table, button, bar, commands, more } from '../dom.js';
import { post } from '../net.js';
import { size, moment, span, plural } from '../words.js';
import { statuses } from './overview.js';
import { past, charts } from './past.js';

export const pools = {
  title: 'Pools',
  needs: ([only], app) => ({
    pools: { path: '/pools', every_ms: 2000 },
    ...fresh(statuses(app)),
    ...(only ? past(only, 'disks', app) : {}),
  }),
  draw: ([only], app) => {
    const all = app.answers.pools?.now;
    if (!all) return card(null, h('p', { class: 'empty' }, 'One moment…'));
    const shown = all.filter((pool) => !only || pool.name === only);
    if (shown.length === 0) return card(null, h('p', { class: 'empty' }, only ? 'There is no such pool.' : 'There is no pool yet.'));
    const each = shown.map((pool) => one(pool, app.answers['pool ' + pool.name]?.now, app));
    return only ? [...each, charts(`The disks of ${only} in the past`, past(only, 'disks', app), app)] : each;
  },
};

/// Counters and progress are looked at: more often than on the overview.
function fresh(needs) {
  for (const need of Object.values(needs)) need.every_ms = 2000;
  return needs;
}

function one(summary, status, app) {
  const name = summary.name;
  const path = '/pools/' + encodeURIComponent(name);
  const scrub = (act, done) => button({ start: 'Scrub', pause: 'Pause', stop: 'Stop' }[act],
    () => app.act(path + '/scrub', { act }, done), { 'data-act': 'scrub-' + act });
  const running = status?.scrub?.state === 'running';
  const paused = status?.scrub?.state === 'paused';
  return h('section', { class: 'card', key: name, 'data-pool': name },
    h('div', { class: 'row' },
      h('h2', null, name, ' ', state(summary.health)),
      h('div', { class: 'row acts' },
        !running && scrub('start', `A scrub of ${name} goes on.`),
        running && scrub('pause', `The scrub of ${name} is paused.`),
        (running || paused) && scrub('stop', `The scrub of ${name} is stopped.`),
        status?.vdevs.length > 0 && button('Add disks…', () => app.ask(addition(name, path, app)), { 'data-act': 'add' }),
        button('Clear', () => app.ask({
          title: `Clear pool ${name}`, label: 'Clear',
          text: 'Counts errors from 0 again, drops the notice of a loss, and looks for the disks that it waits for.',
          run: () => app.act(path + '/clear', null, `${name} is cleared.`),
        }), { 'data-act': 'clear' }))),
    bar(summary.allocated_bytes, summary.size_bytes, name + ' in use'),
    h('p', null, h('b', { 'data-value': 'allocated' }, size(summary.allocated_bytes)), ' of ',
      h('span', { 'data-value': 'size' }, size(summary.size_bytes)), ' in use, ',
      h('span', { 'data-value': 'free' }, size(summary.free_bytes)), ' free'),
    status?.status && h('p', { class: 'fault' }, status.status),
    status?.action && h('p', { class: 'action' }, commands(status.action)),
    status && [...scans(status), disks(status, path, app), damaged(status), notes(status)]);
}

function scans({ scan, scrub }) {
  const progress = (key, done, whole, text) => h('div', { class: 'scan', key, 'data-scan': key },
    h('p', null, text), whole > 0 && h('progress', { max: whole, value: Math.min(done, whole), 'aria-label': text }));
  const found = [];
  if (scan) {
    const took = span(scan.took_ms / 1000);
    const text = {
      running: `Resilver of ${scan.disk} goes on: ${size(scan.copied_bytes)} in ${took}`,
      done: `Resilvered ${size(scan.copied_bytes)} on ${scan.disk} in ${took}`,
      failed: `Resilver of ${scan.disk} failed after ${size(scan.copied_bytes)}; it is tried again by itself`,
    }[scan.state];
    found.push(progress('resilver', scan.copied_bytes, scan.state === 'running' ? scan.total_bytes : 0, text));
  }
  if (scrub) {
    const counts = `${size(scrub.repaired_bytes)} repaired, ${plural(scrub.unreadable_blocks, 'error')}`;
    const part = `${size(scrub.examined_bytes)} of ${size(scrub.total_bytes)}`;
    const text = {
      running: `Scrub since ${moment(scrub.begun_ns)}: ${part}, ${counts}`,
      paused: `Scrub paused: ${part}, ${counts}`,
      finished: `Scrubbed on ${moment(scrub.ended_ns)}, in ${span(scrub.active_ms / 1000)}: ${counts}`,
      stopped: `Scrub stopped on ${moment(scrub.ended_ns)}`,
    }[scrub.state];
    const goes_on = ['running', 'paused'].includes(scrub.state);
    found.push(progress('scrub', scrub.examined_bytes, goes_on ? scrub.total_bytes : 0, text));
  }
  return found;
}

function disks(status, path, app) {
  const rows = [];
  const row = (key, depth, name, word, leaves, acts, more) => {
    const total = (of) => (leaves.length > 0 ? String(leaves.reduce((all, leaf) => all + leaf[of], 0)) : '');
    rows.push({
      key,
      cells: [
        h('span', { class: 'depth' + depth }, name), word && state(word),
        total('read_errors'), total('write_errors'), total('checksum_errors'), more, acts,
      ],
    });
  };
  const leaves = status.vdevs.flatMap((vdev) => vdev.leaves);
  row('pool', 0, status.name, status.health, leaves, null, null);
  for (const part of ['data', 'log']) {
    const vdevs = status.vdevs.filter((vdev) => vdev.class === part);
    if (part === 'log' && vdevs.length > 0) row('logs', 0, 'logs', null, [], null, null);
    for (const vdev of vdevs) {
      const is_mirror = vdev.kind === 'mirror';
      if (is_mirror) row('vdev ' + vdev.name, 1, vdev.name, vdev.health, vdev.leaves, null, null);
      for (const leaf of vdev.leaves) {
        row(leaf.guid, is_mirror ? 2 : 1, leaf.path, leaf.state, [leaf], acts(leaf, vdev, path, app), remarks(leaf));
      }
    }
  }
  if (status.spares.length > 0) row('spares', 0, 'spares', null, [], null, null);
  for (const spare of status.spares) row(spare.guid, 1, spare.path, spare.state, [], remove(spare.path, path, app), null);
  if (status.caches.length > 0) row('caches', 0, 'cache', null, [], null, null);
  for (const cache of status.caches) {
    const held = `holds ${size(cache.held_bytes)} of ${size(cache.capacity_bytes)}`;
    row(cache.guid, 1, cache.path, cache.state, [], remove(cache.path, path, app), held);
  }
  const columns = [
    { key: 'name', head: 'Name' }, { key: 'state', head: 'State' },
    { key: 'read', head: 'Read', num: true }, { key: 'write', head: 'Write', num: true },
    { key: 'cksum', head: 'Cksum', num: true }, { key: 'remarks', head: 'Remarks', wide: true },
    { key: 'acts', head: 'Acts' },
  ];
  return table({ name: 'Disks of ' + status.name, columns, rows });
}

function remarks(leaf) {
  const found = [
    leaf.repaired > 0 && `${leaf.repaired} repaired`,
    leaf.slow && 'slow',
    leaf.spare_for && `spare for ${leaf.spare_for}`,
    leaf.replaces && `replaces ${leaf.replaces}`,
    leaf.disk?.model, leaf.disk?.serial && `serial number ${leaf.disk.serial}`,
    leaf.last_error,
  ];
  return found.filter(Boolean).join(', ');
}

/// Another part of a pool: first what would be added is shown, as by `pool add -n`.
const PARTS = {
  'data: a mirror': { vdevs: 'mirror' },
  'data: each disk by itself': { vdevs: 'single' },
  'log: a mirror': { logs: 'mirror' },
  'log: each disk by itself': { logs: 'single' },
  'spares': { spares: true },
  'cache disks': { caches: true },
};

function addition(name, path, app) {
  return {
    title: `Add disks to ${name}`, label: 'Show what would be done',
    fields: [
      { name: 'part', label: 'What for', options: Object.keys(PARTS), value: 'data: a mirror' },
      {
        name: 'disks', label: 'Disks',
        hint: 'Paths of the server, such as /dev/disk/by-id/…, with spaces between them.',
      },
      { name: 'force', type: 'checkbox', label: 'Also disks that hold something else, and single disks beside mirrors' },
    ],
    run: async ({ part, disks, force }) => {
      const request = { ...asked(PARTS[part], disks.split(/\s+/).filter(Boolean)), force };
      const layout = await post(path + '/add', { ...request, dry_run: true });
      return { next: confirmation(name, path, request, layout, app) };
    },
  };
}

function asked({ vdevs, logs, spares, caches }, disks) {
  if (spares) return { spares: disks };
  if (caches) return { caches: disks };
  const kind = vdevs ?? logs;
  const list = kind === 'mirror' ? [{ kind, disks }] : disks.map((disk) => ({ kind, disks: [disk] }));
  return vdevs ? { vdevs: list } : { logs: list };
}

function confirmation(name, path, request, layout, app) {
  const vdev = (what) => ({ kind, disks, disk_bytes }) =>
    `${what}: ${kind === 'mirror' ? 'a mirror of ' : ''}${disks.join(', ')} (${size(disk_bytes)})`;
  const lines = [
    ...layout.vdevs.map(vdev('data')), ...layout.logs.map(vdev('log')),
    ...layout.spares.map((disk) => 'spare: ' + disk), ...layout.caches.map((disk) => 'cache: ' + disk),
    ...layout.notes,
  ];
  const stays = layout.vdevs.length > 0 ? ' Disks for data cannot be removed again.' : '';
  return {
    title: `Add to ${name}`, label: 'Add', danger: true, lines,
    text: `This would be added to ${name}. What is on these disks is lost.${stays}`,
    run: () => app.act(path + '/add', request, `${name} has more disks.`),
  };
}

const remove = (disk, path, app) => h('div', { class: 'row acts' },
  button('Remove…', () => app.ask({
    title: 'Remove a disk', label: 'Remove', danger: true,
    text: `${disk} leaves the pool. Nothing in the pool is lost.`,
    run: () => app.act(path + '/remove', { disk }, `${disk} is removed.`),
  }), { 'data-act': 'remove' }));

function acts(leaf, vdev, path, app) {
  const disk = leaf.path;
  const away = ['OFFLINE', 'OUTDATED', 'MISSING', 'FAULTED', 'FAILED'].includes(leaf.state);
  const offline = button('Offline', () => app.ask({
    title: 'Take a disk out of use', label: 'Offline', danger: true,
    text: `${disk} gets no more writes. The pool keeps one copy less until the disk is online again.`,
    fields: [{ name: 'temporary', type: 'checkbox', label: 'Until the next import at most' }],
    run: ({ temporary }) => app.act(path + '/offline', { disk, temporary }, `${disk} is offline.`),
  }), { 'data-act': 'offline' });
  const online = button('Online', () => app.act(path + '/online', { disk }, `${disk} is online.`), { 'data-act': 'online' });
  return h('div', { class: 'row acts' },
    away ? online : offline,
    button('Clear', () => app.act(path + '/clear-disk', { disk }, `${disk} counts from 0 again.`), { 'data-act': 'clear' }),
    button('Replace…', () => app.ask({
      title: 'Replace a disk', label: 'Replace', danger: true,
      text: `The new disk gets everything that ${disk} holds, and then takes its place. What is on the new disk is lost.`,
      fields: [
        {
          name: 'new', label: 'New disk', optional: true,
          hint: 'A path of the server, such as /dev/disk/by-id/…; empty: the disk that is at the same path now.',
        },
        { name: 'force', type: 'checkbox', label: 'Also if the new disk holds something else' },
      ],
      run: ({ new: other, force }) => app.act(path + '/replace',
        { disk, force, ...(other.trim() ? { new: other.trim() } : {}) }, `${disk} is being replaced.`),
    }), { 'data-act': 'replace' }),
    more(
      button('Attach…', () => app.ask({
        title: 'Attach another side', label: 'Attach', danger: true,
        text: `The new disk becomes one more side of the mirror with ${disk}, and gets everything that it holds. What is on the new disk is lost.`,
        fields: [
          { name: 'new', label: 'New disk', hint: 'A path of the server, such as /dev/disk/by-id/….' },
          { name: 'force', type: 'checkbox', label: 'Also if the new disk holds something else' },
        ],
        run: ({ new: other, force }) => app.act(path + '/attach',
          { disk, new: other.trim(), force }, `${other.trim()} is being attached.`),
      }), { 'data-act': 'attach' }),
      vdev.kind === 'mirror' && button('Detach…', () => app.ask({
        title: 'Detach a side', label: 'Detach', danger: true,
        text: `${disk} leaves the mirror for good. The pool keeps one copy less.`,
        run: () => app.act(path + '/detach', { disk }, `${disk} is detached.`),
      }), { 'data-act': 'detach' }),
      vdev.class === 'log' && button('Remove…', () => app.ask({
        title: 'Remove a log device', label: 'Remove', danger: true,
        text: `The log leaves ${vdev.name}, with all its sides. Nothing is lost.`,
        run: () => app.act(path + '/remove', { disk: vdev.name }, `${vdev.name} is removed.`),
      }), { 'data-act': 'remove' })));
}

function damaged(status) {
  if (status.damaged.length === 0) return h('p', { class: 'hint', key: 'errors' }, 'No known data errors');
  const columns = [
    { key: 'file', head: 'File' }, { key: 'dataset', head: 'Dataset' },
    { key: 'what', head: 'What is lost' }, { key: 'error', head: 'Error', wide: true },
  ];
  const rows = status.damaged.map((file) => ({
    key: file.dataset + file.file,
    cells: [
      file.file, link(['datasets', file.dataset], file.dataset),
      file.unreadable ? 'part of it cannot be read' : `${size(file.lost_bytes)} of changes`, file.error,
    ],
  }));
  return [h('h3', null, 'Damaged files'), table({ name: 'Damaged files', columns, rows })];
}

function notes(status) {
  const all = [...status.import_notes, ...status.notes];
  return all.length > 0 && h('ul', { class: 'notes' }, all.map((note) => h('li', null, note)));
}
