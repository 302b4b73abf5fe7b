#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gguf/file.h"

namespace winnow::gguf {

// One tensor, as a line of a listing.
struct TensorSummary {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // as many sizes as the file says; shape[0] is the row length
  int64_t bytes = 0;
  bool operator==(const TensorSummary&) const = default;
};

// What the tensors of one type add up to.
struct TypeShare {
  TensorType type = TensorType::kF32;
  int64_t n_tensors = 0;
  int64_t n_elements = 0;
  int64_t bytes = 0;
  bool operator==(const TypeShare&) const = default;
};

// What a file says about itself, as plain values to print: only what the format knows, nothing of
// what the model is. All strings are safe to print (see Printable).
struct Summary {
  uint32_t version = 0;
  std::string architecture;    // empty if the file does not say
  std::string name;            // same
  int64_t file_bytes = 0;      // of all parts
  int64_t n_parameters = 0;    // elements of all tensors
  double bits_per_weight = 0;  // of all tensors; 0 without tensors
  std::vector<TensorSummary> tensors;
  std::vector<TypeShare> types;                               // most bytes first, then by file id
  std::vector<std::pair<std::string, std::string>> metadata;  // key, shortened value; in file order
  bool operator==(const Summary&) const = default;
};

Summary Summarize(const File& file);

// A metadata value on one line: strings quoted and cut after 60 bytes, of arrays the length,
// element type and first three elements: [32000 x string: "<unk>", "<s>", "</s>", ...].
std::string Shorten(const Value& value);

}  // namespace winnow::gguf
