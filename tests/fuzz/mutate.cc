// main() of a fuzz target built without libFuzzer, which comes with clang only. Mutates seeds
// without coverage feedback: needs no build of its own, but finds less than an hour of libFuzzer.
//
//     NAME_fuzz [FLAG...] FOLDER...|INPUT...
//
// Flags as in libFuzzer: -max_total_time=SECONDS, -seed=N, -max_len=BYTES, -timeout=SECONDS,
// -rss_limit_mb=N, -dict=FILE, -artifact_prefix=PATH. Inputs are run once. Without inputs, the
// files of the folders are mutated, or the empty text if there are no folders. An input is written
// to PATHcrash, and the program fails, if it crashes, exits the process, takes too long or leaves
// the process with too much memory. A leak fails the program too, but is found only at the end,
// without its input.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

struct Options {
  int64_t max_total_time = 60;
  int64_t seed = 1;
  int64_t max_len = 8192;
  int64_t timeout = 10;
  int64_t rss_limit_mb = 512;
  std::string dict;
  std::string artifact_prefix = "./";
};

// State for the signal handlers.
std::string artifact;              // NOLINT(runtime/string): its path
const uint8_t* current = nullptr;  // the input being run
size_t current_size = 0;

void Say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void WriteInput() {
  if (current == nullptr) return;
  const int file = open(artifact.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool written =
      file >= 0 && write(file, current, current_size) == static_cast<ssize_t>(current_size);
  if (file >= 0) close(file);
  Say(written ? "the input is written to " : "the input cannot be written to ");
  Say(artifact.c_str());
  Say("\n");
  current = nullptr;
}

// For a target that exits the process itself.
void OnExit() {
  if (current == nullptr) return;
  Say("the target called exit\n");
  WriteInput();
  _exit(1);
}

void OnSignal(int signal) {
  if (signal == SIGALRM) Say("timeout\n");
  WriteInput();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunInput(const std::string& input, const Options& options) {
  // Allocate exactly this size, so that the sanitizer reports a read beyond the end.
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), bytes.get());
  current = bytes.get();
  current_size = input.size();
  alarm(static_cast<unsigned>(options.timeout));
  LLVMFuzzerTestOneInput(bytes.get(), input.size());
  alarm(0);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss / 1024 > options.rss_limit_mb) {
    std::fprintf(stderr, "%ld MiB of memory, the limit is %ld\n", usage.ru_maxrss / 1024,
                 static_cast<long>(options.rss_limit_mb));
    WriteInput();
    std::exit(1);
  }
  current = nullptr;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads the quoted words of a libFuzzer dictionary: one per line, with \" \\ and \xHH.
std::vector<std::string> ReadWords(const std::string& path) {
  std::vector<std::string> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"');
    const size_t end = line.rfind('"');
    if (line.starts_with('#') || end == std::string::npos || end == begin) continue;
    std::string& word = words.emplace_back();
    for (size_t i = begin + 1; i < end; ++i) {
      const bool escape = line[i] == '\\' && i + 1 < end;
      if (!escape) {
        word += line[i];
      } else if (line[++i] != 'x') {
        word += line[i];
      } else {
        word += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      }
    }
  }
  return words;
}

class Mutator {
 public:
  Mutator(const Options& options, std::vector<std::string> seeds, std::vector<std::string> words)
      : seeds_(std::move(seeds)),
        words_(std::move(words)),
        max_len_(static_cast<size_t>(options.max_len)),
        rng_(static_cast<uint64_t>(options.seed)) {
    if (seeds_.empty()) seeds_.emplace_back();
  }

  std::string Next() {
    std::string input = Pick(seeds_);
    for (size_t i = 0, n = 1 + Below(8); i < n; ++i) Mutate(input);
    input.resize(std::min(input.size(), max_len_));
    return input;
  }

 private:
  size_t Below(size_t n) { return static_cast<size_t>(rng_.Below(n)); }
  const std::string& Pick(const std::vector<std::string>& list) { return list[Below(list.size())]; }

  void Mutate(std::string& input) {
    const size_t at = Below(input.size() + 1);
    const size_t rest = input.size() - at;
    switch (Below(9)) {
      case 0:  // flip a bit
        if (rest > 0) input[at] = static_cast<char>(input[at] ^ (1 << Below(8)));
        break;
      case 1:  // replace a byte
        if (rest > 0) input[at] = static_cast<char>(Below(256));
        break;
      case 2:  // erase a part
        input.erase(at, 1 + Below(std::min<size_t>(rest + 1, 64)));
        break;
      case 3:  // truncate
        if (Below(4) == 0) input.resize(at);
        break;
      case 4:  // repeat a part
        input.insert(Below(input.size() + 1), input.substr(at, 1 + Below(64)));
        break;
      case 5:  // write an integer at a limit
        Overwrite(input, at, Integer());
        break;
      case 6:  // insert a word of the dictionary, or write it over what is there
        if (words_.empty()) break;
        if (Below(2) == 0) {
          input.insert(at, Pick(words_));
        } else {
          Overwrite(input, at, Pick(words_));
        }
        break;
      case 7:  // continue with a part of another seed
      {
        const std::string& other = Pick(seeds_);
        input.resize(at);
        input += other.substr(Below(other.size() + 1));
        break;
      }
      default:  // repeat a byte many times
        input.insert(at, 1 + Below(100), rest > 0 ? input[at] : static_cast<char>(Below(256)));
        break;
    }
  }

  static void Overwrite(std::string& input, size_t at, std::string_view bytes) {
    input.replace(at, std::min(bytes.size(), input.size() - at), bytes);
  }

  std::string Integer() {
    constexpr uint64_t kLimits[] = {0,
                                    1,
                                    0x7F,
                                    0x80,
                                    0xFF,
                                    0x7FFF,
                                    0xFFFF,
                                    0x7FFFFFFF,
                                    0x80000000,
                                    0xFFFFFFFF,
                                    1ULL << 40,
                                    1ULL << 61,
                                    0x7FFFFFFFFFFFFFFF,
                                    1ULL << 63,
                                    ~0ULL};
    const uint64_t value = kLimits[Below(std::size(kLimits))] + Below(3) - 1;
    std::string bytes(size_t{1} << Below(4), '\0');
    std::memcpy(bytes.data(), &value, bytes.size());
    return bytes;
  }

  std::vector<std::string> seeds_;
  std::vector<std::string> words_;
  size_t max_len_;
  winnow::Rng rng_;
};

// False: not one of the flags above.
bool SetFlag(std::string_view argument, Options& options) {
  const size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(1, equals - 1);
  const std::string value(argument.substr(equals + 1));
  if (name == "dict") options.dict = value;
  if (name == "artifact_prefix") options.artifact_prefix = value;
  if (name == "dict" || name == "artifact_prefix") return true;
  const std::pair<std::string_view, int64_t*> numbers[] = {
      {"max_total_time", &options.max_total_time},
      {"seed", &options.seed},
      {"max_len", &options.max_len},
      {"timeout", &options.timeout},
      {"rss_limit_mb", &options.rss_limit_mb}};
  for (const auto& [flag, number] : numbers) {
    if (name != flag) continue;
    *number = std::stoll(value);
    return true;
  }
  return false;
}

}  // namespace

// The undefined-behaviour sanitizer calls this before it ends the process; the death callback set
// in main() is called by the address sanitizer only.
extern "C" __attribute__((visibility("default"))) void __ubsan_on_report() {
  WriteInput();
}  // NOLINT

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> inputs, seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with('-')) {
      if (SetFlag(argument, options)) continue;
      std::fprintf(stderr, "%s: an unknown flag\n", argv[i]);
      return 2;
    }
    if (!std::filesystem::is_directory(argument)) {
      inputs.push_back(ReadFile(argument));
      continue;
    }
    const size_t n_before = seeds.size();
    for (const auto& entry : std::filesystem::directory_iterator(argument)) {
      seeds.push_back(ReadFile(entry.path()));
    }
    if (seeds.size() == n_before) {
      std::fprintf(stderr, "%s: no seeds\n", argv[i]);
      return 2;
    }
  }
  std::sort(seeds.begin(), seeds.end());  // directories list their files in any order
  artifact = options.artifact_prefix + "crash";
  __sanitizer_set_death_callback(WriteInput);
  std::atexit(OnExit);
  std::signal(SIGALRM, OnSignal);
  std::signal(SIGABRT, OnSignal);

  int64_t n = 0;
  const auto run = [&](const std::string& input) {
    RunInput(input, options);
    ++n;
  };
  for (const std::string& input : inputs) run(input);
  if (inputs.empty()) {
    for (const std::string& seed : seeds) run(seed);
    Mutator mutator(options, std::move(seeds),
                    options.dict.empty() ? std::vector<std::string>() : ReadWords(options.dict));
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(options.max_total_time);
    while (Clock::now() < end) run(mutator.Next());
  }
  std::printf("%lld inputs\n", static_cast<long long>(n));
  return 0;
}
