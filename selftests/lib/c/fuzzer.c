// SPDX-License-Identifier: GPL-2.0
/* See fuzzer.h. */

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "coverage.h"
#include "endpoint.h"
#include "fuzzer.h"
#include "kselftest.h"

struct fuzzer fuzzer;

void fuzzer_begin(void)
{
	const char *seconds = getenv("FERROCE_SECONDS");

	fuzzer.seconds = seconds ? atoi(seconds) : 30;
	fuzzer.coverage = getenv("FERROCE_COVERAGE");
	if (fuzzer.coverage)
		coverage_want();
	ksft_print_msg("%u s\n", fuzzer.seconds);
}

void fuzzer_end(void)
{
	if (fuzzer.coverage)
		coverage_write(fuzzer.coverage);
}

bool fuzzer_goes_on(uint64_t end, bool enough)
{
	uint64_t now = now_ms();

	return now < end || (!enough && now < end + FUZZER_MORE_TIME_MS);
}

void *fuzzer_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	return memory;
}

pid_t fuzzer_fork(void)
{
	pid_t pid;

	pid = fork_child();
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

bool fuzzer_wait(pid_t pid, uint64_t last_ms)
{
	uint64_t end = now_ms() + fuzzer.seconds * 1000 + FUZZER_MORE_TIME_MS + last_ms;
	int status = 0;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (now_ms() > end) {
			ksft_print_msg("it does not come to its end\n");
			kill(pid, SIGKILL);
			return false;
		}
		usleep(100000);
	}
	if (status)
		ksft_print_msg("it ends with wait status %#x\n", status);
	return !status;
}
