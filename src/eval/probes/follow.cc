#include "eval/probes/follow.h"

#include <utility>

namespace winnow::eval {

Result<std::optional<Followed>> Follow(const ProbeTask& task, const Candidate& candidate,
                                       const std::vector<runtime::TokenId>& sample,
                                       int64_t n_prompt, ProgressRange portion) {
  const auto named = [&](const Error& error) {
    return Error{candidate.Name() + ": " + error.message};
  };
  Followed followed;
  followed.tracker = std::make_unique<KeptTracker>();
  runtime::SessionOptions options = task.session;
  options.compression = candidate.compression;
  if (candidate.equal_bytes > 0) {
    auto chosen = AtEqualBytes(task.engine, options, candidate.equal_bytes,
                               std::span(sample).first(static_cast<size_t>(n_prompt)),
                               [&] { return task.Progressed(portion.done_before); });
    if (!chosen) return named(chosen.error());
    if (!*chosen) return std::optional<Followed>();
    options = std::move((*chosen)->options);
  }
  options.compression = followed.tracker->Following(options.compression);
  auto session = runtime::Session::Make(task.engine, options);
  if (!session) return named(session.error());
  followed.session = *std::move(session);

  const auto n = static_cast<double>(sample.size());
  const auto progressed = [&](double tokens) {
    return task.Progressed(portion.done_before + portion.share * tokens / n);
  };
  runtime::Session::PrefillOptions prefill;
  prefill.progress = [&](double done) { return progressed(done * static_cast<double>(n_prompt)); };
  const auto finished =
      followed.session->Prefill(std::span(sample).first(static_cast<size_t>(n_prompt)), prefill);
  if (!finished) return named(finished.error());
  if (!*finished) return std::optional<Followed>();
  for (size_t i = static_cast<size_t>(n_prompt); i < sample.size(); ++i) {
    if (const auto decoded = followed.session->Decode(sample[i]); !decoded) {
      return named(decoded.error());
    }
    if (!progressed(static_cast<double>(i))) return std::optional<Followed>();
  }
  followed.tracker->Close(followed.session->cache(), static_cast<int64_t>(sample.size()));
  return std::optional(std::move(followed));
}

}  // namespace winnow::eval
