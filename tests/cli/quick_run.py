"""A training script without training: the score follows from its seed and options."""

import argparse
import os
import signal
import sys
from pathlib import Path

from hooktrainer import RunDir

parser = argparse.ArgumentParser()
parser.add_argument("--level", type=float)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--env", default="Toy-v0")
parser.add_argument("--run-dir", type=Path)
parser.add_argument("--resume")
parser.add_argument("--no-progress-bar", action="store_true")
args = parser.parse_args()

run = RunDir.create(
    args.run_dir, experiment="quick", seed=args.seed, resume=args.resume is not None
)
run.write_config({"env": args.env, "level": args.level, "seed": args.seed})
if os.environ.get("KILL_AT") == f"{args.level:g} {args.seed}" and args.resume is None:
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
if os.environ.get("FAIL_AT") == f"{args.level:g} {args.seed}":
    run.update(status="failed", reason="out of luck")
    sys.exit("out of luck")
noise = (args.seed * 7919 % 10) + args.seed / 1000
run.metrics.write_text(f"step,name,value\n100,eval/return,{args.level + noise}\n")
run.update(status="finished", frames=100, optim_steps=1, seconds=1.0)
