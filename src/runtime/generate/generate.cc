#include "runtime/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "runtime/generate/logits.h"
#include "runtime/generate/text_stream.h"

namespace winnow::runtime {
namespace {

using SteadyClock = std::chrono::steady_clock;

double MillisecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

bool IsSet(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

double PerSecond(int64_t n, double ms) {
  return n > 0 && ms > 0 ? 1000.0 * static_cast<double>(n) / ms : 0;
}

Result<void> CheckPrompt(const Session& session, std::span<const TokenId> prompt) {
  if (prompt.empty()) {
    return Error{"the prompt is empty and the model adds no BOS token"};
  }
  const int64_t n_prompt = static_cast<int64_t>(prompt.size());
  if (n_prompt > session.capacity()) {
    return Error{"the prompt is " + std::to_string(n_prompt) + " tokens, the context holds " +
                 std::to_string(session.capacity())};
  }
  return {};
}

// Checks that there is room for the part of the prompt that the session lacks, before the session
// drops what it has beyond their common prefix: a refused prompt changes nothing.
Result<void> CheckRest(Session& session, std::span<const TokenId> prompt) {
  const CompressionOptions& compression = session.compression();
  const bool forgets = session.CommonPrefix(prompt) < session.n_tokens();
  if (!forgets || (!compression.method && compression.memory_bytes == 0)) return {};
  // With a method the session would be empty; without one the bytes are those of the whole prompt.
  WINNOW_ASSIGN(const std::unique_ptr<Session> anew,
                Session::Make(session.engine(), session.options()));
  return anew->CheckRoom(std::ssize(prompt));
}

// Error: the constraint cannot go on.
Result<void> CheckConstraint(const TokenConstraint& constraint) {
  if (std::string problem = constraint.problem(); !problem.empty()) {
    return Error{std::move(problem)};
  }
  return {};
}

// The next token, among those that the constraint allows. `masked`: scratch for the logits.
Result<TokenId> ChooseToken(Session& session, Sampler& sampler, TokenConstraint* constraint,
                            std::vector<float>& masked) {
  WINNOW_TRY(CheckLogits(session));
  if (constraint == nullptr) return sampler.Sample(session.logits());
  masked.assign(session.logits().begin(), session.logits().end());
  constraint->Mask(masked);
  WINNOW_TRY(CheckConstraint(*constraint));
  const auto possible = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (std::ranges::none_of(masked, possible)) {
    return Error{"the grammar allows no token here"};
  }
  WINNOW_ASSIGN(const TokenId token, sampler.Sample(masked));
  const bool accepted = constraint->Accept(token);
  WINNOW_TRY(CheckConstraint(*constraint));
  if (!accepted) return RefusedToken(token);
  return token;
}

}  // namespace

std::string_view ToString(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "eos";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kContext:
      return "context";
    case StopReason::kCancelled:
      return "cancelled";
  }
  WINNOW_CHECK(false);
  return {};
}

double GenerateTimings::prefill_tokens_per_second() const {
  return PerSecond(n_prefill, prefill_ms);
}
double GenerateTimings::decode_tokens_per_second() const { return PerSecond(n_decode, decode_ms); }

Result<Generated> Generate(Session& session, Sampler& sampler, std::span<const TokenId> prompt,
                           const GenerateOptions& options) {
  WINNOW_TRY(CheckPrompt(session, prompt));
  WINNOW_TRY(CheckRest(session, prompt));
  const SteadyClock::time_point start = SteadyClock::now();
  const tokenizer::Tokenizer& tokenizer = session.engine().tokenizer();

  Generated result;
  result.n_prompt = static_cast<int64_t>(prompt.size());
  result.n_reused = session.KeepCommonPrefix(prompt);
  Session::PrefillOptions prefill;
  prefill.progress = [&](double done) {
    if (options.on_prefill) options.on_prefill(done);
    return !IsSet(options.cancel) && !IsSet(options.token);
  };
  const auto rest = prompt.subspan(static_cast<size_t>(result.n_reused));
  WINNOW_ASSIGN(const bool finished, session.Prefill(rest, prefill));
  result.timings.prefill_ms = MillisecondsSince(start);
  if (!finished) {
    result.stop_reason = StopReason::kCancelled;
    return result;
  }
  result.timings.n_prefill = static_cast<int64_t>(rest.size());
  if (options.on_prompt) options.on_prompt();

  sampler.Reset();
  for (const TokenId token : prompt) sampler.Accept(token);

  TextStream stream(tokenizer, options.stop);
  const auto emit = [&](const std::string& piece) {
    if (piece.empty()) return;
    result.text += piece;
    if (options.on_text) options.on_text(piece);
  };
  std::vector<float> masked;
  SteadyClock::time_point first_token = start;
  for (;;) {
    const int64_t n_generated = static_cast<int64_t>(result.tokens.size());
    if (n_generated == options.max_tokens) {
      result.stop_reason = StopReason::kLimit;
      break;
    }
    if (n_generated > 0) {
      // Decoding the newest token makes room for the next, so a full session still gives one token.
      if (session.room() == 0) {
        result.stop_reason = StopReason::kContext;
        break;
      }
      WINNOW_TRY(session.Decode(result.tokens.back()));
      ++result.timings.n_decode;
    }
    WINNOW_ASSIGN(const TokenId token, ChooseToken(session, sampler, options.constraint, masked));
    sampler.Accept(token);
    result.tokens.push_back(token);
    if (n_generated == 0) {
      first_token = SteadyClock::now();
      result.timings.first_token_ms = MillisecondsSince(start);
    }
    const bool ends_text = tokenizer.IsEndOfGeneration(token);
    const std::string piece = ends_text ? std::string() : stream.Push(token);
    const bool goes_on = !options.on_token || options.on_token(token, piece);
    if (ends_text) {
      result.stop_reason = StopReason::kEndOfGeneration;
      break;
    }
    emit(piece);
    if (stream.stopped()) {
      result.stop_reason = StopReason::kStopString;
      break;
    }
    if (options.constraint != nullptr) {
      const bool ends = options.constraint->finished();
      // finished() advances the constraint and may run into the problem itself: the text is then no
      // valid response.
      WINNOW_TRY(CheckConstraint(*options.constraint));
      if (ends) {
        result.stop_reason = StopReason::kEndOfGeneration;
        break;
      }
    }
    if (!goes_on || IsSet(options.cancel) || IsSet(options.token)) {
      result.stop_reason = StopReason::kCancelled;
      break;
    }
  }
  if (!result.tokens.empty()) result.timings.decode_ms = MillisecondsSince(first_token);
  emit(stream.Finish());
  // Held-back text that turns out to be a stop string at the very end.
  if (stream.stopped()) result.stop_reason = StopReason::kStopString;
  return result;
}

}  // namespace winnow::runtime
