#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "command_files.h"
#include "constraint_flags.h"
#include "flags.h"
#include "options.h"
#include "session_store.h"
#include "template_flags.h"
#include "text_input.h"

// Flags of `winnow run`.
namespace winnow::apps {

// Makes the prompt the first message of a conversation, as `llama-cli -sys` does.
struct ChatPrompt {
  chat::WriterOptions writer = {};
  std::optional<std::string> writer_file = {};
  std::optional<std::string> system = {};
  std::optional<std::string> system_file = {};
  bool jinja = false;  // --jinja was given

  bool asked_for() const {
    return jinja || system || system_file || writer_file || !writer.built_in.empty();
  }
};

struct RunFlags {
  ModelFlags model;
  ChatPrompt chat;
  SamplerFlags sampler;
  ConstraintFlags constraint;
  SessionFlags session;
  TextSource prompt;
  int64_t n_predict = -1;
  bool escape = true;
  enum class Display { kNone, kEnd, kAll };
  Display display = Display::kEnd;  // of the prompt
  bool statistics = true;
  std::string colour = "off";
  bool add_bos = true;
  bool json = false;
  std::vector<std::string> stop;
  std::vector<std::string> notes;
};

FlagTable MakeRunTable(RunFlags& flags);
// Errors (misuse): values out of range, flags that contradict each other. Flags of the model come
// from the session's file, if there is one (SessionStore::Open).
Result<void> CheckRunFlags(const RunFlags& flags);
// The files that the command reads and writes.
CommandFiles RunFiles(const RunFlags& flags, const SessionStore& store);

}  // namespace winnow::apps
