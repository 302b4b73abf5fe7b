#include "eval/probes/watch.h"

#include <memory>

namespace winnow::eval {
namespace {

class Watcher final : public compression::Method {
 public:
  Watcher(const kernels::TapSpec& taps, const Look& look) : look_(look) {
    traits_.spec = "watch";
    traits_.budget.needed = false;
    traits_.decisions.prefill = compression::DecisionPolicy::Prefill::kNever;
    needs_.prefill = taps;
  }
  const compression::Traits& traits() const override { return traits_; }
  compression::Needs needs() const override { return needs_; }
  void Decide(const compression::LayerCall& call, compression::PlanList&) const override {
    look_(call);
  }

 private:
  compression::Traits traits_;
  compression::Needs needs_;
  const Look& look_;
};

}  // namespace

Result<bool> WatchPrompt(const ProbeTask& task, std::span<const runtime::TokenId> prompt,
                         const kernels::TapSpec& taps, const Look& look,
                         const std::function<bool()>& keep_going) {
  runtime::SessionOptions options = task.session;
  options.compression = {.method = std::make_shared<Watcher>(taps, look)};
  WINNOW_ASSIGN(const auto session, runtime::Session::Make(task.engine, options));
  runtime::Session::PrefillOptions prefill;
  prefill.progress = [&](double) { return keep_going(); };
  return session->Prefill(prompt, prefill);
}

Result<bool> WatchSamples(const ProbeTask& task, const kernels::TapSpec& taps, const Look& look) {
  const auto n_samples = static_cast<double>(task.samples.size());
  double n_done = 0;
  for (const auto& sample : task.samples) {
    const auto keep_going = [&] { return task.Progressed(n_done / n_samples); };
    WINNOW_ASSIGN(const bool finished, WatchPrompt(task, sample, taps, look, keep_going));
    if (!finished) return false;
    ++n_done;
  }
  return true;
}

}  // namespace winnow::eval
