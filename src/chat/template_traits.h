#pragma once

#include <string>

#include "jinja/template.h"

namespace winnow::chat {

// The inputs that a template supports. Templates do not declare that, so it is detected by
// rendering short conversations and searching the output.
struct TemplateTraits {
  bool takes_system = true;       // false: it rejects or drops a system message
  bool takes_lone_system = true;  // false: it rejects or drops one that no user message follows
  bool takes_developer = true;    // false: it rejects or drops a developer message
  bool takes_tools = false;       // it reads `tools`
  bool wants_parts = false;       // content must be a list of parts; a plain text is not rendered
  bool wants_argument_text = false;  // arguments of a call must be JSON text, not an object

  bool operator==(const TemplateTraits&) const = default;
};

struct SpecialTexts {  // bos_token and eos_token, as templates write them
  std::string bos;
  std::string eos;
};

TemplateTraits DetectTraits(const jinja::Template& source, const SpecialTexts& special);

}  // namespace winnow::chat
