#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/constraints.h"
#include "chat/prompt_writer.h"
#include "runtime/budget/compressor.h"
#include "runtime/engine.h"
#include "runtime/generate/constraint.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"
#include "winnow/model.h"
#include "winnow/sampling.h"
#include "winnow/session.h"

namespace winnow {

struct ChatTemplate::Impl {
  chat::PromptWriter writer;
};

struct Sampler::Impl {
  runtime::Sampler sampler;
  int64_t vocabulary = 0;
};

struct Constraint::Impl {
  std::shared_ptr<const void> model;  // kept alive; above the constraint, so it dies after it
  const tokenizer::Tokenizer* tokenizer = nullptr;
  std::unique_ptr<const runtime::TokenConstraint> constraint;
};

struct Model::Impl {
  std::unique_ptr<runtime::Engine> engine;
  std::function<void(std::string_view)> on_warning;
  // Of every decision of new sessions (api/internal.h).
  decltype(runtime::CompressionOptions::on_plan) on_plan = {};
  // The model's own template, and what makes constraints; made when they are needed.
  std::optional<ChatTemplate> own_template = {};
  std::shared_ptr<const api::ConstraintMaker> constraint_maker = {};

  static Result<Model> Open(const runtime::EngineOptions& wanted, const ModelOptions& options);
  Result<runtime::SessionOptions> Convert(const SessionOptions& options) const;
  static Result<Constraint> Make(const std::shared_ptr<Impl>& impl, api::ConstraintKind kind,
                                 const std::string& text);
};

struct Session::Impl {
  std::shared_ptr<const void> model;  // kept alive; above `session`, so it dies after it
  std::unique_ptr<runtime::Session> session;
  std::function<void(std::string_view)> on_warning = {};
  bool has_warned = false;

  // After a call that may have read a prompt; n_before: Engine::n_not_replayed before it.
  void NoReplayWarning(int64_t n_before) const;
  // A document that is appended alone is compressed before anybody asks about it.
  void NoQuestionWarning();
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options);
  // So that there are logits after it.
  Result<void> ReadLastAgain();
};

}  // namespace winnow
