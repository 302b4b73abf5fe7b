#include "winnow/session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "api/convert.h"
#include "api/impl.h"
#include "compression/question.h"
#include "runtime/generate.h"
#include "runtime/session_file.h"

namespace winnow {
namespace {

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

Error NoSuch(const char* call, const char* what, int found, int n) {
  return Error{.message = std::string(call) + ": found " + what + " " + std::to_string(found) +
                          ", expected 0 to " + std::to_string(n - 1),
               .code = ErrorCode::kInvalid};
}

}  // namespace

void Session::Impl::NoReplayWarning(int64_t n_before) const {
  const int64_t n = session->engine().n_not_replayed() - n_before;
  if (n > 0 && on_warning) on_warning(runtime::NotReplayedText(n));
}

void Session::Impl::NoQuestionWarning() {
  const compression::MethodPtr& method = session->compression().method;
  if (has_warned || !on_warning || !method || !compression::ChoosesByTheQuestion(*method)) return;
  has_warned = true;
  on_warning(method->traits().spec +
             " chooses by what the end of the prompt attends to: what is appended is compressed "
             "before a question is known. Give document and question together to Generate, or "
             "choose a method that needs no question (treekv, h2o)");
}

Result<void> Session::Impl::Append(std::span<const Token> tokens, const AppendOptions& options,
                                   runtime::Session::PrefillOptions prefill) {
  if (tokens.empty()) return {};
  if (session->n_tokens() == 0) NoQuestionWarning();
  prefill.progress = [&](double done) {
    if (options.on_progress) options.on_progress(done);
    return !options.cancel.cancelled();
  };
  const int64_t n_not_replayed = session->engine().n_not_replayed();
  WINNOW_ASSIGN(const bool finished,
                api::WithCode(session->Prefill(tokens, prefill), ErrorCode::kInvalid));
  NoReplayWarning(n_not_replayed);
  if (finished) return {};
  session->ForgetLogits();
  return Error{.message = "cancelled while tokens were read", .code = ErrorCode::kCancelled};
}

Result<void> Session::Impl::ReadLastAgain() {
  const std::vector<Token> last(1, session->tokens().back());
  if (session->compression().method) {
    return Error{.message =
                     "Score: there are no logits after the last token, and it cannot be read "
                     "again under " +
                     session->compression().method->traits().spec,
                 .code = ErrorCode::kInvalid};
  }
  session->Truncate(session->n_tokens() - 1);
  return Append(last, {}, {});
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;
Session::~Session() = default;

Result<Generation> Session::Generate(std::string_view prompt, const GenerateOptions& options) {
  return Generate(api::EncodePrompt(impl_->session->engine(), prompt, options), options);
}

Result<Generation> Session::Generate(std::span<const Token> prompt,
                                     const GenerateOptions& options) {
  runtime::Session& session = *impl_->session;
  const int64_t vocabulary = session.engine().tokenizer().vocabulary_size();
  WINNOW_TRY(api::CheckOptions(options, vocabulary));
  WINNOW_ASSIGN(runtime::Sampler sampler,
                api::WithCode(runtime::Sampler::Make(api::Convert(options.sampling), vocabulary),
                              ErrorCode::kInvalid));
  for (const Token token : prompt) {
    if (token < 0 || token >= vocabulary)
      return NoSuch("Generate", "token", token, static_cast<int>(vocabulary));
  }
  Generation generation;
  std::atomic<bool> cancel = false;
  runtime::GenerateOptions wanted;
  wanted.max_tokens = options.max_tokens;
  wanted.stop = options.stop;
  wanted.cancel = &cancel;
  wanted.token = options.cancel.flag().get();
  if (options.on_text) {
    wanted.on_text = [&](std::string_view text) {
      if (!cancel && !options.on_text(text)) cancel = true;
    };
  }
  wanted.on_prefill = options.on_prefill;
  if (options.on_token || options.top_probabilities >= 0) {
    wanted.on_token = [&](Token token, std::string_view text) {
      runtime::Probabilities probabilities;
      if (options.top_probabilities >= 0) {
        probabilities =
            runtime::ComputeProbabilities(session.logits(), token, options.top_probabilities);
      }
      if (!api::TellToken(options, token, text, probabilities, generation)) cancel = true;
      return !cancel;
    };
  }
  const int64_t n_not_replayed = session.engine().n_not_replayed();
  auto generated =
      api::WithCode(runtime::Generate(session, sampler, prompt, wanted), ErrorCode::kInvalid);
  impl_->NoReplayWarning(n_not_replayed);
  if (!generated) return generated.error();
  generation.text = std::move(generated->text);
  generation.tokens = std::move(generated->tokens);
  generation.stop_reason = StopReasonFrom(generated->stop_reason);
  generation.prompt_tokens = generated->n_prompt;
  generation.prefill_ms = generated->timings.prefill_ms;
  generation.decode_ms = generated->timings.decode_ms;
  return generation;
}

Result<void> Session::Append(std::span<const Token> tokens, const AppendOptions& options) {
  return impl_->Append(tokens, options, {});
}

Result<std::vector<float>> Session::Score(std::span<const Token> tokens,
                                          const AppendOptions& options) {
  runtime::Session& session = *impl_->session;
  const compression::MethodPtr& method = session.compression().method;
  if (method && method->traits().drops_hidden_states) {
    return Error{.message = method->traits().spec +
                            " computes only some tokens of a prompt: the others have no score",
                 .code = ErrorCode::kInvalid};
  }
  const int64_t vocabulary = session.engine().tokenizer().vocabulary_size();
  std::vector<float> scores(tokens.size(), std::numeric_limits<float>::quiet_NaN());
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary)
      return NoSuch("Score", "token", token, static_cast<int>(vocabulary));
  }
  if (logits().empty() && session.n_tokens() > 0) WINNOW_TRY(impl_->ReadLastAgain());
  if (!tokens.empty() && !logits().empty()) {
    scores[0] = runtime::ComputeLogProbability(logits(), tokens[0]);
  }
  const auto on_logits = [&](int64_t first_row, std::span<const float> rows) {
    const auto n_rows = static_cast<int64_t>(rows.size()) / vocabulary;
    for (int64_t row = 0; row < n_rows; ++row) {
      const auto next = static_cast<size_t>(first_row + row + 1);
      if (next >= tokens.size()) return;
      const auto of_row =
          rows.subspan(static_cast<size_t>(row * vocabulary), static_cast<size_t>(vocabulary));
      scores[next] = runtime::ComputeLogProbability(of_row, tokens[next]);
    }
  };
  WINNOW_TRY(
      impl_->Append(tokens, options, {.on_logits = on_logits, .logits_from = 0, .progress = {}}));
  return scores;
}

std::span<const float> Session::logits() const {
  return impl_->session->n_tokens() == 0 ? std::span<const float>() : impl_->session->logits();
}
Result<Session> Session::Fork() const {
  auto impl = std::make_unique<Impl>();
  impl->model = impl_->model;
  impl->on_warning = impl_->on_warning;
  impl->has_warned = impl_->has_warned;
  WINNOW_ASSIGN(impl->session, api::WithCode(impl_->session->Fork(), ErrorCode::kTooLarge));
  return Session(std::move(impl));
}

Result<void> Session::Save(const std::string& path) const {
  return api::WithCode(runtime::SaveSession(*impl_->session, path), ErrorCode::kFile);
}

std::span<const Token> Session::tokens() const { return impl_->session->tokens(); }
int64_t Session::capacity() const { return impl_->session->capacity(); }
int64_t Session::cache_bytes() const { return impl_->session->cache_bytes(); }
int64_t Session::cache_bytes_with_lists() const { return impl_->session->cache_bytes_with_lists(); }
int64_t Session::cache_bytes_full_f16() const { return impl_->session->cache_bytes_full_f16(); }
Result<double> Session::kept(int layer) const {
  const int n_layers = impl_->session->cache().config().shape.n_layers;
  if (layer < 0 || layer >= n_layers) return NoSuch("kept", "layer", layer, n_layers);
  return impl_->session->kept(layer);
}
Result<std::vector<int64_t>> Session::kept_positions(int layer, int kv_head) const {
  const cache::Cache& cache = impl_->session->cache();
  const cache::CacheShape& shape = cache.config().shape;
  if (layer < 0 || layer >= shape.n_layers) {
    return NoSuch("kept_positions", "layer", layer, shape.n_layers);
  }
  const int n_heads = shape.layer(layer).n_kv_heads;
  if (kv_head < 0 || kv_head >= n_heads) {
    return NoSuch("kept_positions", "KV head", kv_head, n_heads);
  }
  const auto positions = cache.positions(layer, kv_head);
  std::vector<int64_t> kept(positions.begin(), positions.end());
  std::ranges::sort(kept);
  return kept;
}
void Session::Truncate(int64_t n_tokens) {
  impl_->session->Truncate(std::clamp<int64_t>(n_tokens, 0, impl_->session->n_tokens()));
}

}  // namespace winnow
