#include "sweep_run.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/rng.h"
#include "compression/registry.h"
#include "model/testing/tiny_model.h"
#include "runtime/session/batch.h"
#include "runtime/session/session.h"

namespace winnow::sweep {
namespace {

using runtime::Engine;
using runtime::Session;
using runtime::TokenId;

constexpr int kVocabulary = 70;

// The visible state of a session. Refusals must not change it, nor may the number of threads.
struct State {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
  std::vector<std::vector<cache::Position>> kept;  // [layer * n_kv_heads + head], oldest first
  int64_t cache_bytes = 0;
  bool operator==(const State&) const = default;
};

State StateNow(const Session& session) {
  State state = {.tokens = {session.tokens().begin(), session.tokens().end()},
                 .logits = {session.logits().begin(), session.logits().end()},
                 .kept = {},
                 .cache_bytes = session.cache_bytes()};
  const cache::Cache& cache = session.cache();
  const cache::CacheShape& shape = cache.config().shape;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      std::vector<cache::Position>& kept = state.kept.emplace_back();
      for (const cache::Slot slot : cache.order(layer, head)) {
        kept.push_back(cache.positions(layer, head)[static_cast<size_t>(slot)]);
      }
    }
  }
  return state;
}

// One case with one number of threads.
class SweepSession {
 public:
  SweepSession(Engine& engine, const Case& c, Counts& counts)
      : engine_(engine), case_(c), counts_(counts), rng_(c.seed ^ 0x5eed) {}

  // Returns what is violated; empty: nothing.
  std::string Run() {
    auto session = Open();
    if (!session) return problem_;
    session_ = std::move(session);
    for (const Turn& turn : case_.turns) {
      if (!TakeTurn(turn) || !problem_.empty()) return problem_;
      ends_.push_back(StateNow(*session_));
    }
    return problem_;
  }
  const std::vector<State>& ends() const { return ends_; }

 private:
  // Null: refused, or a problem.
  std::unique_ptr<Session> Open() {
    runtime::SessionOptions options = {.context = case_.context,
                                       .key_type = case_.key_type,
                                       .value_type = case_.value_type,
                                       .row_block = case_.row_block};
    runtime::CompressionOptions& compression = options.compression;
    if (!case_.method.empty()) {
      compression.method = compression::MakeMethod(case_.method).value();
      if (!case_.decode.empty()) {
        compression.method = compression::WithDecode(compression.method,
                                                     compression::MakeMethod(case_.decode).value())
                                 .value();
      }
    }
    compression.size = case_.size;
    compression.ratio = case_.ratio;
    compression.memory_bytes = case_.memory_bytes;
    compression.prefill_chunk = case_.chunk;
    compression.reserve_tokens = case_.reserve_tokens;
    compression.on_plan = [this](const cache::Plan&, const runtime::PlanContext& context) {
      peak_ = std::max(peak_, context.cache.live_bytes());
    };
    auto session = Session::Make(engine_, options);
    if (session) return std::move(session).value();
    Refused(session.error());
    return nullptr;
  }

  void Refused(const Error& error) {
    ++counts_.n_refused;
    if (error.message.empty()) problem_ = "an error without a message";
  }

  std::vector<TokenId> Tokens(int n) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng_.Below(kVocabulary));
    return tokens;
  }

  // False: the rest of the case is skipped.
  bool TakeTurn(const Turn& turn) {
    if (turn.start == Turn::Start::kReset) session_->Reset();
    if (turn.start == Turn::Start::kTruncate) session_->Truncate(session_->n_tokens() / 2);
    if (turn.start == Turn::Start::kFork) {
      auto fork = session_->Fork();
      if (!fork) return Refused(fork.error()), false;
      if (StateNow(**fork) != StateNow(*session_)) return Fail("a fork differs from its original");
      session_ = std::move(fork).value();
    }
    const State before = StateNow(*session_);
    const std::vector<TokenId> prompt = Tokens(turn.n_prompt);
    const auto reserved = session_->Reserve(turn.n_prompt, turn.n_generate);
    if (!reserved) Refused(reserved.error());
    if (StateNow(*session_) != before) return Fail("reserving changed the session");
    peak_ = 0;
    ++counts_.n_prompts;
    const auto read = session_->Prefill(prompt);
    if (!read) {
      Refused(read.error());
      if (StateNow(*session_) != before) return Fail("a refused prompt changed the session");
      return true;
    }
    if (!reserved && turn.n_prompt > 0) {
      return Fail("the plan refuses a prompt that the session accepts: " +
                  reserved.error().message);
    }
    counts_.n_tokens += turn.n_prompt;
    if (session_->n_tokens() != std::ssize(before.tokens) + turn.n_prompt) {
      return Fail("tokens were lost");
    }
    if (reserved) {
      Within(reserved->steady_bytes + reserved->prefill_surplus_bytes, "the prompt");
      peak_ = 0;
      Within(reserved->steady_bytes, "what the prompt left");
    }
    if (!CheckEntries()) return false;
    if (!Generate(turn.n_generate)) return false;
    if (reserved) Within(reserved->steady_bytes, "generating");
    return CheckEntries();
  }

  bool Generate(int n) {
    std::unique_ptr<Session> beside;
    if (case_.together) {
      auto fork = session_->Fork();
      if (!fork) return Refused(fork.error()), true;
      beside = std::move(fork).value();
    }
    runtime::Batch batch(engine_);
    for (int i = 0; i < n; ++i) {
      if (session_->room() <= 0) return true;
      const State before = StateNow(*session_);
      const std::vector<TokenId> tokens = Tokens(2);
      Result<void> done;
      if (beside) {
        const std::vector<Session*> both = {session_.get(), beside.get()};
        done = batch.Decode(both, tokens);
      } else {
        done = session_->Decode(tokens[0]);
      }
      if (!done) {
        Refused(done.error());
        if (StateNow(*session_) != before) return Fail("a refused token changed the session");
        // A method's cache may reach its capacity before the text does; bytes may not run out while
        // there is room.
        const bool bytes = done.error().message.find("bytes") != std::string::npos;
        return !bytes ||
               Fail("a token was refused although there is room: " + done.error().message);
      }
      ++counts_.n_tokens;
      Within(case_.memory_bytes, "a generated token");
    }
    return problem_.empty();
  }

  void Within(int64_t bytes, const std::string& what) {
    const int64_t reached = std::max(peak_, session_->cache_bytes());
    if (reached <= bytes || (case_.memory_bytes == 0 && bytes == 0)) return;
    Fail(what + " took " + std::to_string(reached) + " bytes, " + std::to_string(bytes) +
         " were announced");
  }

  bool CheckEntries() {
    Within(case_.memory_bytes == 0 ? int64_t{1} << 60 : case_.memory_bytes, "the session");
    for (const float logit : session_->logits()) {
      if (!std::isfinite(logit)) return Fail("logits are not finite");
    }
    for (const std::vector<cache::Position>& kept : StateNow(*session_).kept) {
      for (size_t i = 0; i < kept.size(); ++i) {
        const bool after = i == 0 ? kept[i] >= 0 : kept[i] > kept[i - 1];
        if (!after || kept[i] >= session_->n_tokens()) return Fail("entries are not in order");
      }
    }
    return problem_.empty();
  }

  bool Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  Engine& engine_;
  const Case& case_;
  Counts& counts_;
  Rng rng_;
  std::unique_ptr<Session> session_;
  std::vector<State> ends_;
  int64_t peak_ = 0;  // of the live bytes seen by on_plan
  std::string problem_;
};

}  // namespace

Engine& Runner::FindEngine(const Case& c, int n_threads) {
  const std::string key = c.form + "/" + std::to_string(c.n_layers) + "/" +
                          std::to_string(c.n_kv_heads) + "/" + std::to_string(c.dim) + "/" +
                          std::to_string(static_cast<int>(c.weights)) + "/" +
                          std::to_string(n_threads);
  std::unique_ptr<Engine>& engine = engines_[key];
  if (engine) return *engine;
  model::testing::TinySpec spec = model::testing::MakeTinySpec(c.form);
  spec.n_layers = c.n_layers;
  spec.n_kv_heads = c.n_kv_heads;
  spec.key_dim = spec.value_dim = c.dim;
  spec.type = c.weights;
  spec.context = 1024;
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, kVocabulary);
  runtime::EngineOptions options = {.n_threads = n_threads};
  options.file = gguf::File::Parse(builder.Bytes()).value();
  NullLog log;
  engine = Engine::Open(options, log).value();
  return *engine;
}

std::string Runner::Run(const Case& c) {
  ++counts_.n_cases;
  SweepSession first_run(FindEngine(c, c.n_threads), c, counts_);
  std::string problem = first_run.Run();
  if (!problem.empty() || c.other_threads == 0) return problem;
  SweepSession again(FindEngine(c, c.other_threads), c, counts_);
  problem = again.Run();
  if (!problem.empty()) return problem;
  if (first_run.ends() == again.ends()) return "";
  return "different bits with " + std::to_string(c.other_threads) + " threads";
}

}  // namespace winnow::sweep
