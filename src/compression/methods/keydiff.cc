// KeyDiff (arXiv:2504.15364): keeps the keys that are least similar to the mean direction of all
// keys. Needs no attention. In decode it reads every stored key in every step.
// Written from the paper, without the authors' code.
#include "compression/methods/methods.h"
#include "compression/methods/score_alone.h"

namespace winnow::compression::methods {
namespace {

Result<MethodPtr> MakeKeyDiff(const ScoreAloneConfig& c) {
  return ScoreAlone(c, score::KeyDifference());
}

}  // namespace

MethodEntry KeyDiff() {
  return Entry<ScoreAloneConfig, MakeKeyDiff, Promises>("keydiff", "keys unlike the others",
                                                        "KeyDiff, arXiv:2504.15364");
}

}  // namespace winnow::compression::methods
