#!/usr/bin/env bash
# timelines.sh MPIRUN PROGRAM COMMAND: the timelines of two processes become one, in which one
# waits.
set -eu
mpirun=$1 program=$2 command=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
POSTERN_TIMELINE=timeline.json timeout 120 "$mpirun" -n 2 "$program" "$folder" 20 >out
"$command" merge-timelines all.json timeline.0.json timeline.1.json >waits
grep -q "^process [01] waited [0-9.]* ms for process [01], in [0-9]* collectives$" waits
python3 - <<'PYTHON'
import json

events = json.load(open("all.json"))["traceEvents"]
meets = [e for e in events if e.get("cat") == "meet" and e["name"] == "psum"]
sums = {p: [e for e in meets if e["pid"] == p] for p in (0, 1)}
assert len(sums[0]) == len(sums[1]) == 20, (len(sums[0]), len(sums[1]))
# Nobody leaves before the other one has come, on the common clock.
for a, b in zip(*(sorted(sums[p], key=lambda e: e["ts"]) for p in (0, 1))):
    assert a["args"]["number"] == b["args"]["number"]
    assert max(a["ts"], b["ts"]) <= min(a["ts"] + a["dur"], b["ts"] + b["dur"]) + 1
waits = [e for e in events if e["name"].startswith("waits for process")]
arrows = [e for e in events if e["name"] == "comes last"]
assert waits and len(arrows) == 2 * len(waits)
names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
assert names == {"process 0", "process 1"}
PYTHON
if "$command" merge-timelines all.json timeline.0.json timeline.0.json 2>error; then exit 1; fi
grep -q "is of process 0, and so is" error
head -c 300 timeline.0.json >cut.json
if "$command" merge-timelines all.json cut.json 2>error; then exit 1; fi
grep -q "cut.json: is" error
if "$command" merge-timelines all.json "$program" 2>error; then exit 1; fi
grep -q "is no timeline" error
