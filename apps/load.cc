#include "load.h"

#include <algorithm>
#include <utility>

#include "api/internal.h"
#include "base/fixed.h"
#include "compression/parameters.h"
#include "console.h"
#include "gguf/file_type.h"
#include "gguf/printable.h"
#include "models/bundled.h"

namespace winnow::apps {
namespace {

CacheType CacheTypeFrom(kernels::TensorType type) {
  switch (type) {
    case kernels::TensorType::kF32:
      return CacheType::kF32;
    case kernels::TensorType::kBF16:
      return CacheType::kBF16;
    case kernels::TensorType::kQ8_0:
      return CacheType::kQ8_0;
    case kernels::TensorType::kQ4_0:
      return CacheType::kQ4_0;
    default:
      return CacheType::kF16;
  }
}

SessionOptions ApiOptionsFrom(const ModelFlags& flags, const runtime::SessionOptions& wanted) {
  const runtime::CompressionOptions& c = wanted.compression;
  return {.context = wanted.context,
          .keys = CacheTypeFrom(wanted.key_type),
          .values = CacheTypeFrom(wanted.value_type),
          .compression = {.method = c.method ? flags.kv.method : "",
                          .decode = c.method ? flags.kv.decode : "",
                          .size = c.size,
                          .ratio = c.ratio,
                          .memory_bytes = c.memory_bytes,
                          .quality = c.quality,
                          .prefill_chunk = c.prefill_chunk},
          .micro_batch = wanted.row_block,
          .rotate_keys = wanted.rotate_keys};
}

std::string BudgetText(const Compression& options) {
  std::string text;
  if (options.size > 0) text = ", " + std::to_string(options.size) + " entries per KV head";
  if (options.ratio > 0) text = ", " + Fixed(100 * options.ratio, 1) + " % of the prompt";
  if (options.memory_bytes > 0) text = ", at most " + HumanBytes(options.memory_bytes);
  if (options.quality > 0)
    text = ", KL divergence up to " + compression::ShortestText(options.quality) + " nats";
  if (options.prefill_chunk > 0) {
    text += ", after every " + std::to_string(options.prefill_chunk) + " tokens of a prompt";
  }
  return text;
}

// Two lines, and more for unusual settings.
void Tell(const ModelFlags& flags, const ModelInfo& model, const Session& session,
          const Compression& compression, Log& log) {
  log.Info("model  " + (model.name.empty() ? flags.model : gguf::PrintableUtf8(model.name)) + ": " +
           model.architecture + ", " + HumanCount(model.n_parameters) + " parameters, " +
           (model.file_type.empty() ? "" : model.file_type + ", ") + HumanBytes(model.file_bytes));
  const SessionInfo info = session.info();
  const std::string held = std::to_string(info.cache_tokens) + " tokens";
  const bool endless = session.capacity() > info.cache_tokens;
  log.Info("cache  " + (endless ? held + " at once, texts of any length" : "up to " + held) +
           ", keys " + flags.key_type + (info.rotated_keys ? " (rotated)" : "") + ", values " +
           flags.value_type + ", " + HumanBytes(info.bytes_per_token) + " per token");
  if (!compression.method.empty()) log.Info("method " + info.method + BudgetText(compression));
  if (flags.restored_session) {
    log.Info("session " + *flags.restored_session + ": goes on after " +
             std::to_string(session.tokens().size()) + " tokens, cache " +
             HumanBytes(session.cache_bytes_with_lists()));
  }
  log.Debug("cpu    " + model.cpu_target + ", " + std::to_string(model.threads) + " threads");
}

}  // namespace

Result<LoadedModel> LoadModel(const ModelFlags& flags, Log& log) {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, SessionOptionsFrom(flags));
  const SessionOptions options = ApiOptionsFrom(flags, wanted);
  std::unique_ptr<PlanTrace> trace;
  if (flags.kv.trace) {
    WINNOW_ASSIGN(trace, PlanTrace::Create(*flags.kv.trace));
  }
  // Show warnings only while opening; later ones are given once, at the end of the command
  // (ResultWarnings).
  const auto opening = std::make_shared<bool>(true);
  ModelOptions model_options = {.threads = std::max(flags.threads, 0),
                                .context = flags.context,
                                .deterministic = flags.deterministic,
                                .check_tensors = flags.check_tensors,
                                .cpu_target = flags.cpu_target,
                                .compression = options.compression};
  model_options.on_warning = [&log, opening](std::string_view message) {
    if (*opening) log.Warning(message);
  };
  WINNOW_ASSIGN(Model model, OpenModel(flags.model, std::move(model_options), log));
  if (trace) {
    // Plans are internal values, which the public API does not have.
    internal::Access::SetOnPlan(model,
                                [trace = trace.get()](const auto& plan, const auto& context) {
                                  trace->Write(plan, context);
                                });
  }
  WINNOW_ASSIGN(Session session, flags.restored_session
                                     ? model.RestoreSession(*flags.restored_session, options)
                                     : model.NewSession(options));
  *opening = false;
  Tell(flags, model.info(), session, options.compression, log);
  return LoadedModel{
      .model = std::move(model), .trace = std::move(trace), .session = std::move(session)};
}

Result<Loaded> Load(const ModelFlags& flags, Log& log) {
  WINNOW_ASSIGN(LoadedModel loaded_model, LoadModel(flags, log));
  Loaded loaded;
  loaded.engine = &internal::Access::EngineFrom(loaded_model.model);
  loaded.session = internal::Access::Release(std::move(loaded_model.session));
  loaded.trace = std::move(loaded_model.trace);
  loaded.model = std::move(loaded_model.model);
  return loaded;
}

Result<void> FinishTrace(PlanTrace* trace) {
  return trace != nullptr ? trace->Finish() : Result<void>();
}

std::string DescribeEngine(const runtime::Engine& engine) {
  const std::string file_type(gguf::FileTypeName(engine.file()));
  return engine.model().hyperparameters().architecture + " " +
         HumanCount(engine.model().n_parameters()) + (file_type.empty() ? "" : " " + file_type);
}

}  // namespace winnow::apps
