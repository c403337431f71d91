#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Takes a virtio netdev from its driver, as if somebody had unplugged it, and gives it back:
#
#   netdev.sh unplug NETDEV
#   netdev.sh plug NETDEV ADDRESS
set -eu
driver=/sys/bus/virtio/drivers/virtio_net
note=/run/ferroce-unplugged-$2

case $1 in
unplug)
	basename "$(readlink -f "/sys/class/net/$2/device")" >"$note"
	mtu=$(cat "/sys/class/net/$2/mtu")
	echo "$mtu" >"$note.mtu"
	cat "$note" >$driver/unbind
	;;
plug)
	card=$(cat "$note")
	echo "$card" >$driver/bind
	set -- "$2" "$3" "/sys/bus/virtio/devices/$card/net/"*
	ip link set "$(basename "$3")" name "$1" mtu "$(cat "$note.mtu")"
	ip address add "$2" dev "$1"
	ip link set "$1" up
	;;
esac
