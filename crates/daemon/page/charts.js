// A chart of times, by uPlot.

import { h, Component } from './vendor/preact.js';

/// Props: title, series: [{label, color, of}], points, format, incrs: steps between its lines, if
/// they are not tens; spans: a line goes on where there was nothing to measure; dates: the time is
/// days, not hours. `color` names a colour of app.css.
export class Chart extends Component {
  componentDidMount() {
    this.draw();
    this.resizes = new ResizeObserver(() => this.fit());
    this.resizes.observe(this.figure);
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.redraw = () => this.draw();
    this.dark.addEventListener('change', this.redraw);
    addEventListener('theme', this.redraw);
  }

  componentWillUnmount() {
    this.resizes.disconnect();
    this.dark.removeEventListener('change', this.redraw);
    removeEventListener('theme', this.redraw);
    this.plot.destroy();
    this.plot = null;
  }

  componentDidUpdate() {
    this.plot.setData(this.data());
    this.tell();
  }

  /// Where no cursor points, the legend has the newest values: once the chart has drawn itself.
  tell() {
    const plot = this.plot;
    queueMicrotask(() => {
      if (plot === this.plot && plot.cursor.idx == null) plot.setLegend({ idx: this.props.points.length - 1 });
    });
  }

  data() {
    const { points, series } = this.props;
    return [points.map((point) => point.at), ...series.map(({ of }) => points.map(of))];
  }

  width() {
    return Math.max(200, this.figure.clientWidth);
  }

  fit() {
    if (this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: HEIGHT });
  }

  draw() {
    this.plot?.destroy();
    const { series, format, incrs, spans, dates } = this.props;
    const when = dates ? day : clock;
    const own = getComputedStyle(this.figure);
    const [faint, line] = [own.color, own.borderTopColor];
    const axis = {
      stroke: faint, font: '11px system-ui, sans-serif',
      grid: { stroke: line, width: 1 }, ticks: { show: false },
    };
    const options = {
      width: this.width(), height: HEIGHT, cursor: { y: false, drag: { x: false } },
      legend: { live: true }, padding: [8, 16, 0, 0],
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.15, 1)] } },
      axes: [
        { ...axis, space: 90, size: 26, values: (_, ticks) => ticks.map(when) },
        { ...axis, size: 54, space: 34, incrs, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? '0' : format(tick))) },
      ],
      series: [
        { label: 'Time', value: (_, at) => (at == null ? '–' : dates ? `${day(at)} ${clock(at)}` : clock(at)) },
        ...series.map(({ label, color }) => ({
          label, stroke: this.color(color), width: 1.5, points: { show: false }, spanGaps: spans ?? false,
          value: (_, value) => (value == null ? '–' : format(value)),
        })),
      ],
    };
    this.plot = new globalThis.uPlot(options, this.data(), this.figure.querySelector('.plot'));
    this.tell();
  }

  /// A canvas needs the colour that the style sheet means at the moment.
  color(name) {
    const probe = this.figure.querySelector('.probe-' + name);
    return getComputedStyle(probe).color;
  }

  render({ title }) {
    return h('figure', { class: 'chart', ref: (figure) => { this.figure = figure; } },
      h('figcaption', null, title),
      h('div', { class: 'plot' }),
      ['read', 'write', 'slow'].map((name) => h('i', { class: 'probe probe-' + name })));
  }
}

function clock(at) {
  const time = new Date(at * 1000);
  const two = (number) => String(number).padStart(2, '0');
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

function day(at) {
  const time = new Date(at * 1000);
  return `${time.getMonth() + 1}/${time.getDate()}`;
}

const HEIGHT = 160;
