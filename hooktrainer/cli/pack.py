"""`hooktrainer pack`: one file of a policy to hand on, which may be pushed to a hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from ..base.lazy import import_optional
from ..base.untrusted import MAX_STRUCTURE, one_line
from ..base.words import shell_word
from ..errors import ConfigError
from ..log.mlflow import public
from ..policies.packed import CARD, read_packed
from . import output
from .arguments import OptionalOutFile, SavedSpec, shown_as

License = Annotated[str | None, shown_as("NAME")]
Hub = Annotated[str | None, shown_as("hf://USER/NAME|mlflow://NAME")]


def pack(
    policy: SavedSpec, /, *, file: OptionalOutFile = None, license: License = None, push: Hub = None
) -> int:
    """Write a policy, its configuration, metrics, gallery and a card as one file to hand on.

    The file is a zip archive that play, render, export and load_policy take as a saved policy.
    Nothing in it is executed. It names no path, host or user of this machine but those in the
    options of the run, and that of a script that makes its environment. The same run gives the same
    bytes.

    Example: hooktrainer pack runs/a -o cartpole.hook

    Args:
        policy: RUN (its best policy), RUN@FRAMES, or the path of a saved policy
        file: write to this file; by default the run's name and .hook
        license: license of the policy, such as mit, for the card
        push: also upload file and card to a Hugging Face repository, created private, or register
            the file in MLflow's model registry
    """
    from ..show import pack_policy

    scheme, _, name = (push or "").partition("://")
    if push is not None and not (scheme in _HUBS and _HUBS[scheme][0].fullmatch(name)):
        raise ConfigError(f"--push {push}: give hf://USER/NAME or mlflow://NAME.")
    if file is not None:
        output.refuse_directory(file, "policy.hook")
    upload = _HUBS[scheme][1](name) if push is not None else None
    saved, path = pack_policy(policy, file, license=license)
    size = output.size(path.stat().st_size)
    what = f"{saved.environment.name}, policy at {saved.frames:,} frames"
    play = f"hooktrainer play {shell_word(path)}{saved.environment.option}"
    output.line(f"{path}: {size}, {what}; {play} plays it")
    if upload is not None:
        try:
            output.line(f"pushed to {upload(path)}")
        except Exception as error:  # whatever a hub's client raises
            raise ConfigError(f"{path} is not pushed to {push}: {one_line(error)}") from error
    return 0


# -- Hubs: each checks that its package is there, and returns a function that uploads a file.


def _hugging_face(name: str) -> Callable[[Path], str]:
    hub = import_optional("huggingface_hub", "--push hf://", "huggingface_hub")

    def upload(file: Path) -> str:
        api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        files = {CARD: read_packed(file, CARD, MAX_STRUCTURE), file.name: file}
        api.create_repo(name, private=True, exist_ok=True)
        added = [hub.CommitOperationAdd(place, content) for place, content in files.items()]
        api.create_commit(name, added, commit_message=f"Add {file.name}")
        return f"{api.endpoint}/{name}"

    return upload


def _mlflow(name: str) -> Callable[[Path], str]:
    mlflow = import_optional("mlflow", "--push mlflow://", "hooktrainer[mlflow]")

    def upload(file: Path) -> str:
        client = mlflow.MlflowClient()
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        experiment = client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else client.create_experiment(name)
        run = client.create_run(place, run_name=file.stem).info
        client.log_artifact(run.run_id, str(file), "policy")
        client.set_terminated(run.run_id)
        version = client.create_model_version(name, f"{run.artifact_uri}/policy", run.run_id)
        return f"models:/{name}/{version.version} in {public(mlflow.get_tracking_uri())}"

    return upload


_HUBS: Final = {
    "hf": (re.compile(r"[\w.-]+/[\w.-]+", re.ASCII), _hugging_face),
    "mlflow": (re.compile(r"[\w.-]+", re.ASCII), _mlflow),
}
"""The names that a hub takes, and what pushes to it."""
