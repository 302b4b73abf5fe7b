#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

class Prefill;

// A prompt that was read, and replayed if the method asks for it, but of which nothing was evicted
// yet: it can be compressed to several budgets, one after another. It holds the full cache.
class UndecidedPrompt {
 public:
  ~UndecidedPrompt();
  // Whether these options allow it: the method learns the same for every budget and decides only at
  // the end; and the prompt is read in one piece, without a limit in bytes and without a search for
  // a quality.
  static bool IsPossible(const SessionOptions& options);
  // Reads a prompt. nullptr: stopped by progress. Errors: those of the session.
  // Requires: IsPossible, more tokens than the smallest budget.
  static Result<std::unique_ptr<UndecidedPrompt>> Read(
      Engine& engine, const SessionOptions& options, std::span<const TokenId> prompt,
      const std::function<bool(double done)>& progress);

  // A session that holds the prompt, with logits, as if it had been read under this budget (slots
  // per KV head). Error: out of memory. Requires: at least the method's minimum, and fewer than the
  // prompt has tokens.
  Result<std::unique_ptr<Session>> Compress(int64_t budget) const;
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  UndecidedPrompt(std::unique_ptr<Session> session, std::span<const TokenId> prompt);

  std::vector<TokenId> tokens_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Prefill> prefill_;  // stopped before the decision
};

}  // namespace winnow::runtime
