#include "chat_commands.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "flags.h"
#include "runtime/generate/sampler.h"
#include "statistics.h"
#include "text_input.h"
#include "transcript.h"

namespace winnow::apps {
namespace {

constexpr const char* kHelp =
    "/regen             answer the last message again\n"
    "/clear             forget the conversation\n"
    "/read FILE         put the text of a file before your next message\n"
    "/set               show what can be set\n"
    "/set NAME VALUE    set a parameter of sampling, the tokens of an answer (n), or the system\n"
    "                   prompt (system; without a VALUE there is none)\n"
    "/save FILE         write the conversation to a file, to read or to /load\n"
    "/load FILE         go on with a conversation that was saved\n"
    "/save              save the session now (with --session)\n"
    "/kv                what the cache holds\n"
    "/stats             times and memory of the last answer\n"
    "/bye               end (also /exit, Ctrl-D)\n"
    "A line that ends in \\ goes on in the next one. On a terminal \"\"\" begins and ends a "
    "message\n"
    "of several lines, a paste is one message, the arrow keys recall earlier ones, and Tab\n"
    "completes commands and files. Ctrl-C stops an answer.";

constexpr std::string_view kNames[] = {"/bye",  "/clear", "/exit", "/help", "/kv",   "/load",
                                       "/read", "/regen", "/save", "/set",  "/stats"};
constexpr std::string_view kTakeFile[] = {"/load", "/read", "/save"};

// The text after a command, without surrounding spaces.
std::string ReadArgument(const std::string& line) {
  const size_t space = line.find(' ');
  if (space == std::string::npos) return "";
  const size_t begin = line.find_first_not_of(' ', space);
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
}

std::string Shown(double value) { return report::ToJson(value); }
template <typename Integer>
std::string Shown(Integer value) {
  return std::to_string(value);
}

// Accepts spellings of flags too: "--top-k", "topk", "temp".
std::string ParameterName(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "temp") return "temperature";
  if (name == "typical") return "typical_p";
  if (name == "num_predict" || name == "predict" || name == "n_predict") return "n";
  return name;
}

// Sets a sampling parameter by name.
Result<void> SetNumber(const std::string& name, const std::string& value, Sampling& sampling) {
  std::string names;
  bool found = false;
  Result<void> parsed;
  runtime::Visit(sampling, [&](std::string_view known, auto& target, const char*) {
    names += (names.empty() ? "" : ", ") + std::string(known);
    if (known != name) return;
    found = true;
    const auto number = ParseDecimal(value);
    if (!number) {
      parsed = Error{name + ": " + number.error().message};
      return;
    }
    using Target = std::remove_reference_t<decltype(target)>;
    constexpr double kMax = 1e9;
    if (!(std::abs(*number) <= kMax)) {
      parsed = Error{name + ": found " + value + ", expected a number from -1e9 to 1e9"};
      return;
    }
    target = static_cast<Target>(*number);
    if (static_cast<double>(target) != *number) {
      parsed = Error{name + ": found " + value + ", expected a whole number"};
    }
  });
  if (found) return parsed;
  return Error{"there is no parameter '" + name + "'; there are " + names + ", n, system"};
}

}  // namespace

std::span<const std::string_view> ChatCommands::Names() { return kNames; }
std::span<const std::string_view> ChatCommands::TakeFile() { return kTakeFile; }

std::optional<ChatCommands::Done> ChatCommands::Run(const std::string& line) {
  // Text with several lines is a message, and so is a path such as /usr/bin.
  if (!line.starts_with('/') || line.find('\n') != std::string::npos) return std::nullopt;
  const std::string name = line.substr(0, line.find(' '));
  const std::string argument = ReadArgument(line);
  const bool alone = argument.empty();
  if (alone && (name == "/exit" || name == "/quit" || name == "/bye")) return Done{.ends = true};
  if (alone && (name == "/help" || name == "/?")) {
    shown_.Info(kHelp);
  } else if (alone && name == "/clear") {
    Clear();
  } else if (alone && name == "/regen") {
    if (conversation_.can_regenerate()) return Done{.answer = conversation_.Regenerate()};
    log_.Warning("there is no answer yet");
  } else if (alone && name == "/kv") {
    shown_.Info(conversation_.CacheText());
  } else if (alone && name == "/stats") {
    const std::string& text = conversation_.last_statistics();
    shown_.Info(text.empty() ? "there is no answer yet" : text);
  } else if (name == "/save") {
    Save(argument);
  } else if (name == "/set") {
    Set(argument);
  } else if (name == "/read" && !alone) {
    Read(argument);
  } else if (name == "/load" && !alone) {
    Load(argument);
  } else if (name == "/read" || name == "/load") {
    log_.Warning(name + " needs the name of a file");
  } else if (alone && line.find('/', 1) == std::string::npos) {
    log_.Warning("unknown command " + line + "; /help lists them");
  } else {
    return std::nullopt;
  }
  return Done{};
}

std::string ChatCommands::TakeAttached() { return std::exchange(attached_, {}); }

void ChatCommands::Clear() {
  conversation_.Clear();
  attached_.clear();
  log_.Info("The conversation is forgotten.");
}

void ChatCommands::Read(const std::string& path) {
  auto text = ReadTextFile(path, false, log_);
  if (!text) return log_.Error(text.error().message);
  log_.Info("Read " + HumanBytes(static_cast<int64_t>(text->size())) +
            "; now type what to do with it.");
  attached_ += WithoutFinalNewline(*std::move(text)) + "\n";
}

void ChatCommands::Save(const std::string& path) {
  if (!path.empty()) {
    const auto saved = WriteTranscript(path, conversation_.transcript());
    if (!saved) return log_.Error(saved.error().message);
    return log_.Info("The conversation is in " + path + ".");
  }
  if (!flags_.session.file || flags_.session.read_only) {
    return log_.Warning(
        "there is nowhere to save to: /save FILE writes the conversation, and a chat that starts "
        "with --session FILE keeps its cache too");
  }
  if (const auto saved = conversation_.Save(); !saved) log_.Error(saved.error().message);
}

void ChatCommands::Load(const std::string& path) {
  auto messages = ReadTranscript(path);
  if (!messages) return log_.Error(messages.error().message);
  const size_t n = messages->size();
  if (const auto taken = conversation_.ResumeFrom(*std::move(messages)); !taken) {
    return log_.Error(taken.error().message);
  }
  attached_.clear();
  log_.Info("The conversation of " + path + " goes on after " + std::to_string(n) + " messages.");
}

void ChatCommands::Set(std::string_view text) {
  // "/set parameter NAME VALUE" is Ollama's syntax.
  if (text.starts_with("parameter ")) text.remove_prefix(sizeof("parameter ") - 1);
  const size_t space = text.find(' ');
  if (text.empty()) return ShowSettings();
  if (text == "system") {  // without a value: no system prompt
    if (const auto set = conversation_.SetSystem(""); !set) log_.Error(set.error().message);
    return;
  }
  if (space == std::string_view::npos) {
    return log_.Warning("/set NAME VALUE; /set alone shows the names and what they are");
  }
  const std::string name = ParameterName(std::string(text.substr(0, space)));
  const std::string value(text.substr(space + 1));
  if (name == "system") {
    if (const auto set = conversation_.SetSystem(value); !set) log_.Error(set.error().message);
    return;
  }
  if (const auto set = SetParameter(name, value); !set) log_.Error(set.error().message);
}

void ChatCommands::ShowSettings() {
  std::string text = "n = " + std::to_string(flags_.n_predict) + " (tokens of an answer at most)";
  runtime::Visit(flags_.sampler.sampling,
                 [&](std::string_view name, auto& value, const char* help) {
                   if (name == "seed") return;
                   text += "\n" + std::string(name) + " = " + Shown(value) + " (" + help + ")";
                 });
  text += "\nsystem = " + conversation_.system();
  shown_.Info(text);
}

Result<void> ChatCommands::SetParameter(const std::string& name, const std::string& value) {
  if (name == "n") {
    WINNOW_ASSIGN(const int64_t n, ParseInteger(value));
    if (n < -1) return Error{"n: found " + value + ", expected -1 or more"};
    flags_.n_predict = n;
    return {};
  }
  SamplerFlags changed = flags_.sampler;
  if (name == "seed") {
    const auto seed = ParseInteger(value);
    if (!seed || *seed < -1) return Error{"seed: found " + value + ", expected 0 or more, or -1"};
    changed.seed = *seed;
  } else {
    WINNOW_TRY(SetNumber(name, value, changed.sampling));
  }
  WINNOW_TRY(conversation_.SetSampler(changed));
  flags_.sampler = changed;
  return {};
}

}  // namespace winnow::apps
