// What to type on a hypervisor, for a dataset of this server.

import { h, card, link, button, place } from '../dom.js';
import { query } from '../net.js';

const HYPERVISORS = {
  'xcp-ng': 'XCP-ng', esxi: 'VMware ESXi', proxmox: 'Proxmox VE', libvirt: 'libvirt', qemu: 'QEMU’s own driver', linux: 'Linux',
};
/// Where the lines are typed, and what to see to first.
const WHERE = {
  'xcp-ng': 'On the master of the XCP-ng pool:',
  esxi: 'On every host, with the same address and path:',
  proxmox: 'On one node of the cluster:',
  libvirt: 'On each host:',
  qemu: 'On the command line of QEMU:',
  linux: 'On each host:',
};

const exported = (app) => (app.answers.datasets?.now ?? []).filter((info) => info.nfs_path);

/// The host of this page as hosts reach it: not the near end of a tunnel. Without one, the server
/// says its own name.
const far = /^(localhost|127\.[0-9.]+|\[::1\])$/.test(location.hostname) ? undefined : location.hostname;

function chosen([dataset, hypervisor], app) {
  const name = dataset ?? exported(app)[0]?.name;
  return { name, hypervisor: hypervisor in HYPERVISORS ? hypervisor : 'xcp-ng', host: app.kept.host ?? far };
}

export const connect = {
  title: 'Connect',
  needs: (words, app) => {
    const { name, hypervisor, host } = chosen(words, app);
    return {
      datasets: { path: '/datasets', every_ms: 10_000 },
      ...(name && { connect: { path: '/connect' + query({ dataset: name, hypervisor, host }), every_ms: 10_000 } }),
    };
  },
  draw: (words, app) => {
    const all = app.answers.datasets?.now;
    if (!all) return card(null, h('p', { class: 'empty' }, 'One moment…'));
    const { name, hypervisor, host } = chosen(words, app);
    if (!name) {
      return card('Connect a hypervisor', h('p', null, 'No dataset is exported yet. Make one, and let the hosts in: ',
        h('code', null, 'aquifer create -o sharenfs=rw=@NETWORK tank/vms')), link(['datasets'], 'Datasets'));
    }
    const go = (dataset, of) => { location.hash = place(['connect', dataset, of]); };
    const { now, error } = app.answers.connect ?? {};
    return h('section', { class: 'card' },
      h('h2', null, 'Connect a hypervisor'),
      h('div', { class: 'tabs', role: 'group', 'aria-label': 'Hypervisor' }, Object.entries(HYPERVISORS).map(([key, label]) =>
        button(label, () => go(name, key), { 'aria-pressed': String(key === hypervisor), 'data-hypervisor': key }))),
      h('div', { class: 'row fields' },
        h('label', null, h('span', null, 'Dataset'),
          h('select', { value: name, onChange: (event) => go(event.target.value, hypervisor) },
            [...new Set([name, ...exported(app).map((info) => info.name)])].map((one) =>
              h('option', { value: one, selected: one === name }, one)))),
        h('label', null, h('span', null, 'This server, as hosts reach it'),
          h('input', { type: 'text', defaultValue: host ?? '', placeholder: 'its own name', spellcheck: false, onChange: (event) => app.keep({ host: event.target.value.trim() || far }) }))),
      error && h('p', { class: 'refusal', role: 'alert' }, error),
      now && [
        h('p', null, WHERE[hypervisor]),
        now.lines.map((line) => h('div', { class: 'line' }, h('pre', null, h('code', null, line)),
          button('Copy', (event) => copy(event.target, line)))),
        now.why.length > 0 && h('ul', { class: 'notes' }, now.why.map((why) => h('li', null, why))),
      ]);
  },
};

async function copy(target, text) {
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(target.parentElement.querySelector('pre'));
  }
}
