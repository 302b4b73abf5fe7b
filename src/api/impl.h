#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chat/prompt_writer.h"
#include "runtime/engine.h"
#include "runtime/session.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace winnow {

struct Model::Impl {
  std::unique_ptr<runtime::Engine> engine;
  std::function<void(std::string_view)> on_warning;
  // Of the model's own template, made when it is needed.
  std::unique_ptr<const chat::PromptWriter> writer = {};
};

struct Session::Impl {
  std::shared_ptr<const void> model;  // kept alive; below `session`, so it dies after it
  std::unique_ptr<runtime::Session> session;
  std::function<void(std::string_view)> on_warning = {};
  bool has_warned = false;

  // After a call that may have read a prompt; n_before: Engine::n_not_replayed before it.
  void NoReplayWarning(int64_t n_before) const;
  // A document that is appended alone is compressed before anybody asks about it.
  void NoQuestionWarning();
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options,
                      runtime::Session::PrefillOptions prefill);
  // So that there are logits after it.
  Result<void> ReadLastAgain();
};

}  // namespace winnow
