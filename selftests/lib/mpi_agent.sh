#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# What MPI starts its daemons with instead of ssh: a namespace is the host. mpi_agent.sh [OPTION...] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do
	shift
done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
