// Prints docs/oracle.md: how far the engine is from llama.cpp on every model of data/.
//   oracle_report [tests/oracle/data] > docs/oracle.md
#include <cstdio>

#include "oracle_case.h"

namespace winnow::oracle {
namespace {

constexpr char kIntroduction[] =
    "# How far winnow's logits are from llama.cpp's\n"
    "\n"
    "Made by `oracle_report` from the models and expected logits in `tests/oracle/data` (its "
    "README says how those\n"
    "came about): seeded random weights, 24 tokens, of which 16 are one prefill and 8 are decoded "
    "one by one, F32 "
    "cache, 2\n"
    "threads. `tests/oracle/oracle_test.cc` holds every row to its bound in CI, on the best "
    "instruction set and on "
    "the\n"
    "reference backend.\n";

constexpr char kPlain[] =
    "\n## F32, F16 and BF16 weights\n"
    "\n"
    "Against llama.cpp on the same weights widened to F32, so that the oracle rounds no "
    "activations. Relative error: "
    "norm of\n"
    "the difference over norm of the logits. Bound: 1e-4 for F32, 1e-3 for the others. The last "
    "column is llama.cpp "
    "on the file as\n"
    "it is, by the same measure.\n"
    "\n"
    "| model | special about it | weights | relative error | largest difference | llama.cpp's own "
    "|\n"
    "|---|---|---|---|---|---|\n";

constexpr char kQuantised[] =
    "\n## Quantised weights\n"
    "\n"
    "Mean KL divergence of the next-token distributions, in nats; the logits have a standard "
    "deviation of 1.2. Bound: "
    "1e-3,\n"
    "from llama.cpp on the very file (both engines round activations to 8 bits) and from llama.cpp "
    "on the same weights "
    "widened\n"
    "to F32 (no rounding). The last column is how far llama.cpp is from that itself.\n"
    "\n"
    "| model | special about it | weights | KLD from llama.cpp | KLD from exact | largest "
    "difference | relative error "
    "| llama.cpp's own KLD |\n"
    "|---|---|---|---|---|---|---|---|\n";

int Run(const std::string& folder) {
  std::string plain = kPlain, quantised = kQuantised;
  for (const std::string& name : CaseNames(folder)) {
    const auto read = Case::Read(folder + "/" + name + ".safetensors");
    if (!read) {
      std::fprintf(stderr, "oracle_report: %s\n", read.error().message.c_str());
      return 1;
    }
    const Case& c = read.value();
    const auto logits = ComputeLogits(c, "");
    if (!logits) {
      std::fprintf(stderr, "oracle_report: %s: %s\n", name.c_str(), logits.error().message.c_str());
      return 1;
    }
    const Distance exact = Measure(logits.value(), c.exact, c.vocabulary);
    char line[512];
    if (c.quantised()) {
      const Distance same = Measure(logits.value(), c.same, c.vocabulary);
      std::snprintf(line, sizeof(line), "| %s | %s | %s | %.1e | %.1e | %.1e | %.1e | %.1e |\n",
                    c.architecture.c_str(), c.variant.c_str(), c.weights.c_str(), same.kld,
                    exact.kld, same.max_difference, same.relative_error, c.own_kld);
      quantised += line;
    } else {
      std::snprintf(line, sizeof(line), "| %s | %s | %s | %.1e | %.1e | %.1e |\n",
                    c.architecture.c_str(), c.variant.c_str(), c.weights.c_str(),
                    exact.relative_error, exact.max_difference, c.own_relative_error);
      plain += line;
    }
  }
  std::fputs((kIntroduction + plain + quantised).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace winnow::oracle

int main(int argc, char** argv) {
  return winnow::oracle::Run(argc > 1 ? argv[1] : "tests/oracle/data");
}
