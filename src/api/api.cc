#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "api/convert.h"
#include "compression/question.h"
#include "compression/registry.h"
#include "runtime/engine.h"
#include "runtime/generate.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/session_file.h"
#include "winnow/model.h"
#include "winnow/session.h"

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

kernels::TensorType TensorTypeFrom(CacheType type) {
  switch (type) {
    case CacheType::kF32:
      return kernels::TensorType::kF32;
    case CacheType::kF16:
      return kernels::TensorType::kF16;
    case CacheType::kBF16:
      return kernels::TensorType::kBF16;
    case CacheType::kQ8_0:
      return kernels::TensorType::kQ8_0;
    case CacheType::kQ4_0:
      return kernels::TensorType::kQ4_0;
  }
  return kernels::TensorType::kF16;
}

StopReason StopReasonFrom(runtime::StopReason reason) {
  switch (reason) {
    case runtime::StopReason::kEndOfGeneration:
      return StopReason::kEndOfGeneration;
    case runtime::StopReason::kLimit:
      return StopReason::kLimit;
    case runtime::StopReason::kStopString:
      return StopReason::kStopString;
    case runtime::StopReason::kContext:
      return StopReason::kContext;
    case runtime::StopReason::kCancelled:
      return StopReason::kCancelled;
  }
  return StopReason::kCancelled;
}

runtime::SamplerConfig SamplerConfigFrom(const Sampling& s) {
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .typical_p = s.typical_p,
          .repeat_penalty = s.repeat_penalty,
          .repeat_last_n = s.repeat_last_n,
          .presence_penalty = s.presence_penalty,
          .frequency_penalty = s.frequency_penalty,
          .logit_bias = s.logit_bias,
          .seed = s.seed};
}

Result<runtime::CompressionOptions> CompressionOptionsFrom(const Compression& c) {
  runtime::CompressionOptions options;
  options.size = c.slots;
  options.ratio = c.share;
  options.memory_bytes = c.bytes;
  options.prefill_chunk = c.prefill_chunk;
  if (c.method.empty()) {
    if (!c.decode.empty()) {
      return Error{"compression: a method for decode needs one for the prompt"};
    }
    return options;
  }
  WINNOW_ASSIGN(options.method, compression::MakeMethod(c.method));
  if (c.decode.empty()) return options;
  WINNOW_ASSIGN(const compression::MethodPtr decode, compression::MakeMethod(c.decode));
  WINNOW_ASSIGN(options.method, compression::WithDecode(options.method, decode));
  return options;
}

Result<runtime::SessionOptions> SessionOptionsFrom(const SessionOptions& options) {
  runtime::SessionOptions wanted;
  wanted.context = options.context;
  wanted.key_type = TensorTypeFrom(options.keys);
  wanted.value_type = TensorTypeFrom(options.values);
  WINNOW_ASSIGN(wanted.compression, CompressionOptionsFrom(options.compression));
  return wanted;
}

}  // namespace

namespace api {

Result<runtime::SessionOptions> Convert(const SessionOptions& options) {
  return SessionOptionsFrom(options);
}
runtime::SamplerConfig Convert(const Sampling& sampling) { return SamplerConfigFrom(sampling); }

}  // namespace api

struct Model::Impl {
  std::unique_ptr<runtime::Engine> engine;
  std::function<void(std::string_view)> on_warning;
};

struct Session::Impl {
  std::shared_ptr<const void> model;  // kept alive; below `session`, so it dies after it
  std::unique_ptr<runtime::Session> session;
  std::function<void(std::string_view)> on_warning = {};
  bool has_warned = false;

  // After a call that may have read a prompt; n_before: Engine::n_not_replayed before it.
  void NoReplayWarning(int64_t n_before) const {
    const int64_t n = session->engine().n_not_replayed() - n_before;
    if (n > 0 && on_warning) on_warning(runtime::NotReplayedText(n));
  }

  // A document that is appended alone is compressed before anybody asks about it.
  void NoQuestionWarning() {
    const compression::MethodPtr& method = session->compression().method;
    if (has_warned || !on_warning || !method || !compression::ChoosesByTheQuestion(*method)) return;
    has_warned = true;
    on_warning(method->traits().spec +
               " chooses by what the end of the prompt attends to: what is appended is compressed "
               "before a question is known. Give document and question together to Generate, or "
               "choose a method that needs no question (treekv, h2o)");
  }
};

Result<Model> Model::Open(const std::string& path, const ModelOptions& options) {
  CallbackLog log(options.on_warning);
  auto impl = std::make_shared<Impl>();
  impl->on_warning = options.on_warning;
  WINNOW_ASSIGN(impl->engine, runtime::Engine::Open({.model_path = path,
                                                     .n_threads = options.threads,
                                                     .target = "",
                                                     .context = options.context,
                                                     .deterministic = options.deterministic},
                                                    log));
  return Model(std::move(impl));
}

std::string_view Model::architecture() const {
  return impl_->engine->model().hyperparameters().architecture;
}
int64_t Model::n_parameters() const { return impl_->engine->model().n_parameters(); }
int Model::n_layers() const { return impl_->engine->model().hyperparameters().n_layers; }
int64_t Model::context() const { return impl_->engine->model().context(); }
int64_t Model::vocabulary_size() const { return impl_->engine->tokenizer().vocabulary_size(); }

std::vector<Token> Model::Tokenize(std::string_view text, const TokenizeOptions& options) const {
  return impl_->engine->tokenizer().Encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
}

std::string Model::Detokenize(std::span<const Token> tokens) const {
  return impl_->engine->tokenizer().Decode(tokens);
}

bool Model::EndsGeneration(Token token) const {
  return impl_->engine->tokenizer().IsEndOfGeneration(token);
}

Result<Session> Model::NewSession(const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, SessionOptionsFrom(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session, runtime::Session::Make(*impl_->engine, wanted));
  return Session(std::move(impl));
}

Result<Session> Model::RestoreSession(const std::string& path,
                                      const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, SessionOptionsFrom(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session, runtime::RestoreSession(*impl_->engine, wanted, path));
  return Session(std::move(impl));
}

Result<Scheduler> Model::NewScheduler(const SchedulerOptions& options) const {
  return Scheduler::Make(impl_, impl_->engine.get(), options);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;
Session::~Session() = default;

Result<Generation> Session::Generate(std::string_view prompt, const GenerateOptions& options) {
  const tokenizer::MarkedText text = {std::string(prompt), true};
  const auto tokens = impl_->session->engine().tokenizer().EncodeMarked(std::span(&text, 1));
  return Generate(tokens, options);
}

Result<Generation> Session::Generate(std::span<const Token> prompt,
                                     const GenerateOptions& options) {
  runtime::Session& session = *impl_->session;
  WINNOW_ASSIGN(runtime::Sampler sampler,
                runtime::Sampler::Make(SamplerConfigFrom(options.sampling),
                                       session.engine().tokenizer().vocabulary_size()));
  for (const Token token : prompt) {
    if (token < 0 || token >= session.engine().tokenizer().vocabulary_size()) {
      return Error{"the prompt holds token " + std::to_string(token) + ", expected 0 to " +
                   std::to_string(session.engine().tokenizer().vocabulary_size() - 1)};
    }
  }
  std::atomic<bool> cancel = false;
  runtime::GenerateOptions wanted;
  wanted.max_tokens = options.max_tokens;
  wanted.stop = options.stop;
  wanted.cancel = &cancel;
  wanted.token = options.cancel.flag().get();
  if (options.on_text) {
    wanted.on_text = [&](std::string_view text) {
      if (!options.on_text(text)) cancel = true;
    };
  }
  const int64_t n_not_replayed = session.engine().n_not_replayed();
  auto generated = runtime::Generate(session, sampler, prompt, wanted);
  impl_->NoReplayWarning(n_not_replayed);
  if (!generated) return generated.error();
  return Generation{.text = std::move(generated->text),
                    .tokens = std::move(generated->tokens),
                    .stop_reason = StopReasonFrom(generated->stop_reason),
                    .prompt_tokens = generated->n_prompt,
                    .prefill_ms = generated->timings.prefill_ms,
                    .decode_ms = generated->timings.decode_ms};
}

Result<void> Session::Append(std::span<const Token> tokens) {
  if (tokens.empty()) return {};
  if (impl_->session->n_tokens() == 0) impl_->NoQuestionWarning();
  const int64_t n_not_replayed = impl_->session->engine().n_not_replayed();
  WINNOW_TRY(impl_->session->Prefill(tokens));
  impl_->NoReplayWarning(n_not_replayed);
  return {};
}

std::span<const float> Session::logits() const {
  return impl_->session->n_tokens() == 0 ? std::span<const float>() : impl_->session->logits();
}
Result<Session> Session::Fork() const {
  auto impl = std::make_unique<Impl>();
  impl->model = impl_->model;
  WINNOW_ASSIGN(impl->session, impl_->session->Fork());
  return Session(std::move(impl));
}

Result<void> Session::Save(const std::string& path) const {
  return runtime::SaveSession(*impl_->session, path);
}

std::span<const Token> Session::tokens() const { return impl_->session->tokens(); }
int64_t Session::capacity() const { return impl_->session->capacity(); }
int64_t Session::cache_bytes() const { return impl_->session->cache_bytes(); }
int64_t Session::cache_bytes_with_lists() const { return impl_->session->cache_bytes_with_lists(); }
int64_t Session::cache_bytes_full_f16() const { return impl_->session->cache_bytes_full_f16(); }
Result<double> Session::kept(int layer) const {
  const int n_layers = impl_->session->cache().config().shape.n_layers;
  if (layer < 0 || layer >= n_layers) {
    return Error{"kept: found layer " + std::to_string(layer) + ", expected 0 to " +
                 std::to_string(n_layers - 1)};
  }
  return impl_->session->kept(layer);
}
void Session::Truncate(int64_t n_tokens) {
  impl_->session->Truncate(std::clamp<int64_t>(n_tokens, 0, impl_->session->n_tokens()));
}

}  // namespace winnow
