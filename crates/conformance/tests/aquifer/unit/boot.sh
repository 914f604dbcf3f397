#!/bin/sh
# Becomes systemd, with a unit and nothing else: boot.sh PROGRAM LIB ETC UNIT. To be run in mounts, process
# ids and control groups of its own, as the first process.
#
# What holds: it changes nothing outside. /proc/sys is read only, since systemd raises limits there;
# the unit has no default dependencies, so that no service of this machine is started.
set -e
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$2" /var/lib
mount --bind "$3/passwd" /etc/passwd
mount --bind "$3/group" /etc/group
touch /run/program
mount --bind "$1" /run/program
mkdir -p /run/systemd/system
cp "$4" /run/systemd/system/aquifer.service
export container=other
exec /lib/systemd/systemd --system --unit=aquifer.service --log-target=null --show-status=0
