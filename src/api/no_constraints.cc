#include "api/constraints.h"

namespace winnow::api {

std::shared_ptr<const TokenConstraintFactory> MakeTokenConstraintFactory(
    const tokenizer::Tokenizer&) {
  return nullptr;
}

}  // namespace winnow::api
