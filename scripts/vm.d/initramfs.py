# SPDX-License-Identifier: GPL-2.0
"""Makes the initramfs that all runs share: busybox and the modules the root file system needs.

Usage: initramfs.py BUSYBOX MODULES_BASE KERNEL_VERSION OUTPUT, inside the Debian root.
"""

import os
import subprocess
import sys

from archive import Archive

MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "ext4", "9p", "9pnet_virtio")


def load_order(base, version):
    """Paths of the modules and of what they depend on, in the order in which they load."""
    command = ("modprobe", "-d", base, "-S", version, "--show-depends", "-a", *MODULES)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = [line.split()[1] for line in output.splitlines() if line.startswith("insmod ")]
    return list(dict.fromkeys(paths))


def main():
    busybox, base, version, output = sys.argv[1:]
    with open(output, "wb") as stream, Archive(stream) as archive:
        for folder in ("dev", "proc", "sys", "root"):
            archive.folder(folder)
        archive.character_device("dev/console", 5, 1)
        with open(busybox, "rb") as file:
            archive.file("bin/busybox", file.read(), 0o755)
        archive.link("bin/sh", "busybox")
        names = []
        for path in load_order(base, version):
            names.append(os.path.basename(path))
            with open(path, "rb") as file:
                archive.file("modules/" + names[-1], file.read())
        archive.file("modules/order", "".join(name + "\n" for name in names).encode())


main()
