#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# man_examples.sh ROOT BIN: runs the commands under EXAMPLES of the manual
# pages of the tool, each in a folder of its own with the tool on the PATH and
# the models of the source.
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
for page in "$root"/docs/man/*.1.md; do
	sed -n '/^# EXAMPLES/,/^# [^E]/s/^    //p' "$page" >commands
	while IFS= read -r line; do
		n=$((n + 1))
		sh -c "$line" >out 2>&1 </dev/null && continue
		status=$?
		# 77: not possible here, e.g. without MPI
		[ $status = 77 ] && continue
		failed=$((failed + 1))
		echo "${page##*/}: status $status: $line"
		cat out
	done <commands
done
echo "$n commands, $failed failed"
[ $failed = 0 ] && [ $n -gt 0 ]
