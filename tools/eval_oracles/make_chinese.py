#!/usr/bin/env python3
"""Writes the expected results of jieba and LongBench's Chinese scores for
src/eval/metrics/jieba_test.cc.

expected/jieba/: a dictionary and model tables drawn at random over a few characters, in the files
and format of the package. expected/jieba.json: how jieba splits random texts with these, and how
it splits sentences and scores answers with its own tables. Its tables are not copied here: the
test reads them from an installed package.

    build/eval-oracles/bin/pip install -r tools/eval_oracles/requirements.txt
    build/eval-oracles/bin/python tools/eval_oracles/make_chinese.py
"""
import collections
import json
import math
import pathlib
import random
import string

import jieba
import jieba.finalseg
import rouge

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/eval/metrics/expected"
HAN = "天地人山水火木金土日月风云花鸟鱼船灯城书"
OTHER = ["a", "Zq", "x1", "3.14", "50%", "C++", "#", "&", "_", "-", ".", " ", "\n", "\r\n", "，", "。", "é", "7", "%", "+"]
SENTENCES = """红灯笼的密码是四万八千二百一十三。|他把船长写的信藏在旧钟楼的抽屉里，谁也没有找到。|公司2023年的营业额增长了12.5%，利润却下降了。
会议讨论了三个问题：预算、人员和时间表；下一次会议定在星期五上午9点。|我在图书馆里借了两本关于机器学习的书|这座桥是什么时候修建的？
小明问：“C++和Python哪个更难？”|研究生命的起源|南京市长江大桥|结婚的和尚未结婚的|工信处女干事每月经过下属科室都要亲口交代
他说的确实在理|乒乓球拍卖完了|龘靐齉爩在字典里很少见|段落12讲的是渔民和他们的孩子|AT&T 和 T恤、B超都是词|价格是￥3,500元（含税）
王小波在云南插队时写下了《黄金时代》|人工智能正在改变医疗、教育和交通。|请用一句话总结会议的内容|1998年夏天，长江发生了特大洪水
答案：不知道|繁體字也要切開，例如圖書館與電腦|ＡＢＣ全角字母１２３|　　两个全角空格|换行\n之后\r\n还有 空格\t制表""".replace("\n", "|").replace("\\n", "\n").replace(
    "\\r", "\r").replace("\\t", "\t").split("|")
PUNCTUATION = set(string.punctuation + "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.")


def tables(rng):
    """(dictionary lines, start, transitions, emissions), random, in the format of the package's
    files."""
    words = {"".join(rng.choices(HAN, k=rng.choice((1, 2, 2, 3, 4)))): rng.choice((0, 1, 3, 30, 400, 5000)) for _ in range(150)}
    words.update({"x1": 40, "C++": 7, "a-Z": 2})
    log = lambda: round(-rng.uniform(0.1, 4), 6)  # noqa: E731
    start = {"B": log(), "E": -3.14e100, "M": -3.14e100, "S": log()}
    transitions = {"B": {"E": log(), "M": log()}, "E": {"B": log(), "S": log()}, "M": {"E": log(), "M": log()}, "S": {"B": log(), "S": log()}}
    emissions = {s: {c: log() for c in HAN if rng.random() < 0.8} for s in "BEMS"}
    return words, start, transitions, emissions


def literal(table):
    return "P=" + json.dumps(table, indent=1).replace('"', "'") + "\n"


def normalise(text):
    return "".join("".join(c for c in text.lower() if c not in PUNCTUATION).split())


def f1(answer, reference):
    a, b = ([w for w in map(normalise, jieba.cut(x)) if w] for x in (answer, reference))
    shared = sum((collections.Counter(a) & collections.Counter(b)).values())
    return 2 * shared / (len(a) + len(b)) if shared else 0.0


def rouge_l(answer, reference):
    try:
        return rouge.Rouge().get_scores([" ".join(jieba.cut(answer))], [" ".join(jieba.cut(reference))], avg=True)["rouge-l"]["f"]
    except ValueError:
        return 0.0


def main():
    rng = random.Random(5)
    sentences = [{"text": s, "words": list(jieba.cut(s))} for s in SENTENCES]
    pairs = []
    for n in range(60):
        reference = rng.choice(SENTENCES)
        words = list(jieba.cut(reference))
        for _ in range(rng.randrange(4)):
            words.insert(rng.randrange(len(words) + 1), rng.choice(list(jieba.cut(rng.choice(SENTENCES)))))
            words.pop(rng.randrange(len(words)))
        answer = "".join(words) if n > 2 else ("", "。", reference)[n]
        pairs.append({"answer": answer, "reference": reference, "f1": f1(answer, reference), "rouge_l": rouge_l(answer, reference)})
    words, start, transitions, emissions = tables(rng)
    folder = OUT / "jieba"
    (folder / "finalseg").mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("".join(f"{w} {f} n\n" for w, f in words.items()), encoding="utf-8")
    for name, table in (("start", start), ("trans", transitions), ("emit", emissions)):
        (folder / f"finalseg/prob_{name}.py").write_text(literal(table))
    jieba.finalseg.start_P, jieba.finalseg.trans_P, jieba.finalseg.emit_P = start, transitions, emissions
    small = jieba.Tokenizer(str(folder / "dict.txt"))
    small.cache_file = str(OUT / "jieba.cache")
    random_texts = []
    for _ in range(200):
        text = "".join(rng.choice(HAN) if rng.random() < 0.85 else rng.choice(OTHER) for _ in range(rng.randint(1, 60)))
        random_texts.append({"text": text, "words": list(small.cut(text))})
    (OUT / "jieba.cache").unlink()
    assert all("".join(r["words"]) == r["text"] for r in random_texts) and not any(math.isnan(p["f1"]) for p in pairs)
    parts = ((name, ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows))
             for name, rows in (("random", random_texts), ("sentences", sentences), ("pairs", pairs)))
    (OUT / "jieba.json").write_text("{" + ",\n".join(f'"{name}": [\n{rows}]' for name, rows in parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
