#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Test: buffers of other drivers (dma-buf): of a process, of a heap, and of a driver that moves them
# Module: exporter
set -u
. "$(dirname "$0")/../lib/test.sh"

# Buffers of the module are there as long as somebody has them.
is_clean()
{
	local text
	text=$(cat /dev/ferroce_exporter) && echo "# $text" && [ "$text" = "0 buffers, 0 mistakes" ]
}

rows=$(rows_of "$here/dmabuf")
ktap_start $((rows + 3))
devices_wait
row "module that exports buffers" insmod "$here/kernel/exporter.ko"
absorb "$rows" "$here/dmabuf" "$dev1" "$dev2"
row "all buffers are given back, in order" is_clean
row "unloading it" rmmod exporter
ktap_finish
