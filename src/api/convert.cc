#include "api/convert.h"

#include <string>

#include "compression/registry.h"
#include "runtime/budget/compression_settings.h"
#include "winnow/compression.h"

namespace winnow {
namespace {

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

}  // namespace

namespace api {

Result<runtime::SessionOptions> Convert(const SessionOptions& options) {
  runtime::SessionOptions wanted;
  wanted.context = options.context;
  wanted.key_type = TensorTypeFrom(options.keys);
  wanted.value_type = TensorTypeFrom(options.values);
  wanted.rotate_keys = options.rotate_keys;
  wanted.row_block = options.micro_batch;
  if (options.micro_batch < 1) {
    return Error{
        .message = "micro_batch is " + std::to_string(options.micro_batch) + ", expected 1 or more",
        .code = ErrorCode::kInvalid};
  }
  WINNOW_ASSIGN(wanted.compression, runtime::MakeCompression(options.compression, {}));
  return wanted;
}

runtime::SamplerConfig Convert(const Sampling& s) {
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

Result<void> CheckOptions(const GenerateOptions& options, int64_t vocabulary) {
  if (options.max_tokens < -1) {
    return Error{.message = "max_tokens is " + std::to_string(options.max_tokens) +
                            ", expected 0 or more, or -1",
                 .code = ErrorCode::kInvalid};
  }
  if (options.top_probabilities >= -1 && options.top_probabilities <= vocabulary) return {};
  return Error{.message = "top_probabilities is " + std::to_string(options.top_probabilities) +
                          ", expected -1 to " + std::to_string(vocabulary),
               .code = ErrorCode::kInvalid};
}

bool ReportToken(const GenerateOptions& options, Token token, std::string_view text,
                 const runtime::Probabilities& probabilities, Generation& generation) {
  if (options.top_probabilities >= 0) {
    generation.log_probabilities.push_back(probabilities.log_probability);
  }
  if (!options.on_token) return true;
  std::vector<TokenProbability> top;
  top.reserve(probabilities.top.size());
  for (const auto& [likely, log_probability] : probabilities.top) {
    top.push_back({likely, log_probability});
  }
  return options.on_token(
      {.token = token, .text = text, .log_probability = probabilities.log_probability, .top = top});
}

void CopyTimings(const runtime::GenerateTimings& timings, Generation& generation) {
  generation.prefill_tokens = timings.n_prefill;
  generation.decode_tokens = timings.n_decode;
  generation.prefill_ms = timings.prefill_ms;
  generation.first_token_ms = timings.first_token_ms;
  generation.decode_ms = timings.decode_ms;
}

Error ModelInUse(std::string_view call, std::string_view by) {
  return {.message = std::string(call) + ": the model is in use by " + std::string(by),
          .code = ErrorCode::kBusy};
}

Result<RunningCall> BeginCall(runtime::Engine& engine, std::string_view call) {
  if (!engine.BeginCall()) return ModelInUse(call, "a scheduler");
  RunningCall running(&engine);
  if (engine.step().active()) return ModelInUse(call, "a session that reads its prompt");
  return running;
}

std::vector<Token> EncodePrompt(const runtime::Engine& engine, std::string_view prompt,
                                const GenerateOptions& options) {
  const tokenizer::MarkedText text = {std::string(prompt), options.parse_special};
  return engine.tokenizer().EncodeMarked(std::span(&text, 1));
}

}  // namespace api

std::vector<MethodInfo> ListMethods() {
  std::vector<MethodInfo> methods;
  for (const compression::MethodEntry& entry : compression::Methods()) {
    MethodInfo info = {.name = std::string(entry.name),
                       .description = std::string(entry.summary),
                       .source = std::string(entry.source),
                       .parameters = {}};
    if (const auto method = compression::MakeMethod(entry.name)) {
      info.needs_budget = (*method)->traits().budget.needed;
      info.holds_budget = (*method)->traits().budget.held;
      info.min_size = (*method)->traits().budget.min;
      info.needs_question = (*method)->needs_question();
      info.reassigns_positions = (*method)->traits().storage.ReassignsPositions();
    }
    for (compression::Parameter& parameter : entry.parameters()) {
      info.parameters.push_back({.name = std::move(parameter.name),
                                 .default_value = std::move(parameter.default_value),
                                 .description = std::move(parameter.help),
                                 .choices = std::move(parameter.choices)});
    }
    methods.push_back(std::move(info));
  }
  return methods;
}

}  // namespace winnow
