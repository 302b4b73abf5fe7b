#include "probe_findings.h"

#include <cmath>
#include <string>
#include <vector>

#include "console.h"
#include "report/record.h"
#include "table.h"

namespace winnow::apps {
namespace {

// Rounds numbers for a terminal; the files have all digits.
report::Value Short(const report::Value& value) {
  if (const auto* number = std::get_if<double>(&value.data)) {
    return std::round(10000 * *number) / 10000;
  }
  const auto* list = std::get_if<report::List>(&value.data);
  if (list == nullptr) return value;
  report::List numbers;
  for (const report::Value& each : *list) numbers.push_back(Short(each));
  return numbers;
}

}  // namespace

void PrintFindings(const eval::Probe& probe, const eval::Findings& findings) {
  std::string text = std::string(probe.name) + ": " + std::string(probe.summary) + " (" +
                     std::string(probe.source) + ")\n\n";
  for (const report::Field& field : findings.summary.fields) {
    const auto* list = std::get_if<report::List>(&field.value.data);
    const bool is_table = list != nullptr && !list->empty() &&
                          std::holds_alternative<report::Record>(list->front().data);
    if (!is_table) {
      text += field.name + ": " + report::ToJson(Short(field.value)) + "\n";
      continue;
    }
    std::vector<report::Record> rows;
    for (const report::Value& row : *list) {
      report::Record& shortened = rows.emplace_back(std::get<report::Record>(row.data));
      for (report::Field& cell : shortened.fields) cell.value = Short(cell.value);
    }
    text += "\n" + TableWithin(rows, 1, TerminalWidth()) + "\n";
  }
  Print(text + "\n");
  Flush();
}

}  // namespace winnow::apps
