// A model's answer: any split into pieces gives the same content, reasoning and calls.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/answer_parser.h"

namespace {

using winnow::chat::AnswerDelta;
using winnow::chat::AnswerOptions;
using winnow::chat::AnswerParser;
using winnow::chat::ToolFormat;

struct Call {
  std::string id;
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};
struct Answer {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Answer&) const = default;

  size_t size() const {
    size_t n = content.size() + reasoning.size();
    for (const Call& call : calls) n += call.id.size() + call.name.size() + call.arguments.size();
    return n;
  }
};

void Add(const AnswerDelta& delta, Answer* answer) {
  answer->content += delta.content;
  answer->reasoning += delta.reasoning;
  for (const auto& call : delta.tool_calls) {
    const auto index = static_cast<size_t>(call.index);
    WINNOW_CHECK(index <= answer->calls.size() && index + 1 >= answer->calls.size());
    if (index == answer->calls.size()) {
      WINNOW_CHECK(!call.name.empty());
      answer->calls.push_back({call.id, call.name, ""});
    }
    answer->calls.back().arguments += call.arguments;
  }
}

Answer Parse(std::string_view text, const AnswerOptions& options, size_t piece) {
  AnswerParser parser(options);
  Answer answer;
  for (size_t at = 0; at < text.size(); at += piece) {
    Add(parser.Push(text.substr(at, piece)), &answer);
  }
  Add(parser.Finish(), &answer);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const ToolFormat format :
       {ToolFormat::kNone, ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral}) {
    for (const bool starts_in_reasoning : {false, true}) {
      const AnswerOptions options = {.tools = format, .starts_in_reasoning = starts_in_reasoning};
      const Answer whole = Parse(text, options, text.size() + 1);
      // A call without arguments gets "{}".
      WINNOW_CHECK(whole.size() <= 2 * text.size() + 2 * whole.calls.size());
      for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}}) {
        WINNOW_CHECK(Parse(text, options, piece) == whole);
      }
    }
  }
  return 0;
}
