"""A row of a paper's page, and access to outputs of winnow: scores, bytes, times.

A difference is paired: over the same samples, with the standard error of its mean.
"""
import dataclasses
import math
import statistics
from collections.abc import Callable

KLD = "eval kld --data BOOKS --lengths 1024 --samples 8 --chunks 2"
NEEDLE = "eval needle --data BOOKS --needle code --lengths 1024 --depths 5-95+10 --samples 4"
# The same on fewer texts, for parameters about which a paper claims nothing.
FEW_KLD = KLD.replace("--samples 8", "--samples 4")
FEW_NEEDLE = NEEDLE.replace("--samples 4", "--samples 2")
OURS = "not in the paper: choice of ours"
GIVEN = "values are given, not compared"
ALONE = "speed is measured only where nothing else runs"
# Books whose first tokens `probe kept` reads: it reads one sample of a text.
BOOKS = ("bram-stoker_dracula", "charles-dickens_bleak-house", "charlotte-bronte_jane-eyre", "emily-bronte_wuthering-heights", "jane-austen_emma",
         "mary-shelley_frankenstein", "thomas-hardy_tess-of-the-durbervilles", "charles-darwin_the-origin-of-species")  # fmt: skip
SHORT_HOURS = 0.03  # for a row that states none, on one model

BED_NAMES = ("bed-q", "bed-l")  # test beds: models/beds

STREAM = "recent_nll"  # score of a stream: its pieces (--every) are the samples


@dataclasses.dataclass
class Row:
    name: str
    source: str  # table or figure
    claim: str
    number: str  # the paper's
    commands: list[str] = dataclasses.field(default_factory=list)  # without `winnow`, -m, -t and --json
    read: Callable | None = None  # a Reader (readers.py)
    cannot: str = ""  # why it cannot be run here
    hours: float = 0  # hours on two cores, if the row takes long
    note: str = ""
    beds: bool = True  # whether test beds may run it
    timed: bool = False  # run.py measures time and memory of each command; such a command is never resumed

    @property
    def on_beds(self):
        """Whether the test beds run it too: short rows about answers and predictions, not about speed or streams."""
        tasks = ("eval needle", "eval kld", "eval perplexity")
        return self.beds and bool(self.commands) and not self.hours and all(c.startswith(tasks) for c in self.commands)


def scores(output, score, group=None):
    """{way: {sample: score}} of an evaluation, or of one group of its samples; a way is a method with its budget."""
    found = {}
    for sample in output["samples"]:
        if group is not None and sample["group"] != group:
            continue
        for result in sample["results"]:
            if score == STREAM and "scores" in result:
                way = (result["method"], result["budget"])
                for point in result["details"]["points"]:
                    found.setdefault(way, {})[sample["sample"], point["tokens"]] = point[STREAM]
            elif score in result.get("scores", {}):
                way = (result["method"], result["budget"])
                found.setdefault(way, {})[sample["sample"]] = result["scores"][score]
    return found


def mean_and_error(values):
    values = list(values)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")
    return statistics.mean(values), error


def difference(a, b):
    """(mean, standard error, pairs) of a - b over the samples that both have."""
    pairs = [a[key] - b[key] for key in a if key in b]
    return (*mean_and_error(pairs), len(pairs))


def cache_bytes(output, group=None):
    """{way: mean over the samples of the bytes of keys, values and state}, if they were measured."""
    found = {}
    for sample in output["samples"]:
        for result in sample["results"] if group in (None, sample["group"]) else []:
            if "cache_bytes" in result:
                found.setdefault((result["method"], result["budget"]), []).append(result["cache_bytes"])
    return {way: statistics.mean(sizes) for way, sizes in found.items()}


def quotient(a, b):
    """(a / b, its standard error) of two means with their errors, from different samples."""
    ratio = a[0] / b[0]
    return ratio, math.hypot(a[1], ratio * b[1]) / b[0]


def groups(output):
    return list(dict.fromkeys(sample["group"] for sample in output["samples"]))


def prefill_times(output):
    """Yields (group, way, prefill seconds, prefill seconds of the full cache) of a measurement of speed; times are (mean, error)."""
    for group in groups(output):
        found = {way: mean_and_error(runs.values()) for way, runs in scores(output, "prefill_s", group).items()}
        for way, seconds in found.items():
            if way[0] != "full":
                yield group, way, seconds, found["full", ""]


def key(way):
    """The key of a way in dicts of numbers."""
    return " ".join(filter(None, way))


def show(value, error, form):
    if not float(f"{value:{form}}"):
        value = 0.0  # no -0.000
    return f"{value:{form}} ± {error:{form}}"


def label(name, short=None):
    """The name of a way on the page, from its key."""
    method, _, budget = name.partition(" ")
    if short and method in short:
        return short[method] + (f" ({budget})" if budget else "")
    return f"`{method}`" + (f" {budget}" if budget else "")


def in_mib(sizes, name):
    return f" ({sizes[name] / 2**20:.2f} MiB)" if name in sizes else ""


def number_of_samples(counts):
    """The text "; n = 40", or a range from the smallest to the largest count."""
    counts = sorted(set(counts))
    return f"; n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
