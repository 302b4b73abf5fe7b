#include "api/convert.h"

#include <string>

#include "compression/registry.h"
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

Result<runtime::CompressionOptions> CompressionOptionsFrom(const Compression& c) {
  runtime::CompressionOptions options;
  options.size = c.size;
  options.ratio = c.ratio;
  options.memory_bytes = c.memory_bytes;
  options.prefill_chunk = c.prefill_chunk;
  if (c.method.empty()) {
    if (!c.decode.empty()) {
      return Error{.message = "compression: a method for decode needs one for the prompt",
                   .code = ErrorCode::kInvalid};
    }
    return options;
  }
  WINNOW_ASSIGN(options.method, compression::MakeMethod(c.method));
  if (c.decode.empty()) return options;
  WINNOW_ASSIGN(const compression::MethodPtr decode, compression::MakeMethod(c.decode));
  WINNOW_ASSIGN(options.method, compression::WithDecode(options.method, decode));
  return options;
}

}  // namespace

namespace api {

Result<runtime::SessionOptions> Convert(const SessionOptions& options) {
  runtime::SessionOptions wanted;
  wanted.context = options.context;
  wanted.key_type = TensorTypeFrom(options.keys);
  wanted.value_type = TensorTypeFrom(options.values);
  WINNOW_ASSIGN(wanted.compression,
                WithCode(CompressionOptionsFrom(options.compression), ErrorCode::kInvalid));
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

bool TellToken(const GenerateOptions& options, Token token, std::string_view text,
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
      info.needs_budget = (*method)->traits().needs_budget;
      info.min_size = info.needs_budget ? (*method)->traits().min_budget : 0;
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
