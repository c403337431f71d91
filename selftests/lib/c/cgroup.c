// SPDX-License-Identifier: GPL-2.0
/* See cgroup.h. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "endpoint.h"

void cgroup_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die("%s: %s", path, strerror(errno));
	close(fd);
}

unsigned long long cgroup_number(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	unsigned long long number;
	char word[64];
	int found;

	if (!file)
		die("%s: %s", path, strerror(errno));
	if (!name) {
		found = fscanf(file, "%llu", &number);
	} else {
		while ((found = fscanf(file, "%63s %llu", word, &number)) == 2 && strcmp(word, name))
			;
	}
	fclose(file);
	if (found != (name ? 2 : 1))
		die("%s: no number", path);
	return number;
}

bool cgroup_has(const char *controller)
{
	char line[256] = "", change[32], *word, *rest;
	bool has = false;
	FILE *file;

	if (access(CGROUPS "/cgroup.controllers", R_OK) && mount("none", CGROUPS, "cgroup2", 0, NULL))
		return false;
	file = fopen(CGROUPS "/cgroup.controllers", "r");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
		has = has || !strcmp(word, controller);
	if (!has)
		return false;
	snprintf(change, sizeof(change), "+%s", controller);
	cgroup_write(CGROUPS "/cgroup.subtree_control", change);
	return true;
}

bool cgroup_run(bool (*run)(const void *argument), const void *argument)
{
	pid_t child;
	int status;

	if (mkdir(CGROUP, 0755) && errno != EEXIST)
		die(CGROUP ": %s", strerror(errno));
	child = fork_child();
	if (!child) {
		bool is;

		cgroup_write(CGROUP "/cgroup.procs", "0");
		is = run(argument);
		fflush(stdout);
		_exit(!is);
	}
	if (waitpid(child, &status, 0) != child)
		die("waitpid: %s", strerror(errno));
	if (rmdir(CGROUP))
		die(CGROUP ": %s", strerror(errno));
	return !status;
}
