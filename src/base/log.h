#pragma once

#include <string_view>

namespace winnow {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Receives messages for users. The library never prints; it writes to the Log it is given, by
// default one that drops all messages.
class Log {
 public:
  virtual ~Log() = default;
  virtual void Write(LogLevel level, std::string_view message) = 0;

  void Debug(std::string_view message) { Write(LogLevel::kDebug, message); }
  void Info(std::string_view message) { Write(LogLevel::kInfo, message); }
  void Warning(std::string_view message) { Write(LogLevel::kWarning, message); }
  void Error(std::string_view message) { Write(LogLevel::kError, message); }
};

class NullLog final : public Log {
 public:
  void Write(LogLevel, std::string_view) override {}
};

}  // namespace winnow
