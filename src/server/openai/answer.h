#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/answer_parser.h"
#include "report/record.h"
#include "runtime/scheduler/scheduler_types.h"
#include "server/openai/generation_fields.h"
#include "server/openai/prompts.h"

namespace winnow::server {

struct ToolCall {
  std::string id, name, arguments;
};

// A sampled token. The probabilities are present if they were asked for.
struct DrawnToken {
  runtime::TokenId token = 0;
  float log_probability = 0;
  std::vector<runtime::TokenProbability> top = {};
};

// One choice of an answer, as far as it has been generated.
struct Choice {
  int index = 0;
  size_t prompt = 0;  // index into Answer::prompts
  std::string content, reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<runtime::TokenId> tokens;  // including the one that ended generation
  // JSON lists of log-probabilities without their closing bracket. Filled if they were asked for
  // and the answer is not streamed (AnswerFormat::AddProbabilities).
  std::vector<std::string> probabilities;
  int64_t n_characters = 0;  // of the tokens so far; counted only with log-probabilities
  bool finished = false;
  runtime::Finish finish = runtime::Finish::kStop;
  std::string stopping_word;
  runtime::CacheReport cache;
  runtime::GenerateTimings timings;
};

struct PromptState {
  PromptText prompt = {};
  int64_t n_tokens = 0;
  int64_t n_reused = 0;
  runtime::PrefixReuse reuse = runtime::PrefixReuse::kNone;
};

// Everything that the formats write about an answer.
struct Answer {
  std::string id = {};  // "chatcmpl-..."
  int64_t created = 0;  // Unix time
  std::string model = {};
  Generation asked = {};
  std::vector<PromptState> prompts = {};
  std::vector<Choice> choices = {};
  std::string warning = {};  // of the template, or about calls that are not restricted
};

// The new content of one event.
struct Delta {
  chat::AnswerDelta text = {};
  const DrawnToken* drawn = nullptr;  // null: no token came, or no probabilities are wanted
  const runtime::TokenId* token = nullptr;
};

// Writes answers in the form that one kind of client expects.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Appends a token's log-probabilities to the choice's lists. JSON text, because values would take
  // ten times the memory until the answer is sent.
  virtual void AddProbabilities(const DrawnToken& token, Choice& choice) const = 0;
  // The body of an answer that is not streamed, JSON.
  virtual std::string Whole(const Answer& answer) const = 0;
  // Chunks of a stream; nullopt: send none.
  virtual std::optional<report::Record> First(const Answer& answer, const Choice& choice) const = 0;
  virtual std::optional<report::Record> Next(const Answer& answer, const Choice& choice,
                                             const Delta& delta) const = 0;
  virtual report::Record Last(const Answer& answer, const Choice& choice) const = 0;
  virtual std::optional<report::Record> Usage(const Answer& answer) const = 0;
  virtual std::optional<report::Record> Progress(const Answer& answer, const Choice& choice,
                                                 const runtime::Event& prefill,
                                                 double ms) const = 0;
  virtual bool ends_with_done() const = 0;  // whether the stream ends with "data: [DONE]"
};

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}.
report::Record UsageRecord(const Answer& answer);
// {"method", "seen", "kept", "bytes", "bytes_full", "prefix"}.
report::Record KvRecord(const Answer& answer, const Choice& choice);
// llama-server's "timings".
report::Record TimingsRecord(const Answer& answer, const Choice& choice);
// llama-server's "prompt_progress": how much of the choice's prompt is read, `ms` after the
// request.
report::Record ProgressRecord(const Answer& answer, const Choice& choice,
                              const runtime::Event& prefill, double ms);
// "stop", "length" or "tool_calls".
std::string FinishReason(const Choice& choice);

}  // namespace winnow::server
