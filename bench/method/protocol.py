"""What the judgement of judge.py compares, on what, and in which way: its hash is in frozen.json, so that nothing of this changes afterwards."""
import dataclasses

MODELS = {"bundled": "bundled", "bed-q": "models/beds/winnow-bed-q-Q8_0.gguf", "bed-l": "models/beds/winnow-bed-l-Q8_0.gguf"}
NEEDLES_ONLY = {"bundled"}  # with the full cache it answers no other task of these to 90 %
BOOKS = {"development": ["mary-shelley_frankenstein", "thomas-hardy_tess-of-the-durbervilles"],
         "judgement": ["jane-austen_emma", "joseph-conrad_nostromo", "jules-verne_twenty-thousand-leagues-under-the-seas_f-p-walter"]}  # fmt: skip
DOCUMENTS = {"development": 10, "judgement": 100}  # of a task; three times as many where there is one task; windows of text
STORAGES = ["f16", "q8_0", "q8_0/q4_0"]
PROMPT, WRITTEN = 512, 512  # tokens of the track `generation`
WINDOW = 2048  # tokens of the tracks `text` and `streams`
# Methods that reach this share of the full cache's score in several storages get the one that is best at SMALLER.
SATURATED, SMALLER = 0.95, ("0.03125",)
# A rival is not judged at a share of a track at which winnow's development score is more than so many times better on every model; the nearest
# of them always is.
HOPELESS = 2


@dataclasses.dataclass(frozen=True)
class Track:
    score: str  # of `winnow eval`'s
    sign: int  # 1: more is better; -1: less
    scale: int  # of the figures in tables
    digits: int
    unit: str
    # Shares of the full f16 cache's bytes: of the judgement, and of the development. What the first of `tried` says that is not above a share, or
    # the last, holds for that share.
    shares: tuple
    tried: tuple
    rivals: tuple
    own: str = "winnow"
    ingredients: tuple = tuple("winnow:" + change for change in (
        "allocation=uniform", "allocation=top-k", "allocation=profile", "queries=window", "rest=0", "refit=false"))  # fmt: skip


# winnow replays 512 tokens at a time, kvzip as published 2,048: both are in.
ONE_SHOT = ("kvzip", "kvzip:plus=true", "kvzip:chunk=512", "expected-attention", "attention-matching", "defensivekv:layer=true", "compactor", "lagkv",
            "triattention", "caote", "criticalkv", "snapkv", "cake", "adakv", "pyramidkv", "hbw")  # fmt: skip
# In half of the bytes all entries stay in q8_0/q4_0: nothing to answer there.
ANSWERS = Track("score", 1, 100, 1, "answers in per cent", shares=("0.25", "0.125", "0.0625", "0.03125"), tried=("0.0625",),
                rivals=(*ONE_SHOT, "keydiff", "rkv", "h2o", "tova", "streaming", "treekv", "d2o:total=true", "ems"))  # fmt: skip
# Bytes are those after the prompt; all that is compared here then grows by what is read.
DIVERGENCE = Track("kld", -1, 1000, 2, "KL divergence in thousandths of a nat", shares=("0.5", "0.25", "0.125", "0.0625", "0.03125"),
                   tried=("0.25", "0.0625"), rivals=(*ONE_SHOT, "keydiff:decode=false", "rkv:decode=false", "h2o:decode=false"))  # fmt: skip
# Methods that evict at every token, all with first and newest tokens.
STREAM = Track("nll", -1, 1000, 1, "thousandths of a nat per token", shares=("0.25", "0.125", "0.0625"), tried=("0.25", "0.0625"),
               own="winnow:generated=leave", ingredients=("winnow:generated=leave,rest=0",),
               rivals=("streaming", "h2o:sinks=4,recent=0.5", "tova:sinks=4,recent=0.5", "treekv", "d2o:total=true", "ems",
                       "keydiff:sinks=4,recent=64", "rkv:sinks=4,recent=64"))  # fmt: skip
TRACKS = {"hidden": ANSWERS, "seen": ANSWERS, "text": DIVERGENCE, "generation": DIVERGENCE, "streams": STREAM}


def alike(track):
    """The tracks of the same kind: a method has one storage in all of them."""
    return [name for name in TRACKS if TRACKS[name] == TRACKS[track]]


def tried_for(setup, share):
    return next((t for t in setup.tried if float(t) <= float(share)), setup.tried[-1])
