#!/bin/sh
# The first process of a node, in its own PID, mount, network, IPC and UTS namespace. When it ends, all of the node ends.
# node.sh NAME DIRECTORY COMMAND…
set -eu
name=$1 directory=$2
shift 2
hostname "$name"
mount -t tmpfs -o mode=755 tmpfs /run
# A sysfs of this network namespace, with the machine's cgroups in it.
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount --recursive --lazy /run/cgroup
# Paths that every kubelet and containerd use.
mkdir "$directory/lib" "$directory/log" "$directory/sysctl"
mount --bind "$directory/lib" /var/lib
mount --bind "$directory/log" /var/log
[ -L /var/run ] || mount --bind /run /var/run
# A kubelet sets these for the whole machine, unless they have its values already.
while read -r key value; do
  file=$directory/sysctl/$(basename "$key")
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$key"
done <<VALUES
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
VALUES
echo 1 >/proc/sys/net/ipv4/ip_forward
# Not by exec: this shell collects the processes whose parent has ended. Without 3, its input would be /dev/null.
exec 3<&0
"$@" <&3 3<&- &
wait $!
