#pragma once

#include "compression/method.h"

namespace winnow::compression {

// Whether a method chooses by what the last tokens of the prompt attend to: it compresses a
// document that is read alone without knowing what will be asked about it.
bool ChoosesByTheQuestion(const Method& method);

}  // namespace winnow::compression
