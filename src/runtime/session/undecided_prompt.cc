#include "runtime/session/undecided_prompt.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/session/prefill.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {

bool UndecidedPrompt::IsPossible(const SessionOptions& options) {
  const CompressionOptions& compression = options.compression;
  return compression.method && compression.method->traits().decisions.learns_for_all_budgets &&
         compression.prefill_chunk == 0 && compression.memory_bytes == 0 &&
         compression.quality == 0;
}

UndecidedPrompt::UndecidedPrompt(std::unique_ptr<Session> session, std::span<const TokenId> prompt)
    : tokens_(prompt.begin(), prompt.end()),
      session_(std::move(session)),
      prefill_(std::make_unique<Prefill>(session_->data_->engine->step())) {}

UndecidedPrompt::~UndecidedPrompt() = default;

Result<std::unique_ptr<UndecidedPrompt>> UndecidedPrompt::Read(
    Engine& engine, const SessionOptions& options, std::span<const TokenId> prompt,
    const std::function<bool(double done)>& progress) {
  WINNOW_CHECK(IsPossible(options));
  SessionOptions reading = options;
  reading.compression.ratio = 0;
  // Before the decision, any budget that makes the method evict will do.
  reading.compression.size = std::ssize(prompt) - 1;
  WINNOW_ASSIGN(auto session, Session::Make(engine, reading));
  std::unique_ptr<UndecidedPrompt> read(new UndecidedPrompt(std::move(session), prompt));
  const Prefill::Prompt one = {.session = read->session_.get(), .tokens = read->tokens_};
  read->prefill_->Begin({&one, 1});
  if (!read->prefill_->RunToDecision(progress)) return std::unique_ptr<UndecidedPrompt>();
  if (const auto& failure = read->prefill_->failure(0)) return *failure;
  return read;
}

Result<std::unique_ptr<Session>> UndecidedPrompt::Compress(int64_t budget) const {
  const int64_t min = session_->compression().method->traits().budget.min;
  WINNOW_CHECK(prefill_->deciding() && budget >= std::max<int64_t>(1, min) &&
               budget < std::ssize(tokens_));
  SessionOptions options = session_->options();
  options.compression.size = budget;
  return session_->ForkDecided(budget, tokens_, options);
}

}  // namespace winnow::runtime
