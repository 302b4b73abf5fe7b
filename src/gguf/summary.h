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
  std::vector<int64_t> shape;  // as many dimensions as in the file; shape[0] is the row length
  int64_t bytes = 0;
  bool operator==(const TensorSummary&) const = default;
};

// Totals of all tensors of one type.
struct TypeShare {
  TensorType type = TensorType::kF32;
  int64_t n_tensors = 0;
  int64_t n_elements = 0;
  int64_t bytes = 0;
  bool operator==(const TypeShare&) const = default;
};

// A file's content as plain values to print: what the format defines, without interpreting the
// model. All strings are safe to print (see Printable).
struct Summary {
  uint32_t version = 0;
  std::string architecture;    // empty if the file does not say
  std::string name;            // same
  int64_t file_bytes = 0;      // sum over all parts
  int64_t n_parameters = 0;    // elements of all tensors
  double bits_per_weight = 0;  // of all tensors; 0 without tensors
  std::vector<TensorSummary> tensors;
  std::vector<TypeShare> types;                               // most bytes first, then by type id
  std::vector<std::pair<std::string, std::string>> metadata;  // key, shortened value; in file order
  bool operator==(const Summary&) const = default;
};

Summary Summarize(const File& file);

// A metadata value on one line. Strings are quoted and cut after 60 bytes. An array shows its
// length, element type and first three elements: [32000 x string: "<unk>", "<s>", "</s>", ...].
std::string Shorten(const Value& value);

}  // namespace winnow::gguf
