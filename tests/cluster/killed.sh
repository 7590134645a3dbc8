#!/usr/bin/env bash
# killed.sh MPIRUN PROGRAM: four processes, one of which is killed on the way, so often
# (POSTERN_FAULTS). The job ends within 5 s with the last site of each process in the log; started
# again it ends with the same bits as one that was left alone.
set -eu
mpirun=$1 program=$2 times=${POSTERN_FAULTS:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() { timeout 120 "$mpirun" -n 4 "$program" "$@"; }
fail() {
  echo "killed.sh: $*"
  cat "$folder/log" 2>/dev/null
  exit 1
}

steps=60 longest=0
mkdir "$folder/alone"
run "$folder/alone" $steps >"$folder/expected"
[ "$(wc -l <"$folder/expected")" = 64 ] || fail "the job that was left alone printed something else"
for ((i = 0; i < times; ++i)); do
  victim=$((i % 4)) fatal=$((7 + i * 13 % 50))
  rm -rf "$folder/job"
  mkdir "$folder/job"
  if run "$folder/job" $steps $victim $fatal >"$folder/out" 2>"$folder/log"; then
    fail "the job went on without process $victim"
  fi
  took=$(awk -v end="$EPOCHREALTIME" '{ printf "%.3f", end - $1 }' "$folder/job/killed")
  longest=$(awk -v a="$longest" -v b="$took" 'BEGIN { print (a > b ? a : b) }')
  awk -v t="$took" 'BEGIN { exit !(t < 5) }' || fail "the job took $took s to end"
  grep -q "process $victim has died; it was last at .*killed.cc:" "$folder/log" ||
    fail "no last site of process $victim"
  for other in 0 1 2 3; do
    [ $other = $victim ] ||
      grep -Eq "process $other (is told to end; it was last at|ends: call) .*killed.cc:" \
        "$folder/log" ||
      fail "no last site of process $other"
  done
  run "$folder/job" $steps >"$folder/out"
  cmp -s "$folder/out" "$folder/expected" || fail "started again, the job ends with other bits"
done
echo "$times jobs ended after a kill, the last one of them $longest s after it at most;" \
  "all went on to the same bits"
