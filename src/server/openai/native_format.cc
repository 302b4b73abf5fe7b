#include <utility>

#include "server/openai/formats.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

const char* StopType(runtime::Finish finish) {
  using runtime::Finish;
  switch (finish) {
    case Finish::kStop:
      return "eos";
    case Finish::kStopString:
      return "word";
    case Finish::kLength:
    case Finish::kContext:
      return "limit";
    case Finish::kCancelled:
    case Finish::kError:
      break;
  }
  return "none";
}

// llama-server's responses: an object for one choice, a list for several.
class NativeAnswers final : public AnswerFormat {
 public:
  NativeAnswers(const tokenizer::Tokenizer& tokenizer, bool return_tokens)
      : tokenizer_(tokenizer), return_tokens_(return_tokens) {}

  void AddProbabilities(const DrawnToken& token, Choice& choice) const override {
    choice.probabilities.resize(1);
    AppendItem(choice.probabilities[0], report::ToJson(NativeProbability(tokenizer_, token)));
  }

  std::string Whole(const Answer& answer) const override {
    if (answer.choices.size() == 1) return WholeChoice(answer, answer.choices[0]);
    std::string all;
    for (const Choice& choice : answer.choices) AppendItem(all, WholeChoice(answer, choice));
    return all + "]";
  }

  std::optional<report::Record> First(const Answer&, const Choice&) const override {
    return std::nullopt;
  }

  std::optional<report::Record> Next(const Answer& answer, const Choice& choice,
                                     const Delta& delta) const override {
    const bool silent = delta.text.content.empty() && delta.drawn == nullptr;
    if (silent && !(return_tokens_ && delta.token != nullptr)) return std::nullopt;
    report::List tokens;
    if (return_tokens_ && delta.token != nullptr) tokens.emplace_back(*delta.token);
    report::Record chunk = {{"index", choice.index},
                            {"content", delta.text.content},
                            {"tokens", std::move(tokens)},
                            {"stop", false},
                            {"id_slot", answer.asked.id_slot},
                            {"tokens_predicted", static_cast<int64_t>(choice.tokens.size())},
                            {"tokens_evaluated", answer.prompts[choice.prompt].n_tokens}};
    if (delta.drawn != nullptr) {
      chunk.Add("completion_probabilities",
                report::List{NativeProbability(tokenizer_, *delta.drawn)});
    }
    if (answer.asked.timings_per_token) chunk.Add("timings", TimingsRecord(answer, choice));
    return chunk;
  }

  report::Record Last(const Answer& answer, const Choice& choice) const override {
    return Final(answer, choice, true);
  }

  std::optional<report::Record> Usage(const Answer&) const override { return std::nullopt; }

  std::optional<report::Record> Progress(const Answer& answer, const Choice& choice,
                                         const runtime::Event& prefill, double ms) const override {
    return report::Record{{"index", choice.index},
                          {"content", ""},
                          {"tokens", report::List()},
                          {"stop", false},
                          {"id_slot", answer.asked.id_slot},
                          {"tokens_predicted", 0},
                          {"tokens_evaluated", prefill.n_done},
                          {"prompt_progress", ProgressRecord(answer, choice, prefill, ms)}};
  }

  bool ends_with_done() const override { return false; }

 private:
  report::Record Final(const Answer& answer, const Choice& choice, bool streamed) const {
    const PromptState& prompt = answer.prompts[choice.prompt];
    return {
        {"index", choice.index},
        {"content", streamed ? "" : choice.content},
        {"tokens", return_tokens_ && !streamed ? report::MakeList(choice.tokens) : report::List()},
        {"id_slot", answer.asked.id_slot},
        {"stop", true},
        {"model", answer.model},
        {"tokens_predicted", static_cast<int64_t>(choice.tokens.size())},
        {"tokens_evaluated", prompt.n_tokens},
        {"generation_settings", SettingsRecord(answer.asked)},
        {"prompt", prompt.prompt.text},
        {"has_new_line", choice.content.find('\n') != std::string::npos},
        {"truncated", choice.finish == runtime::Finish::kContext},
        {"stop_type", StopType(choice.finish)},
        {"stopping_word", choice.stopping_word},
        {"tokens_cached", choice.cache.n_seen},
        {"timings", TimingsRecord(answer, choice)},
        {"kv", KvRecord(answer, choice)}};
  }

  std::string WholeChoice(const Answer& answer, const Choice& choice) const {
    std::string out = report::ToJson(Final(answer, choice, false));
    if (answer.asked.n_probs >= 0) {
      const std::string_view items =
          choice.probabilities.empty() ? std::string_view() : choice.probabilities[0];
      AppendField(out, "completion_probabilities", ListFrom(items));
    }
    return out;
  }

  const tokenizer::Tokenizer& tokenizer_;
  bool return_tokens_;
};

}  // namespace

std::unique_ptr<const AnswerFormat> NativeFormat(const tokenizer::Tokenizer& tokenizer,
                                                 bool return_tokens) {
  return std::make_unique<NativeAnswers>(tokenizer, return_tokens);
}

}  // namespace winnow::server
