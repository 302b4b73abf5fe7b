// winnow_session_mutations [--seed N] [--count N]: session files of every method, damaged as a
// disk, another program or an attacker might damage them: changed numbers, lengths and tags;
// missing, doubled or exchanged sections; sections of other files; a cut or extended end. Most
// files get correct hashes, so that their content is parsed. Each file must be refused with an
// error or work; a session that stays open must not change. Exit code: 0 all hold, 2 misuse. If a
// case ends the process, the handler first prints how to repeat it.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "../fuzz/session_seeds.h"
#include "base/rng.h"

namespace {

using winnow::Rng;
using winnow::fuzz::kFileHead;
using winnow::fuzz::kSectionHead;
using winnow::fuzz::Seed;

constexpr int kCaseTimeoutSeconds = 60;
constexpr int kWitnessEvery = 500;  // cases between two checks of the open session

char g_line[256];

void OnFatalSignal(int signal) {
  const char* what = signal == SIGALRM ? "session_mutations: a case hangs: "
                                       : "session_mutations: a case ended the process: ";
  (void)!write(STDERR_FILENO, what, std::strlen(what));
  (void)!write(STDERR_FILENO, g_line, std::strlen(g_line));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

// The parts of a file: its header, then one string per section, with the section's header.
struct Parts {
  std::string head = {};
  std::vector<std::string> sections = {};
};

Parts PartsFrom(const Seed& seed) {
  Parts parts = {.head = seed.bytes.substr(0, kFileHead)};
  for (size_t i = 0; i < seed.sections.size(); ++i) {
    const size_t end = i + 1 < seed.sections.size() ? seed.sections[i + 1] : seed.bytes.size();
    parts.sections.push_back(seed.bytes.substr(seed.sections[i], end - seed.sections[i]));
  }
  return parts;
}

class Mutator {
 public:
  Mutator(const winnow::fuzz::Seeds& seeds, uint64_t seed) : seeds_(seeds), rng_(seed) {}

  // Writes a damaged file to `bytes`. Returns the seed whose options it must be read with.
  const Seed& Mutate(std::string& bytes) {
    const Seed& seed = seeds_.at(Draw(seeds_.size()));
    Parts parts = PartsFrom(seed);
    const size_t n_changes = 1 + Draw(3);
    for (size_t i = 0; i < n_changes; ++i) Change(parts);
    bytes = parts.head;
    const bool right_hashes = Draw(8) != 0;
    for (std::string& section : parts.sections) {
      if (right_hashes && section.size() >= kSectionHead) SetLengthAndHash(section);
      bytes += section;
    }
    if (Draw(10) == 0) bytes.resize(Draw(bytes.size() + 1));
    if (Draw(20) == 0) bytes.append(1 + Draw(64), static_cast<char>(Draw(256)));
    return seed;
  }

 private:
  size_t Draw(size_t n) { return static_cast<size_t>(rng_.Next() % n); }

  // Sets length and hash to those of the current content, unless a changed length should stay.
  void SetLengthAndHash(std::string& section) {
    const uint64_t n_bytes = section.size() - kSectionHead;
    if (keeps_length_) return;
    std::memcpy(section.data() + 8, &n_bytes, sizeof(n_bytes));
    winnow::fuzz::SetHash(section, 0);
  }

  // Changes a number of 1, 2, 4 or 8 bytes to a value at which parsers tend to fail.
  void ChangeNumber(std::string& section, size_t from) {
    if (section.size() <= from) return;
    const size_t width = size_t{1} << Draw(4);
    const size_t n_places = section.size() - from;
    const size_t at = from + (Draw(2) == 0 ? Draw(n_places) : Draw(n_places) / width * width);
    if (at + width > section.size()) return;
    uint64_t value = 0;
    std::memcpy(&value, section.data() + at, width);
    const uint64_t all = width == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * width) - 1;
    const uint64_t values[] = {0,
                               1,
                               all,
                               all >> 1,
                               (all >> 1) + 1,
                               value + 1,
                               value - 1,
                               value * 2,
                               value ^ 1ULL << Draw(8 * width),
                               rng_.Next()};
    value = values[Draw(std::size(values))];
    std::memcpy(section.data() + at, &value, width);
  }

  void Change(Parts& parts) {
    std::vector<std::string>& sections = parts.sections;
    if (sections.empty()) return;
    std::string& one = sections[Draw(sections.size())];
    switch (Draw(16)) {
      case 0:
        sections.erase(sections.begin() + static_cast<std::ptrdiff_t>(Draw(sections.size())));
        return;
      case 1:
        sections.push_back(std::string(one));
        return;
      case 2:
        std::swap(one, sections[Draw(sections.size())]);
        return;
      case 3: {  // a section of another method's file
        const Parts other = PartsFrom(seeds_.at(Draw(seeds_.size())));
        one = other.sections[Draw(other.sections.size())];
        return;
      }
      case 4:  // shorter or longer
        one.resize(kSectionHead + Draw(2 * one.size()), '\0');
        return;
      case 5: {  // bytes inside left out or doubled
        const size_t at = std::min(one.size(), kSectionHead + Draw(one.size()));
        const size_t n = std::min(one.size() - at, size_t{1} << Draw(7));
        if (Draw(2) == 0) {
          one.erase(at, n);
        } else {
          one.insert(at, one.substr(at, n));
        }
        return;
      }
      case 6:
        ChangeNumber(one, 0);  // tag, zero, length or hash; mostly set right again
        keeps_length_ = Draw(2) == 0;
        return;
      case 7:
        ChangeNumber(parts.head, 0);
        return;
      case 8:  // the text of options and notes, and the shape
        ChangeNumber(sections[0], kSectionHead);
        return;
      default:
        ChangeNumber(one, kSectionHead);
    }
  }

  const winnow::fuzz::Seeds& seeds_;
  Rng rng_;
  bool keeps_length_ = false;
};

// The logits of a session's copy after some more tokens.
std::vector<float> Next(const winnow::runtime::Session& session) {
  const auto copy = session.Fork().value();
  for (const auto token : winnow::fuzz::Tokens(3)) WINNOW_CHECK(copy->Decode(token).has_value());
  const auto logits = copy->logits();
  return {logits.begin(), logits.end()};
}

// Restores with the method and budget that the file names, as the server does.
std::string RestoreAsServed(winnow::runtime::Engine& engine, const std::string& path) {
  const auto info = winnow::runtime::ReadSessionInfo(path);
  if (!info) return info.error().message;
  const auto options = winnow::runtime::SessionOptionsFrom(*info);
  if (!options) return options.error().message;
  Seed seed;
  seed.options = *options;
  return winnow::fuzz::RestoreAndContinue(engine, seed, path);
}

int Misuse() {
  std::fprintf(stderr, "usage: winnow_session_mutations [--seed N] [--count N]\n");
  return 2;
}

}  // namespace

// Make sanitizers abort, so that the handler prints the case.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

int main(int argc, char** argv) {
  uint64_t first = 1, count = 1000;
  if (argc % 2 == 0) return Misuse();
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    char* end = nullptr;
    const uint64_t value = std::strtoull(argv[i + 1], &end, 0);
    if (end == argv[i + 1] || *end != '\0' || (name != "--seed" && name != "--count")) {
      return Misuse();
    }
    (name == "--seed" ? first : count) = value;
  }
  std::signal(SIGABRT, OnFatalSignal);
  std::signal(SIGSEGV, OnFatalSignal);
  std::signal(SIGALRM, OnFatalSignal);
  winnow::fuzz::Seeds seeds;
  const winnow::fuzz::TemporaryFolder folder;
  const std::string untouched = folder.Write("witness.session", seeds.at(0).bytes);
  const auto witness =
      winnow::runtime::RestoreSession(seeds.engine(), seeds.at(0).options, untouched).value();
  const std::vector<float> right = Next(*witness);
  uint64_t n_accepted = 0;
  std::map<std::string, uint64_t> kinds;  // of errors, without the digits
  for (uint64_t i = first; i - first < count; ++i) {
    std::snprintf(g_line, sizeof(g_line), "repeat with --seed %llu --count 1\n",
                  static_cast<unsigned long long>(i));
    alarm(kCaseTimeoutSeconds);
    std::string bytes;
    const Seed& seed = Mutator(seeds, i).Mutate(bytes);
    const std::string path = folder.Write("a.session", bytes);
    std::string problem = i % 2 == 0 ? winnow::fuzz::RestoreAndContinue(seeds.engine(), seed, path)
                                     : RestoreAsServed(seeds.engine(), path);
    alarm(0);
    n_accepted += problem.empty() ? 1 : 0;
    if (!std::ranges::all_of(problem, [](char c) { return c >= ' ' && c <= '~'; })) {
      std::fprintf(stderr, "session_mutations: an error message is not printable: %s\n",
                   problem.c_str());
      std::abort();
    }
    std::erase_if(problem, [](char c) { return c >= '0' && c <= '9'; });
    if (!problem.empty() && kinds.size() < 10000) ++kinds[problem.substr(0, 80)];
    if ((i - first) % kWitnessEvery == 0 || i - first + 1 == count) {
      WINNOW_CHECK(Next(*witness) == right);
    }
  }
  std::printf("%llu files: %llu went on, the others were refused with %zu kinds of errors\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(n_accepted),
              kinds.size());
  return 0;
}
