#include <string>
#include <vector>

#include "base/nearest.h"
#include "commands.h"
#include "console.h"
#include "flags.h"
#include "kernels/backends.h"
#include "kernels/ops.h"
#include "options.h"
#include "process.h"
#include "winnow/version.h"

namespace winnow::apps {
namespace {

struct Command {
  std::string_view name;
  int (*run)(Arguments);
  std::string_view summary;
};

constexpr Command kCommands[] = {
    {"run", Run, "continue a text"},
    {"chat", Chat, "talk with a model"},
    {"serve", Serve, "answer over HTTP, as OpenAI and llama-server do"},
    {"perplexity", Perplexity, "score a text; compare the logits of two runs"},
    {"bench", Bench, "measure prefill and decode speed"},
    {"compare", Compare, "answer a question under several cache methods, side by side"},
    {"eval", Eval, "run an evaluation of the papers under several cache methods"},
    {"calibrate", Calibrate, "measure how much of the cache each head of a model needs"},
    {"methods", Methods, "list the methods that compress the cache"},
    {"probe", Probe, "show what a model attends to and what methods keep"},
    {"replay", Replay, "run a method on recorded queries, keys and values"},
    {"inspect", Inspect, "say what is in a model file"},
    {"tokenize", Tokenize, "print the tokens of a text"},
};

std::string Help() {
  std::string text =
      "winnow COMMAND [flags]: language models in GGUF files, on this machine's "
      "CPU.\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string line = "  " + std::string(command.name);
    line.resize(16, ' ');
    text += line + std::string(command.summary) + "\n";
  }
  return text +
         "\n  winnow COMMAND --help   all flags of a command\n"
         "  winnow [flags]          the same as winnow run\n"
         "  winnow --version\n\n"
         "Try: winnow run -m model.gguf -p \"Once upon a time\" -n 100\n\n"
         "Results go to stdout, messages to stderr. Exit codes: 0 done, 1 failed, 2 wrong command "
         "line,\n129 terminal closed (SIGHUP), 130 interrupted (Ctrl-C), 141 nobody read the "
         "results, 143 terminated\n(SIGTERM).\n";
}

std::string Version() {
  std::string targets;
  for (const std::string& target : kernels::CpuTargets()) {
    targets += (targets.empty() ? "" : " ") + target;
  }
  return "winnow " WINNOW_VERSION "\ninstruction sets here: " + targets + "\n";
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    ConsoleLog().Info(Help());
    return kMisused;
  }
  const std::string& first = arguments[0];
  const bool wants_help = first == "help" || first == "--help" || first == "-h";
  if (wants_help && arguments.size() == 1) {
    Print(Help());
    return FinishOutput();
  }
  if (first == "--version") {
    Print(Version());
    return FinishOutput();
  }
  // As in llama.cpp, flags without a command generate a text.
  if (first.size() > 1 && first[0] == '-' && !wants_help) return Run(arguments);
  for (const std::string_view name : {"pull", "list", "ls", "show", "search"}) {
    if (first != name) continue;
    return Misuse("", "no command '" + first +
                          "': winnow downloads and keeps no models. Give a GGUF file with -m, such "
                          "as one from huggingface.co; 'winnow inspect FILE' says what is in it");
  }
  // "winnow help run" is "winnow run --help".
  const std::string& name = wants_help ? arguments[1] : first;
  std::vector<std::string> rest = {"--help"};
  if (!wants_help) rest.assign(arguments.begin() + 1, arguments.end());
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(rest);
    names.push_back(command.name);
  }
  const std::string_view nearest = NearestWord(name, names);
  return Misuse("", "unknown command '" + name + "'" +
                        (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?"));
}

}  // namespace
}  // namespace winnow::apps

int main(int argc, char** argv) {
  winnow::apps::PrepareProcess();
  return winnow::apps::RunGuarded(
      [&] { return winnow::apps::Main(std::vector<std::string>(argv + 1, argv + argc)); });
}
