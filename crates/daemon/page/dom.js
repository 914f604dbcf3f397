// What views are made of. A text given as a child becomes a text node, whatever it contains.

import { h, Component } from './vendor/preact.js';

export { h };

/// A table. Columns: {key, head, num?, wide?, sort?}; rows: {key, cells, open?, go?}. `sorted`:
/// {column, falls}, and `onSort` changes it.
export function table({ name, columns, rows, sorted, onSort, empty }) {
  if (rows.length === 0) return h('p', { class: 'empty' }, empty ?? 'There is nothing here.');
  const classes = (column) =>
    [column.num && 'num', column.wide && 'wide'].filter(Boolean).join(' ') || undefined;
  const head = columns.map((column) => {
    const is = sorted && sorted.column === column.key;
    const order = is ? (sorted.falls ? 'descending' : 'ascending') : undefined;
    const change = () => onSort({ column: column.key, falls: is ? !sorted.falls : Boolean(column.num) });
    const title = column.sort
      ? h('button', { class: 'sort', onClick: change }, column.head, is && (sorted.falls ? ' ↓' : ' ↑'))
      : column.head;
    return h('th', { scope: 'col', class: classes(column), 'aria-sort': order }, title);
  });
  const body = rows.map((row) =>
    h('tr', { key: row.key, class: row.open ? 'open' : undefined, 'data-row': row.key },
      row.cells.map((cell, at) =>
        h('td', { class: classes(columns[at]), 'data-cell': columns[at].key }, cell))));
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name },
    h('table', { 'data-table': name }, h('thead', null, h('tr', null, head)), h('tbody', null, body)));
}

export const card = (title, ...children) =>
  h('section', { class: 'card' }, title && h('h2', null, title), children);

export const button = (label, onClick, more = {}) =>
  h('button', { type: 'button', onClick, ...more }, label);

/// Acts that are asked for now and then.
export const more = (...acts) =>
  h('details', { class: 'more' }, h('summary', null, 'More'), h('div', { class: 'row acts' }, acts));

/// A link to a place on the page.
export const link = (words, label) => h('a', { href: place(words) }, label);

/// The address of a place: words between slashes.
export const place = (words) => '#/' + words.map(encodeURIComponent).join('/');

/// A state in its colour, and in words.
const GOOD = ['ONLINE', 'AVAIL', 'held', 'read-write'];
const PLAIN = ['info', 'debug'];
const BAD = ['FAULTED', 'FAILED', 'UNAVAIL', 'SUSPENDED', 'MISSING', 'error', 'refused'];
export function state(word) {
  const level = [[GOOD, 'good'], [PLAIN, 'plain'], [BAD, 'bad']].find(([words]) => words.includes(word));
  return h('span', { class: 'state ' + (level ? level[1] : 'fair') }, word);
}

/// A text in which commands stand between backticks.
export const commands = (text) =>
  text.split('`').map((part, at) => (at % 2 === 1 ? h('code', null, part) : part));

/// A part of a whole.
export function bar(part, whole, label) {
  const percent = whole > 0 ? Math.min(100, (part * 100) / whole) : 0;
  const level = percent >= 90 ? 'bad' : percent >= 80 ? 'fair' : 'good';
  return h('progress', { max: 100, value: percent, class: level, 'aria-label': label });
}

/// Asks before something is done. `wish`: {title, text, lines, fields, confirm, label, run}; a field:
/// {name, label, type, value, hint, options}. `run` gets the values, and may throw; what it returns
/// may have the next wish in `next`.
export class Dialog extends Component {
  constructor(props) {
    super(props);
    this.state = { busy: false, error: null };
  }

  componentDidMount() {
    this.dialog.showModal();
  }

  async submit(event) {
    event.preventDefault();
    if (this.state.busy) return;
    const { wish, done } = this.props;
    const form = new FormData(event.target);
    const values = {};
    for (const field of wish.fields ?? []) {
      values[field.name] = field.type === 'checkbox' ? form.has(field.name) : form.get(field.name);
    }
    this.setState({ busy: true, error: null });
    try {
      done(await wish.run(values));
    } catch (error) {
      this.setState({ busy: false, error: error.message });
    }
  }

  field(field) {
    const attributes = { name: field.name, id: 'f-' + field.name };
    if (field.type === 'checkbox') {
      return h('label', { class: 'check' }, h('input', { type: 'checkbox', ...attributes }), ' ', field.label);
    }
    const input = field.options
      ? h('select', attributes, field.options.map((option) =>
        h('option', { value: option, selected: option === field.value }, option)))
      : h('input', {
        type: 'text', autocomplete: 'off', spellcheck: false, required: !field.optional,
        defaultValue: field.value, ...attributes,
      });
    return h('label', null, h('span', null, field.label), input,
      field.hint && h('small', null, field.hint));
  }

  render({ wish, done }, { busy, error }) {
    const sure = wish.confirm && h('label', null,
      h('span', null, 'Type ', h('code', null, wish.confirm), ' to confirm'),
      h('input', {
        type: 'text', autocomplete: 'off', spellcheck: false, required: true,
        onInput: (event) => event.target.setCustomValidity(
          event.target.value === wish.confirm ? '' : 'This is not ' + wish.confirm),
      }));
    return h('dialog', { ref: (dialog) => { this.dialog = dialog; }, onCancel: () => done(null), 'aria-label': wish.title },
      h('form', { onSubmit: (event) => this.submit(event) },
        h('h2', null, wish.title),
        wish.text && h('p', null, wish.text),
        wish.lines && h('ul', { class: 'lines' }, wish.lines.map((line) => h('li', null, line))),
        (wish.fields ?? []).map((field) => this.field(field)),
        sure,
        error && h('p', { class: 'refusal', role: 'alert' }, h('span', null, commands(error))),
        h('div', { class: 'row end' },
          button('Cancel', () => done(null)),
          h('button', { type: 'submit', class: wish.danger ? 'danger' : 'main', disabled: busy },
            busy ? 'Under way…' : wish.label ?? wish.title))));
  }
}
