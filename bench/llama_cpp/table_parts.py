"""The parts of the speed table: the runs, their order, and the goal of each cell."""

import statistics

from make_shapes import SHAPES

SETTINGS = "on,off,off-kq8"
NAMES = {"on": "fa on", "off": "fa off", "off-kq8": "fa off, K q8_0", "repacked": "fa on, repacked"}
SMALL, MIDDLE, LARGE = SHAPES
DEPTHS = (4096, 16384, 32768)

PARTS = {}


def part(title, text):
    def register(function):
        function.title, function.text = title, text
        PARTS[function.__name__] = function
        return function
    return register


class Run:
    """State shared by the parts: the engines, the number of rounds, and llama.cpp's decode speeds at depth."""

    def __init__(self, engines, args, bandwidth):
        self.engines, self.rounds, self.quick, self.bandwidth = engines, args.rounds, args.quick, bandwidth
        self.files = [(shape, kind) for shape in ([SMALL] if args.quick else args.shapes) for kind in args.types]
        self._at_depth = {}
        self.full_depths = "4096" if self.quick else "4096,16384"  # depths of the rows with a full cache

    def depths(self, shape):
        depths = (DEPTHS[:2] if shape == MIDDLE else DEPTHS)
        return depths[:2] if self.quick else depths

    def llama_at_depth(self, shape, kind):
        """{(test, depth): {setting: samples}} of all runs so far; the first call starts a run."""
        if (shape, kind) not in self._at_depth:
            self.run_llama_at_depth(shape, kind)
        return self._at_depth[shape, kind]

    def run_llama_at_depth(self, shape, kind):
        rates, model = self._at_depth.setdefault((shape, kind), {}), self.engines.model(shape, kind)
        depths = ",".join(map(str, self.depths(shape)))
        decode, read = worth_running(rates, ["tg"], SETTINGS), worth_running(rates, ["pp"], "on,off")
        collect(rates, self.engines.llama(model, "-d", depths, "-p", 0, "-n", 8, "-r", 2, "-s", decode)["tests"])
        if shape == SMALL:  # only this shape has a row for reading
            collect(rates, self.engines.llama(model, "-d", self.full_depths, "-p", 512, "-n", 0, "-s", read)["tests"])

    def limit(self, row):
        """Share of the memory bandwidth that decode reached: weights and cache are read once per token."""
        return statistics.median(row["samples_ts"]) * (row["model_size"] + row["kv_bytes"]) / 1e9 / self.bandwidth


def collect(rates, tests):
    for test in tests:
        rates.setdefault((test["test"], test["depth"]), {}).setdefault(test["setting"], []).extend(test["samples_ts"])


def best(by_setting):
    return max(by_setting.items(), key=lambda item: statistics.median(item[1]))


def worth_running(rates, tests, settings):
    """All settings at first; once there are samples, the settings that are close to the best in some test at some depth."""
    near = 0.8  # a setting whose first samples are slower than this is not the best, even on a noisy machine
    found = [by_setting for (name, _), by_setting in rates.items() if name in tests]
    worth = {setting for by_setting in found for setting, samples in by_setting.items()
             if max(samples) >= near * max(map(max, by_setting.values()))}  # fmt: skip
    return ",".join(s for s in settings.split(",") if s in worth) or settings


def cell(name, winnow, rival, goal, unit="tokens/s", rival_name="", limit=None, lower=False, score=None):
    """score: compared with the goal; without it the ratio of the medians is."""
    if score is None:
        score = statistics.median(winnow) / statistics.median(rival)
    return {"name": name, "unit": unit, "winnow": winnow, "rival": rival, "rival_name": rival_name, "score": score, "goal": goal,
            "lower": lower, "limit": limit}  # fmt: skip


def against(name, winnow, by_setting, goal, limit=None):
    setting, samples = best(by_setting)
    return cell(name, winnow, samples, goal, rival_name=NAMES[setting], limit=limit)


def ratio_row(name, ratios, goal):
    return cell(name, [], [], goal, unit="", score=ratios)


def alternate(run, model, rival):
    """(rates of the rival, rates of winnow, last rows of winnow) with an empty cache. rival(rates): one run of it, of which "tests" counts."""
    rates, ours, last = {}, {"pp": [], "tg": []}, {}
    for turn in range(run.rounds if not run.quick else 2):
        for who in ("winnow", "rival")[:: 1 if turn % 2 == 0 else -1]:
            if who == "rival":
                collect(rates, rival(rates)["tests"])
                continue
            for row in run.engines.winnow(model, "-p", 512, "-n", 64, "-r", 1):
                test = "pp" if row["n_prompt"] else "tg"
                ours[test] += row["samples_ts"]
                last[test] = row
    return rates, ours, last


@part("Empty cache: all shapes and types", "Prefill of 512 tokens (pp512) and decode of 64 (tg64).")
def engine(run):
    cells, decode, prefill = [], [], []
    for shape, kind in run.files:
        model = run.engines.model(shape, kind)
        rates, ours, last = alternate(run, model, lambda found, file=model: run.engines.llama(
            file, "-p", 512, "-n", 64, "-s", worth_running(found, ["pp", "tg"], "on,off")))  # fmt: skip
        pp = against(f"{shape} {kind} pp512", ours["pp"], rates["pp", 0], 1.0 if kind in ("F16", "BF16") else 0.95)
        # The cache holds at most 64 entries: its bytes are negligible here.
        of_limit = statistics.median(ours["tg"]) * last["tg"]["model_size"] / 1e9 / run.bandwidth
        tg = against(f"{shape} {kind} tg64", ours["tg"], rates["tg", 0], 1.0, limit=of_limit)
        cells += [pp, tg]
        prefill.append(pp["score"])
        decode.append(tg["score"])
        bound = {"F16": 0.9, "Q8_0": 0.9, "Q4_0": 0.8}.get(kind) if shape == LARGE else None
        if bound:
            cells.append(cell(f"{shape} {kind} tg64, share of the bandwidth", [], [], bound, unit="", score=of_limit))
    return cells + [ratio_row("pp512, geometric mean", statistics.geometric_mean(prefill), 1.15),
                    ratio_row("tg64, geometric mean", statistics.geometric_mean(decode), 1.15)]  # fmt: skip


@part("ik_llama.cpp, empty cache", "Against ik_llama.cpp (PyPI's ik-llama-cpp-python 0.1.5, compiled for this machine) at the better of its settings: with and without "
      "repacked weights, which are BF16 for F16; flash attention on. Not in `make bench`, but `bench/llama_cpp/run.sh WINNOW --parts ik_llama`.")
def ik_llama(run):
    cells = []
    for shape, kind in run.files:
        model = run.engines.model(shape, kind)
        rates, ours, _ = alternate(run, model, lambda _, file=model: run.engines.ik_llama(file, "-p", 512, "-n", 64))
        cells += [against(f"{shape} {kind} {name}", ours[test], rates[test, 0], 1.0) for test, name in (("pp", "pp512"), ("tg", "tg64"))]
    return cells


@part("A full cache, at depth", "Decode with the given number of cached tokens, and prefill of 512 more. llama.cpp runs before winnow and after it.")
def depth(run):
    goals = {SMALL: {4096: 1.9, 16384: 2.4}, MIDDLE: {4096: 1.6, 16384: 2.4}, LARGE: {4096: 1.6, 16384: 2.0}}
    cells = []
    for shape, kind in ((SMALL, "Q8_0"), (MIDDLE, "Q8_0"), (LARGE, "Q4_0"))[: 1 if run.quick else 3]:
        run.run_llama_at_depth(shape, kind)
        flags = ["-p", 512 if shape == SMALL else 0, "-n", 32, "-r", run.rounds, "-d", run.full_depths]
        rows = run.engines.winnow(run.engines.model(shape, kind), *flags)
        run.run_llama_at_depth(shape, kind)
        rates = run.llama_at_depth(shape, kind)
        own = {}
        for row in rows:
            at = row["n_depth"]
            if row["n_prompt"]:
                own[at] = row["samples_ts"]
                cells.append(against(f"{shape} {kind} pp512 at {at}", row["samples_ts"], rates["pp", at], {4096: 2.0, 16384: 3.0}[at]))
            else:
                cells.append(against(f"{shape} {kind} decode at {at}", row["samples_ts"], rates["tg", at], goals[shape][at], run.limit(row)))
        if shape == SMALL and not run.quick:
            cells += quantised_cache(run, own)
    return cells


def quantised_cache(run, of_f16):
    """The small shape with keys and values in q8_0."""
    model, types = run.engines.model(SMALL, "Q8_0"), ["-ctk", "q8_0", "-ctv", "q8_0"]
    rates = {}
    cells = []

    def llama():
        collect(rates, run.engines.llama(model, *types, "-p", 0, "-n", 8, "-r", 2, "-d", "16384", "-s", "on")["tests"])

    llama()
    rows = run.engines.winnow(model, *types, "-p", 512, "-n", 32, "-r", run.rounds, "-d", "4096,16384")
    llama()
    for row in rows:
        at = row["n_depth"]
        if row["n_prompt"]:
            slower = statistics.median(of_f16[at]) / statistics.median(row["samples_ts"])
            cells.append(cell(f"{SMALL} Q8_0, q8_0 cache: pp512 at {at}, time against winnow's f16 cache", row["samples_ts"], of_f16[at],
                              1.15, rival_name="f16", lower=True, score=slower))  # fmt: skip
        elif at == 16384:
            cells.append(against(f"{SMALL} Q8_0, q8_0 cache: decode at {at}", row["samples_ts"], rates["tg", at], 4.0, run.limit(row)))
    return cells


@part("Reading a prompt while it is compressed", "8192 tokens, budget 1024, against llama.cpp's plain prefill of 8192 tokens.")
def prefill(run):
    model, n = run.engines.model(SMALL, "Q8_0"), 2048 if run.quick else 8192
    rates = {}
    # 512 tokens in the middle of the prompt show which setting is best; the whole prompt takes a minute with each.
    probe = {}
    collect(probe, run.engines.llama(model, "-p", 512, "-n", 0, "-d", n // 2, "-s", "on,off")["tests"])
    settings = worth_running(probe, ["pp"], "on,off")
    collect(rates, run.engines.llama(model, "-p", n, "-n", 0, "-s", settings)["tests"])

    def winnow(repeats, methods):
        return run.engines.winnow(model, "-p", n, "-n", 0, "-r", repeats, "--kv-method", methods, "--kv-size", 1024)

    rows = winnow(1, "full") + winnow(2, "h2o,d2o,ems")
    collect(rates, run.engines.llama(model, "-p", n, "-n", 0, "-s", worth_running(rates, ["pp"], settings))["tests"])
    goals = {} if run.quick else dict.fromkeys(("h2o", "d2o", "ems"), 1.3)
    return [against(f"{SMALL} Q8_0, {row['kv_method']}: pp{n}", row["samples_ts"], rates["pp", 0], goals.get(row["kv_method"]))
            for row in rows]  # fmt: skip


@part("Decode with a budget of 1024 entries, at depth",
      "The prompt is read in pieces of 512 tokens and compressed after each; against llama.cpp with the full cache.")
def budget(run):
    goals = {SMALL: {16384: 6.0, 32768: 11.0}, LARGE: {16384: 2.7, 32768: 5.0}}
    # For the large shape only the most expensive method: reading such a long prompt takes minutes for each method.
    full = ((SMALL, "Q8_0", "treekv,snapkv,hbw,h2o", "16384,32768"), (LARGE, "Q4_0", "treekv", "16384,32768"))
    cells = []
    for shape, kind, methods, depths in ((SMALL, "Q8_0", "treekv,snapkv", "16384"),) if run.quick else full:
        rates = run.llama_at_depth(shape, kind)
        for row in run.engines.winnow(run.engines.model(shape, kind), "-p", 0, "-n", 64, "-r", run.rounds, "-d", depths,
                                      "--kv-size", 1024, "--prefill-chunk", 512, "--kv-method", methods):  # fmt: skip
            at = row["n_depth"]
            cells.append(against(f"{shape} {kind}, {row['kv_method']}: decode at {at}", row["samples_ts"], rates["tg", at],
                                 goals[shape][at], run.limit(row)))  # fmt: skip
    return cells


@part("A batch of 32 sequences", "Decode; every sequence holds 512 tokens of its own.")
def batch(run):
    model, rates, ours = run.engines.model(SMALL, "Q8_0"), {}, []
    for _ in range(2):
        collect(rates, run.engines.llama(model, "-B", 32, "-d", "512", "-p", 0, "-n", 12, "-s", "on,off")["tests"])
        (row,) = run.engines.winnow(model, "-B", 32, "-d", 512, "-p", 0, "-n", 48, "-r", 2)
        ours += row["samples_ts"]
    return [against(f"{SMALL} Q8_0, 32 sequences", ours, rates["tg", 512], 3.0)]


@part("The same memory for model, buffers and caches",
      "Tokens generated per second over the whole time, against winnow's own full cache, the largest batch that fits in each case. Computed from the time of a "
      "prompt and of steps at some depths.")
def memory(run):
    cells = []
    for limit, n_prompt, n_generate, size, methods, goal in (("384M", 512, 2048, 512, ("streaming", "h2o"), 3.0),
                                                             ("1G", 512, 2048, 512, ("streaming",), 3.0),
                                                             ("1G", 4096, 8192, 256, ("streaming", "h2o"), 6.7)):  # fmt: skip
        base = None
        for method in ("full", *(methods[:1] if run.quick else methods)):
            rate, n = batch_rate(run, limit, n_prompt, n_generate, method, size)
            if method == "full":
                base = rate
                name = f"full cache, {n} sequences"
            else:
                cells.append(cell(f"{limit}, {n_prompt}+{n_generate}, {method} {size}: {n} sequences", [rate], [base], goal, rival_name=name))
        if run.quick:
            break
    return cells


def batch_rate(run, limit, n_prompt, n_generate, method, size):
    """(generated tokens per second, sequences of the largest batch within the limit)"""
    model = run.engines.model(SMALL, "Q8_0")
    flags = ["--kv-method", method, "--kv-size", size]
    (plan,) = run.engines.winnow(model, "-p", n_prompt, "-n", n_generate, "--memory-limit", limit, "--dry-run", *flags)
    n = plan["n_sequences"]
    (prompt,) = run.engines.winnow(model, "-p", n_prompt, "-n", 0, "-r", 2, *flags)
    points = [n_prompt] if method != "full" else [n_prompt, n_prompt + n_generate // 2, n_prompt + n_generate - 8]
    rows = run.engines.winnow(model, "-p", 0, "-n", 8 if method == "full" else 24, "-B", n, "-r", 1, "-d", ",".join(map(str, points)), *flags)
    steps = [row["step_ms"] / 1e3 for row in rows]
    # Simpson's rule: the time of a step is nearly linear in the depth.
    mean = steps[0] if len(steps) == 1 else (steps[0] + 4 * steps[1] + steps[2]) / 6
    return n * n_generate / (n * n_prompt / prompt["avg_ts"] + n_generate * mean), n


@part("Time to the first token, loading included", f"{LARGE} Q4_0 in the page cache, a prompt of four words, context 512, one token; the whole process for winnow, from the "
      "loading on for llama.cpp.")
def load(run):
    model = run.engines.model(LARGE, "Q4_0")
    run.engines.winnow_load(model)
    ours, theirs = [], []
    for _ in range(3 if run.quick else 5):
        theirs.append(run.engines.llama(model, "--load"))
        ours.append(run.engines.winnow_load(model))
    seconds = [s for s, _ in ours]
    resident = [m for _, m in ours]
    return [cell("time to the first token", seconds, [t["seconds"] for t in theirs], 0.52, unit="s", lower=True, score=statistics.median(seconds)),
            cell("peak resident memory", resident, [t["resident_mib"] for t in theirs], 830, unit="MiB", lower=True,
                 score=statistics.median(resident))]  # fmt: skip
