/* SPDX-License-Identifier: GPL-2.0 */
/* Network namespaces, as `ip netns` names them. */
#ifndef NAMESPACE_H
#define NAMESPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Takes this thread to a namespace, by its name or path. Returns the one that it comes from. */
int namespace_enter(const char *name);
/* Takes it back. */
void namespace_leave(int home);

/* Runs a line of shell, and says so if it fails. */
bool command(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * A packet socket that sees all frames of a netdev, of both directions, and has room for 8 MiB of them. mac, if it is
 * not NULL, gets the netdev's address.
 */
int capture_open(const char *namespace, const char *netdev, uint8_t mac[6]);

/* A new tun netdev of that name, with flags of TUNSETIFF; it lasts until the file that is returned is closed. */
int tun_open(const char *namespace, const char *name, int flags);

#endif
