#!/usr/bin/env bash
# Installs and starts a real SLURM on this one machine from Debian's packages, for tests of the cluster launcher.
#   tools/slurm.sh         install where needed, start, wait until a job runs
#   tools/slurm.sh stop    end the three daemons
set -euo pipefail

stop() {
  for pid in /run/slurm/slurmd.pid /run/slurm/slurmctld.pid /run/munge/munged.pid; do
    [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
  done
}
[ "${1:-start}" = stop ] && { stop; exit 0; }
command -v sinfo >/dev/null && sinfo -h -o %t 2>/dev/null | grep -qE 'idle|mix|alloc' && exit 0
# a configuration of somebody else's is never replaced
mark="Written by tools/slurm.sh of nerve"
conf=${NERVE_SLURM_CONF:-/etc/slurm/slurm.conf}
if [ -e "$conf" ] && ! grep -q "$mark" "$conf"; then
  echo "slurm: $conf exists and is not ours, so it is not replaced; the tests that need SLURM will skip" >&2
  exit 1
fi
[ "$(id -u)" = 0 ] || { echo "slurm: needs root to install and start its daemons" >&2; exit 1; }
if ! command -v slurmctld >/dev/null; then
  command -v apt-get >/dev/null || { echo "slurm: needs apt-get" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
fi

host=$(hostname -s)
install -d -o munge -g munge -m 0755 /run/munge
install -d -o munge -g munge -m 0700 /var/log/munge /var/lib/munge
if [ ! -s /etc/munge/munge.key ]; then
  mungekey -c -f
  chown munge:munge /etc/munge/munge.key
  chmod 400 /etc/munge/munge.key
fi
install -d -o slurm -g slurm -m 0755 /run/slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/lib/slurm/slurmd /etc/slurm
draft=$(mktemp)
trap 'rm -f "$draft"' EXIT
cat > "$draft" <<CONF
# $mark, for its tests; replaced without asking.
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
KillWait=10
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(slurmd -C | sed -n 's/.*RealMemory=\([0-9]*\).*/\1/p') State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
install -m 0644 "$draft" "$conf"
rm -f "$draft"
pgrep -x munged >/dev/null || runuser -u munge -- /usr/sbin/munged
pgrep -x slurmctld >/dev/null || slurmctld
pgrep -x slurmd >/dev/null || slurmd
for _ in $(seq 30); do
  sinfo -h -o %t | grep -qE 'idle|mix|alloc' && exec srun -n1 true
  sleep 1
done
echo "slurm: the node did not become idle; see /var/log/slurm" >&2
exit 1
