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

// A token as it was drawn.
struct DrawnToken {
  runtime::TokenId token = 0;
  float log_probability = 0;
  std::vector<runtime::TokenProbability> top = {};
};

// One choice of an answer, as far as it is.
struct Choice {
  int index = 0;
  size_t prompt = 0;  // which of the prompts it answers
  std::string content, reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<runtime::TokenId> tokens;  // an ending token included
  // Where log-probabilities were asked for: their lists in JSON, without the end, as far as an
  // answer that is sent whole has come (AnswerFormat::AddProbabilities).
  std::vector<std::string> probabilities;
  int64_t n_characters = 0;  // of the tokens so far, where they were asked for
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

// Everything about an answer that the formats write down.
struct Answer {
  std::string id = {};  // "chatcmpl-..."
  int64_t created = 0;  // Unix time
  std::string model = {};
  Generation asked = {};
  std::vector<PromptState> prompts = {};
  std::vector<Choice> choices = {};
  std::string warning = {};  // of the template, or of calls that are not restricted
};

// What came with one event.
struct Delta {
  chat::AnswerDelta text = {};
  const DrawnToken* drawn = nullptr;  // null: no token came, or no probabilities are wanted
  const runtime::TokenId* token = nullptr;
};

// How an answer is written for one kind of client.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Writes the log-probabilities of a token behind those that the choice has. As text: as values
  // they would take ten times as much until the answer is sent.
  virtual void AddProbabilities(const DrawnToken& token, Choice& choice) const = 0;
  // The body of an answer in one piece, JSON.
  virtual std::string Whole(const Answer& answer) const = 0;
  // Pieces of a stream; nullopt: nothing is sent.
  virtual std::optional<report::Record> First(const Answer& answer, const Choice& choice) const = 0;
  virtual std::optional<report::Record> Next(const Answer& answer, const Choice& choice,
                                             const Delta& delta) const = 0;
  virtual report::Record Last(const Answer& answer, const Choice& choice) const = 0;
  virtual std::optional<report::Record> Usage(const Answer& answer) const = 0;
  virtual std::optional<report::Record> Progress(const Answer& answer, const Choice& choice,
                                                 const runtime::Event& prefill,
                                                 double ms) const = 0;
  virtual bool ends_with_done() const = 0;  // "data: [DONE]"
};

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}.
report::Record UsageRecord(const Answer& answer);
// {"method", "seen", "kept", "bytes", "bytes_full", "prefix"}.
report::Record KvRecord(const Answer& answer, const Choice& choice);
// llama-server's "timings".
report::Record TimingsRecord(const Answer& answer, const Choice& choice);
// llama-server's "prompt_progress": how far the choice's prompt is, `ms` after it was asked.
report::Record ProgressRecord(const Answer& answer, const Choice& choice,
                              const runtime::Event& prefill, double ms);
// "stop", "length" or "tool_calls".
std::string FinishReason(const Choice& choice);

}  // namespace winnow::server
