// From counts that only rise to rates, as `aquifer nfsiostat` takes them; and the last minutes.

/// What happened between two answers: {count, bytes, total_ns, buckets}.
export function part(now, then) {
  const goes_on = then && now.bytes >= then.bytes && now.latency.count >= then.latency.count;
  if (!goes_on) return { bytes: now.bytes, ...now.latency };
  const before = new Map(then.latency.buckets);
  const buckets = now.latency.buckets
    .map(([floor, count]) => [floor, count - (before.get(floor) ?? 0)])
    .filter(([, count]) => count > 0);
  return {
    bytes: now.bytes - then.bytes,
    count: now.latency.count - then.latency.count,
    total_ns: now.latency.total_ns - then.latency.total_ns,
    buckets,
  };
}

export const mean_ns = (part) => (part.count > 0 ? part.total_ns / part.count : null);

/// The time that so many thousandths did not exceed, between the bounds of a bucket.
export function quantile_ns(part, thousandths) {
  if (part.count === 0) return null;
  const rank = Math.max(1, Math.ceil((part.count * thousandths) / 1000));
  let below = 0;
  for (const [floor, inside] of part.buckets) {
    if (below + inside >= rank) {
      const width = floor < 1024 ? 1024 : 2 ** Math.floor(Math.log2(floor)) / 4;
      return floor + Math.floor((width * (rank - below)) / inside);
    }
    below += inside;
  }
  return 0;
}

/// What a client or a file did between two answers.
export function flow(now, then) {
  const [reads, writes] = [part(now.reads, then?.reads), part(now.writes, then?.writes)];
  const others = then && now.others >= then.others ? now.others - then.others : now.others;
  const others_ns = then && now.others_ns >= then.others_ns ? now.others_ns - then.others_ns : now.others_ns;
  return { reads, writes, others, busy_ns: reads.total_ns + writes.total_ns + others_ns };
}

/// Seconds between two answers; all of the uptime, if there is no earlier one.
export function seconds(now, then) {
  const goes_on = then && now.uptime_ns > then.uptime_ns;
  return (goes_on ? now.uptime_ns - then.uptime_ns : now.uptime_ns) / 1e9 || 1;
}

/// The sum of several parts.
export function sum(parts) {
  const all = { bytes: 0, count: 0, total_ns: 0, buckets: [] };
  const buckets = new Map();
  for (const part of parts) {
    all.bytes += part.bytes;
    all.count += part.count;
    all.total_ns += part.total_ns;
    for (const [floor, count] of part.buckets) buckets.set(floor, (buckets.get(floor) ?? 0) + count);
  }
  all.buckets = [...buckets].sort(([a], [b]) => a - b);
  return all;
}

export const file_key = (disk) => disk.fs_guid + ':' + disk.object;

/// The last minutes of all clients together, and of each file. Bounded in time, and by what the
/// server counts.
export class History {
  constructor() {
    this.all = [];
    this.files = new Map();
  }

  /// Takes in an answer of /nfs, with the one before.
  take(now, then) {
    const is_next = then && now.uptime_ns > then.uptime_ns;
    if (!is_next) return;
    const span_s = seconds(now, then);
    const at = Date.now() / 1000;
    const sums = { reads: [], writes: [] };
    const before = new Map(then.disks.map((disk) => [file_key(disk), disk]));
    const add = (series, flow) => {
      // While nobody looked, nothing is known: the line breaks.
      const last = series[series.length - 1];
      if (last && at - last.at > GAP_S) series.push({ ...NOTHING, at: at - span_s });
      series.push({
        at,
        reads: flow.reads.count / span_s,
        writes: flow.writes.count / span_s,
        read_bytes: flow.reads.bytes / span_s,
        write_bytes: flow.writes.bytes / span_s,
        read_ns: mean_ns(flow.reads),
        write_ns: mean_ns(flow.writes),
        write_p99_ns: quantile_ns(flow.writes, 990),
        read_p99_ns: quantile_ns(flow.reads, 990),
      });
      while (series.length > 0 && series[0].at < at - KEPT_S) series.shift();
    };
    for (const disk of now.disks) {
      const key = file_key(disk);
      const old = before.get(key);
      // A file that has just come: what it did before is not of this span.
      const done = flow(disk, old ?? disk);
      sums.reads.push(done.reads);
      sums.writes.push(done.writes);
      if (!this.files.has(key)) this.files.set(key, []);
      add(this.files.get(key), done);
    }
    const others = flow(now.other_disks, then.other_disks);
    const all = {
      reads: sum([...sums.reads, others.reads]),
      writes: sum([...sums.writes, others.writes]),
    };
    add(this.all, all);
    for (const [key, series] of this.files) {
      if (series.length === 0 || series[series.length - 1].at < at - KEPT_S) this.files.delete(key);
    }
  }
}

const KEPT_S = 600;
const GAP_S = 7;
const NOTHING = {
  reads: null, writes: null, read_bytes: null, write_bytes: null, read_ns: null, write_ns: null,
  read_p99_ns: null, write_p99_ns: null,
};
