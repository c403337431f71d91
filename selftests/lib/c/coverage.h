/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which code of the module the calling threads reach by system calls: kcov, in a module
 * that is built with KCOV_INSTRUMENT=y. Not what interrupts do in their time.
 */
#ifndef COVERAGE_H
#define COVERAGE_H

/* To be called first, before the children whose places are to count are forked. */
void coverage_want(void);
/* The calling thread is watched from now on. Does nothing without coverage_want(). */
void coverage_start(void);
/* Takes over what was noted; to be called often, as kcov's memory is small. */
void coverage_collect(void);
/* Adds all addresses to a file, one in a line. */
void coverage_write(const char *path);

#endif
