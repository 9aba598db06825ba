"""Pretends to train: brings out checkpoints made beforehand, one every few milliseconds.

It starts in a fraction of the time of a script that imports torch, and is killed as easily.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=Path, help="a finished run")
parser.add_argument("--resumed-model", type=Path, help="what resumed runs become instead")
parser.add_argument("--pause", type=float, default=0.03)
parser.add_argument("--fail-at", type=int)
parser.add_argument("--fail-resumed", action="store_true")
parser.add_argument("--forget-rows", action="store_true")
parser.add_argument("--run-dir", type=Path)
parser.add_argument("--resume")
args = parser.parse_args()
if args.fail_resumed and args.resume:
    sys.exit("it cannot be resumed")

checkpoints = args.run_dir / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=True)
(args.run_dir / "run.json").write_text(json.dumps({"status": "running"}))
print("started", "fresh" if args.resume is None else f"from {args.resume}", flush=True)

done = len(list(checkpoints.glob("step_*")))
model = args.resumed_model if args.resumed_model and done else args.model
rows = ["step,name,value\n"]
rows += [f"{100 * step},loss/a,{1 / step}\n" for step in range(1, done + 1)]
if args.forget_rows and done:  # also where the kill came after the last checkpoint
    del rows[1:-1]
    (args.run_dir / "metrics.csv").write_text("".join(rows))
for number, source in enumerate(sorted((model / "checkpoints").glob("step_*"))[done:], done + 1):
    time.sleep(args.pause)
    if number == args.fail_at:
        print("a bar\rhalf a bar\rthe whole bar", "no room for it", sep="\n", file=sys.stderr)
        sys.exit(3)
    rows.append(f"{100 * number},loss/a,{1 / number}\n")
    rows.append(f"{100 * number},time/step,{time.time()}\n")
    if args.forget_rows and done:
        del rows[1:-2]
    (args.run_dir / "metrics.csv").write_text("".join(rows))
    shutil.copytree(source, checkpoints / f".tmp-{source.name}", dirs_exist_ok=True)
    (checkpoints / f".tmp-{source.name}").rename(checkpoints / source.name)
time.sleep(args.pause)
