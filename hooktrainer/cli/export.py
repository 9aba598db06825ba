"""`hooktrainer export`: write a saved policy as a file that needs no hooktrainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..base.words import plural
from ..errors import ConfigError
from . import output
from .arguments import Count, Flag, SavedSpec, shown_as

NewFile = Annotated[Path | None, shown_as("FILE")]
Tolerance = Annotated[float, shown_as("X")]


def export(
    policy: SavedSpec,
    /,
    *,
    onnx: NewFile = None,
    program: NewFile = None,
    draw: Flag = False,
    observations: Count = 10_000,
    tolerance: Tolerance = 1e-4,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Write a saved policy as ONNX, or as a program of torch.export, that needs no hooktrainer.

    Normalization of observations, masks, bounds of actions and hidden states are inside. The
    contract next to it, such as policy.yaml, lists its inputs and outputs, its environment and its
    run. The export is compared with the policy on observations of its environment; if they differ,
    nothing is written.

    Example: hooktrainer export runs/a@best --onnx policy.onnx

    Args:
        policy: RUN (its latest policy), RUN@best, RUN@FRAMES, or the path of a saved policy
        onnx: write ONNX to this file, such as policy.onnx
        program: write a program of torch.export to this file, such as policy.pt2
        draw: sample actions from the policy's distribution instead of its mode
        observations: on how many observations it is compared; by default 10,000
        tolerance: largest difference of a number, absolute and relative; by default 0.0001
        trust: run the code that its environment needs, if that is not installed
        json: print JSON: the contract
    """
    from ..policies import export_policy

    if (onnx is None) is (program is None):
        raise ConfigError("give the file to write: --onnx policy.onnx, or --program policy.pt2.")
    file = onnx or program
    assert file is not None
    output.refuse_directory(file, "policy.onnx" if onnx else "policy.pt2")
    contract = export_policy(
        policy,
        file,
        kind="onnx" if onnx else "program",
        deterministic=not draw,
        observations=observations,
        tolerance=tolerance,
        trust=trust,
    )
    if json:
        output.print_json(contract)
        return 0
    columns = ("", "name", "shape", "type")
    rows = [("reads", one.name, one.shape, one.dtype) for one in contract.inputs]
    rows += [("acts", one.name, one.shape, one.dtype) for one in contract.outputs]
    rows += [("remembers", one.input, one.shape, one.dtype) for one in contract.hidden_states]
    output.print_table(columns, [(a, b, str(list(c)), d) for a, b, c, d in rows])
    agrees = "exactly as the policy"
    if draw:
        agrees = "distributed as the policy"
    elif contract.largest_difference:
        agrees = f"within {contract.largest_difference:.1g} of the policy"
    output.line(
        f"{file}: {output.size(contract.size)}, {agrees} on "
        f"{plural(contract.observations, 'observation')}; contract: {file.with_suffix('.yaml')}"
    )
    return 0
