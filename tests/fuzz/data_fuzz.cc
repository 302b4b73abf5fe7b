// Data sets in their published formats: runs every evaluation's reader on arbitrary files, and
// makes the workloads of its first samples.
//
// The first line names an evaluation; then "== NAME" begins a file of that name.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "eval/run/prompt.h"
#include "eval/tasks/task.h"
#include "temporary_folder.h"
#include "tokenizer/testing/small_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace {

using winnow::eval::PromptWriter;
using winnow::eval::Sample;
using winnow::eval::Task;
using winnow::eval::TaskContext;
namespace small = winnow::tokenizer::testing;

constexpr size_t kFiles = 4;
constexpr size_t kSamples = 4;
constexpr int64_t kContext = 512;

std::string_view TakeUntil(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
  return taken;
}

// A relative path of characters that data sets use, at most one folder deep.
std::optional<std::string> FileNameFrom(std::string_view line) {
  const bool plain = !line.empty() && line.size() < 64 && line[0] != '.' && line[0] != '/' &&
                     std::ranges::all_of(line, [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
                     });
  if (!plain || line.find("..") != std::string_view::npos || line.back() == '/' ||
      std::ranges::count(line, '/') > 1) {
    return std::nullopt;
  }
  return std::string(line);
}

// Whether a file can be written: its folder's place holds no file, and its own place no folder.
bool CanWrite(const winnow::fuzz::TemporaryFolder& folder, const std::string& name) {
  const std::filesystem::path path = folder.Path(name);
  return !std::filesystem::is_directory(path) &&
         (!std::filesystem::exists(path.parent_path()) ||
          std::filesystem::is_directory(path.parent_path()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const winnow::fuzz::TemporaryFolder folder;
  static const auto tokenizer = small::Make(small::SmallSentencePiece());
  static const PromptWriter prompts(*tokenizer, std::nullopt, "", kContext);
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const Task* task = winnow::eval::FindTask(TakeUntil(input, "\n"));
  if (task == nullptr) return 0;

  folder.Clear();
  TakeUntil(input, "== ");
  for (size_t i = 0; i < kFiles && !input.empty(); ++i) {
    const std::optional<std::string> name = FileNameFrom(TakeUntil(input, "\n"));
    const std::string_view content = TakeUntil(input, "\n== ");
    if (name && CanWrite(folder, *name)) folder.Write(*name, content);
  }

  winnow::NullLog log;
  winnow::eval::OptionValues given;
  if (winnow::eval::FindOption(*task, "data") != nullptr) given = {{"data", folder.path()}};
  const auto run = task->configure(given);
  WINNOW_CHECK(run.has_value());
  const TaskContext context = {
      .tokenizer = *tokenizer, .prompts = prompts, .context = kContext, .log = log};
  const auto samples = run->samples(context);
  if (!samples) {
    WINNOW_CHECK(!samples.error().message.empty());
    return 0;
  }
  for (size_t i = 0; i < std::min(kSamples, samples->size()); ++i) {
    const Sample& sample = (*samples)[i];
    WINNOW_CHECK(!sample.id.empty());
    const auto work = sample.make();
    WINNOW_CHECK(work ? *work != nullptr : !work.error().message.empty());
  }
  return 0;
}
