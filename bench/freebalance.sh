#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# bench/freebalance.sh [RESULT.json [OPTION...]]: the evaluation of FreeBalance's paper on
# the shipped model and texts, by ferry prefill. Builds what is missing, measures (20
# minutes on 2 cores), writes RESULT.json (build/freebalance.json), and from it the tables
# of docs/freebalance.md and its pictures. Options are those of freebalance.py; with
# --quick, which only tries it, the page stays as it is.
set -eu
cd "$(dirname "$0")/.."
result=build/freebalance.json
case ${1:---} in -*) ;; *)
	result=$1
	shift
	;;
esac

scripts/setup build bench
scripts/build release "$(nproc)"
mkdir -p "$(dirname "$result")"
bench/freebalance.py build/release/tools/ferry models/ferry-tiny-moe \
	models/texts "$result" "$@"
case " $* " in *" --quick "*) exit ;; esac
bench/freebalance_page.py "$result" docs/freebalance.md "$(dirname "$result")"
echo "# $result, docs/freebalance.md, freebalance-*.svg beside the result" >&2
