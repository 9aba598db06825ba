"""A policy in one file: whole, the same bytes again, and refused if anything in it was changed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sealed import FACTS, POLICY, seal

from hooktrainer import CheckpointError, ConfigError, load_policy
from hooktrainer.errors import DamagedCheckpointError
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import evaluate_policy, export_policy, find_policy, play_episodes
from hooktrainer.policies.packed import write_packed
from hooktrainer.policies.policy_files import SCHEMA
from hooktrainer.show import pack_policy

OBSERVATIONS = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")


def policy() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 2, (8,)))


@pytest.fixture
def path(copy: Callable[..., Path]) -> Path:
    return copy(policy, "CartPole-v1")


@pytest.fixture
def packed(path: Path, tmp_path: Path) -> Path:
    evaluate_policy(path, seed=5, episodes=3)
    return pack_policy(path, tmp_path / "a.hook")[1]


def records(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_packed_policy_is_the_saved_one(path, packed):
    ours, theirs = load_policy(packed), load_policy(path)
    assert (ours(OBSERVATIONS) == theirs(OBSERVATIONS)).all()
    assert dataclasses.replace(ours.saved, path=path) == theirs.saved
    played = play_episodes(ours, 5, 3)
    assert find_policy(packed).evaluation.returns == tuple(one.return_ for one in played)
    drawn = [load_policy(p, deterministic=False, seed=1)(OBSERVATIONS) for p in (packed, path)]
    assert (drawn[0] == drawn[1]).all()
    program = export_policy(packed, packed.with_suffix(".pt2"), kind="program", observations=20)
    assert program.policy["frames"] == 0


def test_the_same_run_gives_the_same_bytes_and_anybody_can_open_them(path, packed, tmp_path):
    again = pack_policy(path, tmp_path / "again" / "a.hook")[1]
    assert again.read_bytes() == packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
        archive.extractall(tmp_path / "unpacked")
    assert load_policy(tmp_path / "unpacked").evaluation == load_policy(path).evaluation


def test_what_is_no_packed_policy_is_said(path, packed, tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no run .*b\.hook"):
        load_policy(tmp_path / "b.hook")
    with pytest.raises(ConfigError, match=r"a\.zip: choose a name that ends in \.hook"):
        pack_policy(path, tmp_path / "a.zip")
    with pytest.raises(ConfigError, match=r"a\.hook is packed already"):
        pack_policy(packed, tmp_path / "b.hook")
    with pytest.raises(ConfigError, match=r"a\.hook is packed, and cannot record an evaluation"):
        evaluate_policy(packed)
    (path / POLICY).write_bytes(b"x")
    with pytest.raises(DamagedCheckpointError, match="does not match its hash"):
        pack_policy(path, tmp_path / "b.hook")
    assert not (tmp_path / "b.hook").exists()


def test_every_changed_byte_of_a_record_is_found(packed):
    whole = packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        places = [e.header_offset + 30 + len(e.filename) for e in archive.infolist()]
    for place in places:
        packed.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpointError, match=r"a\.hook is damaged: .* Bad CRC-32 "):
            load_policy(packed)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        packed.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpointError, match=r"a\.hook is damaged: "):
            load_policy(packed)


def test_a_load_compares_every_record_once(packed, monkeypatch):
    read, original = [], zipfile.ZipExtFile.read

    def noted(self, n=-1):
        data = original(self, n)
        read.append((self.name, len(data)))
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noted)
    load_policy(packed)
    card = len(records(packed)["README.md"])
    assert sum(size for name, size in read if name == "README.md") == 2 * card  # here, too


# -- Files made by somebody who knows the format.


def forge(file: Path, change: Callable[[list[tuple[zipfile.ZipInfo, bytes]]], None]) -> None:
    """Write the archive anew with other entries."""
    with zipfile.ZipFile(file) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    change(entries)
    with zipfile.ZipFile(file, "w") as archive:
        for entry, data in entries:
            archive.writestr(entry, data)


def manifest(files: dict[str, bytes], **more: object) -> bytes:
    told = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    return seal("hook", {"format": 1, "files": told, **more})


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.create_system, made.external_attr = 3, mode << 16
    return made


def other_card(entries):
    at = next(n for n, (e, _) in enumerate(entries) if e.filename == "README.md")
    entries[at] = entries[at][0], entries[at][1].replace(b"CartPole", b"Anything")


def other_weights(entries):
    files = {e.filename: data for e, data in entries if e.filename != "manifest.json"}
    files[POLICY] = files[POLICY][:-4] + bytes(4)
    entries[:] = [(entry(name), data) for name, data in files.items()]
    entries.append((entry("manifest.json"), manifest(files)))


def add(*new: tuple[zipfile.ZipInfo, bytes]):
    def change(entries):
        files = {e.filename: data for e, data in entries if e.filename != "manifest.json"}
        files |= {e.filename: data for e, data in new}
        entries[:] = [pair for pair in entries if pair[0].filename != "manifest.json"]
        entries += [*new, (entry("manifest.json"), manifest(files))]

    return change


def compressed(entries):
    for one, _ in entries:
        one.compress_type = zipfile.ZIP_DEFLATED


def without(name: str):
    def change(entries):
        files = {e.filename: data for e, data in entries if e.filename not in (name,)}
        entries[:] = [(entry(n), data) for n, data in files.items() if n != "manifest.json"]
        files.pop("manifest.json", None)
        entries.append((entry("manifest.json"), manifest(files)))

    return change


def other_format(entries):
    entries[:] = [(entry("manifest.json"), manifest({}, format=2))]


def unlisted(entries):
    entries.append((entry("setup.py"), b"import os"))


def no_manifest(entries):
    entries[:] = [pair for pair in entries if pair[0].filename != "manifest.json"]


def loose_manifest(entries):
    entries[:] = [(e, d.replace(b'"size": ', b'"size":  ')) for e, d in entries]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_card, "README.md does not match its hash in manifest.json"),
        (other_weights, f"{POLICY}: it does not match its hash"),
        (add((entry("../evil"), b"x")), "'../evil' does not lie in its directory"),
        (add((entry("/etc/evil"), b"x")), "'/etc/evil' does not lie in its directory"),
        (add((entry("a/b"), b"x")), "'a/b' is no plain file"),
        (add((entry("link", stat.S_IFLNK | 0o777), b"/etc/passwd")), "'link' is no plain file"),
        (add((entry("run", stat.S_IFREG | 0o755), b"x")), "'run' is no plain file"),
        (compressed, "it has compressed or encrypted records"),
        (without(FACTS), "it has no policy.json"),
        (without(POLICY), "it has no policy.safetensors"),
        (other_format, "it has format 2, and this version of hooktrainer reads 1"),
        (unlisted, "manifest.json and the archive disagree on 'setup.py'"),
        (no_manifest, "it has no manifest.json"),
        (loose_manifest, "manifest.json: it does not match its own hash"),
    ],
)
def test_a_forged_file_is_refused_with_what_is_wrong(change, reason, packed):
    forge(packed, change)
    with pytest.raises(DamagedCheckpointError, match=rf"a\.hook is damaged: {re.escape(reason)}"):
        load_policy(packed)


def test_two_records_of_one_name_are_refused(packed):
    with zipfile.ZipFile(packed, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(entry("README.md"), records(packed)["README.md"])
    with pytest.raises(DamagedCheckpointError, match="or two files of one name"):
        load_policy(packed)


def test_sizes_are_checked_before_memory_is_taken(packed):
    """A record of many bytes that the file does not have, in both headers."""
    whole, name = bytearray(packed.read_bytes()), POLICY.encode()
    for signature, at in ((b"PK\x03\x04", 18), (b"PK\x01\x02", 20)):
        start = 0
        while (start := whole.find(signature, start)) >= 0:
            skip = 30 if at == 18 else 46
            if whole[start + skip : start + skip + len(name)] == name:
                whole[start + at : start + at + 8] = (1 << 31).to_bytes(4, "little") * 2
            start += 4
    packed.write_bytes(bytes(whole))
    with pytest.raises(DamagedCheckpointError, match="its records overlap"):
        load_policy(packed)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.hook")
    with pytest.raises(CheckpointError):
        load_policy(tmp_path / "a.hook")


def test_facts_are_checked_as_those_of_a_directory(packed):
    files = {n: data for n, data in records(packed).items() if n != "manifest.json"}
    files[FACTS] = seal("policy", {"schema": SCHEMA})
    write_packed(packed, files)
    with pytest.raises(DamagedCheckpointError, match=r"a\.hook is damaged: policy\.json"):
        load_policy(packed)
