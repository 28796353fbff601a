#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# neon_cross.sh SOURCE_DIR WORK_DIR: compiles the kernels and their tests for
# AArch64 and runs them under qemu. Exit 77: no cross compiler or no qemu.
set -eu
source=$1
work=$2
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}

skip() {
	echo "skipped: $1"
	exit 77
}

if [ "$(uname -m)" = aarch64 ]; then
	skip "this machine is AArch64, the usual tests run NEON"
fi
command -v "$cc" >/dev/null || skip "no $cc (Debian: gcc-aarch64-linux-gnu)"
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
	skip "no qemu-aarch64 (Debian: qemu-user-static)"

compile() {
	"$cc" -std=c11 -O2 -D_GNU_SOURCE -ffp-contract=off \
		-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef -Wvla \
		-Wcast-qual -Werror \
		-I "$source/include" -I "$source/src" \
		-I "$source/tests/cpu/cross" "$@"
}

mkdir -p "$work"
cd "$work"
rm -f ./*.o
compile -c "$source"/src/cpu/kern*.c "$source/src/cpu/fp_mode.c" \
	"$source/tests/cpu/kern_cases.c"
for test in number kern_sum kern_quantize kern_copy fp_mode; do
	compile -static "$source/tests/cpu/test_$test.c" ./*.o -lm -o "test_$test"
	echo "$test:"
	"$qemu" "./test_$test"
done
