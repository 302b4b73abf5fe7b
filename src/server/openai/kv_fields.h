#pragma once

#include <optional>

#include "runtime/session/session.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"

namespace winnow::server {

// kv_method, kv_size, kv_ratio, kv_memory (bytes, or "256M") and kv_decode of a request. nullopt if
// it names none of them: the scheduler's defaults apply. A budget replaces the default one; a
// method named without a budget keeps the default.
std::optional<runtime::SessionOptions> ReadKv(Fields& fields, const ServiceOptions& options);

}  // namespace winnow::server
