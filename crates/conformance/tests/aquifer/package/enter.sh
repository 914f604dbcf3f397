#!/bin/sh
# Runs a command in a Debian system, or boots it: enter.sh BASE UPPER COMMAND..., with "boot" for COMMAND. To
# be run in mounts of its own; to boot, also in process ids and control groups, as the first process.
#
# What holds: nothing outside changes. BASE is below an overlay, /proc/sys and /sys are read only, and of the
# devices there are only those that do nothing.
set -e
base=$1 upper=$2
shift 2
root=$upper/root
mkdir -p "$upper/files" "$upper/work" "$root"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$upper/files,workdir=$upper/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
[ "$1" = boot ] || exec chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"

mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir -p "$root/outside"
cd "$root"
pivot_root . outside
umount -l /outside
export container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=0
