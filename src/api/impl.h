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
  std::shared_ptr<const void> model;  // kept alive; declared first, so destroyed last
  const tokenizer::Tokenizer* tokenizer = nullptr;
  std::unique_ptr<const runtime::TokenConstraint> constraint;
};

struct Model::Impl {
  std::unique_ptr<runtime::Engine> engine;
  std::function<void(std::string_view)> on_warning;
  // Called with every plan of new sessions (api/internal.h).
  decltype(runtime::CompressionOptions::on_plan) on_plan = {};
  // Made on first use: the model's own template, and the factory of constraints.
  std::optional<ChatTemplate> own_template = {};
  std::shared_ptr<const api::TokenConstraintFactory> constraint_factory = {};

  static Result<Model> Open(const runtime::EngineOptions& wanted, const ModelOptions& options);
  Result<runtime::SessionOptions> Convert(const SessionOptions& options) const;
  static Result<Constraint> Make(const std::shared_ptr<Impl>& impl, api::ConstraintKind kind,
                                 const std::string& text);
};

struct Session::Impl {
  std::shared_ptr<const void> model;  // kept alive; declared first, so destroyed last
  std::unique_ptr<runtime::Session> session;
  std::function<void(std::string_view)> on_warning = {};
  bool has_warned = false;

  // Warns if the call skipped a replay. n_before: Engine::n_not_replayed before the call.
  void WarnNotReplayed(int64_t n_before) const;
  // Warns, once, that the method compresses appended tokens before there is a question.
  void WarnNeedsQuestion();
  Result<void> Append(std::span<const Token> tokens, const AppendOptions& options);
  // Removes the last token and reads it again, to get its logits. Error: with a compression method.
  Result<void> RecomputeLastLogits();
};

}  // namespace winnow
