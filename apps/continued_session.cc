#include "continued_session.h"

#include <algorithm>
#include <string>

namespace winnow::apps {
namespace {

// The tokens of the text that was shown: without an end-of-generation token, and only up to a stop
// string.
std::vector<Token> ShownTokens(const Model& model, const Generation& generated) {
  std::vector<Token> shown = generated.tokens;
  if (!shown.empty() && model.EndsGeneration(shown.back())) shown.pop_back();
  if (generated.stop_reason != StopReason::kStopString) return shown;
  std::string text = model.Detokenize(shown);
  while (!generated.text.starts_with(text)) {
    shown.pop_back();
    text = model.Detokenize(shown);
  }
  // A stop string can begin inside a token: tokenize the text before it.
  const std::vector<MarkedText> rest = {{generated.text.substr(text.size()), false}};
  const std::vector<Token> tokens = shown.empty() ? model.Tokenize(rest, /*add_bos=*/false)
                                                  : model.TokenizeAfter(shown.back(), rest);
  shown.insert(shown.end(), tokens.begin(), tokens.end());
  return shown;
}

}  // namespace

std::vector<Token> PromptAfterSession(const Model& model, const Session& session,
                                      std::span<const MarkedText> text, std::vector<Token> prompt,
                                      Log& log) {
  const std::span<const Token> read = session.tokens();
  const bool goes_on =
      prompt.size() >= read.size() && std::equal(read.begin(), read.end(), prompt.begin());
  if (goes_on) return prompt;
  log.Info("session the prompt follows the " + std::to_string(read.size()) + " tokens read before");
  prompt.assign(read.begin(), read.end());
  const std::vector<Token> added = model.TokenizeAfter(read.back(), text);
  prompt.insert(prompt.end(), added.begin(), added.end());
  return prompt;
}

Result<void> SyncSessionWithOutput(const Model& model, Session& session,
                                   const Generation& generated, Log& log) {
  const std::vector<Token> shown = ShownTokens(model, generated);
  const auto n_prompt = static_cast<size_t>(generated.prompt_tokens);
  const std::span<const Token> held = session.tokens().subspan(n_prompt);
  const auto differ = std::ranges::mismatch(held, shown);
  auto n_same = static_cast<size_t>(differ.in1 - held.begin());
  if (n_same < held.size()) {
    if (session.info().method != "full") {
      log.Warning(
          "the session goes on after the text that stopped the answer, which was not "
          "shown: what a method evicted cannot come back");
      return {};
    }
    session.Truncate(static_cast<int64_t>(n_prompt + n_same));
  }
  for (; n_same < shown.size() && session.room() > 0; ++n_same) {
    WINNOW_TRY(session.Decode(shown[n_same]));
  }
  return {};
}

}  // namespace winnow::apps
