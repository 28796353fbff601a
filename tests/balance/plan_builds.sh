#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan_builds.sh SOURCE_DIR WORK_DIR [SEED]: compiles planner, bounds, quotas and
# EPLB with every compiler that is here, without optimisation and with all, and
# compares what they plan. Exit 77: there is only one build to compare.
set -eu
source=$1
work=$2
seed=${3:-$(date +%s)}
plans=500
builds=0
first=

echo "seed $seed"
mkdir -p "$work"
cd "$work"
rm -f plans_*

# build NAME COMPILER FLAGS...
build() {
	name=$1
	shift
	"$@" -std=c11 -D_GNU_SOURCE -DFERRY_COMMIT='"test"' -ffp-contract=off \
		-w -I "$source/include" -I "$source/src" -I "$source/tests" \
		-I "$source/tests/balance" "$source"/src/core/*.c \
		"$source"/src/balance/*.c "$source/tests/balance/plan_case.c" \
		"$source/tests/balance/plan_digest.c" -lm -lpthread \
		-o "plans_$name"
}

# compare NAME RUNNER...: of the build NAME with the first one.
compare() {
	name=$1
	shift
	"$@" "./plans_$name" "$seed" "$plans" >"plans_$name.txt"
	[ "$(wc -l <"plans_$name.txt")" -eq $((plans / 100)) ]
	first=${first:-$name}
	builds=$((builds + 1))
	if ! cmp -s "plans_$first.txt" "plans_$name.txt"; then
		echo "$name plans otherwise than $first, in the 100 before:"
		diff "plans_$first.txt" "plans_$name.txt" | sed -n 2p
		exit 1
	fi
	echo "$name: $plans plans, $(tail -n 1 "plans_$name.txt")"
}

for cc in ${PLAN_COMPILERS:-gcc clang}; do
	if ! command -v "$cc" >/dev/null; then
		echo "skipped: no $cc"
		continue
	fi
	for level in -O0 -O3; do
		build "${cc##*/}$level" "$cc" "$level"
		compare "${cc##*/}$level" env
	done
done

# The planner's eight lanes without registers for them.
if command -v gcc >/dev/null; then
	build lanes gcc -O2 -U__SSE2__ -U__ARM_NEON
	compare lanes env
fi

cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if command -v "$cc" >/dev/null && [ -n "$qemu" ]; then
	build aarch64 "$cc" -O2 -static
	compare aarch64 "$qemu"
else
	echo "skipped: no $cc, or no qemu-aarch64"
fi

[ "$builds" -gt 1 ] || exit 77
