#!/bin/sh
# Sets up a new network namespace, holds it until its input ends, then kills everything in it.
ip link set lo up || exit 1
# As Linux comes. BBR, where a machine has chosen it, paces by timers what never leaves the machine:
# it halves what any server sends over loopback, and doubles what that costs.
{ echo cubic >/proc/sys/net/ipv4/tcp_congestion_control; } 2>/dev/null
mount -t tmpfs tmpfs /run || exit 1
if [ -d /var/lib/nfs ]; then mount -t tmpfs tmpfs /var/lib/nfs || exit 1; fi
echo up
# Nobody reads any longer.
exec >/dev/null 2>&1
cat
rounds=50
while [ "$rounds" -gt 0 ]; do
    rounds=$((rounds - 1)) found=
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        if [ "$pid" != $$ ] && [ "$process/ns/net" -ef /proc/$$/ns/net ]; then
            kill -9 "$pid" && found=yes
        fi
    done
    [ -n "$found" ] || exit 0
    sleep 0.1
done
