#!/bin/sh
# First program of a test guest: modules, network, then the agent that takes the host's commands.
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
hostname guest
while read -r module; do
    insmod "/modules/$module" || echo "init: cannot load $module"
done </modules/order
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
nfstest agent /dev/vport0p1 || echo "init: agent failed: $?"
poweroff -f
