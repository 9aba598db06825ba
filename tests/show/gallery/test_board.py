"""Pictures in TensorBoard."""

from __future__ import annotations

import io
import shutil

from PIL import Image
from saved_runs import FALLS, save_policy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrainer import get_logger
from hooktrainer.log import read_scalars
from hooktrainer.show import View, make_exhibits, write_board


def exhibit(run):
    return make_exhibits(run, episodes=1, view=View(size=200, seconds=0.3), trust=True)


def images(run):
    """Step, tag and picture of each image, in the order written."""
    found = []
    for path in sorted((run.logs / "gallery").iterdir()):
        board = EventAccumulator(str(path)).Reload()
        for tag in board.Tags()["images"]:
            for event in board.Images(tag):
                picture = Image.open(io.BytesIO(event.encoded_image_string))
                assert picture.size == (event.width, event.height)
                found.append((event.step, tag, picture))
    return found


def test_each_film_is_an_animated_gif_at_its_frames(make_run):
    run = make_run()
    assert write_board(run.logs, exhibit(run)) == 2
    found = images(run)
    tag = "gallery/episode"
    assert [(step, name) for step, name, _ in found] == [(0, tag), (1000, tag)]
    assert all(picture.format == "GIF" and picture.n_frames > 1 for _, _, picture in found)
    board = EventAccumulator(str(run.logs / "gallery")).Reload()
    assert [image.step for image in board.Images(tag)] == [0, 1000]


def test_nothing_is_written_twice_and_what_is_no_longer_shown_is_removed(make_run):
    run = make_run()
    shown = exhibit(run)
    write_board(run.logs, shown)
    whole = images(run)
    next((run.logs / "gallery").iterdir()).write_bytes(b"")  # as a full disk leaves it
    assert write_board(run.logs, exhibit(run)) == 1
    assert write_board(run.logs, exhibit(run)) == 0
    assert images(run) == whole
    shutil.rmtree(shown[1].saved.path)  # a rollback
    save_policy(run, "CartPole-v1", 1000, FALLS)
    assert write_board(run.logs, exhibit(run)) == 1
    assert [step for step, _, _ in images(run)] == [0, 1000]
    assert write_board(run.logs, shown[:1]) == 0
    assert [step for step, _, _ in images(run)] == [0]


def test_the_files_of_the_trainer_are_left_alone(make_run):
    run = make_run()
    logger = get_logger("tensorboard", run, "toy")
    logger.log_scalar("eval/return", 5.0, 100)
    logger.flush()
    files = {path: path.read_bytes() for path in run.logs.iterdir()}
    write_board(run.logs, exhibit(run))
    assert {path: path.read_bytes() for path in files} == files
    logger.log_scalar("eval/return", 6.0, 200)
    logger.close()
    assert read_scalars(run.logs) == {"eval/return": [(100, 5.0), (200, 6.0)]}
