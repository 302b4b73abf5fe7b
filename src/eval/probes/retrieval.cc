// Which KV heads retrieve what a question asks for. Codes are hidden in a text and asked for while
// one head after the other is emptied of the document's entries; the loss this adds to the answers
// is that head's part.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "base/log_sum_exp.h"
#include "base/rng.h"
#include "base/statistics.h"
#include "compression/method.h"
#include "eval/probes/probe.h"
#include "eval/tasks/codes.h"
#include "eval/tasks/haystack.h"

namespace winnow::eval {
namespace {

using runtime::Session;
using runtime::TokenId;

constexpr int64_t kCodes = 4;  // per document, each with a question
// Added loss in nats per token, above which a head counts as retrieving.
constexpr double kLoss = 0.1;
constexpr double kStandardErrors = 2;  // and above this many standard errors

// Empties one head when a token is decoded, and does nothing else. The head keeps the new entry and
// its first one, the attention sink of heads that retrieve nothing.
class HeadEvictor final : public compression::Method {
 public:
  HeadEvictor() {
    traits_.spec = "empty head";
    traits_.decisions = {.prefill = compression::DecisionPolicy::Prefill::kNever,
                         .evicts_in_decode = true};
    traits_.budget.needed = false;
  }
  const compression::Traits& traits() const override { return traits_; }
  compression::Needs needs() const override { return {}; }
  void Decide(const compression::LayerCall& call, compression::PlanList& plans) const override {
    if (call.phase != compression::Phase::kDecode || call.layer != layer) return;
    const auto order = call.order(kv_head);
    auto& evict = plans.Add(layer, call.n_kv_heads()).heads[static_cast<size_t>(kv_head)].evict;
    const auto n_old = static_cast<int64_t>(order.size()) - call.n_new;
    if (n_old > 1) evict.assign(order.begin() + 1, order.begin() + n_old);
  }

  int layer = -1;  // -1: none
  int kv_head = 0;

 private:
  compression::Traits traits_;
};

// A document with codes, followed for each code by a question and its answer.
struct Document {
  struct Ending {
    std::vector<TokenId> tokens;  // question and answer
    size_t n_question = 0;
  };
  std::vector<TokenId> tokens;
  std::vector<Ending> endings;
};

// The length of the common prefix. Text, question and answer are encoded together; the tokens
// shared with the encoding of a beginning alone show where each part ends.
size_t CommonPrefix(const std::vector<TokenId>& whole, const std::vector<TokenId>& start) {
  const auto ends = std::mismatch(whole.begin(), whole.end(), start.begin(), start.end());
  return static_cast<size_t>(ends.first - whole.begin());
}

Result<Document> DocumentFrom(const tokenizer::Tokenizer& tokenizer,
                              const std::vector<TokenId>& sample, uint64_t seed) {
  const std::string hay_text = tokenizer.Decode(sample);
  if (hay_text.empty()) {
    return Error{"a sample of " + std::to_string(sample.size()) +
                 " tokens decodes to an empty text; use more tokens"};
  }
  Rng rng(seed);
  std::set<std::string> things;
  std::vector<HiddenCode> codes;
  std::vector<Needle> needles;
  for (int64_t i = 0; i < kCodes; ++i) {
    codes.push_back(DrawCode(rng, things));
    needles.push_back({codes.back().Statement(), 100.0 * (static_cast<double>(i) + 0.5) / kCodes});
  }
  const Haystack hay(tokenizer, hay_text);
  const std::string text = hay.Build(static_cast<int64_t>(sample.size()), 0, needles);
  Document document = {tokenizer.Encode(text), {}};
  if (tokenizer.adds_eos() && !document.tokens.empty()) document.tokens.pop_back();
  std::vector<std::vector<TokenId>> wholes;
  std::vector<size_t> answers;  // index of their first token
  size_t n_shared = document.tokens.size();
  for (const HiddenCode& code : codes) {
    const std::string question = text + "\n\nQuestion: " + code.Question() + "\nAnswer:";
    std::vector<TokenId> whole = tokenizer.Encode(question + " " + code.code);
    if (tokenizer.adds_eos()) whole.pop_back();
    answers.push_back(CommonPrefix(whole, tokenizer.Encode(question)));
    n_shared = std::min(n_shared, CommonPrefix(whole, document.tokens));
    wholes.push_back(std::move(whole));
  }
  document.tokens.resize(n_shared);
  for (size_t i = 0; i < wholes.size(); ++i) {
    const auto begin = wholes[i].begin() + static_cast<int64_t>(n_shared);
    document.endings.push_back({{begin, wholes[i].end()}, answers[i] - n_shared});
  }
  return document;
}

struct Answered {
  double loss = 0;     // nats per token of the answer
  bool right = false;  // every token of it was the most likely one
};

Result<Answered> Answer(const Session& read, const Document::Ending& ending) {
  WINNOW_ASSIGN(const auto session, read.Fork());
  Answered answered = {.loss = 0, .right = true};
  const auto n_answer = static_cast<double>(ending.tokens.size() - ending.n_question);
  Session::PrefillOptions options;
  options.logits_from = static_cast<int64_t>(ending.n_question) - 1;
  options.on_logits = [&](int64_t first_row, std::span<const float> logits) {
    const auto n_vocabulary = static_cast<size_t>(session->engine().tokenizer().vocabulary_size());
    for (size_t at = 0; at < logits.size(); at += n_vocabulary, ++first_row) {
      const auto next = static_cast<size_t>(first_row) + 1;
      if (next >= ending.tokens.size()) return;
      const std::span<const float> row = logits.subspan(at, n_vocabulary);
      const auto wanted = static_cast<size_t>(ending.tokens[next]);
      answered.loss += (LogSumExp(row) - row[wanted]) / n_answer;
      answered.right = answered.right && row[wanted] >= *std::max_element(row.begin(), row.end());
    }
  };
  WINNOW_TRY(session->Prefill(ending.tokens, options));
  return answered;
}

// Answers all questions with one head emptied, or with none.
class Reader {
 public:
  explicit Reader(const ProbeTask& task) : task_(task), evictor_(std::make_shared<HeadEvictor>()) {}

  Result<bool> Read(const Document& document) {
    runtime::SessionOptions options = task_.session;
    options.compression = {.method = evictor_};
    WINNOW_ASSIGN(session_, Session::Make(task_.engine, options));
    document_ = &document;
    return session_->Prefill(std::span(document.tokens).first(document.tokens.size() - 1));
  }

  Result<std::vector<Answered>> Answers(int layer, int kv_head) {
    evictor_->layer = layer;
    evictor_->kv_head = kv_head;
    WINNOW_ASSIGN(const auto read, session_->Fork());
    WINNOW_TRY(read->Decode(document_->tokens.back()));
    std::vector<Answered> answers;
    for (const Document::Ending& ending : document_->endings) {
      WINNOW_ASSIGN(const Answered answered, Answer(*read, ending));
      answers.push_back(answered);
    }
    return answers;
  }

 private:
  const ProbeTask& task_;
  std::shared_ptr<HeadEvictor> evictor_;
  std::unique_ptr<Session> session_;
  const Document* document_ = nullptr;
};

struct RetrievalHead {
  int layer = 0, kv_head = 0;
  MeanEstimate added;  // loss above that of the full cache, per question
  MeanEstimate right;

  bool retrieves() const {
    return added.mean() > kLoss && added.mean() > kStandardErrors * added.standard_error();
  }
  std::string name() const { return std::to_string(layer) + "." + std::to_string(kv_head); }
  report::Record record() const {
    return {{"layer", layer},
            {"kv_head", kv_head},
            {"added_loss", added.mean()},
            {"standard_error", added.standard_error()},
            {"right", right.mean()}};
  }
};

struct Measured {
  MeanEstimate loss, right;          // of the full cache
  std::vector<RetrievalHead> heads;  // layer by layer
};

Findings FindingsFrom(const Measured& measured, int64_t n_documents) {
  report::BarChart chart = {.x_label = "layer.head",
                            .categories = {},
                            .y = {.label = "nats per answer token", .from = {}, .to = {}},
                            .series = {{"loss added", {}}}};
  report::List rows;
  for (const RetrievalHead& head : measured.heads) {
    chart.categories.push_back(head.name());
    chart.series[0].values.push_back(head.added.mean());
    rows.emplace_back(head.record());
  }
  std::vector<RetrievalHead> sorted = measured.heads;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const RetrievalHead& a, const RetrievalHead& b) {
                     return a.added.mean() > b.added.mean();
                   });
  const auto n_retrieving = std::count_if(
      sorted.begin(), sorted.end(), [](const RetrievalHead& head) { return head.retrieves(); });
  report::Table table = {
      .name = "retrieval-heads",
      .title = "Heads by added loss, largest first",
      .caption = "Right: share of the questions that are still answered in full.",
      .rows = {}};
  for (const RetrievalHead& head : sorted) {
    if (table.rows.size() < 16) table.rows.push_back(head.record());
  }
  Findings findings;
  findings.summary = {{"documents", n_documents},        {"questions", measured.loss.count()},
                      {"loss", measured.loss.mean()},    {"right", measured.right.mean()},
                      {"retrieval_heads", n_retrieving}, {"heads", std::move(rows)}};
  findings.text = "Of " + std::to_string(measured.heads.size()) + " KV heads " +
                  std::to_string(n_retrieving) +
                  " retrieve: if one of them is emptied, it adds more than 0.1 nats (and two "
                  "standard errors) to the loss per answer token. With all heads " +
                  std::to_string(std::lround(100 * measured.right.mean())) + " % of " +
                  std::to_string(measured.right.count()) +
                  " questions are answered; if that is low, the figure means little.";
  findings.tables.push_back(std::move(table));
  findings.figures.push_back(
      {.name = "retrieval",
       .title = "Loss that answers gain when one head is emptied",
       .caption = "Four codes hidden in each text, asked for in turn. The head loses all entries "
                  "of the document but the first, the other heads keep theirs; the question is "
                  "read afterwards. Mean over all questions.",
       .panels = {{"", std::move(chart)}}});
  return findings;
}

}  // namespace

Result<std::optional<Findings>> ProbeRetrieval(const ProbeTask& task) {
  const cache::CacheShape shape = task.engine.model().cache_shape();
  Measured measured;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      measured.heads.push_back({layer, head, {}, {}});
    }
  }
  const auto n_steps = static_cast<double>(task.samples.size() * measured.heads.size());
  double n_done = 0;
  uint64_t seed = 0;
  Reader reader(task);
  for (const auto& sample : task.samples) {
    WINNOW_ASSIGN(const Document document, DocumentFrom(task.engine.tokenizer(), sample, seed++));
    WINNOW_TRY(reader.Read(document));
    WINNOW_ASSIGN(const std::vector<Answered> full, reader.Answers(-1, 0));
    for (const Answered& answered : full) {
      measured.loss.Add(answered.loss);
      measured.right.Add(answered.right ? 1 : 0);
    }
    for (RetrievalHead& head : measured.heads) {
      if (!task.Progressed(n_done++ / n_steps)) return std::optional<Findings>();
      WINNOW_ASSIGN(const std::vector<Answered> answers, reader.Answers(head.layer, head.kv_head));
      for (size_t i = 0; i < answers.size(); ++i) {
        head.added.Add(answers[i].loss - full[i].loss);
        head.right.Add(answers[i].right ? 1 : 0);
      }
    }
  }
  return std::optional(FindingsFrom(measured, static_cast<int64_t>(task.samples.size())));
}

}  // namespace winnow::eval
