"""20 Newsgroups: resolution and checks of every source on toy files, facts and features of the real posts."""

import importlib.util
import io
import pickle
import tarfile
import zlib

import numpy as np
import pytest

from data_gen.core.dataset import DatasetUnavailable
from data_gen.text import topics as text
from data_gen.text.trimming import trim

source = importlib.import_module("data_gen.text.newsgroups")  # the package's own name of that kind is the function

GROUPS = ("alt.one", "rec.two", "sci.three")
WORDS = {"alt.one": "apple banana cherry", "rec.two": "ball goal team", "sci.three": "atom orbit energy"}


def toy_posts():
    """{split: [(group, number, text)]}: 12 + 6 posts, out of order, with a byte that is no ASCII."""
    rng = np.random.default_rng(0)
    entries = {}
    for split, size in (("train", 12), ("test", 6)):
        rows = []
        for k in range(size):
            group = GROUPS[k % 3]
            words = rng.permutation(WORDS[group].split() + ["shared"])
            rows.append(
                (group, str(1000 - 7 * k), f"Organization: Caf\xe9\n\n{' '.join(words)}\n> quoted\n\n--\nsigned\n")
            )
        entries[split] = rows
    return entries


def toy_archive(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for split, rows in entries.items():
            for group, number, content in rows:
                member = tarfile.TarInfo(f"20news-bydate-{split}/{group}/{number}")
                member.size = len(content.encode("latin-1"))
                archive.addfile(member, io.BytesIO(content.encode("latin-1")))
    return buffer.getvalue()


def toy_pickle(entries):
    from sklearn.utils import Bunch

    content = {}
    for split, rows in entries.items():
        content[split] = Bunch(
            data=[row[2] for row in rows],
            filenames=np.array([f"/home/x/{split}/{row[0]}/{row[1]}" for row in rows]),
            target_names=list(GROUPS),
            target=np.array([GROUPS.index(row[0]) for row in rows]),
            DESCR=None,
        )
    return zlib.compress(pickle.dumps(content))


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    (tmp_path / "data").mkdir()
    (tmp_path / "sklearn").mkdir()
    return tmp_path


@pytest.fixture
def toy(nowhere, monkeypatch):
    """The toy posts as the archive in IMPLICIT_DATA, with their checksums pinned."""
    entries = toy_posts()
    archive = toy_archive(entries)
    monkeypatch.setattr(source, "POSTS_SHA256", source.checksum(source.from_archive(archive)))
    monkeypatch.setattr(
        source, "FILES", {source.ARCHIVE: source.hashlib.sha256(archive).hexdigest(), source.PICKLE: "0" * 64}
    )
    (nowhere / "data" / source.ARCHIVE).write_bytes(archive)
    return entries


def test_archive_and_pickle_hold_the_same_posts():
    entries = toy_posts()
    one, other = source.from_archive(toy_archive(entries)), source.from_pickle(toy_pickle(entries))
    assert one == other and source.checksum(one) == source.checksum(other)
    assert one["train"].groups == GROUPS and one["train"].labels == (0,) * 4 + (1,) * 4 + (2,) * 4
    # Numbers are ordered as numbers: "93" before "1000".
    assert one["test"].numbers[:2] == ("979", "1000") and "Caf\xe9" in one["test"].texts[0]
    changed = [(g, n, t.replace("shared", "shaped")) for g, n, t in entries["test"]]
    assert source.checksum(source.from_archive(toy_archive({**entries, "test": changed}))) != source.checksum(one)


def test_a_pickle_that_asks_for_code_runs_none(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    with pytest.raises(pickle.UnpicklingError, match="asks for"):
        source.from_pickle(zlib.compress(pickle.dumps({"train": Evil()})))
    assert not (tmp_path / "ran").exists()


def test_sources_in_order(toy, nowhere, monkeypatch):
    assert source.posts()[1].startswith("IMPLICIT_DATA")
    archive = nowhere / "data" / source.ARCHIVE
    cached = nowhere / "cache" / "datasets" / "20newsgroups"
    cached.mkdir(parents=True)
    archive.rename(cached / source.ARCHIVE)
    assert source.posts()[1].startswith("cache")
    (cached / source.ARCHIVE).unlink()
    # Scikit-learn's own cache: bytes unknown, posts known.
    (nowhere / "sklearn" / source.PICKLE).write_bytes(toy_pickle(toy))
    assert source.posts()[1].startswith("scikit-learn")


def test_foreign_files_are_reported_and_not_opened(toy, nowhere, monkeypatch):
    (nowhere / "data" / source.ARCHIVE).write_bytes(b"not an archive")
    (nowhere / "data" / source.PICKLE).write_bytes(toy_pickle(toy))
    opened = []
    monkeypatch.setattr(source, "from_pickle", opened.append)
    with pytest.warns(UserWarning, match="checksum is wrong"), pytest.raises(DatasetUnavailable) as error:
        source.posts()
    assert not opened, "an unknown pickle was unpickled"
    message = str(error.value)
    assert (
        message.count("its checksum is wrong") == 2
        and "IMPLICIT_OFFLINE" in message
        and "fetch_20newsgroups" in message
    )


def test_scikit_learn_cache_with_other_posts_is_refused(toy, nowhere):
    (nowhere / "data" / source.ARCHIVE).unlink()
    other = {split: [(g, n, t + "!") for g, n, t in rows] for split, rows in toy.items()}
    (nowhere / "sklearn" / source.PICKLE).write_bytes(toy_pickle(other))
    with pytest.warns(UserWarning, match="not those of the by-date"), pytest.raises(DatasetUnavailable):
        source.posts()


def test_download_goes_to_the_cache_and_is_checked(toy, nowhere, monkeypatch):
    archive = nowhere / "data" / source.ARCHIVE
    monkeypatch.setattr(source, "HOME", archive.as_uri())
    monkeypatch.setenv("IMPLICIT_OFFLINE", "0")
    monkeypatch.setenv("IMPLICIT_DATA", "")
    assert source.posts()[1].startswith("home")
    assert source.posts()[1].startswith("cache")
    (nowhere / "cache" / "datasets" / "20newsgroups" / source.ARCHIVE).unlink()
    archive.write_bytes(b"a page that says sorry")
    with pytest.raises(DatasetUnavailable, match="home .*checksum is wrong"):
        source.posts()


def test_tfidf_of_the_toy_by_hand(toy):
    data = text.newsgroups(n_features=14, select="frequent")
    every = ("caf\xe9", "organization", "quoted", "shared", "signed")  # in all 12 training posts, the others in 4
    assert data.meta["terms"] == tuple(sorted([*every, *(word for words in WORDS.values() for word in words.split())]))
    first = dict(zip(data.meta["terms"], data.u_train[0]))  # a post of alt.one
    rare, common = 1 + np.log(13 / 5), 1 + np.log(13 / 13)
    norm = np.sqrt(3 * rare**2 + 5 * common**2)
    assert first["apple"] == pytest.approx(rare / norm, rel=1e-6) and first["organization"] == pytest.approx(
        common / norm, rel=1e-6
    )
    assert first["ball"] == 0 and data.u_train.dtype == np.float32


def test_chi2_takes_the_terms_that_tell(toy):
    chosen = text.newsgroups(n_features=9).meta["terms"]
    assert set(chosen) == {word for words in WORDS.values() for word in words.split()}


def test_random_split_pools_and_keeps_the_sizes(toy):
    first, again, other = (text.newsgroups(seed, split="random", n_features=5) for seed in (1, 1, 2))
    assert len(first.y_train) == 12 and len(first.test[0][1]) == 6
    assert first.checksum() == again.checksum() != other.checksum()
    pooled = np.concatenate([first.y_train, first.test[0][1]])
    assert np.bincount(pooled).tolist() == [6, 6, 6]


def test_subsets_and_removal(toy):
    small = text.newsgroups(3, n_train=9, n_test=2, n_features=3)
    assert small.u_train.shape == (9, 3) and len(small.test[0][1]) == 2
    bare = text.newsgroups(n_features=10, select="frequent", remove=("headers", "footers", "quotes"))
    assert not {"organization", "quoted", "signed"} & set(bare.meta["terms"]) and bare.meta["remove"] == (
        "headers",
        "footers",
        "quotes",
    )


def test_embeddings_take_any_encoder_and_name_what_is_missing(toy):
    data = text.newsgroups(
        features="embeddings", encoder=lambda texts: np.array([[len(t), t.count("a")] for t in texts])
    )
    assert data.u_train.shape == (12, 2) and data.u_train[0, 0] == len(source.posts()[0]["train"].texts[0])
    with pytest.raises(ValueError, match=r"shape \(12,\) for 12 texts"):
        text.newsgroups(features="embeddings", encoder=lambda texts: np.ones(len(texts)))
    with pytest.raises(ValueError, match="text 0 is not finite"):
        text.newsgroups(features="embeddings", encoder=lambda texts: np.full((len(texts), 2), np.nan))
    if importlib.util.find_spec("sentence_transformers") is None:
        with pytest.raises(ModuleNotFoundError, match="pip install sentence-transformers"):
            text.newsgroups(features="embeddings")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "half"}, "split must be one of bydate, random; got 'half'"),
        ({"features": "bag"}, "features .* got 'bag'"),
        ({"select": "best"}, "select .* got 'best'"),
        ({"remove": ("tails",)}, "got 'tails'"),
        ({"n_features": 0}, "got 0"),
        ({"n_features": 99}, "n_features = 99, but only"),
        ({"n_train": 13}, "n_train must be between 1 and 12"),
        ({"n_train": 2}, "no term stands in 3 of the 2 training posts"),
    ],
)
def test_bad_options_are_named(toy, options, message):
    with pytest.raises(ValueError, match=message):
        text.newsgroups(**options)


@pytest.mark.parametrize("remove", [("headers",), ("footers",), ("quotes",), ("headers", "footers", "quotes")])
def test_trimming_is_scikit_learns(remove):
    from sklearn.datasets import _twenty_newsgroups as reference

    samples = [content for _, _, content in toy_posts()["train"]] + [
        "",
        "\n\n",
        "one line",
        "a\n--\nb",
        "From: x\n\n> y\nz wrote:\n|w\nv\n\nsig",
    ]
    for sample in samples:
        expected = sample
        if "headers" in remove:
            expected = reference.strip_newsgroup_header(expected)
        if "footers" in remove:
            expected = reference.strip_newsgroup_footer(expected)
        if "quotes" in remove:
            expected = reference.strip_newsgroup_quoting(expected)
        assert trim(sample, remove) == expected, repr(sample)
    with pytest.raises(ValueError, match="got 'tail'"):
        trim("x", ("tail",))


def real(**options):
    try:
        return text.newsgroups(**options)
    except DatasetUnavailable as error:
        pytest.skip(f"20 Newsgroups is not at hand: {error}")


def test_facts_of_the_real_posts(monkeypatch):
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    data = real(n_features=200)
    # Sizes as published with the by-date version; the newsgroups are not balanced (377 to 600 posts).
    assert data.u_train.shape == (11_314, 200) and data.test[0][0].shape == (7_532, 200)
    counts = dict(zip(data.meta["classes"], np.bincount(data.y_train)))
    assert counts["alt.atheism"] == 480 and counts["talk.religion.misc"] == 377 and counts["rec.sport.hockey"] == 600
    norms = np.linalg.norm(data.u_train, axis=1)
    assert np.all((np.abs(norms - 1) < 1e-5) | (norms == 0)) and (norms == 0).sum() == data.meta["empty"]["train"]
    assert {"god", "space", "hockey", "windows"} <= set(data.meta["terms"])


def test_hashed_features_of_the_real_posts(monkeypatch):
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    data = real(features="hashed", n_features=256, n_train=300, n_test=100)
    assert data.u_train.shape == (300, 256) and data.u_train.min() >= 0 and data.meta["terms"] is None


def test_topics_declare_themselves(nowhere):
    data = text.topics(1, n_features=50, n_classes=4, n_train=200, n_test=100)
    assert data.meta["substituted"] and "no figure here is comparable" in data.meta["banner"]
    assert data.checksum() == text.topics(1, n_features=50, n_classes=4, n_train=200, n_test=100).checksum()
    np.testing.assert_allclose(np.linalg.norm(data.u_train, axis=1), 1, rtol=1e-5)
    # The classes can be told: the nearest class mean does far better than chance (.25).
    means = np.array([data.u_train[data.y_train == k].mean(axis=0) for k in range(4)])
    u, y = data.test[0]
    assert ((u @ means.T).argmax(axis=1) == y).mean() > 0.6
    with pytest.raises(ValueError, match="words must be at least 1"):
        text.topics(words=0)


def test_load_substitutes_only_for_auto(nowhere):
    with pytest.warns(UserWarning, match="20 Newsgroups could not be had"):
        data = text.load("auto", n_features=40, n_train=50, n_test=20, split="random")
    assert data.meta["substituted"] and data.u_train.shape == (50, 40) and "IMPLICIT_OFFLINE" in data.meta["banner"]
    with pytest.raises(DatasetUnavailable):
        text.load("newsgroups")
    with pytest.raises(ValueError, match="got 'reuters'"):
        text.load("reuters")
    assert text.load("topics", n_features=30, n_train=20, n_test=10).meta["banner"].startswith("Synthetic topics")
