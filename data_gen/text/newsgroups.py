"""The posts of 20 Newsgroups: where they are looked for, and how they are read and checked.

Two forms circulate: the archive of Lang and Rennie's "by date" version, and the zipped pickle in
which scikit-learn caches it. Sources are asked in this order:

1. the folder named by IMPLICIT_DATA, for either file;
2. the cache (IMPLICIT_CACHE, or ~/.cache/implicit-models), for either file;
3. scikit-learn's own cache (SCIKIT_LEARN_DATA, or ~/scikit_learn_data);
4. the archive's home, by https, into the cache; IMPLICIT_OFFLINE=1 forbids it.

The files of 1, 2 and 4 are opened only when their SHA-256 is one that is known. Scikit-learn writes
the reader's own paths into its pickle, so the bytes of 3 differ between machines: it is read by an
unpickler that builds text and arrays and nothing else. Whatever the source, the posts themselves
must have the checksum `POSTS_SHA256`.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_gen.core.sources import Fetch, Place, cache_dir, data_dir, download, find, reader
from implicit_models.summaries import summary

ARCHIVE, PICKLE = "20news-bydate.tar.gz", "20news-bydate_py3.pkz"
FILES = {
    ARCHIVE: "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    PICKLE: "4eecbfa5a0cd0bb6beb5a16691efcbad72b25a19b04f4905da6ddaf67c83cc9e",
}
POSTS_SHA256 = "c4d09f0bcfef6b70049f09a741a34dd38b4a546607e045ce9cd3c669a9c66511"
# The copy that scikit-learn fetches; the page of the data is http://qwone.com/~jason/20Newsgroups/.
HOME = "https://ndownloader.figshare.com/files/5975967"
LICENCE = "none stated (public posts of 1993)"
SPLITS = ("train", "test")
# What a damaged or foreign file raises beside what any file does.
UNREADABLE = (pickle.UnpicklingError, tarfile.TarError, AttributeError, TypeError, IndexError)


@dataclass(frozen=True)
class Posts:
    """Posts of one split in the canonical order: by newsgroup, then by number.

    Args:
        texts: as posted, headers included, decoded as latin-1 (which loses no byte).
        labels: position of each post's newsgroup in `groups`.
        numbers: file name of each post in its newsgroup, a number.
        groups: names of the newsgroups in alphabetical order.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    numbers: tuple[str, ...]
    groups: tuple[str, ...]

    def __repr__(self) -> str:
        return summary(self, posts=len(self.texts), groups=self.groups)


def posts() -> tuple[dict[str, Posts], str]:
    """Return the verified posts, {"train": ..., "test": ...}, and the source that gave them.

    Raises:
        DatasetUnavailable: no source has them; the message lists what was tried and how to provide them.
    """
    cached, base = cache_dir() / "datasets" / "20newsgroups", data_dir()
    folders = [("cache", cached)] if base is None else [("IMPLICIT_DATA", base), ("cache", cached)]
    places = [Place(label, folder / name, _pinned) for label, folder in folders for name in FILES]
    places.append(Place("scikit-learn's cache", _sklearn_cache() / PICKLE, _unpinned))

    def get(scratch: Path) -> tuple[str, Path]:
        download(HOME, scratch / ARCHIVE)
        return HOME, scratch / ARCHIVE

    remedy = (
        f"To provide it: put {ARCHIVE} (from http://qwone.com/~jason/20Newsgroups/) into a folder that IMPLICIT_DATA "
        "names, or run sklearn.datasets.fetch_20newsgroups() once."
    )
    kept = Place("cache", cached / ARCHIVE, _pinned)
    return find("20newsgroups", places, [Fetch("home", get)], kept, remedy)


def _sklearn_cache() -> Path:
    home = os.environ.get("SCIKIT_LEARN_DATA")
    return Path(home).expanduser() if home else Path.home() / "scikit_learn_data"


def _posts_of(path: Path, pinned: bool) -> dict[str, Posts]:
    """Posts of a file.

    Raises:
        ValueError: for a checksum that is not known, of the file where it is pinned, else of the posts.
    """
    raw = path.read_bytes()
    if pinned and hashlib.sha256(raw).hexdigest() != FILES[path.name]:
        raise ValueError("its checksum is wrong")
    found = from_archive(raw) if path.name == ARCHIVE else from_pickle(raw)
    if checksum(found) != POSTS_SHA256:
        raise ValueError("the posts in it are not those of the by-date version")
    return found


_pinned = reader(lambda path: _posts_of(path, True), *UNREADABLE)
_unpinned = reader(lambda path: _posts_of(path, False), *UNREADABLE)


def from_archive(raw: bytes) -> dict[str, Posts]:
    """Posts of the by-date archive (20news-bydate-{train,test}/NEWSGROUP/NUMBER), read in memory.

    Raises:
        ValueError: a split is missing. tarfile.TarError: not an archive.
    """
    entries: dict[str, list[tuple[str, str, str]]] = {split: [] for split in SPLITS}
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            split = parts[0].rpartition("-")[2] if parts else ""
            if member.isfile() and len(parts) == 3 and split in entries:
                entries[split].append((parts[1], parts[2], archive.extractfile(member).read().decode("latin-1")))
    return {split: _ordered(entries[split], split) for split in SPLITS}


class _DataOnly(pickle.Unpickler):
    """Unpickler of scikit-learn's cache: its container and NumPy arrays, and no other name."""

    ALLOWED = {
        ("sklearn.utils._bunch", "Bunch"),
        ("sklearn.utils", "Bunch"),
        ("sklearn.datasets.base", "Bunch"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    }

    def find_class(self, module: str, name: str):
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        # NumPy's module of `_reconstruct` has changed its name: an array of this NumPy knows it.
        known = {"Bunch": _Bunch, "_reconstruct": np.empty(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}
        return known[name]


class _Bunch(dict):
    """Scikit-learn's container without scikit-learn."""

    def __setstate__(self, state: object) -> None:
        pass  # the items travel apart; what else is there is not wanted


def from_pickle(raw: bytes) -> dict[str, Posts]:
    """Posts of scikit-learn's cache file, a zipped pickle {"train": Bunch, "test": Bunch}.

    Raises:
        pickle.UnpicklingError: it holds more than text and arrays. KeyError, ValueError: a part is missing.
    """
    content = _DataOnly(io.BytesIO(zlib.decompress(raw))).load()
    found = {}
    for split in SPLITS:
        bunch = content[split]
        names = [str(group) for group in bunch["target_names"]]
        numbers = [str(name).replace("\\", "/").rpartition("/")[2] for name in bunch["filenames"]]
        rows = zip((names[int(label)] for label in bunch["target"]), numbers, bunch["data"], strict=True)
        found[split] = _ordered(list(rows), split)
    return found


def _ordered(entries: list[tuple[str, str, str]], split: str) -> Posts:
    if not entries:
        raise ValueError(f"it has no {split} posts")
    entries.sort(key=lambda entry: (entry[0], int(entry[1])))
    groups = tuple(sorted({group for group, _, _ in entries}))
    position = {group: k for k, group in enumerate(groups)}
    return Posts(
        tuple(text for _, _, text in entries),
        tuple(position[group] for group, _, _ in entries),
        tuple(number for _, number, _ in entries),
        groups,
    )


def checksum(found: dict[str, Posts]) -> str:
    """SHA-256 over newsgroup, number and bytes of every post: equal posts, equal checksum, whatever the file."""
    digest = hashlib.sha256()
    for split in SPLITS:
        part = found[split]
        for text, label, number in zip(part.texts, part.labels, part.numbers):
            content = text.encode("latin-1")
            digest.update(f"{split}/{part.groups[label]}/{number} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
