# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# SMB 3.1.1 over RDMA: the kernel's server (ksmbd) and client (cifs). Debian builds neither with RDMA; the debug kernel has
# both. See lib/consumers.sh.

. "$(dirname "${BASH_SOURCE[0]}")/disk.sh"
. "$(dirname "${BASH_SOURCE[0]}")/files.sh"

# serve ADDRESS MiB
serve()
{
	mkdir -p "$export" /etc/ksmbd && mount -t tmpfs -o "size=$2M" ferroce-export "$export" || return 1
	cat >/etc/ksmbd/ksmbd.conf <<-END
		[global]
		netbios name = FERROCE
		server multi channel support = yes
		[export]
		path = $export
		read only = no
		create mask = 0777
		directory mask = 0777
	END
	modprobe ksmbd && ksmbd.adduser -a -p secret root && ksmbd.mountd
}

# attach ADDRESS
attach()
{
	modprobe cifs && mkdir -p "$mounted" &&
		mount -t cifs -o rdma,vers=3.1.1,username=root,password=secret "//$1/export" "$mounted"
}

# cifs ends its sessions after umount has returned.
detach()
{
	umount "$mounted" && modprobe -r --wait 20000 cifs
}
