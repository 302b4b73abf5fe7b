#include "eval/workloads/conversation.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "eval/run/equal_bytes.h"
#include "runtime/generate/generate.h"

namespace winnow::eval {
namespace {

using tokenizer::ChatMessage;
using tokenizer::MarkedText;

std::string Joined(std::span<const MarkedText> stretches) {
  std::string text;
  for (const MarkedText& stretch : stretches) text += stretch.text;
  return text;
}

// The stretches without their first n_bytes bytes.
std::vector<MarkedText> After(std::vector<MarkedText> stretches, size_t n_bytes) {
  for (MarkedText& stretch : stretches) {
    const size_t n = std::min(n_bytes, stretch.text.size());
    stretch.text.erase(0, n);
    n_bytes -= n;
  }
  return stretches;
}

class ConversationWorkload final : public Workload {
 public:
  ConversationWorkload(Conversation conversation, const PromptWriter& prompts,
                       const tokenizer::Tokenizer& tokenizer)
      : conversation_(std::move(conversation)), prompts_(prompts), tokenizer_(tokenizer) {}

  uint64_t fingerprint() const override {
    Fingerprint all;
    all.Add(conversation_.messages).Add(conversation_.max_tokens);
    const ChatMessage probe = {"user", "x"};  // stands for the template
    if (const auto text = prompts_.Converse(std::span(&probe, 1))) all.Add(Joined(*text));
    return all.value();
  }

  Result<Outcome> Run(const RunContext& run_context) override {
    std::vector<ChatMessage> messages;
    WINNOW_ASSIGN(const auto first_prompt, FirstPrompt());
    WINNOW_ASSIGN(const auto session, MakeSession(run_context, first_prompt));
    if (!session) return Outcome{.stopped = true};
    WINNOW_ASSIGN(auto sampler,
                  runtime::Sampler::Make({.temperature = 0},
                                         run_context.engine.model().hyperparameters().vocabulary));
    const auto n_turns = static_cast<double>(conversation_.messages.size());
    report::List turns;
    double seconds = 0;
    int64_t n_answer = 0;
    int64_t n_decoded = 0;
    TokenId unfed = -1;  // the last token of an answer, not yet in the cache; -1: none
    for (const std::string& message : conversation_.messages) {
      WINNOW_ASSIGN(const std::vector<TokenId> prompt,
                    NextPrompt(*session, messages, message, unfed));
      messages.push_back({"user", message});
      std::atomic<bool> cancelled = false;
      const double done = static_cast<double>(turns.size()) / n_turns;
      runtime::GenerateOptions options;
      options.max_tokens = conversation_.max_tokens;
      options.cancel = &cancelled;
      if (!prompts_.has_template()) options.stop = {"\nUSER:"};
      options.on_prefill = [&](double) { cancelled = !run_context.KeepGoing(done); };
      options.on_text = [&](std::string_view) { cancelled = !run_context.KeepGoing(done); };
      WINNOW_ASSIGN(const runtime::Generated answer, Generate(*session, sampler, prompt, options));
      if (answer.stop_reason == runtime::StopReason::kCancelled) return Outcome{.stopped = true};
      messages.push_back({"assistant", answer.text});
      turns.emplace_back(answer.text);
      const bool ended = answer.stop_reason == runtime::StopReason::kEndOfGeneration;
      unfed = ended || answer.tokens.empty() ? -1 : answer.tokens.back();
      n_answer += static_cast<int64_t>(answer.tokens.size());
      n_decoded += answer.timings.n_decode;
      seconds += answer.timings.decode_ms / 1000;
    }
    Outcome outcome;
    MeasureCache(*session, outcome);
    outcome.scores = {{"answer_tokens", static_cast<double>(n_answer)}};
    if (n_decoded > 0 && seconds > 0) {
      outcome.scores.push_back({"tokens_per_second", static_cast<double>(n_decoded) / seconds});
    }
    outcome.details = {{"turns", std::move(turns)}, {"tokens", session->n_tokens()}};
    return outcome;
  }

 private:
  Result<std::vector<TokenId>> FirstPrompt() const {
    if (conversation_.messages.empty()) return std::vector<TokenId>();
    const ChatMessage first = {"user", conversation_.messages.front()};
    WINNOW_ASSIGN(const auto text, prompts_.Converse(std::span(&first, 1)));
    return tokenizer_.EncodeMarked(text);
  }

  // The whole conversation so far with a new message, as a continuation of the session: the
  // session's tokens, then those of the text after the last answer.
  Result<std::vector<TokenId>> NextPrompt(const runtime::Session& session,
                                          std::vector<ChatMessage> messages,
                                          const std::string& message, TokenId unfed) const {
    if (!messages.empty()) {
      WINNOW_ASSIGN(const auto open, prompts_.Converse(messages));
      const std::string known = Joined(open);
      messages.push_back({"user", message});
      WINNOW_ASSIGN(const auto all, prompts_.Converse(messages));
      const std::string text = Joined(all);
      const auto n_known = static_cast<size_t>(
          std::mismatch(known.begin(), known.end(), text.begin(), text.end()).first -
          known.begin());
      std::vector<TokenId> tokens(session.tokens().begin(), session.tokens().end());
      if (unfed >= 0) tokens.push_back(unfed);
      const std::vector<TokenId> added = tokenizer_.EncodeAfter(tokens.back(), After(all, n_known));
      tokens.insert(tokens.end(), added.begin(), added.end());
      return tokens;
    }
    return FirstPrompt();
  }

  Conversation conversation_;
  const PromptWriter& prompts_;
  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Conversation conversation, const PromptWriter& prompts,
                                       const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<ConversationWorkload>(std::move(conversation), prompts, tokenizer);
}

}  // namespace winnow::eval
