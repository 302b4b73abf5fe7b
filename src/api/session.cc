#include "winnow/session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "api/convert.h"
#include "api/impl.h"
#include "base/log_sum_exp.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/score.h"
#include "runtime/store/session_file.h"

namespace winnow {
namespace {

// Generate casts one enumeration to the other.
static_assert(
    static_cast<int>(StopReason::kEndOfGeneration) ==
        static_cast<int>(runtime::StopReason::kEndOfGeneration) &&
    static_cast<int>(StopReason::kLimit) == static_cast<int>(runtime::StopReason::kLimit) &&
    static_cast<int>(StopReason::kStopString) ==
        static_cast<int>(runtime::StopReason::kStopString) &&
    static_cast<int>(StopReason::kContext) == static_cast<int>(runtime::StopReason::kContext) &&
    static_cast<int>(StopReason::kCancelled) == static_cast<int>(runtime::StopReason::kCancelled));

Error WrongModelError(const char* what) {
  return Error{.message = std::string("Generate: the ") + what + " belongs to another model",
               .code = ErrorCode::kInvalid};
}

Error Cancelled() {
  return Error{.message = "cancelled while tokens were read", .code = ErrorCode::kCancelled};
}

Error OutOfRangeError(const char* call, const char* what, int found, int n) {
  return Error{.message = std::string(call) + ": found " + what + " " + std::to_string(found) +
                          ", expected 0 to " + std::to_string(n - 1),
               .code = ErrorCode::kInvalid};
}

Result<void> CheckNumber(const char* name, int64_t found, int64_t min, int64_t max) {
  if (found >= min && found <= max) return {};
  return Error{.message = "Score: `" + std::string(name) + "` is " + std::to_string(found) +
                          ", expected " + std::to_string(min) + " to " + std::to_string(max),
               .code = ErrorCode::kInvalid};
}

}  // namespace

void Session::Impl::WarnNotReplayed(int64_t n_before) const {
  const int64_t n = session->engine().n_not_replayed() - n_before;
  if (n > 0 && on_warning) on_warning(runtime::NotReplayedText(n));
}

void Session::Impl::WarnNeedsQuestion() {
  const compression::MethodPtr& method = session->compression().method;
  if (has_warned || !on_warning || !method || !method->needs_question()) return;
  has_warned = true;
  on_warning(method->traits().spec +
             " chooses by what the end of the prompt attends to: what is appended is compressed "
             "before a question is known. Give document and question together to Generate, or "
             "choose a method that needs no question (MethodInfo::needs_question)");
}

Result<void> Session::Impl::Append(std::span<const Token> tokens, const AppendOptions& options) {
  if (tokens.empty()) return {};
  WINNOW_ASSIGN(const api::RunningCall running, api::BeginCall(session->engine(), "Append"));
  if (session->n_tokens() == 0) WarnNeedsQuestion();
  runtime::Session::PrefillOptions prefill;
  prefill.progress = [&](double done) {
    if (options.on_progress) options.on_progress(done);
    return !options.cancel.cancelled();
  };
  const int64_t n_not_replayed = session->engine().n_not_replayed();
  WINNOW_ASSIGN(const bool finished,
                api::WithCode(session->Prefill(tokens, prefill), ErrorCode::kInvalid));
  WarnNotReplayed(n_not_replayed);
  if (finished) return {};
  session->InvalidateLogits();
  return Cancelled();
}

Result<void> Session::Impl::RecomputeLastLogits() {
  const std::vector<Token> last(1, session->tokens().back());
  if (session->compression().method) {
    return Error{.message =
                     "Score: there are no logits after the last token, and it cannot be read "
                     "again under " +
                     session->compression().method->traits().spec,
                 .code = ErrorCode::kInvalid};
  }
  session->Truncate(session->n_tokens() - 1);
  return Append(last, {});
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;
Session::~Session() = default;

Result<Generation> Session::Generate(std::string_view prompt, const GenerateOptions& options) {
  return Generate(api::EncodePrompt(impl_->session->engine(), prompt, options), options);
}

Result<Generation> Session::Generate(std::span<const Token> given, const GenerateOptions& options) {
  const std::vector<Token> prompt(given.begin(), given.end());
  runtime::Session& session = *impl_->session;
  const int64_t vocabulary = session.engine().tokenizer().vocabulary_size();
  WINNOW_TRY(api::CheckOptions(options, vocabulary));
  std::optional<runtime::Sampler> own;  // of this call only
  if (!options.sampler) {
    WINNOW_ASSIGN(own,
                  api::WithCode(runtime::Sampler::Make(api::Convert(options.sampling), vocabulary),
                                ErrorCode::kInvalid));
  } else if (options.sampler.impl_->vocabulary != vocabulary) {
    return WrongModelError("sampler");
  }
  runtime::Sampler& sampler = own ? *own : options.sampler.impl_->sampler;
  std::unique_ptr<runtime::TokenConstraint> constraint;
  if (options.constraint) {
    if (options.constraint.impl_->tokenizer != &session.engine().tokenizer()) {
      return WrongModelError("constraint");
    }
    constraint = options.constraint.impl_->constraint->Copy();
  }
  for (const Token token : prompt) {
    if (token < 0 || token >= vocabulary)
      return OutOfRangeError("Generate", "token", token, static_cast<int>(vocabulary));
  }
  WINNOW_ASSIGN(const api::RunningCall running, api::BeginCall(session.engine(), "Generate"));
  Generation generation;
  std::atomic<bool> cancel = false;
  runtime::GenerateOptions wanted;
  wanted.max_tokens = options.max_tokens;
  wanted.stop = options.stop;
  wanted.cancel = &cancel;
  wanted.token = options.cancel.flag().get();
  wanted.constraint = constraint.get();
  wanted.on_prompt = options.on_prompt;
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
      if (!api::ReportToken(options, token, text, probabilities, generation)) cancel = true;
      return !cancel;
    };
  }
  const int64_t n_not_replayed = session.engine().n_not_replayed();
  auto generated =
      api::WithCode(runtime::Generate(session, sampler, prompt, wanted), ErrorCode::kInvalid);
  impl_->WarnNotReplayed(n_not_replayed);
  if (!generated) return generated.error();
  generation.text = std::move(generated->text);
  generation.tokens = std::move(generated->tokens);
  generation.stop_reason = static_cast<StopReason>(generated->stop_reason);
  generation.prompt_tokens = generated->n_prompt;
  generation.reused_tokens = generated->n_reused;
  api::CopyTimings(generated->timings, generation);
  return generation;
}

// `tokens` may be the session's own tokens(), which grow during the call: read a copy.
Result<void> Session::Append(std::span<const Token> tokens, const AppendOptions& options) {
  return impl_->Append(std::vector<Token>(tokens.begin(), tokens.end()), options);
}

Result<void> Session::Decode(Token token) {
  WINNOW_ASSIGN(const api::RunningCall running, api::BeginCall(impl_->session->engine(), "Decode"));
  return api::WithCode(impl_->session->Decode(token), ErrorCode::kInvalid);
}

Result<std::vector<double>> Session::Score(std::span<const Token> given,
                                           const ScoreOptions& options) {
  const std::vector<Token> tokens(given.begin(), given.end());
  const auto n = static_cast<int64_t>(tokens.size());
  runtime::Session& session = *impl_->session;
  WINNOW_TRY(CheckNumber("first", options.first, 0, n));
  WINNOW_TRY(CheckNumber("n_prompt", options.n_prompt, -1, n));
  const int64_t vocabulary = session.engine().tokenizer().vocabulary_size();
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary)
      return OutOfRangeError("Score", "token", token, static_cast<int>(vocabulary));
  }
  std::vector<double> scores(tokens.size(), std::numeric_limits<double>::quiet_NaN());
  if (tokens.empty()) return scores;
  WINNOW_ASSIGN(const api::RunningCall running, api::BeginCall(session.engine(), "Score"));
  if (options.first == 0 && session.n_tokens() > 0) {
    if (logits().empty()) WINNOW_TRY(impl_->RecomputeLastLogits());
    scores[0] = logits()[static_cast<size_t>(tokens[0])] - LogSumExp(logits());
  }
  const bool all_prompt = options.n_prompt == -1 || options.n_prompt == n;
  if (session.n_tokens() == 0 && all_prompt) impl_->WarnNeedsQuestion();
  runtime::ScoreOptions wanted = {.first = options.first, .n_prompt = options.n_prompt};
  wanted.on_rows = [&](const runtime::LogitRows& rows) {
    std::ranges::copy(rows.log_probabilities, scores.begin() + rows.first + 1);
    if (!options.on_rows) return;
    options.on_rows({rows.first, vocabulary, rows.logits, rows.log_probabilities});
  };
  wanted.progress = [&](double done) {
    if (options.on_progress) options.on_progress(done);
    return !options.cancel.cancelled();
  };
  const int64_t n_not_replayed = session.engine().n_not_replayed();
  auto finished = api::WithCode(runtime::Score(session, tokens, wanted), ErrorCode::kInvalid);
  impl_->WarnNotReplayed(n_not_replayed);
  if (!finished) return finished.error();
  if (!*finished) return Cancelled();
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

Result<void> Session::Save(const std::string& path, std::string_view notes) const {
  return api::WithCode(runtime::SaveSession(*impl_->session, path, notes), ErrorCode::kFile);
}

Result<std::string> ReadSessionNotes(const std::string& path) {
  WINNOW_ASSIGN(runtime::SessionFileInfo info,
                api::WithCode(runtime::ReadSessionInfo(path), ErrorCode::kFormat));
  return std::move(info.notes);
}

std::span<const Token> Session::tokens() const { return impl_->session->tokens(); }
int64_t Session::capacity() const { return impl_->session->capacity(); }
int64_t Session::largest_streaming_budget() const {
  return impl_->session->largest_streaming_budget();
}
int64_t Session::room() const { return impl_->session->room(); }
Result<void> Session::CheckRoom(int64_t n) const {
  return api::WithCode(impl_->session->CheckRoom(n), ErrorCode::kInvalid);
}
SessionInfo Session::info() const {
  const runtime::Session& session = *impl_->session;
  const compression::MethodPtr& method = session.compression().method;
  const cache::CacheConfig& cache = session.cache().config();
  SessionInfo info = {.method = method ? method->traits().spec : "full",
                      .budget = session.budget(),
                      .limited_by_budget = session.limited_by_budget(),
                      .cache_tokens = session.cache().capacity(),
                      .bytes_per_token = session.cache().bytes_per_token(),
                      .rotated_keys = cache.hadamard_keys,
                      .reassigns_positions = cache.storage.ReassignsPositions(),
                      .needs_question = method && method->needs_question()};
  info.scores_prompts = runtime::ScoresPrompts(session.compression());
  info.attended_share = session.attended_share();
  if (const std::optional<runtime::QualityFound>& found = session.quality()) {
    info.quality = {.share = found->share,
                    .kl = found->estimate.kl,
                    .standard_error = found->estimate.standard_error,
                    .p99 = found->estimate.p99,
                    .tokens = found->estimate.n_tokens,
                    .tried = found->n_tried};
  }
  return info;
}
int64_t Session::cache_bytes() const { return impl_->session->cache_bytes(); }
int64_t Session::cache_bytes_with_lists() const { return impl_->session->cache_bytes_with_lists(); }
int64_t Session::cache_bytes_full_f16() const { return impl_->session->cache_bytes_full_f16(); }
CacheParts Session::cache_parts() const {
  const runtime::CacheParts parts = impl_->session->cache_parts();
  return {.key_bytes = parts.key_bytes,
          .value_bytes = parts.value_bytes,
          .method_bytes = parts.method_bytes,
          .list_bytes = parts.list_bytes};
}
Result<double> Session::kept(int layer) const {
  const int n_layers = impl_->session->cache().config().shape.n_layers;
  if (layer < 0 || layer >= n_layers) return OutOfRangeError("kept", "layer", layer, n_layers);
  return impl_->session->kept(layer);
}
std::vector<double> Session::kept() const {
  std::vector<double> of_layers(
      static_cast<size_t>(impl_->session->cache().config().shape.n_layers));
  for (size_t layer = 0; layer < of_layers.size(); ++layer) {
    of_layers[layer] = impl_->session->kept(static_cast<int>(layer));
  }
  return of_layers;
}
Result<std::vector<int64_t>> Session::kept_positions(int layer, int kv_head) const {
  const cache::Cache& cache = impl_->session->cache();
  const cache::CacheShape& shape = cache.config().shape;
  if (layer < 0 || layer >= shape.n_layers) {
    return OutOfRangeError("kept_positions", "layer", layer, shape.n_layers);
  }
  const int n_heads = shape.layer(layer).n_kv_heads;
  if (kv_head < 0 || kv_head >= n_heads) {
    return OutOfRangeError("kept_positions", "KV head", kv_head, n_heads);
  }
  const auto positions = cache.positions(layer, kv_head);
  std::vector<int64_t> kept(positions.begin(), positions.end());
  std::ranges::sort(kept);
  return kept;
}
void Session::Truncate(int64_t n_tokens) {
  impl_->session->Truncate(std::clamp<int64_t>(n_tokens, 0, impl_->session->n_tokens()));
}

int64_t Session::KeepCommonPrefix(std::span<const Token> text) {
  return impl_->session->KeepCommonPrefix(text);
}

std::string_view ToString(StopReason reason) {
  return runtime::ToString(static_cast<runtime::StopReason>(reason));
}

}  // namespace winnow
