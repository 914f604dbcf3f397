// Datasets, and of one of them: properties, snapshots with their schedule, exports.

import { h, card, link, place, table, button, state, more } from '../dom.js';
import { get, query } from '../net.js';
import { size, moment, until } from '../words.js';

export const datasets = {
  title: 'Datasets',
  needs: ([name]) => ({
    datasets: { path: '/datasets', every_ms: 5000 },
    ...(name && {
      snapshots: { path: '/snapshots' + query({ name, recursive: false, used: true }), every_ms: 5000 },
      holds: { path: '/snapshots/holds' + query({ name, recursive: false }), every_ms: 5000 },
      shares: { path: '/shares', every_ms: 10_000 },
    }),
  }),
  draw: ([name], app) => {
    const { now: all, error } = app.answers.datasets ?? {};
    if (!all) return card(null, h('p', { class: 'empty' }, error ?? 'One moment…'));
    const chosen = all.find((info) => info.name === name);
    return [
      name && (chosen ? detail(chosen, app) : card(null, h('p', { class: 'empty' }, `There is no dataset ${name}.`))),
      list(all, name, app),
    ];
  },
};

const value = (info, property) => info.properties.find(({ name }) => name === property)?.value ?? '-';

/// A number is a size: no property of ours has another kind of number.
const shown = (text) => (/^[0-9]+$/.test(text) ? size(Number(text)) : text);

function list(all, chosen, app) {
  const columns = [
    { key: 'name', head: 'Name' }, { key: 'used', head: 'Used', num: true },
    { key: 'avail', head: 'Avail', num: true }, { key: 'refer', head: 'Refer', num: true },
    { key: 'ratio', head: 'Ratio', num: true, wide: true },
    { key: 'quota', head: 'Quota', num: true, wide: true }, { key: 'compression', head: 'Compression', wide: true },
    { key: 'snapshots', head: 'Schedule', wide: true }, { key: 'path', head: 'NFS path' },
  ];
  const rows = all.map((info) => {
    const words = info.name.split('/');
    return {
      key: info.name, open: info.name === chosen,
      cells: [
        h('span', { class: 'depth' + Math.min(4, words.length - 1) },
          link(['datasets', info.name], words.length > 1 ? words[words.length - 1] : info.name)),
        size(info.used_bytes), size(info.available_bytes), size(info.refer_bytes),
        value(info, 'compressratio'), shown(value(info, 'quota')), value(info, 'compression'), value(info, 'snapshots'),
        info.nfs_path ?? (info.standby ? 'standby' : '-'),
      ],
    };
  });
  return h('section', { class: 'card', key: 'list' },
    h('div', { class: 'row' }, h('h2', null, 'Datasets'),
      button('New dataset…', () => app.ask({
        title: 'New dataset', label: 'Create',
        fields: [{ name: 'name', label: 'Full name', value: (chosen ?? all[0]?.name ?? 'tank') + '/' }],
        run: ({ name }) => app.act('/datasets', { name }, `${name} is made.`),
      }), { 'data-act': 'create' })),
    table({ name: 'Datasets', columns, rows, empty: 'There is no dataset: make a pool first.' }));
}

function detail(info, app) {
  const name = info.name;
  return h('section', { class: 'card', key: 'detail', 'data-dataset': name },
    h('div', { class: 'row' }, h('h2', null, name),
      h('div', { class: 'row acts' },
        button('Snapshot…', () => app.ask({
          title: 'Take a snapshot', label: 'Take it',
          fields: [
            { name: 'short', label: `Name of the snapshot of ${name}` },
            { name: 'recursive', type: 'checkbox', label: 'Also of all datasets below, at the same moment' },
          ],
          run: ({ short, recursive }) => app.act('/snapshots',
            { names: [`${name}@${short}`], recursive }, `${name}@${short} is taken.`),
        }), { 'data-act': 'snapshot' }),
        name.includes('/') && button('Rename…', () => app.ask({
          title: 'Rename a dataset', label: 'Rename',
          text: 'With all below it. Clients that have it mounted go on; new mounts take the new path.',
          fields: [{ name: 'new', label: 'New full name, in the same pool', value: name }],
          run: async ({ new: other }) => {
            const done = await app.act('/datasets/rename', { name, new: other.trim() }, `${name} is ${other.trim()} now.`);
            location.hash = place(['datasets', other.trim()]);
            return done;
          },
        }), { 'data-act': 'rename' }),
        name.includes('/') && button('Destroy…', () => app.ask({
          title: 'Destroy a dataset', label: 'Destroy', danger: true, confirm: name,
          text: 'Everything in it is lost, for all clients, at once.',
          fields: [{ name: 'recursive', type: 'checkbox', label: 'With all datasets below it' }],
          run: ({ recursive }) => app.act('/datasets/destroy',
            { name, confirm: name, recursive }, `${name} is destroyed.`),
        }), { 'data-act': 'destroy' }))),
    info.origin && h('p', null, 'A clone of ', h('b', null, info.origin)),
    h('h3', null, 'Snapshots'),
    snapshots(name, app),
    h('h3', null, 'Exports'),
    shares(name, app),
    h('details', { open: app.kept.properties ?? false, onToggle: (event) => app.keep({ properties: event.target.open }) },
      h('summary', null, 'Properties'), properties(info, app)));
}

function snapshots(dataset, app) {
  const { now, error } = app.answers.snapshots ?? {};
  if (!now) return h('p', { class: 'empty' }, error ?? 'One moment…');
  const columns = [
    { key: 'name', head: 'Name' }, { key: 'used', head: 'Used', num: true },
    { key: 'refer', head: 'Refer', num: true, wide: true }, { key: 'created', head: 'Taken' },
    { key: 'by', head: 'By', wide: true }, { key: 'acts', head: 'Acts' },
  ];
  const rows = [...now].reverse().map((snapshot) => ({
    key: snapshot.name,
    cells: [
      snapshot.name.slice(dataset.length), size(snapshot.used_bytes), size(snapshot.refer_bytes),
      moment(snapshot.created_ns),
      [snapshot.schedule, ...held(snapshot, app)].filter(Boolean).join(', '), acts(snapshot, app),
    ],
  }));
  return table({ name: 'Snapshots', columns, rows, empty: 'None yet.' });
}

/// Under which names a snapshot is held, and until when.
const holds_of = (name, app) => (app.answers.holds?.now ?? []).filter((hold) => hold.snapshot === name);

function held({ name, holds }, app) {
  const known = holds_of(name, app).map(({ tag, ends_s }) =>
    `held: ${tag}` + (ends_s ? ` until ${moment(ends_s * 1e9)}` : ''));
  return known.length > 0 ? known : [holds > 0 && 'held'];
}

/// What keeps a snapshot, and what it is called.
function keeping(name, app) {
  const tags = holds_of(name, app).map(({ tag }) => tag);
  return more(
    button('Hold…', () => app.ask({
      title: 'Hold a snapshot', label: 'Hold',
      text: `Nobody destroys ${name} until the hold is released.`,
      fields: [
        { name: 'tag', label: 'What the hold is called' },
        {
          name: 'until', label: 'Until', optional: true,
          hint: '30d, 12h, or 2027-01-31: nobody can release it before, you neither. Empty: until it is released.',
        },
      ],
      run: ({ tag, until: end }) => app.act('/snapshots/hold',
        { tag: tag.trim(), names: [name], until_s: until(end) }, `${name} is held.`),
    }), { 'data-act': 'hold' }),
    tags.length > 0 && button('Release…', () => app.ask({
      title: 'Release a hold', label: 'Release', danger: true,
      text: `Of ${name}. Without a hold it can be destroyed, and a schedule may do so.`,
      fields: [{ name: 'tag', label: 'Which hold', options: tags, value: tags[0] }],
      run: ({ tag }) => app.act('/snapshots/release', { tag, names: [name] }, `Hold ${tag} of ${name} is released.`),
    }), { 'data-act': 'release' }),
    button('Rename…', () => app.ask({
      title: 'Rename a snapshot', label: 'Rename',
      text: 'A schedule does not prune a snapshot that was renamed.',
      fields: [
        { name: 'new', label: 'New name, behind the @', value: name.slice(name.indexOf('@') + 1) },
        { name: 'recursive', type: 'checkbox', label: 'Also those of its name in all datasets below' },
      ],
      run: ({ new: other, recursive }) => app.act('/snapshots/rename',
        { name, new: other.trim(), recursive }, `${name} is @${other.trim()} now.`),
    }), { 'data-act': 'rename' }));
}

function acts({ name, dataset, path, holds }, app) {
  const of = path === undefined ? dataset : path;
  return h('div', { class: 'row acts' },
    button('Roll back…', () => app.ask({
      title: 'Roll back', label: 'Roll back', danger: true, confirm: name,
      text: `${of} becomes what it was when ${name} was taken. All that was written since is lost. Shut down its guests first.`,
      fields: [
        { name: 'destroy_later', type: 'checkbox', label: 'Destroy the snapshots that were taken later' },
        { name: 'force', type: 'checkbox', label: 'Also while clients hold locks' },
      ],
      run: (wish) => app.act('/datasets/rollback', { name, ...wish }, `Rolled back to ${name}.`),
    }), { 'data-act': 'rollback' }),
    path === undefined && button('Clone…', () => app.ask({
      title: 'Clone a snapshot', label: 'Clone',
      text: `The new dataset begins as ${name}, and takes space only for what is written to it.`,
      fields: [{ name: 'clone', label: 'Full name of the new dataset', value: dataset + '-clone' }],
      run: ({ clone }) => app.act('/datasets/clone', { snapshot: name, name: clone }, `${clone} is made.`),
    }), { 'data-act': 'clone' }),
    button('Destroy…', () => app.ask({
      title: 'Destroy a snapshot', label: 'Destroy', danger: true, confirm: name,
      text: holds > 0 ? 'A hold keeps this snapshot: release it first.' : 'What only this snapshot shows is lost.',
      run: () => app.act('/snapshots/destroy', { name, confirm: name }, `${name} is destroyed.`),
    }), { 'data-act': 'destroy' }),
    path === undefined && keeping(name, app));
}

function shares(dataset, app) {
  const all = app.answers.shares?.now;
  const share = all?.find((one) => one.dataset === dataset);
  const set = button('Change…', () => app.ask(change(dataset, 'sharenfs', share?.options ?? 'off', app)), { 'data-act': 'share' });
  if (!all) return h('p', { class: 'empty' }, 'One moment…');
  if (!share) return h('div', { class: 'row' }, h('p', { class: 'empty' }, 'Not exported: no host can mount it.'), set);
  const hosts = share.hosts.map((host) => host.problem ?? `${host.name}: ${host.addresses.join(', ')}`);
  return h('div', { class: 'share' },
    h('div', { class: 'row' },
      h('p', null, h('b', null, share.path), ' with ', h('code', null, share.options), ` (${share.source})`), set),
    share.problem && h('p', { class: 'refusal' }, share.problem),
    share.risks.map((risk) => h('p', { class: 'fault' }, risk)),
    hosts.length > 0 && h('p', { class: 'hint' }, hosts.join('; ')),
    why(dataset, app),
    link(['connect', dataset], 'How to connect a hypervisor'));
}

/// May a host use it, and why: `aquifer share why`.
function why(dataset, app) {
  const ask = async (event) => {
    event.preventDefault();
    const host = event.target.elements.host.value.trim();
    try {
      const { answers } = await get('/shares/why' + query({ host, path: dataset }));
      app.keep({ why: { dataset, host, answers } });
    } catch (error) {
      app.keep({ why: { dataset, host, answers: [], error: error.message } });
    }
  };
  const said = app.kept.why?.dataset === dataset ? app.kept.why : null;
  return h('form', { class: 'why', onSubmit: ask, 'data-act': 'why' },
    h('label', { class: 'filter' }, h('span', null, 'May a host use it?'),
      h('input', { type: 'text', name: 'host', placeholder: 'name or address', required: true, spellcheck: false })),
    h('button', { type: 'submit' }, 'Ask'),
    said && h('div', { class: 'said', role: 'status' },
      said.error && h('p', { class: 'refusal' }, said.error),
      said.answers.map(({ address, access, why }) =>
        h('p', null, h('b', null, address), ' ', state(access), ': ', why.join('; ')))));
}

const change = (name, property, old, app) => ({
  title: `Set ${property}`, label: 'Set', text: `Of ${name}, and of those below it that inherit it.`,
  fields: [{ name: 'value', label: property, value: old === '-' ? '' : old }],
  run: ({ value }) => app.act('/datasets/set', { name, properties: { [property]: value } }, `${property} of ${name} is ${value}.`),
});

function properties(info, app) {
  const columns = [
    { key: 'property', head: 'Property' }, { key: 'value', head: 'Value' },
    { key: 'source', head: 'Source', wide: true }, { key: 'acts', head: 'Acts' },
  ];
  const rows = info.properties.map(({ name, value: text, source }) => ({
    key: name,
    // Whose name has a colon is a user's, and any text.
    cells: [name, name.includes(':') ? text : shown(text), source, source !== '-' && h('div', { class: 'row acts' },
      button('Set…', () => app.ask(change(info.name, name, text, app))),
      source === 'local' && button('Inherit', () => app.act('/datasets/set',
        { name: info.name, properties: { [name]: null } }, `${name} of ${info.name} is inherited.`)))],
  }));
  return table({ name: 'Properties', columns, rows });
}
