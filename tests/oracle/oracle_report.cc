// Prints docs/oracle.md: the distance of the engine's logits from llama.cpp's, for every model of
// data/.
//   oracle_report [tests/oracle/data] > docs/oracle.md
#include <cstdio>

#include "oracle_case.h"

namespace winnow::oracle {
namespace {

constexpr char kIntroduction[] =
    R"(# How far winnow's logits are from llama.cpp's

Made by `oracle_report` from the models and expected logits in `tests/oracle/data` (its README says how those came about): seeded random
weights, 24 tokens, of which 16 are one prefill and 8 are decoded one by one, F32 cache, 2 threads.
`tests/oracle/oracle_test.cc` holds every row to its bound in CI, and the reference backend to tighter ones.
)";

constexpr char kPlain[] = R"(
## F32, F16 and BF16 weights

Against llama.cpp on the same weights widened to F32, so that the oracle rounds no activations. Relative error: norm of the difference
over norm of the logits. Bounds: 1e-5 for F32, 1e-3 for F16, 1e-2 for BF16 (4.4e-3 on CPUs that multiply BF16; the table is of another), and 1e-3 for falcon, whose GELU llama.cpp takes from a table of
half-precision numbers (3e-4 from an F64 recomputation). The last column is llama.cpp on the file as it is, by the same measure.

| model | special about it | weights | relative error | largest difference | llama.cpp's own relative error |
|---|---|---|---|---|---|
)";

constexpr char kQuantised[] = R"(
## Quantised weights

Mean KL divergence of the next-token distributions, in nats; the logits have a standard deviation of 1.2. Bound: 1e-3, from llama.cpp on
the very file (both engines round activations to 8 bits) and from llama.cpp on the same weights widened to F32 ("exact": nothing
rounded). Largest difference and relative error are of the logits, from llama.cpp on the very file. The last column is how far that is
from exact itself.

| model | special about it | weights | KLD from llama.cpp | KLD from exact | largest difference | relative error | llama.cpp's KLD from exact |
|---|---|---|---|---|---|---|---|
)";

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
