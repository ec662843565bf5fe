"""Resolving public data: order of sources, checksums, damage, locks; no test uses the network."""

import dataclasses
import gzip
import hashlib
import os
import pickle
import subprocess
import sys
import threading
import urllib.error

import numpy as np
import pytest
from filelock import FileLock

from data_gen.core import idx, sources
from data_gen.core.dataset import DatasetUnavailable
from data_gen.core.idx import Collection, from_idx, resolve, to_idx

RAW = {"alpha": b"first content", "beta": b"second content" * 100}
TOY = Collection(
    name="toy_set",
    files={name: hashlib.sha256(raw).hexdigest() for name, raw in RAW.items()},
    licence="none",
    home="https://example.invalid/toy",
    debian="dataset-toy-set",
)


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """Every source empty and the network closed, until a test fills one."""
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("IMPLICIT_DATA", raising=False)
    monkeypatch.delenv("IMPLICIT_OFFLINE", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(idx.shutil, "which", lambda program: None)

    def closed(address, timeout):
        raise urllib.error.URLError("closed")

    monkeypatch.setattr(sources.urllib.request, "urlopen", closed)
    return tmp_path


def fill(folder, raw=RAW, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in raw.items():
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
    return folder


def serve(monkeypatch, raw, calls):
    import io

    def answer(address, timeout):
        calls.append(address)
        return io.BytesIO(gzip.compress(raw[address.rsplit("/", 1)[1].removesuffix(".gz")]))

    monkeypatch.setattr(sources.urllib.request, "urlopen", answer)


def test_sources_are_asked_in_order(isolated, monkeypatch):
    monkeypatch.setenv("IMPLICIT_DATA", str(isolated / "named"))
    calls = []
    serve(monkeypatch, RAW, calls)
    places = [
        ("IMPLICIT_DATA", isolated / "named" / "toy-set"),
        ("cache", isolated / "cache" / "datasets" / "toy-set"),
        ("Debian package", isolated / "debian" / "toy-set"),
    ]
    for _, folder in places:
        fill(folder)
    for label, folder in places:
        found = resolve(TOY)
        assert found.source.startswith(label) and found.content == RAW
        for path in folder.iterdir():
            path.unlink()
    assert calls == []
    assert resolve(TOY).source == "official home (https://example.invalid/toy)"
    assert calls == [f"{TOY.home}/alpha.gz", f"{TOY.home}/beta.gz"]
    assert resolve(TOY).source.startswith("cache") and len(calls) == 2


def test_uncompressed_files_and_other_compression_are_the_same_content(isolated, monkeypatch):
    monkeypatch.setenv("IMPLICIT_DATA", str(isolated))
    fill(isolated / "toy-set", suffix="")
    assert resolve(TOY).content == RAW


@pytest.mark.parametrize("damage", ["truncated", "altered", "not gzip", "empty"])
def test_a_damaged_cached_file_is_reported_and_fetched_again(isolated, monkeypatch, damage):
    folder = fill(isolated / "cache" / "datasets" / "toy-set")
    path = folder / "beta.gz"
    good = path.read_bytes()
    path.write_bytes(
        {
            "truncated": good[:-9],
            "altered": gzip.compress(RAW["beta"][:-1] + b"T"),
            "not gzip": b"<html>captive portal</html>",
            "empty": b"",
        }[damage]
    )
    calls = []
    serve(monkeypatch, RAW, calls)
    with pytest.warns(UserWarning, match=r"beta\.gz is damaged or foreign"):
        found = resolve(TOY)
    assert found.content == RAW and found.source.startswith("official home") and calls
    assert gzip.decompress(path.read_bytes()) == RAW["beta"]
    assert resolve(TOY).source.startswith("cache")


def test_the_layouts_of_torchvision_and_keras_are_found(isolated, monkeypatch):
    monkeypatch.setenv("IMPLICIT_DATA", str(isolated / "named"))
    toy = dataclasses.replace(TOY, torchvision="ToySet")
    raw = fill(isolated / "named" / "ToySet" / "raw")
    assert resolve(toy).source == f"torchvision's layout ({raw})" and resolve(toy).content == RAW
    for path in raw.iterdir():  # torchvision unpacks, and keeps the packed files beside them
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert resolve(toy).content == RAW
    for path in raw.iterdir():
        path.unlink()
    keras = fill(isolated / "keras" / "datasets" / "toy-set")
    assert resolve(toy).source == f"Keras ({keras})"
    with pytest.raises(DatasetUnavailable, match="toy-set/ or ToySet/raw/, as torchvision keeps them, of a folder"):
        (keras / "alpha.gz").unlink()
        resolve(toy)


def test_keras_keeps_arrays_in_one_npz(isolated):
    arrays = {"x": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    files = {"x-idx": hashlib.sha256(to_idx(arrays["x"])).hexdigest()}
    folder = isolated / "keras" / "datasets"
    folder.mkdir(parents=True)
    np.savez(folder / "toy_set.npz", **arrays)
    found = resolve(Collection("toy_set", files, "none", TOY.home, arrays={"x-idx": "x"}))
    assert found.source == f"Keras ({folder})" and found.content["x-idx"] == to_idx(arrays["x"])


@pytest.mark.parametrize("failure", ["forbidden", "cut short"])
def test_a_refusal_or_a_download_cut_short_names_the_address_and_what_to_do(isolated, monkeypatch, failure):
    import io

    def answer(address, timeout):
        if failure == "forbidden":
            raise urllib.error.HTTPError(address, 403, "Forbidden", {}, None)
        body = io.BytesIO(gzip.compress(b"x" * 50)[:20])
        body.headers = {"Content-Length": "200"}
        return body

    monkeypatch.setattr(sources.urllib.request, "urlopen", answer)
    with pytest.raises(DatasetUnavailable) as caught:
        resolve(TOY)
    said = "HTTP Error 403: Forbidden" if failure == "forbidden" else "20 of 200 bytes came"
    assert f"https://example.invalid/toy/alpha.gz: {said}" in str(caught.value)
    assert "put alpha.gz, beta.gz (from https://example.invalid/toy) into toy-set/ of a folder" in str(caught.value)


def test_a_wrong_download_is_refused_and_leaves_no_file(isolated, monkeypatch):
    serve(monkeypatch, {**RAW, "beta": b"something else"}, [])
    with pytest.raises(DatasetUnavailable, match="beta.gz: its checksum is wrong"):
        resolve(TOY)
    assert not (isolated / "cache" / "datasets" / "toy-set").exists()
    assert [path.name for path in (isolated / "cache" / "datasets").iterdir()] == ["toy-set.lock"]


def test_unavailable_lists_every_attempt_and_the_remedy(isolated):
    with pytest.raises(DatasetUnavailable) as caught:
        resolve(TOY)
    labels = [source.split(" (")[0] for source, _ in caught.value.attempts]
    assert labels == ["IMPLICIT_DATA", "cache", "Debian package", "apt", "official home"]
    text = str(caught.value)
    for part in ("not set", "apt-get is not installed", "closed", "alpha.gz, beta.gz", "toy-set/", "dataset-toy-set"):
        assert part in text
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == text and copy.attempts == caught.value.attempts


def test_offline_forbids_the_network(isolated, monkeypatch):
    calls = []
    serve(monkeypatch, RAW, calls)
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    with pytest.raises(DatasetUnavailable, match="forbidden by IMPLICIT_OFFLINE"):
        resolve(TOY)
    monkeypatch.setenv("IMPLICIT_OFFLINE", "0")
    assert resolve(TOY).content == RAW and calls


def test_debian_package_is_downloaded_and_unpacked_without_root(isolated, monkeypatch):
    commands = []

    def run(command, cwd, **options):
        commands.append(command)
        if command[0] == "apt-get":
            (cwd / "dataset-toy-set_1_all.deb").write_bytes(b"package")
        else:
            where = idx.Path(command[3])
            fill(where / idx.DEBIAN_FOLDER.relative_to("/") / "toy-set")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(idx.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(idx.subprocess, "run", run)
    assert resolve(TOY).source == "apt (dataset-toy-set)"
    assert [command[0] for command in commands] == ["apt-get", "dpkg"]
    assert commands[0] == ("apt-get", "download", "dataset-toy-set")
    assert resolve(TOY).source.startswith("cache")


def test_a_failing_apt_is_an_attempt_and_the_official_home_is_asked_next(isolated, monkeypatch):
    failed = subprocess.CompletedProcess([], 100, "", "Reading...\nE: Unable to locate package dataset-toy-set\n")
    monkeypatch.setattr(idx.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(idx.subprocess, "run", lambda command, **options: failed)
    with pytest.raises(DatasetUnavailable, match="Unable to locate package"):
        resolve(TOY)
    serve(monkeypatch, RAW, [])
    assert resolve(TOY).source.startswith("official home")


def test_an_unwritable_cache_is_an_attempt(isolated, monkeypatch):
    (isolated / "file").write_text("not a folder")
    monkeypatch.setenv("IMPLICIT_CACHE", str(isolated / "file"))
    with pytest.raises(DatasetUnavailable, match="cannot be written"):
        resolve(TOY)


def test_concurrent_readers_fetch_once(isolated, monkeypatch):
    calls, results = [], []
    serve(monkeypatch, RAW, calls)
    readers = [threading.Thread(target=lambda: results.append(resolve(TOY))) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(calls) == 2 and all(found.content == RAW for found in results) and len(results) == 4


def test_the_lock_excludes_another_process(tmp_path):
    log = tmp_path / "log"
    program = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]):\n"
        "    open(sys.argv[2], 'a').write('child\\n')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock"), str(log)]
    with FileLock(tmp_path / "lock"):
        child = subprocess.Popen(command, env=dict(os.environ))
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        log.write_text("parent\n")
    assert child.wait(30) == 0
    assert log.read_text().split() == ["parent", "child"]


def test_npz_is_checked_as_the_files_it_stands_for(isolated, monkeypatch):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    raw = to_idx(images)
    # The header written out by hand: magic 0x00000803, then 2, 3, 4 as big-endian integers.
    assert raw == bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + bytes(range(24))
    checksums = {"img": hashlib.sha256(raw).hexdigest()}
    boxed = Collection("boxed", checksums, "none", "https://x.invalid", None, {"img": "x"})
    monkeypatch.setenv("IMPLICIT_DATA", str(isolated))
    np.savez(isolated / "boxed.npz", x=images)
    assert np.array_equal(from_idx(resolve(boxed).content["img"]), images)
    np.savez(isolated / "boxed.npz", x=images + np.uint8(1))
    with pytest.warns(UserWarning, match="boxed.npz"), pytest.raises(DatasetUnavailable, match="npz: its checksum"):
        resolve(boxed)
    np.savez(isolated / "boxed.npz", other=images)
    with pytest.warns(UserWarning, match="boxed.npz"), pytest.raises(DatasetUnavailable, match="KeyError"):
        resolve(boxed)


def test_idx_header_must_match_its_content():
    raw = to_idx(np.zeros((2, 3), np.uint8))
    with pytest.raises(ValueError, match=r"announces shape \(2, 3\), but 5 bytes"):
        from_idx(raw[:-1])
    with pytest.raises(ValueError, match="not an IDX file"):
        from_idx(b"\x00\x00\x0d\x01" + bytes(8))
    with pytest.raises(ValueError, match="uint8, got float64"):
        to_idx(np.zeros(3))
