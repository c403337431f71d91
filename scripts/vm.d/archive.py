# SPDX-License-Identifier: GPL-2.0
"""Writes cpio archives in the "newc" format, which the kernel unpacks as initramfs."""

import stat


class Archive:
    """One archive, appended to an open binary file. Use as a context manager."""

    def __init__(self, stream):
        self._stream = stream
        self._inode = 0
        self._folders = set()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self._entry("TRAILER!!!", 0, b"", inode=0)

    def _entry(self, name, mode, data, inode, device=(0, 0)):
        encoded = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        for part in (header + encoded, data):
            self._stream.write(part)
            self._stream.write(b"\0" * (-len(part) % 4))

    def _add(self, name, mode, data, device=(0, 0)):
        parent = name.rpartition("/")[0]
        if parent and parent not in self._folders:
            self.folder(parent)
        self._inode += 1
        self._entry(name, mode, data, self._inode, device)

    def folder(self, name):
        self._folders.add(name)
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name, major, minor):
        self._add(name, stat.S_IFCHR | 0o600, b"", (major, minor))
