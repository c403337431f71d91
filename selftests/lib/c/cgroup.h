/* SPDX-License-Identifier: GPL-2.0 */
/* Control groups, version 2. */
#ifndef CGROUP_H
#define CGROUP_H

#include <stdbool.h>

#define CGROUPS "/sys/fs/cgroup"

/* Writes text to a file of an existing cgroup. */
void cgroup_write(const char *path, const char *text);
/* The number in a file; the one after a name, if one is given ("oom_kill" of memory.events). */
unsigned long long cgroup_number(const char *path, const char *name);
/* Whether cgroups have that controller ("memory", "rdma"); then those below the first may use it. */
bool cgroup_has(const char *controller);
/* The cgroup that cgroup_run() makes, below the first. */
#define CGROUP CGROUPS "/ferroce"
/* Runs a function in a process and a cgroup of its own, which both end with it. Returns what the function does. */
bool cgroup_run(bool (*run)(const void *argument), const void *argument);

#endif
