"""`Evaluator`: the process of lowest priority that plays the policies of a run in training."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ..base.child_program import PACKAGE_ROOT, ChildProgram
from ..base.words import plural, printable, shell_word
from .environment import Environment
from .saved import best_policy, list_policies

_GRACE = 3.0  # seconds that the process has to end by itself


class Evaluator:
    """Starts ``python -m hooktrainer.policies.evaluate_run RUN`` when there is something to play.

    The process plays all policies that were not played yet and ends. It is started again when there
    is another one. It ends at once when this process ends.

    Args:
        run: The run's directory.
        seed: Seed of the episodes.
        episodes: How many.
        environment: The run's own, which is trusted; another one is made only if it needs no code.
    """

    def __init__(
        self, run: Path, seed: int, episodes: int, environment: Environment | None = None
    ) -> None:
        self._run = run
        self._options = ["--seed", str(seed), "--episodes", str(episodes)]
        self._hint = ""
        if environment is not None:
            self._options += ["--own", json.dumps(environment.encode())]
            self._hint = " --trust" if environment.code else ""
        self._program: ChildProgram | None = None

    def look(self) -> None:
        """Start a process, unless one is at work."""
        if self._program is not None and self._program.code is None:
            return
        self._close()
        self._log().unlink(missing_ok=True)  # of another process, or a link
        with self._log().open("xb") as log:
            self._program = ChildProgram(
                "hooktrainer.policies.evaluate_run",
                str(self._run),
                *self._options,
                "--with-parent",
                environ=_environment(),
                nice=19,
                stderr=log,
            )

    def finish(self, *, wait: bool, report: bool) -> None:
        """Play what is left and wait for it; or end the process at once.

        Ctrl-C leaves the rest unplayed.

        Args:
            wait: Whether to wait.
            report: Whether to print what is done.
        """
        try:
            if wait:
                self._play_the_rest(report)
        except KeyboardInterrupt:
            command = f"hooktrainer policies evaluate {shell_word(self._run)}{self._hint}"
            print(f"left; {command} plays the rest.")
        finally:
            self._close()

    def _play_the_rest(self, report: bool) -> None:
        left = self._unplayed()
        if left and report:
            what = plural(left, "policy", "policies")
            print(f"playing {what} of {printable(self._run)}; Ctrl-C leaves the rest", flush=True)
        while left:
            self.look()
            assert self._program is not None
            failed = self._program.wait() != 0
            before, left = left, self._unplayed()
            if failed and left >= before:
                break
        if report:
            self._report(left)

    def _report(self, left: int) -> None:
        policies = list_policies(self._run)
        best = best_policy(policies)
        count = plural(len(policies), "policy", "policies")
        said = f"{count} in {printable(self._run / 'policies')}"
        if best is not None:
            said += f" · best: return {best.mean:.1f} at {best.frames:,} frames"
        print(f"{said} · look: hooktrainer gallery {shell_word(self._run)}{self._hint}")
        if left:
            lines = self._log().read_text(errors="replace").strip().splitlines()
            what = plural(left, "policy", "policies")
            print(f"{what} could not be played: {printable(lines[-1] if lines else 'unknown')}")

    def _unplayed(self) -> int:
        return sum(saved.evaluation is None for saved in list_policies(self._run))

    def _log(self) -> Path:
        return self._run / "policies" / ".evaluate.log"

    def _close(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close(_GRACE)


def _environment() -> dict[str, str]:
    """The variables of the process: one thread, no GPU, and the same modules as here."""
    paths = [path or os.getcwd() for path in sys.path]
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, str(PACKAGE_ROOT)])),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
