/* SPDX-License-Identifier: GPL-2.0 */
/* Network namespaces, as `ip netns` names them. */
#ifndef NAMESPACE_H
#define NAMESPACE_H

/* Takes this thread to a namespace, by its name or path. Returns the one that it comes from. */
int namespace_enter(const char *name);
/* Takes it back. */
void namespace_leave(int home);

#endif
