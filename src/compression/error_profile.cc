#include "compression/error_profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/check.h"

namespace winnow::compression {
namespace {

constexpr std::string_view kFirstLine = "winnow error profile 1";

double Share(int point) { return std::exp2(-point / 3.0); }

// The interpolated error at a size, which need not be a whole number.
double At(const ErrorCurve& curve, double size) {
  const auto error = [&](size_t i) { return std::isfinite(curve.errors[i]) ? curve.errors[i] : 0; };
  size_t i = 0;
  while (i < curve.sizes.size() && static_cast<double>(curve.sizes[i]) < size) ++i;
  if (i == curve.sizes.size()) return error(i - 1);
  if (i == 0) return error(0);
  const auto low = static_cast<double>(curve.sizes[i - 1]);
  const auto high = static_cast<double>(curve.sizes[i]);
  return error(i - 1) + (size - low) / (high - low) * (error(i) - error(i - 1));
}

void Write(std::ostringstream& out, const char* order, const ErrorProfile& profile) {
  out << order << ' ' << profile.n_prompts() << '\n';
  for (int layer = 0; layer < profile.n_layers(); ++layer) {
    for (int head = 0; head < profile.n_kv_heads(); ++head) {
      const char* space = "";
      for (const double error : profile.Errors(layer, head)) {
        out << space << error;
        space = " ";
      }
      out << '\n';
    }
  }
}

// The lines of a profile's text, read one by one.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  std::istringstream Next() {
    ++n_;
    const size_t end = std::min(text_.find('\n'), text_.size());
    std::istringstream line{std::string(text_.substr(0, end))};
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return line;
  }
  bool at_end() const { return text_.empty(); }
  Error Expected(const std::string& what) const {
    return Error{"error profile: line " + std::to_string(n_) + ": expected " + what +
                 "; create a new one with 'winnow calibrate'"};
  }

 private:
  std::string_view text_;
  int n_ = 0;
};

bool AtEnd(std::istringstream& line) {
  line >> std::ws;
  return line.eof();
}

Result<void> Read(Lines& lines, const std::string& order, ErrorProfile& profile) {
  std::istringstream head = lines.Next();
  std::string word;
  int64_t n_prompts = 0;
  if (!(head >> word >> n_prompts) || word != order || n_prompts < 1 || !AtEnd(head)) {
    return lines.Expected("'" + order + "' and a number of prompts");
  }
  profile.SetPrompts(n_prompts);
  for (int layer = 0; layer < profile.n_layers(); ++layer) {
    for (int kv_head = 0; kv_head < profile.n_kv_heads(); ++kv_head) {
      std::istringstream line = lines.Next();
      std::vector<double> errors(ErrorProfile::kPoints);
      bool good = true;
      for (double& error : errors) good = good && (line >> error) && error >= 0;
      if (!good || !AtEnd(line)) {
        return lines.Expected(std::to_string(ErrorProfile::kPoints) +
                              " errors, numbers that are not negative, of KV head " +
                              std::to_string(kv_head) + " of layer " + std::to_string(layer));
      }
      profile.Set(layer, kv_head, errors);
    }
  }
  return {};
}

}  // namespace

void ErrorProfile::Add(int layer, int kv_head, const ErrorCurve& curve) {
  WINNOW_CHECK(!curve.sizes.empty());
  std::array<double, kPoints>& sums = sums_[At(layer, kv_head)];
  const auto n = static_cast<double>(curve.sizes.back());
  for (int i = 0; i < kPoints; ++i) {
    sums[static_cast<size_t>(i)] += compression::At(curve, Share(i) * n);
  }
}

std::array<double, ErrorProfile::kPoints> ErrorProfile::Errors(int layer, int kv_head) const {
  std::array<double, kPoints> errors = sums_[At(layer, kv_head)];
  for (double& error : errors) error /= static_cast<double>(std::max<int64_t>(1, n_prompts_));
  return errors;
}

ErrorCurve ErrorProfile::CurveFor(int layer, int kv_head, int64_t n) const {
  const std::array<double, kPoints> errors = Errors(layer, kv_head);
  ErrorCurve curve;
  // Nothing is known below the smallest share: start the curve with one entry.
  if (n > 0 && std::round(Share(kPoints - 1) * static_cast<double>(n)) > 1) {
    curve = {.sizes = {1}, .errors = {errors[kPoints - 1]}};
  }
  for (int i = kPoints - 1; i >= 0; --i) {
    const auto size = static_cast<int64_t>(std::round(Share(i) * static_cast<double>(n)));
    if (size < 1 || (!curve.sizes.empty() && size == curve.sizes.back())) continue;
    curve.sizes.push_back(size);
    curve.errors.push_back(errors[static_cast<size_t>(i)]);
  }
  return curve;
}

void ErrorProfile::Set(int layer, int kv_head, std::span<const double> errors) {
  WINNOW_CHECK(errors.size() == static_cast<size_t>(kPoints));
  std::array<double, kPoints>& sums = sums_[At(layer, kv_head)];
  for (size_t i = 0; i < errors.size(); ++i) {
    sums[i] = errors[i] * static_cast<double>(std::max<int64_t>(1, n_prompts_));
  }
}

std::string ToText(const ErrorProfiles& profiles, std::string_view model_hash) {
  std::ostringstream out;
  out.precision(6);
  out << kFirstLine << "\nmodel " << model_hash << "\nshape " << profiles.replay.n_layers() << ' '
      << profiles.replay.n_kv_heads() << '\n';
  Write(out, "replay", profiles.replay);
  Write(out, "window", profiles.window);
  return out.str();
}

Result<ErrorProfiles> ReadErrorProfiles(std::string_view text, std::string_view model_hash,
                                        int n_layers, int n_kv_heads) {
  Lines lines(text);
  if (lines.Next().str() != kFirstLine) {
    return lines.Expected("'" + std::string(kFirstLine) + "'");
  }
  std::istringstream of_model = lines.Next();
  std::string word, hash;
  if (!(of_model >> word >> hash) || word != "model" || !AtEnd(of_model))
    return lines.Expected("'model' and its hash");
  if (hash != model_hash) {
    return Error{"error profile: belongs to another model (hash " + hash + ", this model: " +
                 std::string(model_hash) + "); create one with 'winnow calibrate'"};
  }
  std::istringstream shape = lines.Next();
  int layers = 0, heads = 0;
  if (!(shape >> word >> layers >> heads) || word != "shape" || layers != n_layers ||
      heads != n_kv_heads || !AtEnd(shape)) {
    return lines.Expected("'shape " + std::to_string(n_layers) + " " + std::to_string(n_kv_heads) +
                          "', layers and KV heads of the model");
  }
  ErrorProfiles profiles(n_layers, n_kv_heads);
  WINNOW_TRY(Read(lines, "replay", profiles.replay));
  WINNOW_TRY(Read(lines, "window", profiles.window));
  // A number that was cut off would read as another number: require the final newline.
  if (!text.ends_with('\n') || !lines.at_end()) {
    lines.Next();
    return lines.Expected("the end of the file after a complete line");
  }
  return profiles;
}

}  // namespace winnow::compression
