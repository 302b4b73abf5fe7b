"""What the judgement of judge.py compares, on what, and in which way: nothing of this changes once frozen.json is committed."""
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
SATURATED, SMALLER = 0.95, ["0.03125"]
# A rival is not judged in a track in which winnow's development score is more than so many times better in every cell; the best of them always is.
HOPELESS, HOPELESS_SHARE = 2, "0.0625"


@dataclasses.dataclass(frozen=True)
class Track:
    score: str  # of `winnow eval`'s
    sign: int  # 1: more is better; -1: less
    scale: int  # of the figures in tables
    digits: int
    unit: str
    # Of the development: a method is judged in the storage that is best at the first of these that is not above its share, or at the last.
    tried: tuple
    shares: tuple = ("0.5", "0.25", "0.125", "0.0625", "0.03125")  # of the judgement
    own: str = "winnow"
    ingredients: tuple = tuple("winnow:" + change for change in (
        "allocation=uniform", "allocation=top-k", "allocation=profile", "queries=window", "rest=0", "refit=false"))  # fmt: skip
    rivals: tuple = ("kvzip", "kvzip:plus=true", "expected-attention", "attention-matching", "defensivekv:layer=true", "compactor", "lagkv", "keydiff",
                     "triattention", "rkv", "caote", "criticalkv", "snapkv", "cake", "adakv", "pyramidkv", "h2o", "tova", "streaming", "treekv",
                     "d2o:total=true", "hbw", "ems")  # fmt: skip


ANSWERS = Track("score", 1, 100, 1, "answers in per cent", tried=("0.0625",))
DIVERGENCE = Track("kld", -1, 1000, 2, "KL divergence in thousandths of a nat", tried=("0.25", "0.0625"))
# What evicts while generating, all with first and newest tokens.
STREAM = Track("nll", -1, 1000, 1, "thousandths of a nat per token", tried=("0.25", "0.0625"), shares=("0.25", "0.125", "0.0625"),
               own="winnow:generated=leave", ingredients=("winnow:generated=leave,rest=0",),
               rivals=("streaming", "h2o:sinks=4,recent=0.5", "tova:sinks=4,recent=0.5", "treekv", "d2o:total=true", "ems",
                       "keydiff:sinks=4,recent=64", "rkv:sinks=4,recent=64"))  # fmt: skip
TRACKS = {"hidden": ANSWERS, "seen": ANSWERS, "text": DIVERGENCE, "generation": DIVERGENCE, "streams": STREAM}


def alike(track):
    """The tracks of the same kind: a method has one storage in all of them."""
    return [name for name in TRACKS if TRACKS[name] == TRACKS[track]]
