#include "api/constraints.h"

namespace winnow::api {

std::shared_ptr<const ConstraintMaker> MakeConstraintMaker(const tokenizer::Tokenizer&) {
  return nullptr;
}

}  // namespace winnow::api
