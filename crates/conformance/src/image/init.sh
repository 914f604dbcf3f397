#!/bin/sh
# First and only program of a system image: does the task that the kernel's command line names,
# tells each step on the console in a line that starts with "aquifer:", and powers off.
# Written for every POSIX shell: busybox's and Debian's dash run it.
#
#   aquifer.task=write    aquifer.files=N aquifer.bytes=N aquifer.seed=N
#                         writes files of seeded content, syncs, notes their SHA-256, reads back
#   aquifer.task=verify   verifies all that `write` has left, and Debian's own files
#   aquifer.task=journal  aquifer.records=N aquifer.slots=N aquifer.first=N aquifer.pause_ms=N
#                         durable records; "aquifer: ack N" for each
#   aquifer.task=database  aquifer.mode=wal|truncate|persist
#                         transactions without end; "aquifer: ack N" for each that is committed
#   aquifer.task=journal-check  aquifer.acked=N aquifer.slots=N
#   aquifer.task=wreck    removes the system that it runs in
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
DATA=/var/lib/aquifer

say() { echo "aquifer: $*"; }

# The value of aquifer.NAME on the kernel's command line, or the default.
given() {
    value=$2
    for word in $(cat /proc/cmdline); do
        case "$word" in "aquifer.$1="*) value=${word#*=} ;; esac
    done
    echo "$value"
}

drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

write_files() {
    files=$(given files 8) bytes=$(given bytes 4194304) seed=$(given seed 1)
    rm -rf "$DATA/files" && mkdir -p "$DATA/files" && cd "$DATA/files" || return 1
    number=1
    while [ "$number" -le "$files" ]; do
        nfstest fill "file$number" --bytes "$bytes" --seed "$((seed + number))" || return 1
        say "wrote file $number of $files ($bytes bytes)"
        number=$((number + 1))
    done
    sha256sum file* >../SHA256SUMS || return 1
    echo "$files $bytes $seed" >../parameters
    drop_caches
    say "synced"
    verify_files
}

verify_files() {
    read -r files bytes seed <"$DATA/parameters" || return 1
    cd "$DATA/files" || return 1
    number=1
    while [ "$number" -le "$files" ]; do
        nfstest verify "file$number" --bytes "$bytes" --seed "$((seed + number))" || return 1
        say "verified file $number of $files"
        number=$((number + 1))
    done
    sha256sum -c ../SHA256SUMS || return 1
    say "checksums match"
}

# Debian notes a checksum of every file it has installed.
verify_system() {
    [ -f /var/lib/dpkg/status ] || return 0
    if differing=$(dpkg --verify | grep -E '^(\?\?5|missing)'); then
        say "differs: $differing"
        return 1
    fi
    say "$(dpkg-query -f '.\n' -W | wc -l) installed packages match"
}

# Runs a program and tells what it prints line by line: whoever watches the console acts on it.
told() {
    { "$@" 2>&1 || echo "failed"; } |
        while read -r line; do say "$line"; [ "$line" != failed ] || return 1; done
}

journal() {
    mkdir -p "$DATA" || return 1
    told nfstest journal "$DATA/journal" --records "$(given records 100)" \
        --first "$(given first 0)" --slots "$(given slots 0)" --pause-ms "$(given pause_ms 0)"
}

database() {
    mkdir -p "$DATA" || return 1
    told transactions "$DATA/database" "$(given mode wal)"
}

journal_check() {
    checked=$(nfstest journal-check "$DATA/journal" --slots "$(given slots 0)" \
        --acked "$(given acked 0)" 2>&1)
    status=$?
    say "$checked"
    return "$status"
}

# What it still needs is in memory, or beside busybox in /usr/local.
wreck() {
    say "rm -rf /bin /etc /lib /sbin /usr /var"
    for directory in /bin /etc /lib /sbin /var /usr/bin /usr/lib /usr/sbin /usr/share; do
        [ ! -d "$directory" ] || busybox rm -rf "$directory"
    done
    busybox sync
}

run() {
    case "$1" in
        write) write_files ;;
        verify) drop_caches; verify_files && verify_system ;;
        journal) journal ;;
        database) database ;;
        wreck) wreck ;;
        journal-check) drop_caches; journal_check ;;
        *) say "no task $1"; return 2 ;;
    esac
}

task=$(given task verify)
say "up, task $task, root $(busybox df -h / | busybox awk 'END { print $2 " with " $3 " used" }')"
run "$task"
say "done $task, status $?"
cd / && sync
mount -o remount,ro / || busybox mount -o remount,ro /
busybox poweroff -f
