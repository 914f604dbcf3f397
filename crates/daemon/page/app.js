// The page: what is open, what it asks the server for, and how often.
//
// Each view says which answers it needs, and draws them. Nothing is asked for while nobody sees
// the page. A server that does not answer is asked again until it does; what was shown stays.

import { render } from './vendor/preact.js';
import { h, link, button, Dialog } from './dom.js';
import { get, post, Refusal, Silence } from './net.js';
import { History } from './rates.js';
import { overview } from './views/overview.js';
import { pools } from './views/pools.js';
import { datasets } from './views/datasets.js';
import { disks } from './views/disks.js';
import { clients } from './views/clients.js';
import { events } from './views/events.js';
import { connect } from './views/connect.js';

const VIEWS = { overview, pools, datasets, disks, clients, events, connect };
const TICK_MS = 1000;

const app = {
  /// Who is logged in; `null`: nobody; `undefined`: not known yet.
  session: undefined,
  /// Answers by name: {now, then, at, path, error}.
  answers: {},
  silent: null,
  dialog: null,
  /// What was done, or refused: {text, bad}.
  notice: null,
  history: new History(),
  /// What views remember: sorting, filters.
  kept: {},
  update,
  act,
  ask: (wish) => { app.dialog = wish; update(); },
  keep: (values) => { Object.assign(app.kept, values); update(); },
  refresh,
};

/// The words of the place that is open: the view, and what it is about.
function words() {
  const words = location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decoded);
  return words.length > 0 && words[0] in VIEWS ? words : ['overview'];
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

/// Does what the administrator wants. `done` makes a sentence of the answer.
async function act(path, body, done) {
  try {
    const answer = await post(path, body);
    const notes = (answer?.notes ?? []).join(' ');
    app.notice = { text: [done, notes].filter(Boolean).join(' ') };
    refresh();
    return answer ?? true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) {
      app.session = null;
    }
    const text = error instanceof Silence
      ? 'The server does not answer. It may have done this all the same: look before you try again.'
      : error.message;
    if (app.dialog) throw new Error(text);
    app.notice = { text, bad: true };
    return null;
  } finally {
    update();
  }
}

/// Asks for everything once more.
function refresh() {
  for (const answer of Object.values(app.answers)) answer.due = 0;
  tick();
}

let ticking = false;

async function tick() {
  if (ticking || document.hidden || app.session === null) return;
  ticking = true;
  try {
    if (app.session === undefined) await know();
    if (app.session) await look();
  } catch (error) {
    fail(error);
  }
  ticking = false;
  update();
}

async function know() {
  app.session = await get('/session');
  app.silent = null;
}

/// Gets what is due of what is open.
async function look() {
  const [view, ...rest] = words();
  const needs = { ...ALWAYS, ...VIEWS[view].needs(rest, app) };
  const now = Date.now();
  const due = Object.entries(needs).filter(([name, need]) => {
    const answer = app.answers[name];
    return !answer || answer.path !== need.path || answer.due <= now;
  });
  await Promise.all(due.map(([name, need]) => fetch_one(name, need)));
  for (const name of Object.keys(app.answers)) {
    if (!(name in needs) && !KEPT.includes(name)) delete app.answers[name];
  }
}

async function fetch_one(name, { path, every_ms, newest }) {
  const old = app.answers[name];
  const same = old && old.path === path;
  try {
    // Of a list that only grows, what is new.
    const last = newest && same && !old.whole && old.now?.length > 0 ? old.now[old.now.length - 1].sequence : 0;
    const came = await get(last > 0 ? `${path}?after=${last}` : path);
    const now = last > 0 ? [...old.now, ...came].slice(-newest) : came;
    const then = same && !old.error ? old.now : undefined;
    app.answers[name] = { now, then, path, at: Date.now(), due: Date.now() + every_ms - TICK_MS / 2 };
    if (name === 'nfs') app.history.take(now, then);
    app.silent = null;
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 401) throw error;
    app.answers[name] = { path, error: error.message, due: Date.now() + every_ms };
  }
}

/// What every view needs: so charts have no gaps. It costs the server a millisecond.
const ALWAYS = { nfs: { path: '/nfs', every_ms: 2000 } };
/// Answers that stay when another view is opened.
const KEPT = ['pools'];

function fail(error) {
  if (error instanceof Refusal && error.status === 401) {
    app.session = null;
    app.why = app.answers.pools ? error.message : null;
  } else if (error instanceof Silence) {
    app.silent ??= Date.now();
    // A daemon that has started again counts its events from 1.
    if (app.answers.events) app.answers.events.whole = true;
  } else {
    app.notice = { text: error.message, bad: true };
    console.error(error);
  }
}

async function log_in(event) {
  event.preventDefault();
  const input = event.target.elements.token;
  app.busy = true;
  app.why = null;
  update();
  try {
    await post('/session', { token: input.value.trim() });
    input.value = '';
    app.session = undefined;
    app.silent = null;
  } catch (error) {
    app.why = error instanceof Silence ? 'The server does not answer.' : error.message;
  }
  app.busy = false;
  update();
  tick();
}

async function log_out() {
  try {
    await post('/session/end');
  } catch (error) {
    app.notice = { text: error.message, bad: true };
    update();
    return;
  }
  Object.assign(app, { session: null, answers: {}, history: new History(), notice: null, why: null });
  update();
}

/// Light, dark, or as the system has it.
const THEMES = ['auto', 'light', 'dark'];

function theme(change) {
  let name = localStorage.getItem('theme') ?? 'auto';
  if (change) {
    name = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
    localStorage.setItem('theme', name);
  }
  document.documentElement.dataset.theme = name;
  dispatchEvent(new Event('theme'));
  return name;
}

function shell() {
  const [open, ...rest] = words();
  const view = VIEWS[open];
  document.title = `${view.title} – ${app.session.host} – Aquifer`;
  const nav = Object.entries(VIEWS).map(([name, { title }]) =>
    h('a', { href: '#/' + name, 'aria-current': name === open ? 'page' : undefined }, title));
  const waiting = app.silent && h('p', { class: 'silent', role: 'alert' },
    'The server does not answer, trying again. What you see is from before.');
  return h('div', { class: 'shell' + (app.silent ? ' stale' : '') },
    h('header', null,
      h('a', { class: 'brand', href: '#/overview' },
        h('img', { src: '/page/icon.svg', alt: '', width: 22, height: 22 }), h('b', null, app.session.host)),
      h('nav', { 'aria-label': 'Views' }, nav),
      h('div', { class: 'me' },
        h('span', { title: app.session.caller }, 'role ', h('b', null, app.session.role)),
        button('Theme: ' + theme(), () => { theme(true); update(); }, { class: 'quiet' }),
        button('Log out', log_out, { class: 'quiet' }))),
    h('main', { id: 'main', tabindex: -1 },
      waiting,
      app.notice && h('p', { class: app.notice.bad ? 'refusal' : 'done', role: app.notice.bad ? 'alert' : 'status' },
        h('span', null, app.notice.text),
        button('×', () => { app.notice = null; update(); }, { class: 'quiet', 'aria-label': 'Dismiss' })),
      h('div', { 'data-view': open, 'data-place': rest.join('/') }, view.draw(rest, app))),
    h('footer', null, 'Aquifer ' + app.session.version, app.session.commit && ` (${app.session.commit})`, ' · charts by ',
      h('a', { href: '/page/vendor/uplot.LICENSE' }, 'uPlot'), ', drawn with ',
      h('a', { href: '/page/vendor/preact.LICENSE' }, 'Preact')),
    app.dialog && h(Dialog, {
      wish: app.dialog, key: app.dialog,
      // Some acts are shown first, and asked for once more.
      done: (answer) => { app.dialog = answer?.next ?? null; update(); },
    }));
}

function door() {
  document.title = 'Aquifer';
  if (app.session === undefined) {
    return h('main', { class: 'door' }, h('p', { role: 'status' },
      app.silent ? 'The server does not answer, trying again…' : 'One moment…'));
  }
  return h('main', { class: 'door' },
    h('form', { class: 'card', onSubmit: log_in },
      h('img', { src: '/page/icon.svg', alt: '', width: 40, height: 40 }),
      h('h1', null, 'Aquifer'),
      h('label', null, h('span', null, 'Token'),
        h('input', { name: 'token', type: 'password', autocomplete: 'current-password', required: true, autofocus: true })),
      app.why && h('p', { class: 'refusal', role: 'alert' }, app.why),
      h('button', { type: 'submit', class: 'main', disabled: app.busy }, app.busy ? 'One moment…' : 'Log in'),
      h('p', { class: 'hint' }, 'On the server: ', h('code', null, 'aquifer token create NAME --role operator'))));
}

function update() {
  if (!app.session) app.dialog = null;
  render(app.session ? shell() : door(), document.getElementById('app'));
}

theme();
addEventListener('hashchange', () => { app.notice = null; update(); tick(); scrollTo(0, 0); });
document.addEventListener('visibilitychange', tick);
setInterval(tick, TICK_MS);
update();
tick();
