"""Make docs/gallery: pages of the example vectors that come with isoscope, and pictures of them.

make gallery [STUDY=folder]

Every page is made by its command, in a temporary folder, with a fixed date. Chromium then takes pictures of its top at
1,280 and 390 pixels, in light and dark, and of the first printed page. A picture is written again only if it differs
visibly from the one that exists, so that a rerun changes only what changed. STUDY is the output folder of
`isoscope study run`; without it, the pictures of the study stay as they are.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import join, split

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.report.chromium import Chromium, Tab, require_browser  # noqa: E402

DATE = "1767225600"  # 2026-01-01: the date on every page
HEIGHTS = {1280: 1600, 390: 1688}  # the top of a page, by its width
QUALITY = 70
VISIBLE = 24  # a smaller difference of a color comes from smoothing
FIVE, SIX, BOTH = "glosses-layer5.parquet", "glosses-layer6.parquet", "glosses.parquet"
LIVE = ("audit", "advise")  # pages that are kept themselves


@dataclass(frozen=True)
class Entry:
    """A page of the gallery, what it answers, and the command that makes it."""

    name: str
    title: str
    answers: str
    command: str


ENTRIES = (
    Entry("audit", "Audit", "What is unusual about these vectors, and why?", f"isoscope audit {FIVE}"),
    Entry("rows", "Audit with rows", "Which rows should you check?", f"isoscope audit {FIVE} --rows rows.csv"),
    Entry("compare", "Comparison", "How do two layers of a model differ?", f"isoscope audit {FIVE} {SIX}"),
    Entry("fix", "Before and after a repair", "What did whitening improve, and what did it make worse?",
          f"isoscope fix whiten {FIVE} -o whitened.parquet"),
    Entry("layers", "Audit by layer", "In which layer is the shape worst?", f"isoscope audit {BOTH} --by layer"),
    Entry("labels", "Audit by label", "Which label has the most unusual vectors?", f"isoscope audit {FIVE} --by label"),
    Entry("advise", "Advice", "Does a repair help to tell the labels apart?",
          f"isoscope advise {FIVE} --labels label"),
    Entry("threshold", "Threshold", "Above which cosine do two rows share a label?",
          f"isoscope threshold {FIVE} --labels label --precision 0.6"),
    Entry("same", "Same space", "Can vectors of two layers share one index?", f"isoscope same {FIVE} {SIX}"),
    Entry("compress", "Compression", "How small can the vectors be stored?", f"isoscope compress {FIVE}"),
    Entry("finetune", "Fine-tuning", "Does a small model learn the labels, and what happens to its layers?",
          "isoscope finetune small-bert --train texts.parquet --text-column text --label-column label --seeds 2 "
          "--epochs 4 --batch-size 32 --learning-rate 2e-3 --max-length 32 --probe 128 --every 20 -o finetune"),
)  # fmt: skip
STUDY = Entry("study", "Study", "Which claims of a paper hold when its experiments are repeated?",
              "isoscope study run isotropy-clusters-classifiers -o study --quick")  # fmt: skip


def prepare_inputs(folder: Path) -> None:
    """Write the inputs of the commands: the two layers, both in one file, their texts, and a small untrained model."""
    demo = ROOT / "src/isoscope/demo"
    tables = []
    for layer, name in enumerate((FIVE, SIX), 5):
        shutil.copy(demo / name, folder / name)
        table = pq.read_table(demo / name)
        tables.append(table.append_column("layer", pa.array([layer] * len(table))))
    pq.write_table(pa.concat_tables(tables), folder / BOTH)
    pq.write_table(tables[0].select(["text", "label"]), folder / "texts.parquet")
    write_model(folder / "small-bert", tables[0]["text"].to_pylist())


def write_model(folder: Path, texts: list[str]) -> None:
    """Write a BERT of 2 layers and 64 dimensions with random weights, whose tokens are the words of the texts."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)).save_pretrained(folder)


def make_page(entry: Entry, folder: Path) -> Path:
    """Run the command of an entry, and return its page."""
    page = folder / entry.name / "page.html" if entry.name == "finetune" else folder / f"{entry.name}.html"
    words = split(entry.command)[1:] + ([] if entry.name == "finetune" else ["--html", page.name])
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "SOURCE_DATE_EPOCH": DATE,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }
    done = subprocess.run(
        [sys.executable, "-m", "isoscope", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, 1) or not page.is_file():  # 1: the answer is negative
        raise SystemExit(f"{join(words)} exited with {done.returncode}:\n{done.stderr}")
    return page


def take_pictures(browser: Chromium, page: Path) -> Iterator[tuple[str, Image.Image]]:
    """Yield the pictures of a page with their names: two widths, light and dark, and the first printed page."""
    for width, height in HEIGHTS.items():
        for dark in (False, True):
            tab = browser.open(page.as_uri(), width=width, height=height, dark=dark)
            tab.finish()
            yield f"{width}-{'dark' if dark else 'light'}", read_png(capture(tab))
            if (width, dark) == (1280, False):
                yield "print", print_sheet(tab)
            tab.close()


def capture(tab: Tab) -> bytes:
    """Return a picture of the window."""
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        tab.picture(Path(file.name), whole=False)
        return Path(file.name).read_bytes()


def read_png(content: bytes) -> Image.Image:
    """Return a picture without transparency."""
    return Image.open(io.BytesIO(content)).convert("RGB")


def print_sheet(tab: Tab) -> Image.Image:
    """Return the first page of the printout, drawn by pdftoppm (Debian's poppler-utils)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.pdf")
        path.write_bytes(tab.pdf())
        subprocess.run(
            ["pdftoppm", "-png", "-r", "90", "-l", "1", "-singlefile", path, path.with_suffix("")], check=True
        )
        return read_png(path.with_suffix(".png").read_bytes())


def keep_picture(picture: Image.Image, path: Path) -> bool:
    """Write a picture, unless it looks like the one that exists; return whether it was written."""
    content = io.BytesIO()
    picture.save(content, "WEBP", quality=QUALITY, method=6)
    if path.is_file():
        old, new = (np.asarray(Image.open(each).convert("RGB"), int) for each in (path, content))
        if old.shape == new.shape and (np.abs(old - new).max(axis=2) > VISIBLE).mean() < 1e-4:
            return False
    path.write_bytes(content.getvalue())
    return True


def describe_entry(entry: Entry, folder: Path) -> str:
    """Return the part of the index on one page."""
    live = f" [Open the page]({entry.name}.html)." if (folder / f"{entry.name}.html").is_file() else ""
    option = "" if entry.name in ("finetune", "study") else f" --html {entry.name}.html"
    rest = " · ".join(
        f"[{words}]({entry.name}-{name}.webp)"
        for words, name in (
            ("dark", "1280-dark"),
            ("phone", "390-light"),
            ("phone, dark", "390-dark"),
            ("first printed page", "print"),
        )
    )
    return (
        f"## {entry.title}\n\n{entry.answers}{live}\n\n```bash\n{entry.command}{option}\n```\n\n"
        f"![{entry.title}]({entry.name}-1280-light.webp)\n\nMore pictures: {rest}\n"
    )


LEAD = f"""# Gallery

These pages were made from the example vectors that come with isoscope: 1,750 definitions from WordNet, embedded by two
layers of all-MiniLM-L6-v2. `{FIVE}` and `{SIX}` are in the folder `isoscope/demo` of the installed package;
`{BOTH}` contains both, with a column `layer`. Every page is one HTML file that loads nothing from the network.
`make gallery` regenerates the pages.
"""


def main() -> None:
    """Make the pages, their pictures and the index."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/gallery")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="make only these pages")
    parser.add_argument("--study", type=Path, metavar="DIR", help="output folder of isoscope study run")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="isoscope-gallery-") as name, Chromium(require_browser()) as browser:
        folder = Path(name)
        prepare_inputs(folder)
        for entry in (*ENTRIES, STUDY):
            if (options.only and entry.name not in options.only) or (entry is STUDY and options.study is None):
                continue
            page = options.study / "page.html" if entry is STUDY else make_page(entry, folder)
            written = [
                keep_picture(picture, options.out / f"{entry.name}-{name}.webp")
                for name, picture in take_pictures(browser, page)
            ]
            if entry.name in LIVE:
                shutil.copy(page, options.out / f"{entry.name}.html")
            print(f"{entry.name}: {sum(written)} of {len(written)} pictures changed", flush=True)
    shown = [entry for entry in (*ENTRIES, STUDY) if (options.out / f"{entry.name}-1280-light.webp").is_file()]
    index = "\n".join([LEAD, *(describe_entry(entry, options.out) for entry in shown)])
    (options.out / "index.md").write_text(index, encoding="utf-8")
    total = sum(path.stat().st_size for path in options.out.iterdir())
    print(f"{options.out}: {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
