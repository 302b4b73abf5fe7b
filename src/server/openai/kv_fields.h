#pragma once

#include <optional>

#include "runtime/session/session.h"
#include "server/openai/fields.h"
#include "server/openai/options.h"

namespace winnow::server {

// kv_method, kv_size, kv_ratio, kv_memory (bytes, or "256M") and kv_decode of a request. A request
// that names none of them gets nullopt: the scheduler's defaults. A budget takes the place of the
// default one; a method without a budget keeps it.
std::optional<runtime::SessionOptions> ReadKv(Fields& fields, const ServiceOptions& options);

}  // namespace winnow::server
