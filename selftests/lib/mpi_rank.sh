#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Starts a rank with the device of its host.
case $(hostname) in
n2) device=$FERROCE_MPI_DEVICE2 netdev=$FERROCE_MPI_NETDEV2 ;;
*) device=$FERROCE_MPI_DEVICE1 netdev=$FERROCE_MPI_NETDEV1 ;;
esac
export UCX_NET_DEVICES="$device:1" FI_VERBS_IFACE="$netdev" FI_VERBS_DEVICE_NAME="$device"
exec "$@"
