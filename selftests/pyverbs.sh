#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma-core's own suite for its Python binding, on the one device of
# `scripts/vm --net loop`.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib/ktap.sh
. "$here/lib/ktap.sh"

case ${FERROCE_DRIVER:-ferroce} in
ferroce) device=${FERROCE_DEV0:-fer0} ;;
*) device=${FERROCE_DEV0:-${FERROCE_DRIVER}0} ;;
esac
suite=${FERROCE_PYVERBS:-/usr/local/share/pyverbs}
run=(python3 "$here/lib/pyverbs_suite.py" --rows "${FERROCE_ROWS:-.}" "$suite" "$device")

rows=$("${run[@]:0:2}" --count "${run[@]:2}")
ktap_start "${rows:-1}"
absorb "${rows:-1}" "${run[@]}"
ktap_finish
