#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# man_examples.sh ROOT BIN: runs the commands under EXAMPLES of the manual
# pages of the tool, those of the guide's last section and what the README
# plans, in a folder with the tool on the PATH and the models of the source.
set -eu
root=$(cd "$1" && pwd)
PATH=$(cd "$2" && pwd):$PATH
export PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ln -s "$root/models" models
n=0
failed=0

# run_commands NAME: the lines of the file commands. What is not possible here
# (77), e.g. without MPI, is no failure; what follows in the guide needs it.
run_commands() {
	while IFS= read -r line; do
		n=$((n + 1))
		sh -c "$line" >out 2>&1 </dev/null && continue
		status=$?
		if [ $status = 77 ]; then
			[ "$1" = guide.md ] && break
			continue
		fi
		failed=$((failed + 1))
		echo "$1: status $status: $line"
		cat out
	done <commands
}

for page in "$root"/docs/man/*.1.md; do
	sed -n '/^# EXAMPLES/,/^# [^E]/s/^    //p' "$page" >commands
	run_commands "${page##*/}"
done
sed -n '/^    echo .* >/,/^    ferry plan/s/^    //p' "$root/README.md" >commands
run_commands README.md
# Lines that go on behind a backslash are one.
sed -n '/^## 15/,$s/^    //p' "$root/docs/guide.md" |
	sed -e ':a' -e '/\\$/N; s/\\\n//; ta' >commands
run_commands guide.md
echo "$n commands, $failed failed"
[ $failed = 0 ] && [ $n -gt 0 ]
