#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Jinja as chat templates use it: renders what Python's jinja2 renders in a sandbox with the
// settings of Hugging Face transformers. (docs/decisions/0014-jinja.md)
namespace winnow::jinja {

struct Ast;

struct Limits {
  size_t max_source_bytes = size_t{1} << 20;
  int64_t max_steps = 20'000'000;  // expressions, statements, list elements visited
  size_t max_output_bytes = size_t{64} << 20;
  size_t max_work_bytes = size_t{1} << 30;  // sum of all texts and lists made while rendering
  int max_depth = 500;                      // of nested expressions and macros
};

// A stretch of output. Trusted: every byte is from the template or from a trusted string.
struct Segment {
  std::string text;
  bool trusted = false;

  bool operator==(const Segment&) const = default;
};

// Whether a string of the context may become part of a control token. `path` leads to it; list
// elements are "": {"messages", "", "role"}. Keys of objects and numbers are never trusted.
using IsTrusted =
    std::function<bool(std::span<const std::string_view> path, std::string_view value)>;

struct RenderOptions {
  IsTrusted trusted = nullptr;  // null: nothing in the context is trusted
  int64_t unix_time = 0;        // for strftime_now, in seconds
  int64_t utc_offset_seconds = 0;
  Limits limits = {};
};

// A parsed template. Cheap to copy, immutable and thread-safe.
class Template {
 public:
  // Errors: invalid syntax ("line 3: ..."), a source above the size limit.
  static Result<Template> Parse(std::string_view source, const Limits& limits = {});

  // `context` is an object whose members are the variables. Errors: the message of raise_exception,
  // errors that Python would raise, with their line, or a limit.
  Result<std::vector<Segment>> Render(const nlohmann::ordered_json& context,
                                      const RenderOptions& options) const;

  // Whether the template reads a variable of this name anywhere.
  bool Reads(std::string_view name) const { return names_->contains(name); }

 private:
  using Names = std::set<std::string, std::less<>>;
  Template(std::shared_ptr<const Ast> ast, std::shared_ptr<const Names> names)
      : ast_(std::move(ast)), names_(std::move(names)) {}

  std::shared_ptr<const Ast> ast_;
  std::shared_ptr<const Names> names_;
};

}  // namespace winnow::jinja
