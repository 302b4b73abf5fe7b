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

// A prompt that was read, and replayed, and of which nothing was evicted yet: it can be compressed
// to one budget after the other. It holds the full cache.
class UndecidedPrompt {
 public:
  ~UndecidedPrompt();
  // Whether there is such a thing under these options: the method learns the same whatever the
  // budget, and decides only at the end, of a prompt that it takes in at once.
  static bool IsPossible(const SessionOptions& options);
  // Reads a prompt. nullptr: stopped by progress. Errors: those of the session.
  // Requires: IsPossible, more tokens than the smallest budget.
  static Result<std::unique_ptr<UndecidedPrompt>> Read(
      Engine& engine, const SessionOptions& options, std::span<const TokenId> prompt,
      const std::function<bool(double done)>& progress);

  // A session that holds the prompt, with logits, as if it had been read under this budget (slots
  // per KV head). Error: memory refused. Requires: the least that the method takes, and fewer than
  // there are tokens.
  Result<std::unique_ptr<Session>> Compress(int64_t budget) const;
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  UndecidedPrompt(std::unique_ptr<Session> session, std::span<const TokenId> prompt);

  std::vector<TokenId> tokens_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Prefill> prefill_;  // stays at its decision
};

}  // namespace winnow::runtime
