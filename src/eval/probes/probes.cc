#include <algorithm>
#include <string>

#include "base/check.h"
#include "eval/probes/probe.h"

namespace winnow::eval {
namespace {

constexpr Probe kProbes[] = {
    {.name = "wavelet",
     .title = "Detail by position",
     .summary = "how much the attended values vary from token to token, by position",
     .source = "TreeKV, Figure 2",
     .default_methods = "",
     .run = ProbeWavelet},
    {.name = "density",
     .title = "Attention of the layers",
     .summary = "attention maps of the layers, and how unevenly they attend",
     .source = "D2O, Figures 1 and 4",
     .default_methods = "",
     .run = ProbeDensity},
    {.name = "sparsity",
     .title = "Sparsity and redundancy",
     .summary = "how few entries of each head matter, and how many resemble another",
     .source = "EMS, Figure 3",
     .default_methods = "",
     .run = ProbeSparsity},
    {.name = "kept",
     .title = "What is kept",
     .summary = "which tokens methods keep, over time, per layer and head, and in the text",
     .source = "TreeKV, Figure 1; EMS, Figures 2 and 8",
     .default_methods = "h2o,tova,snapkv,treekv,d2o,ems",
     .run = ProbeKept},
    {.name = "indices",
     .title = "Where kept tokens lie",
     .summary = "where in the prompt the kept tokens lie, and the entropy of that",
     .source = "HBW-KV, Figure 3",
     .default_methods = "snapkv,h2o,hbw,treekv",
     .on_prompts_only = true,
     .run = ProbeIndices},
    {.name = "budget",
     .title = "Adaptive budget",
     .summary = "how much of each layer a threshold on the attention norm keeps",
     .source = "ReFreeKV",
     .default_methods = "refreekv:threshold=0.001,refreekv:threshold=0.01,refreekv:threshold=0.05,"
                        "refreekv:threshold=0.1",
     .on_prompts_only = true,
     .run = ProbeBudget},
    {.name = "origin",
     .title = "Where kept tokens come from",
     .summary = "how many kept entries all queries chose, and how many the last ones",
     .source = "EMS, Figure 7",
     .default_methods = "",
     .run = ProbeOrigin},
    {.name = "retrieval",
     .title = "Heads that retrieve",
     .summary = "how much worse codes hidden in the text are answered when one head is emptied",
     .source = "ours",
     .default_methods = "",
     .run = ProbeRetrieval},
};

}  // namespace

std::span<const Probe> Probes() { return kProbes; }

Result<std::vector<std::vector<runtime::TokenId>>> CutSamples(
    const std::vector<runtime::TokenId>& text, const tokenizer::Tokenizer& tokenizer,
    int64_t n_tokens, int64_t n_samples) {
  WINNOW_CHECK(n_tokens > 0 && n_samples > 0);
  const auto n_text = static_cast<int64_t>(text.size());
  if (n_text < n_tokens) {
    return Error{"the text has " + std::to_string(n_text) + " tokens, a sample needs " +
                 std::to_string(n_tokens)};
  }
  std::vector<std::vector<runtime::TokenId>> samples;
  for (int64_t i = 0; i < n_samples; ++i) {
    const int64_t first = n_samples == 1 ? 0 : (n_text - n_tokens) * i / (n_samples - 1);
    std::vector<runtime::TokenId> sample(text.begin() + first, text.begin() + first + n_tokens);
    if (tokenizer.adds_bos() && tokenizer.bos()) sample[0] = *tokenizer.bos();
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace winnow::eval
