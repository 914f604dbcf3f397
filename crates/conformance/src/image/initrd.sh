#!/bin/sh
# Initial program of a machine that runs from its disk: drivers, then /dev/vda as the root.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || echo "initrd: cannot load $module"
done </modules/order
tries=100
while [ ! -b /dev/vda ] && [ "$tries" -gt 0 ]; do
    tries=$((tries - 1))
    usleep 50000
done
if ! mount -t ext4 /dev/vda /mnt; then
    echo "aquifer: cannot mount the disk"
    poweroff -f
fi
mount --move /proc /mnt/proc
mount --move /sys /mnt/sys
mount --move /dev /mnt/dev
exec switch_root /mnt /sbin/aquifer-init
