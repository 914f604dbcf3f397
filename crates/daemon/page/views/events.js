// What has happened, the newest first.

import { h, card, table, state, button } from '../dom.js';
import { moment } from '../words.js';

const SHOWN = 200;
/// As many as the daemon keeps.
const KEPT = 1024;

export const events = {
  title: 'Events',
  needs: () => ({ events: { path: '/events', every_ms: 2000, newest: KEPT } }),
  draw: (_, app) => {
    const { now, error } = app.answers.events ?? {};
    if (!now) return card(null, h('p', { class: 'empty' }, error ?? 'One moment…'));
    const wanted = (app.kept.events ?? '').toLowerCase();
    const text = (event) => [event.class, event.message, ...Object.values(event.fields)].join(' ').toLowerCase();
    const found = [...now].reverse().filter((event) => text(event).includes(wanted));
    const columns = [
      { key: 'time', head: 'Time' }, { key: 'level', head: 'Level' }, { key: 'class', head: 'Class', wide: true },
      { key: 'event', head: 'Event' },
    ];
    const details = ({ fields }) => Object.entries(fields).map(([name, value]) => `${name}=${value}`).join(' ');
    const rows = found.slice(0, app.kept.all_events ? undefined : SHOWN).map((event) => ({
      key: event.sequence,
      cells: [
        moment(event.wall_ns), state(event.level), h('code', null, event.class),
        [event.message, ' ', h('span', { class: 'hint' }, details(event))],
      ],
    }));
    return h('section', { class: 'card' },
      h('div', { class: 'row' }, h('h2', null, 'Events'),
        h('label', { class: 'filter' }, h('span', null, 'Filter'),
          h('input', { type: 'search', value: app.kept.events ?? '', onInput: (event) => app.keep({ events: event.target.value }) }))),
      table({ name: 'Events', columns, rows, empty: wanted ? 'No event has this in it.' : 'Nothing has happened since the daemon started.' }),
      found.length > rows.length && button('Show all', () => app.keep({ all_events: true })),
      h('p', { class: 'hint' }, 'Since the daemon started. Older ones: aquifer pool events POOL'));
  },
};
