#!/bin/sh
# make.sh RECORD_GUEST: records host.data.zst and guest.data.zst beside this script: the same seconds of a QEMU process (TCG, 2 VCPUs) and of the
# Debian 12 it runs, with perf 6.1. RECORD_GUEST is record-guest.sh of the shared tools, which makes the virtual machine (QEMU, kernel and perf from
# apt, in a private folder); it writes below /tmp/perfx-data only. The host's recording is limited to the QEMU process.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bash "$1" setup
bash "$1" eval '
  vm_start sm 2 kvm; pid=$(cat $W/vm-sm/pid)
  NOKP=1 WL=0.25 N=4 MAXK=2000 rec 40-small perf \
    "-p $pid -e cpu-clock -F 49 --switch-events --sample-cpu --sample-identifier" \
    "sm|$GP61|-a -e cpu-clock -F 49 --switch-events --sample-identifier --buildid-all"
  vm_stop sm'
cd /tmp/perfx-data/guest/40-small
for name in host g1/guest; do
    release=$(perf report --header-only -i $name.data | sed -n 's/^# os release : //p')
    build_id=$(perf buildid-list -i $name.data | sed -n 's/ \[kernel.kallsyms\]$//p')
    python3 "$here/../no_machine.py" "$release" "$build_id" $name.data
    zstd -q -19 -f $name.data -o "$here/${name##*/}.data.zst"
done
