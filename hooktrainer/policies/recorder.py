"""`PolicyRecorder`: saves snapshots of a policy and deletes old ones."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xxhash

from ..collect.agents.world import Grouping
from ..loop.cadence import Progress
from ..store import Retention, fs
from ..store.manifest import seal
from ..store.provenance import origin
from ..store.retention import best_of
from ..store.stored import TRASH, UNFINISHED, delete, free_path, surplus, sweep
from .describe_environment import describe
from .environment import Environment
from .policy_files import FACTS, POLICY, SCHEMA, SEAL, PolicyContent, encode, read_facts
from .saved import SavedPolicy, scan_policies
from .trace import Traced, current_weights, trace

_log = logging.getLogger(__name__)


class PolicyRecorder:
    """Saves a policy in the background, under ``<directory>/step_<frames>/``.

    It changes neither the policy nor training's random numbers. Policies of other runs in the
    directory are left alone. Arguments are those of `hooktrainer.PolicySnapshot` and of the
    collectors; what cannot be recorded is a `ConfigError`.
    """

    def __init__(
        self,
        directory: Path,
        policy: Any,
        env: Any,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        frame_skip: int = 1,
        categorical_actions: bool = True,
        groups: Grouping | None = None,
        run_id: str | None = None,
    ) -> None:
        self.directory = directory
        self.run_id = run_id
        self._policy = getattr(policy, "_orig_mod", policy)  # as it was before torch.compile
        self._described = describe(
            env, env_kwargs, categorical_actions=categorical_actions, groups=groups
        )
        self._frame_skip = frame_skip
        self._provenance = origin()
        self._traced: Traced | None = None
        self._pool = ThreadPoolExecutor(1, "policy")
        self._job: Future[None] | None = None
        fs.make_directories(directory)
        sweep(directory, UNFINISHED, TRASH)

    @property
    def environment(self) -> Environment:
        """How to make the environment again."""
        return self._described.environment

    def save(self, progress: Progress, keep: Retention | None = None) -> None:
        """Save the policy as it is now, then delete what is not kept.

        One of the same frames is replaced. A failure on the disk is logged; training continues.
        """
        self.wait()
        traced = self._trace()
        state = {name: value.contiguous().clone() for name, value in traced.state.items()}
        program = {**traced.program, "sampling": traced.sampling}
        content = PolicyContent(program, current_weights(self._policy, traced), state)
        facts = {
            "run_id": self.run_id,
            "frames": progress.frames,
            "optim_steps": progress.optim_steps,
            "seconds": round(progress.seconds, 3),
            "time": time.time(),
            "env": self._described.environment.encode(),
            "frame_skip": self._frame_skip,
            "recurrent": bool(state),
            "interface": dataclasses.asdict(self._described.interface(traced.reads)),
            "evaluation": None,
            **self._provenance,
        }

        def commit() -> None:
            former = [saved for saved in self._own() if saved.frames == progress.frames]
            write_policy(free_path(self.directory, progress.frames), facts, content)
            for saved in former:  # only now: one of the two is there at any moment
                delete(saved.path)
            if keep is not None:
                self.thin(keep)

        self._job = self._pool.submit(commit)

    def wait(self) -> None:
        """Wait for the save in progress."""
        error = None if self._job is None else self._job.exception()
        self._job = None  # not before: an interrupted wait forgets no write
        if error is not None:
            _log.warning("a policy could not be saved; training goes on: %s", error)

    def thin(self, keep: Retention) -> None:
        """Delete the policies that a retention policy does not keep; the latest and the best stay.

        If it keeps the best, policies that have not been evaluated stay as well.
        """
        best = best_of(keep)
        for saved in surplus(self._own(), keep, best):
            if best is None or best.metric in saved.metrics:
                delete(saved.path)

    def take_up(self, frames: int) -> int:
        """Resume a run at ``frames``, and return the frames of its newest policy, or -1.

        Policies of later frames are deleted: that part of the run is repeated.
        """
        policies = self._own()
        left = [saved for saved in policies if saved.frames <= frames]
        for saved in policies[len(left) :]:
            delete(saved.path)
        return left[-1].frames if left else -1

    def _own(self) -> list[SavedPolicy]:
        return [p for p in scan_policies(self.directory)[0] if p.run_id == self.run_id]

    def _trace(self) -> Traced:
        seen = self._described
        examples = (self._policy, seen.keys, seen.examples, seen.actions)
        self._traced = trace(*examples, former=self._traced)
        seen.check(self._traced.example)
        return self._traced


# -- Writing a saved policy: complete or absent, whatever happens meanwhile.


def write_policy(path: Path, facts: Mapping[str, Any], content: PolicyContent) -> None:
    """Write a saved policy atomically: ``path`` is complete and durable afterwards, or absent.

    ``facts`` is the content of ``policy.json`` without the schema and the file records.
    """
    data = encode(content)
    files = {POLICY: {"size": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)}}
    fs.make_directories(path.parent)
    with fs.new_directory(path) as work:
        fs.write_file(work / POLICY, data)
        fs.write_file(work / FACTS, seal(SEAL, {"schema": SCHEMA, **facts, "files": files}))


def change_facts(path: Path, **fields: Any) -> None:
    """Replace fields of ``policy.json`` atomically."""
    facts = {**read_facts(path), **fields}
    with fs.replace_file(path / FACTS) as file:
        file.write(seal(SEAL, facts))
