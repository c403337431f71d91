// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"

int namespace_enter(const char *name)
{
	int home, there;
	char path[128];

	snprintf(path, sizeof(path), "%s%s", *name == '/' ? "" : "/run/netns/", name);
	home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	there = open(path, O_RDONLY | O_CLOEXEC);
	if (home < 0 || there < 0 || setns(there, CLONE_NEWNET))
		die("%s cannot be entered: %s", path, strerror(errno));
	close(there);
	return home;
}

void namespace_leave(int home)
{
	if (setns(home, CLONE_NEWNET))
		die("there is no way back from a namespace: %s", strerror(errno));
	close(home);
}
