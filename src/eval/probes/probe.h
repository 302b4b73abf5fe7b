#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/run/equal_bytes.h"
#include "report/page/page.h"
#include "report/record.h"
#include "runtime/session/session.h"

// Analyses of a model's attention and of what methods keep: the measurements behind the papers'
// figures, one file each.
namespace winnow::eval {

struct ProbeTask {
  runtime::Engine& engine;
  runtime::SessionOptions session;                     // without a method
  std::vector<Candidate> methods;                      // for probes that compare methods
  std::vector<std::vector<runtime::TokenId>> samples;  // of one text, of equal length
  int64_t n_prompt = 0;  // tokens of a sample that form the prompt in probes that also decode
  std::function<bool(double done)> progress = {};  // false stops

  int64_t n_tokens() const { return static_cast<int64_t>(samples.front().size()); }
  bool Progressed(double done) const { return !progress || progress(done); }
};

struct Findings {
  report::Record summary;  // numbers
  report::Record details;  // bulk data, in the JSON output only
  std::string text;        // how to read the figures
  std::vector<report::Table> tables;
  std::vector<report::Figure> figures;
  std::vector<report::TokenMap> maps;
};

struct Probe {
  std::string_view name;
  std::string_view title;    // of its section of the page
  std::string_view summary;  // one line
  std::string_view source;   // paper and figure
  // The methods to compare if the user names none; empty: the probe compares no methods.
  std::string_view default_methods;
  bool on_prompts_only = false;  // looks at what is kept of a prompt; decodes nothing
  // nullopt: stopped. Errors: those of the sessions.
  Result<std::optional<Findings>> (*run)(const ProbeTask& task) = nullptr;
};

std::span<const Probe> Probes();

// The probes, one file each.
Result<std::optional<Findings>> ProbeWavelet(const ProbeTask& task);
Result<std::optional<Findings>> ProbeDensity(const ProbeTask& task);
Result<std::optional<Findings>> ProbeSparsity(const ProbeTask& task);
Result<std::optional<Findings>> ProbeKept(const ProbeTask& task);
Result<std::optional<Findings>> ProbeIndices(const ProbeTask& task);
Result<std::optional<Findings>> ProbeBudget(const ProbeTask& task);
Result<std::optional<Findings>> ProbeOrigin(const ProbeTask& task);
Result<std::optional<Findings>> ProbeRetrieval(const ProbeTask& task);

// `n_samples` pieces of `n_tokens` tokens each, evenly spaced over the text. If the model wants
// BOS, it replaces the first token of each. Error: the text is too short (says its length).
Result<std::vector<std::vector<runtime::TokenId>>> CutSamples(
    const std::vector<runtime::TokenId>& text, const tokenizer::Tokenizer& tokenizer,
    int64_t n_tokens, int64_t n_samples);

}  // namespace winnow::eval
