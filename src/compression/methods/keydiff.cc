// KeyDiff (arXiv:2504.15364): keys unlike the mean direction of all keys stay. Needs no attention.
// The authors' code was not read; the score is the paper's.
// While generating every stored key is read in every step.
#include "compression/methods/methods.h"
#include "compression/methods/score_alone.h"

namespace winnow::compression::methods {
namespace {

Result<MethodPtr> Make(const ScoreAloneConfig& c) { return ScoreAlone(c, score::KeyDifference()); }

}  // namespace

MethodEntry KeyDiff() {
  return Entry<ScoreAloneConfig, Make, Promises>("keydiff", "keys unlike the others",
                                                 "KeyDiff, arXiv:2504.15364");
}

}  // namespace winnow::compression::methods
