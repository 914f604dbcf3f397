//! `aquifer arcstat`: the read caches, as `arcstat` of ZFS shows its own, and who has the memory.

use aquifer_api::client::Client;
use aquifer_api::{CacheStat, MemoryQuery, MemoryStat, PoolMemory};

use super::Output;
use super::repeat::{Times, repeat};
use super::since::Span;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn arcstat(
    client: &Client,
    output: Output,
    verbose: bool,
    times: Times,
) -> Result<(), Failure> {
    let ask = async || Ok(client.ask(&MemoryQuery).await?);
    repeat(output, times, ask, |now, then| report(now, then, verbose, output)).await
}

fn report(now: &MemoryStat, then: Option<&MemoryStat>, verbose: bool, output: Output) -> String {
    let mut text = rates(now, then, output);
    if verbose {
        text.push('\n');
        text.push_str(&shares(now, output));
    }
    text
}

/// Shows the work of each cache in a span: differences of counts.
fn rates(now: &MemoryStat, then: Option<&MemoryStat>, output: Output) -> String {
    let mut table = Table::new(&[
        "POOL", ">READ/S", ">MISS/S", ">HIT%", ">DATA%", ">GHOST/S", ">EVICT/S", ">SIZE", ">TARGET",
    ]);
    for pool in &now.pools {
        let old = then.and_then(|then| then.pools.iter().find(|old| old.name == pool.name));
        let span = Span::new(pool.uptime_ns, old.map(|old| old.uptime_ns));
        let none = CacheStat::default();
        let old = old.filter(|_| span.goes_on).map_or(&none, |old| &old.cache);
        let cache = &pool.cache;
        let since = |count: fn(&CacheStat) -> u64| count(cache).saturating_sub(count(old));
        let (hits, misses) = (since(CacheStat::hits), since(|cache| cache.misses));
        let rate = |count| span.rate_text(output, count);
        table.row(vec![
            pool.name.clone(),
            rate(hits + misses),
            rate(misses),
            percent(hits, hits + misses),
            percent(cache.data.bytes, cache.data.bytes + cache.nodes.bytes),
            rate(since(CacheStat::ghost_hits)),
            rate(since(CacheStat::evictions)),
            output.size(cache.size_bytes),
            output.size(cache.target_bytes),
        ]);
    }
    table.text(output.script)
}

/// Shows who has how much memory now.
fn shares(now: &MemoryStat, output: Output) -> String {
    let mut table = Table::new(&["MEMORY", ">SIZE", ">OF ALL"]);
    let mut row = |name: String, bytes| {
        table.row(vec![name, output.size(bytes), percent(bytes, now.cap_bytes)]);
    };
    let several = now.pools.len() > 1;
    let of = |pool: &PoolMemory, what: &str| match several {
        true => format!("{}: {what}", pool.name),
        false => what.to_string(),
    };
    row("all".into(), now.cap_bytes);
    for pool in &now.pools {
        row(of(pool, "cache, data"), pool.cache.data.bytes);
        row(of(pool, "cache, nodes"), pool.cache.nodes.bytes);
        row(of(pool, "dirty"), pool.dirty_bytes);
        row(of(pool, "bitmaps"), pool.bitmap_bytes);
    }
    row("nfs".into(), now.nfs_bytes);
    row("objects".into(), now.object_bytes);
    table.text(output.script)
}

/// A part of a whole, as people read it.
fn percent(part: u64, whole: u64) -> String {
    match u128::from(whole) {
        0 => "-".into(),
        whole => (u128::from(part) * 100 / whole).to_string(),
    }
}
