#include "eval/report/fastchat.h"

#include <filesystem>
#include <span>
#include <system_error>

#include "base/output_file.h"
#include "base/sha256.h"
#include "report/record.h"

namespace winnow::eval {
namespace {

// "snapkv:window=16 ratio 0.25" gives "snapkv-window-16-ratio-0.25".
std::string ValidFileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '_';
    if (plain) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  return name;
}

// FastChat draws random ids of 22 characters; these are the same in every run.
std::string AnswerId(const std::string& model_id, const std::string& question) {
  const std::string text = model_id + "/" + question;
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex().substr(0, 22);
}

}  // namespace

Result<void> WriteFastChatAnswers(const EvalResults& results, const std::string& model,
                                  double seconds, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Error{folder + ": cannot be created: " + failed.message()};
  for (size_t v = 0; v < results.variants.size(); ++v) {
    const std::string model_id = ValidFileName(model + " " + results.variants[v].Name());
    std::string lines;
    for (const EvaluatedSample& sample : results.samples) {
      const auto& result = sample.results[v];
      if (!result || !result->problem.empty()) continue;
      const report::Value* turns = result->outcome.details.Find("turns");
      if (turns == nullptr) continue;
      const report::Record choice = {{"index", 0}, {"turns", *turns}};
      const report::Record answer = {
          {"question_id", sample.number ? report::Value(*sample.number) : report::Value(sample.id)},
          {"answer_id", AnswerId(model_id, sample.id)},
          {"model_id", model_id},
          {"choices", report::List{choice}},
          {"tstamp", seconds}};
      lines += report::ToJson(answer) + "\n";
    }
    const std::filesystem::path path = std::filesystem::path(folder) / (model_id + ".jsonl");
    WINNOW_TRY(WriteWholeFile(path.string(), lines));
  }
  return {};
}

}  // namespace winnow::eval
