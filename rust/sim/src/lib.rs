// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Two RoCEv2 endpoints on a virtual wire with a virtual clock.
