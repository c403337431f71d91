# SPDX-License-Identifier: GPL-2.0
#
# `make help` says what there is. With headers that carry the kernel's Rust artifacts, plain `make` needs
# nothing else of this tree; the other targets use the Debian root that scripts/setup makes.

KDIR ?= /lib/modules/$(shell uname -r)/build
BUILD ?= build
# The kernel's Makefile does not read the environment, in which these may be.
compilers = $(if $(RUSTC),RUSTC=$(RUSTC)) $(if $(BINDGEN),BINDGEN=$(BINDGEN))
kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(CURDIR)/$(BUILD) $(compilers)

modules:
	@scripts/preflight $(KDIR)
	@mkdir -p $(BUILD)
	+$(kbuild) modules

# Of the selftests; their scripts build it.
selftests-modules:
	@mkdir -p $(BUILD)/selftests-kernel
	+$(MAKE) -C $(KDIR) M=$(CURDIR)/selftests/kernel MO=$(CURDIR)/$(BUILD)/selftests-kernel modules

modules_install:
	@test -f $(BUILD)/ferroce.ko || { echo 'ferroce: no $(BUILD)/ferroce.ko: run make first' >&2; exit 1; }
	+$(kbuild) modules_install

clean:
	rm -rf build

# Each takes the time of the first setup once, and little after that.
setup:
	@scripts/setup

module:
	@scripts/module

# A provider of our own for rdma-core, for the release in the Debian root; make provider SUITE=bookworm|forky, for that
# suite's.
provider: other = $(filter-out trixie,$(SUITE))
provider:
	@scripts/setup --only $(if $(other),root-$(other),root)
	@scripts/in-root $(MAKE) --no-print-directory -C provider $(if $(other),OUTPUT=../build/provider-$(other) \
		SYSROOT=$$(scripts/setup --print root-$(other)),OUTPUT=../build/provider)

debug-kernel:
	@scripts/setup --only vm-debug

demo:
	@scripts/setup
	@scripts/demo

# make test [KERNEL=rt|7.3|forky|arm64|arm64-16k]; SUITE=forky is that Debian suite as a whole, its kernel too.
KERNEL ?= $(SUITE)
test:
	@scripts/test $(if $(KERNEL),--kernel $(KERNEL))

# make matrix [TESTS='NAME...'] [ROWS=REGEX]
matrix:
	@scripts/matrix $(if $(ROWS),--rows '$(ROWS)') $(TESTS)

test-suites:
	@scripts/test-suites

# make test-debug [TESTS='NAME...']
test-debug:
	@scripts/test --kernel debug $(TESTS)

test-the-tests:
	@scripts/test-the-tests

# make mutants [NAMES='NAME...']
mutants:
	@scripts/mutants $(NAMES)

deb:
	@scripts/deb

# make test-packages [KERNEL=cloud]
test-packages:
	@scripts/test-packages $(if $(KERNEL),--kernel $(KERNEL))

docs:
	@scripts/docs

SECONDS ?= 600
fuzz:
	@scripts/fuzz $(SECONDS) $(SEED)

# make soak [MINUTES=60] [KERNEL=stock] [SEED=N]
MINUTES ?= 60
soak:
	@scripts/soak $(MINUTES) $(or $(KERNEL),debug) $(SEED)

fuzz-roce:
	@scripts/fuzz-roce $(SECONDS)

# make bench [QUICK=1] [CASES=REGEX]
bench:
	@scripts/bench $(if $(QUICK),--quick) $(if $(CASES),--cases '$(CASES)')

bench-cost:
	@scripts/bench-cost

check:
	@scripts/check

fmt:
	@scripts/setup --only root
	@scripts/in-root sh -c 'find rust -name "*.rs" ! -name "*generated*" -exec rustfmt --edition 2021 {} +'

help:
	@echo 'For the kernel in KDIR (default: the running one), whose headers carry Rust artifacts:'
	@echo '  make [KDIR=...]                  build/ferroce.ko'
	@echo '  make [KDIR=...] modules_install  install it'
	@echo 'For the stock Debian kernel that scripts/setup fetches, as root:'
	@echo '  make demo    run rping and perftest over ferroce in a VM, and show a table'
	@echo '  make test    host tests, then the selftests in a VM'
	@echo '  make test KERNEL=7.3  the same on the next kernel in the backports; also rt, arm64, arm64-16k'
	@echo '  make test SUITE=forky the same in Debian testing: its kernel, compilers and userspace'
	@echo '  make matrix [TESTS="NAME..."] [ROWS=REGEX]  on each kernel: builds, loads, selftests; then with 4 and 8 CPUs; a table'
	@echo '  make test-suites  selftests with the userspace of Debian 12 and of testing: rdma-core 44 and 65'
	@echo '  make check   formatting, lints, panic and stack gates, documentation'
	@echo '  make deb     Debian packages in build/deb: the module for DKMS, and a command with a service'
	@echo '  make test-packages [KERNEL=cloud]  install them in a fresh Debian, boot it, and test all of them'
	@echo '  make docs    the site of the documentation in build/docs/html; every link in it leads somewhere'
	@echo '  make module  only build/ferroce.ko'
	@echo '  make provider  build/provider/libferroce-rdmavNN.so, for programs that want XRC; scripts/vm --provider ferroce'
	@echo '  make setup   only what all of these need, in the cache (FERROCE_CACHE)'
	@echo '  make debug-kernel  a kernel with KASAN, lockdep, kmemleak and more, for scripts/vm --kernel debug'
	@echo '  make test-debug [TESTS="NAME..."]  the selftests, and longer ones, or only those, with the debug kernel'
	@echo '  make test-the-tests  defects built into the module, each of which the debug kernel must report'
	@echo '  make mutants [NAMES="NAME..."]  one functional defect after the other, each of which a selftest must notice'
	@echo '  make fuzz [SECONDS=600] [SEED=N]  nonsense in rings and packets, with the debug kernel, and coverage'
	@echo '  make soak [MINUTES=60] [KERNEL=stock]  all traffic for so long, with the debug kernel; memory stays flat'
	@echo '  make fuzz-roce [SECONDS=600]  fuzz the protocol, each target for so long'
	@echo '  make bench [QUICK=1] [CASES=REGEX]  speed beside that of rdma_rxe and of the machine'
	@echo '  make bench-cost      instructions of a message; fails if they are 2 % more than the budget'
	@echo '  make fmt     format the Rust source'
	@echo '  make clean   remove build/'

.PHONY: modules selftests-modules modules_install clean setup module provider debug-kernel demo test matrix test-suites test-debug test-the-tests mutants deb test-packages docs fuzz soak fuzz-roce bench bench-cost check fmt help
