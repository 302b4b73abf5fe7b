// Key norms (arXiv:2406.11430): keeps keys of small norm, which attract attention. Needs no
// attention.
// Differs from the paper: no layer is left out. Written without the authors' code.
#include "compression/methods/methods.h"
#include "compression/methods/score_alone.h"

namespace winnow::compression::methods {
namespace {

Result<MethodPtr> MakeKNorm(const ScoreAloneConfig& c) { return ScoreAlone(c, score::KeyNorm()); }

}  // namespace

MethodEntry KNorm() {
  return Entry<ScoreAloneConfig, MakeKNorm, Promises>("knorm", "keys of small norm",
                                                      "L2 norm, arXiv:2406.11430");
}

}  // namespace winnow::compression::methods
