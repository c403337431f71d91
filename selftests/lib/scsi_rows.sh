# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of consumers.sh and ktap.sh
#
# The rows of a consumer that brings a SCSI disk.

connected()
{
	local identifier
	identifier=$(at_target serve "$(target_address)" 128 "$(host_address)") || return 1
	at_host attach "$(target_address)" "$identifier"
}

ktap_start $((placement_count * 5))
for placement in $placements; do
	row "$(placed): connected" connected
	row "$(placed): written and read" at_host disk_compare 64
	row "$(placed): fio, CRCs, 32 at a time" at_host disk_fio 10
	row "$(placed): ext4" at_host disk_filesystem ext4
	row "$(placed): disconnected" disconnected
done
ktap_finish
