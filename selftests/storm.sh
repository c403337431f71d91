#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# A storm: random actions upon devices, netdevs, namespaces and the module, one after the other, while traffic of all
# kinds runs. `--seed` says which; afterwards everything has to work, to unload, and to leave nothing behind. Needs a VM
# without devices: it makes its own. soak.sh runs it with STORM_IS_SOAK.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"
# shellcheck source-path=SCRIPTDIR source=lib/namespaces.sh
. "$here/lib/namespaces.sh"
# shellcheck source-path=SCRIPTDIR source=lib/module.sh
. "$here/lib/module.sh"
# shellcheck source-path=SCRIPTDIR source=lib/nvme.sh
. "$here/lib/nvme.sh"

# What storm.py asks for: the target of its NVMe traffic, with its file in a directory, and its end.
case ${1:-} in
target)
	nvme_modules || exit
	truncate -s 16M "$2/disk"
	nvme_target_make storm 10.5.0.1 "$2/disk" || exit
	# A request whose answer is lost holds up who ends the connection, for a minute as it is.
	for name in admin_timeout io_timeout; do
		echo $((3 * slowness)) >"/sys/module/nvme_core/parameters/$name" || exit
	done
	exit
	;;
disconnect)
	nvme_disconnect
	exit
	;;
undo)
	nvme_disconnect
	nvme_target_undo storm
	modprobe -r nvme-rdma nvmet-rdma
	exit
	;;
esac

seed=${FERROCE_SEED:-$(date +%s)}
seconds=${FERROCE_SECONDS:-60}

nothing_left()
{
	objects_gone $((10 * slowness))
}

unloads()
{
	kernel_log_mark
	rmmod "$module" && unload_said_nothing_left && kernel_log_check
}

loads_again()
{
	module_load && links_up
}

ktap_start 9
module_load
absorb 6 python3 "$here/lib/storm.py" ${STORM_IS_SOAK:+-s} "$seed" "$seconds" "$slowness" "$here"
row "nothing is left" nothing_left
row "the module unloads" unloads
row "it loads, and makes devices again" loads_again
ktap_finish
