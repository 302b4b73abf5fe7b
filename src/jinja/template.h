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

// Jinja, as far as chat templates use it: what Python's jinja2 renders in a sandbox with the
// settings of Hugging Face transformers. (docs/decisions/0014-jinja.md)
namespace winnow::jinja {

struct Ast;

struct Limits {
  size_t max_source_bytes = size_t{1} << 20;
  int64_t max_steps = 20'000'000;  // expressions and statements, list elements gone through
  size_t max_output_bytes = size_t{64} << 20;
  size_t max_work_bytes = size_t{1} << 30;  // of all texts and lists made on the way, in sum
  int max_depth = 500;                      // of expressions and macros within each other
};

// A stretch of what was rendered. Trusted: every byte is the template's own or of a trusted string.
struct Segment {
  std::string text;
  bool trusted = false;

  bool operator==(const Segment&) const = default;
};

// Whether a string of the context may become part of a control token. `path` leads to it, list
// elements are "": {"messages", "", "role"}. Keys of objects and numbers never may.
using IsTrusted =
    std::function<bool(std::span<const std::string_view> path, std::string_view value)>;

struct RenderOptions {
  IsTrusted trusted = nullptr;  // none: nothing of the context is trusted
  int64_t unix_time = 0;        // seconds, what strftime_now shows
  int64_t utc_offset_seconds = 0;
  Limits limits = {};
};

// A template that was parsed. A small value; immutable and thread-safe.
class Template {
 public:
  // Errors: not a template ("line 3: ..."), more bytes than allowed.
  static Result<Template> Parse(std::string_view source, const Limits& limits = {});

  // `context` is an object, whose members are the variables. Errors: what the template refuses by
  // raise_exception, in its words; what Python would refuse, with its line; a limit.
  Result<std::vector<Segment>> Render(const nlohmann::ordered_json& context,
                                      const RenderOptions& options) const;

  // Whether a variable of this name is read anywhere.
  bool Reads(std::string_view name) const { return names_->contains(name); }

 private:
  using Names = std::set<std::string, std::less<>>;
  Template(std::shared_ptr<const Ast> ast, std::shared_ptr<const Names> names)
      : ast_(std::move(ast)), names_(std::move(names)) {}

  std::shared_ptr<const Ast> ast_;
  std::shared_ptr<const Names> names_;
};

}  // namespace winnow::jinja
