// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the tracepoints of include/trace/events/ferroce.h, and the functions by which Rust calls them.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include <trace/events/ferroce.h>
