"""Text as vectors: 20 Newsgroups in hashed, TF-IDF or embedded form, and topics as a declared stand-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from data_gen.core.dataset import Dataset, DatasetUnavailable
from data_gen.core.streams import stream
from data_gen.text.newsgroups import LICENCE, POSTS_SHA256, posts
from data_gen.text.trimming import PARTS, trim

FEATURES = ("tfidf", "hashed", "embeddings")
SPLITS = ("bydate", "random")
SELECTIONS = ("chi2", "frequent")
# A term of fewer training posts than this says more about one author than about a newsgroup.
LEAST_POSTS = 3
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
Encoder = Callable[[list[str]], np.ndarray]


def newsgroups(
    seed: int = 0,
    *,
    split: Literal["bydate", "random"] = "bydate",
    features: Literal["tfidf", "hashed", "embeddings"] = "tfidf",
    n_features: int = 1000,
    select: Literal["chi2", "frequent"] = "chi2",
    remove: Sequence[str] = (),
    n_train: int | None = None,
    n_test: int | None = None,
    encoder: str | Encoder = ENCODER,
) -> Dataset:
    """20 Newsgroups: 18,846 posts of twenty newsgroups as vectors.

    The split by date has 11,314 posts before a day for training and the 7,532 after it for testing. The random one
    draws as many from all: replies to one thread then stand on both sides, so its accuracies are higher. Neither paper
    says which it used.

    TF-IDF of term j in post i: (1 + log n_ij)(1 + log((1 + N)/(1 + N_j))) with N training posts, N_j of them with the
    term, over words of two or more letters without English stop words; then each post is divided by its l2 norm. Terms,
    N_j and what "chi2" selects come from the training posts alone.

    Args:
        seed: of the random split and of the choice of posts.
        split: "bydate" or "random".
        features: "tfidf"; "hashed", the same weights over hash buckets instead of terms; "embeddings", an encoder's.
        n_features: terms or buckets; embeddings have the encoder's own number.
        select: for "tfidf", the terms with the largest chi-squared statistic against the newsgroup, or the most
            frequent.
        remove: any of "headers", "footers", "quotes". The default keeps all, as published figures without a remark do;
            headers name the sender's organisation and make the task easier.
        n_train, n_test: posts kept, drawn without replacement and evenly likely; None keeps all.
        encoder: for "embeddings", a name that sentence-transformers knows, or any function from texts to (N, p).

    Returns:
        Dataset with u (N, p) float32, y (N,) int64, and one test set, key 0. meta: name, sha256, licence, source,
        classes, split, features, remove, terms (of "tfidf"), empty (posts without a term, by split), seed, substituted,
        banner.

    Raises:
        DatasetUnavailable: no source has it; the message lists what was tried.
        ModuleNotFoundError: scikit-learn or sentence-transformers is missing; the message says what to install.
        ValueError: an unknown option, or a size outside the data set.

    Source:
        Lang (1995), "NewsWeeder"; the by-date version of Rennie.
    """
    for name, value, known in (
        ("split", split, SPLITS),
        ("features", features, FEATURES),
        ("select", select, SELECTIONS),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    for part in remove:
        if part not in PARTS:
            raise ValueError(f"remove takes {', '.join(PARTS)}; got {part!r}")
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    found, source = posts()
    (texts, y), (test_texts, test_y) = _split(found, split, seed, n_train, n_test)
    texts, test_texts = ([trim(text, remove) for text in part] for part in (texts, test_texts))
    terms = None
    if features == "embeddings":
        u, test_u = _encode(texts, encoder), _encode(test_texts, encoder)
    elif features == "hashed":
        u, test_u = _hashed(texts, test_texts, n_features)
    else:
        u, test_u, terms = _tfidf(texts, y, test_texts, n_features, select)
    meta = {
        "name": "20newsgroups",
        "sha256": POSTS_SHA256,
        "licence": LICENCE,
        "source": source,
        "classes": found["train"].groups,
        "split": split,
        "features": features,
        "remove": tuple(remove),
        "terms": terms,
        "empty": {"train": int((~u.any(axis=1)).sum()), "test": int((~test_u.any(axis=1)).sum())},
        "seed": seed,
        "substituted": False,
        "banner": "",
    }
    return Dataset(u, y, {0: (test_u, test_y)}, meta)


def topics(
    seed: int = 0,
    *,
    n_features: int = 1000,
    n_classes: int = 20,
    n_train: int = 2000,
    n_test: int = 1000,
    words: int = 15,
) -> Dataset:
    """Synthetic posts, TF-IDF of words drawn from one topic a class: the stand-in for 20 Newsgroups.

    A class is a distribution over terms, .3 of it Dirichlet(0.05) and .7 the common Zipf law 1/rank; a post is `words`
    independent draws from its class's distribution.

    Args:
        seed: of topics and posts.
        n_features, n_classes, n_train, n_test, words: sizes, all positive.

    Returns:
        Dataset as `newsgroups`' with meta["substituted"] True.

    Raises:
        ValueError: a size below 1.
    """
    for name, size in {
        "n_features": n_features,
        "n_classes": n_classes,
        "n_train": n_train,
        "n_test": n_test,
        "words": words,
    }.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    common = 1 / np.arange(1, n_features + 1)
    own = stream(seed, "topics").dirichlet(np.full(n_features, 0.05), n_classes)
    mixture = 0.3 * own + 0.7 * common / common.sum()
    counts, labels = [], []
    for part, size in (("train", n_train), ("test", n_test)):
        generator = stream(seed, f"posts {part}")
        labels.append(generator.integers(0, n_classes, size).astype(np.int64))
        counts.append(generator.multinomial(words, mixture[labels[-1]]))
    idf = 1 + np.log((1 + n_train) / (1 + (counts[0] > 0).sum(axis=0)))
    u, test_u = (_weighted(part, idf) for part in counts)
    meta = {
        "name": "topics",
        "licence": "none needed (drawn here)",
        "source": "data_gen.text.topics.topics",
        "split": "random",
        "classes": tuple(f"topic {k}" for k in range(n_classes)),
        "features": "tfidf",
        "seed": seed,
        "substituted": True,
        "banner": "Synthetic topics, not 20 Newsgroups: no figure here is comparable with the papers'.",
    }
    return Dataset(u, labels[0], {0: (test_u, labels[1])}, meta)


def _weighted(counts: np.ndarray, idf: np.ndarray) -> np.ndarray:
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0.0) * idf
    return (weights / np.linalg.norm(weights, axis=1, keepdims=True)).astype(np.float32)


def load(corpus: Literal["auto", "newsgroups", "topics"] = "auto", seed: int = 0, **options: Any) -> Dataset:
    """Load a corpus by name; "auto" is 20 Newsgroups, or, where it cannot be had, the synthetic topics.

    A stand-in is never silent: meta["substituted"] is True, meta["banner"] says so in words, and a warning is given.

    Args:
        corpus: name of the data set. Only "auto" allows the stand-in.
        seed: of the choice of posts, or of the topics.
        options: of `newsgroups`; of these the stand-in heeds n_features, n_train and n_test.

    Raises:
        DatasetUnavailable: the corpus named is not to be had.
        ValueError: an unknown name or option.
    """
    if corpus not in ("auto", "newsgroups", "topics"):
        raise ValueError(f"corpus must be 'auto', 'newsgroups' or 'topics', got {corpus!r}")
    sizes = {name: options[name] for name in ("n_features", "n_train", "n_test") if options.get(name) is not None}
    if corpus == "topics":
        return topics(seed, **sizes)
    try:
        return newsgroups(seed, **options)
    except DatasetUnavailable as error:
        if corpus == "newsgroups":
            raise
        stand_in = topics(seed, **sizes)
        banner = f"20 Newsgroups could not be had. {stand_in.meta['banner']} {error}"
        warnings.warn(banner, stacklevel=2)
        return Dataset(stand_in.u_train, stand_in.y_train, stand_in.test, {**stand_in.meta, "banner": banner})


def _split(found, split: str, seed: int, n_train: int | None, n_test: int | None):
    """[(texts, labels) of training, (texts, labels) of test], subsets drawn."""
    texts = [[*found[part].texts] for part in ("train", "test")]
    labels = [np.array(found[part].labels, np.int64) for part in ("train", "test")]
    if split == "random":
        every, every_label = texts[0] + texts[1], np.concatenate(labels)
        order, cut = stream(seed, "split").permutation(len(every)), len(texts[0])
        texts = [[every[i] for i in part] for part in (order[:cut], order[cut:])]
        labels = [every_label[part] for part in (order[:cut], order[cut:])]
    parts = []
    for name, size, text, label in (("train", n_train, texts[0], labels[0]), ("test", n_test, texts[1], labels[1])):
        if size is not None:
            if not 1 <= size <= len(label):
                raise ValueError(f"n_{name} must be between 1 and {len(label)} for 20 Newsgroups, got {size}")
            kept = stream(seed, f"subset {name}").permutation(len(label))[:size]
            text, label = [text[i] for i in kept], label[kept]
        parts.append((text, label))
    return parts


def _sklearn():
    try:
        import sklearn.feature_extraction.text
        import sklearn.feature_selection
    except ImportError as error:
        raise ModuleNotFoundError(
            f"text features need scikit-learn: pip install 'implicit-models[book]' ({error})"
        ) from None
    return sklearn


def _tfidf(texts: list[str], y: np.ndarray, test_texts: list[str], n_features: int, select: str):
    sklearn = _sklearn()
    vectorizer = sklearn.feature_extraction.text.CountVectorizer(min_df=LEAST_POSTS, stop_words="english")
    try:
        counts = vectorizer.fit_transform(texts)
    except ValueError:  # scikit-learn's "no terms remain"
        raise ValueError(f"no term stands in {LEAST_POSTS} of the {len(texts)} training posts") from None
    terms = vectorizer.get_feature_names_out()
    if n_features > len(terms):
        raise ValueError(
            f"n_features = {n_features}, but only {len(terms)} terms stand in {LEAST_POSTS} training posts or more"
        )
    weighting = sklearn.feature_extraction.text.TfidfTransformer(sublinear_tf=True)
    if select == "chi2":
        scores, _ = sklearn.feature_selection.chi2(weighting.fit_transform(counts), y)
    else:
        scores = np.asarray(counts.sum(axis=0)).ravel()
    # A stable sort breaks ties by alphabet, so that the choice does not depend on the machine.
    kept = np.sort(np.argsort(-np.nan_to_num(scores), kind="stable")[:n_features])
    u = weighting.fit_transform(counts[:, kept])
    test_u = weighting.transform(vectorizer.transform(test_texts)[:, kept])
    return u.toarray().astype(np.float32), test_u.toarray().astype(np.float32), tuple(terms[kept])


def _hashed(texts: list[str], test_texts: list[str], n_features: int):
    sklearn = _sklearn()
    vectorizer = sklearn.feature_extraction.text.HashingVectorizer(
        n_features=n_features, norm=None, alternate_sign=False, stop_words="english"
    )
    weighting = sklearn.feature_extraction.text.TfidfTransformer(sublinear_tf=True)
    u = weighting.fit_transform(vectorizer.transform(texts))
    test_u = weighting.transform(vectorizer.transform(test_texts))
    return u.toarray().astype(np.float32), test_u.toarray().astype(np.float32)


def _encode(texts: list[str], encoder: str | Encoder) -> np.ndarray:
    if isinstance(encoder, str):
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ModuleNotFoundError(
                "embeddings need a sentence encoder: pip install sentence-transformers, or pass a function of your own"
                f" as `encoder` ({error})"
            ) from None
        encoder = SentenceTransformer(encoder).encode
    u = np.asarray(encoder(texts), dtype=np.float32)
    if u.ndim != 2 or len(u) != len(texts):
        raise ValueError(f"the encoder returned shape {u.shape} for {len(texts)} texts, wanted ({len(texts)}, p)")
    bad = np.flatnonzero(~np.isfinite(u).all(axis=1))
    if len(bad):
        raise ValueError(f"the encoder's vector of text {bad[0]} is not finite")
    return u
