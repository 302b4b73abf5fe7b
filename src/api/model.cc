#include "winnow/model.h"

#include <algorithm>
#include <utility>

#include "api/convert.h"
#include "api/impl.h"
#include "base/log.h"
#include "gguf/file_type.h"
#include "kernels/overflow.h"
#include "runtime/store/session_file.h"

namespace winnow {
namespace {

class CallbackLog final : public Log {
 public:
  explicit CallbackLog(const std::function<void(std::string_view)>& on_warning)
      : on_warning_(on_warning) {}
  void Write(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::kWarning && on_warning_) on_warning_(message);
  }

 private:
  const std::function<void(std::string_view)>& on_warning_;
};

Result<runtime::EngineOptions> EngineOptionsFrom(const ModelOptions& options) {
  WINNOW_ASSIGN(const runtime::SessionOptions session,
                api::Convert(SessionOptions{.compression = options.compression}));
  const compression::MethodPtr& method = session.compression.method;
  return runtime::EngineOptions{
      .n_threads = options.threads,
      .target = options.cpu_target,
      .context = options.context,
      .spare_context = method ? method->needs().replay.MaxTokens(options.context) : 0,
      .check_tensors = options.check_tensors,
      .deterministic = options.deterministic,
      .error_profiles = options.error_profiles};
}

std::vector<tokenizer::MarkedText> Stretches(std::span<const MarkedText> text) {
  std::vector<tokenizer::MarkedText> stretches;
  stretches.reserve(text.size());
  for (const MarkedText& stretch : text) stretches.push_back({stretch.text, stretch.parse_special});
  return stretches;
}

}  // namespace

Result<Model> Model::Impl::Open(const runtime::EngineOptions& wanted, const ModelOptions& options) {
  CallbackLog log(options.on_warning);
  auto impl = std::make_shared<Impl>();
  impl->on_warning = options.on_warning;
  WINNOW_ASSIGN(impl->engine,
                api::WithCode(runtime::Engine::Open(wanted, log), ErrorCode::kFormat));
  return Model(std::move(impl));
}

Result<Model> Model::Open(const std::string& path, const ModelOptions& options) {
  WINNOW_ASSIGN(runtime::EngineOptions wanted, EngineOptionsFrom(options));
  wanted.model_path = path;
  return Impl::Open(wanted, options);
}

Result<Model> Model::Open(std::span<const std::byte> file, const std::string& name,
                          const ModelOptions& options) {
  WINNOW_ASSIGN(runtime::EngineOptions wanted, EngineOptionsFrom(options));
  wanted.model_path = name;
  auto view = api::WithCode(gguf::File::View(file, name), ErrorCode::kFormat);
  if (!view) return Prefixed(name + ": ", view.error());
  wanted.file = *std::move(view);
  return Impl::Open(wanted, options);
}

ModelInfo Model::info() const {
  const runtime::Engine& engine = *impl_->engine;
  const model::Hyperparameters& h = engine.model().hyperparameters();
  const auto chat_template = engine.file().String("tokenizer.chat_template");
  return {.name = h.name,
          .architecture = h.architecture,
          .file_type = std::string(gguf::FileTypeName(engine.file())),
          .n_parameters = engine.model().n_parameters(),
          .file_bytes = static_cast<int64_t>(engine.file().file_bytes()),
          .trained_context = h.trained_context,
          .has_chat_template = chat_template && !chat_template->value_or("").empty(),
          .cpu_target = std::string(impl_->engine->backend().target()),
          .threads = impl_->engine->pool().n_threads(),
          .load_ms = engine.load_ms()};
}

std::string_view Model::architecture() const {
  return impl_->engine->model().hyperparameters().architecture;
}
int64_t Model::n_parameters() const { return impl_->engine->model().n_parameters(); }
int Model::n_layers() const { return impl_->engine->model().hyperparameters().n_layers; }
Result<int> Model::n_kv_heads(int layer) const {
  if (layer < 0 || layer >= n_layers()) {
    return Error{.message = "n_kv_heads: found layer " + std::to_string(layer) +
                            ", expected 0 to " + std::to_string(n_layers() - 1),
                 .code = ErrorCode::kInvalid};
  }
  return impl_->engine->model().cache_shape().layer(layer).n_kv_heads;
}
int64_t Model::context() const { return impl_->engine->model().context(); }
int64_t Model::vocabulary_size() const { return impl_->engine->tokenizer().vocabulary_size(); }

std::vector<Token> Model::Tokenize(std::string_view text, const TokenizeOptions& options) const {
  return impl_->engine->tokenizer().Encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
}

std::vector<Token> Model::Tokenize(std::span<const MarkedText> text, bool add_bos) const {
  return impl_->engine->tokenizer().EncodeMarked(Stretches(text), add_bos);
}

std::vector<Token> Model::TokenizeAfter(Token last, std::span<const MarkedText> text) const {
  return impl_->engine->tokenizer().EncodeAfter(last, Stretches(text));
}

int64_t Model::MinTokens(int64_t n_bytes) const {
  const tokenizer::Tokenizer& tokenizer = impl_->engine->tokenizer();
  size_t longest = 4;  // a character without a token of its own has up to 4 bytes
  for (Token token = 0; token < tokenizer.vocabulary_size(); ++token) {
    longest = std::max(longest, tokenizer.Text(token).size());
  }
  return n_bytes / static_cast<int64_t>(longest);
}

std::string Model::Detokenize(std::span<const Token> tokens) const {
  return impl_->engine->tokenizer().Decode(tokens);
}

bool Model::EndsGeneration(Token token) const {
  return impl_->engine->tokenizer().IsEndOfGeneration(token);
}

Result<Sampler> Model::NewSampler(const Sampling& sampling) const {
  WINNOW_ASSIGN(runtime::Sampler runtime_sampler,
                api::WithCode(runtime::Sampler::Make(api::Convert(sampling), vocabulary_size()),
                              ErrorCode::kInvalid));
  Sampler sampler;
  sampler.impl_ = std::make_shared<Sampler::Impl>(
      Sampler::Impl{.sampler = std::move(runtime_sampler), .vocabulary = vocabulary_size()});
  return sampler;
}

Result<Constraint> Model::Impl::Make(const std::shared_ptr<Impl>& impl, api::ConstraintKind kind,
                                     const std::string& text) {
  const tokenizer::Tokenizer& tokenizer = impl->engine->tokenizer();
  if (!impl->constraint_factory)
    impl->constraint_factory = api::MakeTokenConstraintFactory(tokenizer);
  if (!impl->constraint_factory) {
    return Error{.message =
                     "this build has no grammars; run tools/fetch_xgrammar.sh and build with "
                     "-DWINNOW_GRAMMAR=ON",
                 .code = ErrorCode::kInvalid};
  }
  auto made = std::make_shared<Constraint::Impl>();
  made->model = impl;
  made->tokenizer = &tokenizer;
  WINNOW_ASSIGN(made->constraint,
                api::WithCode(impl->constraint_factory->Make(kind, text), ErrorCode::kInvalid));
  Constraint constraint;
  constraint.impl_ = std::move(made);
  return constraint;
}

Result<Constraint> Model::NewJsonConstraint(const std::string& schema) const {
  return Impl::Make(impl_, api::ConstraintKind::kJsonSchema, schema);
}
Result<Constraint> Model::NewGrammarConstraint(const std::string& gbnf) const {
  return Impl::Make(impl_, api::ConstraintKind::kGrammar, gbnf);
}

Result<runtime::SessionOptions> Model::Impl::Convert(const SessionOptions& options) const {
  WINNOW_ASSIGN(runtime::SessionOptions wanted, api::Convert(options));
  wanted.compression.on_plan = on_plan;
  return wanted;
}

Result<Session> Model::NewSession(const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, impl_->Convert(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session,
                api::WithCode(runtime::Session::Make(*impl_->engine, wanted), ErrorCode::kInvalid));
  return Session(std::move(impl));
}

Result<Session> Model::RestoreSession(const std::string& path,
                                      const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, impl_->Convert(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session, api::WithCode(runtime::RestoreSession(*impl_->engine, wanted, path),
                                             ErrorCode::kFormat));
  return Session(std::move(impl));
}

Result<Scheduler> Model::NewScheduler(const SchedulerOptions& options) const {
  return Scheduler::Make(impl_, impl_->engine.get(), options);
}

int64_t Model::n_overflowed() const { return kernels::NOverflowed(impl_->engine->backend()); }
int64_t Model::n_not_replayed() const { return impl_->engine->n_not_replayed(); }

}  // namespace winnow
