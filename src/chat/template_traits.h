#pragma once

#include <string>

#include "jinja/template.h"

namespace winnow::chat {

// What a template can be given. Templates differ in that and do not say so: it is found by
// rendering short conversations and looking for what came out.
struct TemplateTraits {
  bool takes_system = true;          // false: it refuses or drops a system message
  bool takes_tools = false;          // it reads `tools`
  bool wants_parts = false;          // content as a list of parts; texts come out as nothing
  bool takes_parts = false;          // content may be a list of parts
  bool wants_argument_text = false;  // arguments of a call as JSON text, not as an object

  bool operator==(const TemplateTraits&) const = default;
};

struct SpecialTexts {  // bos_token and eos_token, as templates write them
  std::string bos;
  std::string eos;
};

TemplateTraits DetectTraits(const jinja::Template& source, const SpecialTexts& special);

}  // namespace winnow::chat
