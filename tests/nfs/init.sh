# The guest's only script, as process 1: what the kernel must have, then `nfs.inside`.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs none /tmp
mount -t tmpfs none /mnt
mount -t tmpfs none /srv
mkdir -p /dev/shm && mount -t tmpfs none /dev/shm
ln -sfn /proc/self/fd /dev/fd
exec </dev/null >/dev/ttyS0 2>&1
stty -F /dev/ttyS0 -onlcr 2>/dev/null
hostname walld-guest
# Nobody is asked for a name: nobody would answer.
echo "127.0.0.1 localhost walld-guest" >/etc/hosts; : >/etc/resolv.conf
for module in loop nfsd nfs nfsv4 nfsv3 veth; do modprobe $module || echo "no module $module"; done
ip link set lo up
export PYTHONPATH=/tree/tests:/tree:/tree/clients/python
timeout --kill-after=10 3000 python3 -m nfs.inside
sync
echo o >/proc/sysrq-trigger
while :; do :; done
