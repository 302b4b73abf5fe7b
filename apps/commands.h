#pragma once

#include <span>
#include <string>

// One function per command. `arguments` follow the command's name; the result is the exit code.
namespace winnow::apps {

using Arguments = std::span<const std::string>;

int Run(Arguments arguments);
int Chat(Arguments arguments);
int Perplexity(Arguments arguments);
int Bench(Arguments arguments);
int Compare(Arguments arguments);
int Eval(Arguments arguments);
int Calibrate(Arguments arguments);
int Methods(Arguments arguments);
int Probe(Arguments arguments);
int Replay(Arguments arguments);
int Inspect(Arguments arguments);
int Serve(Arguments arguments);
int Tokenize(Arguments arguments);

}  // namespace winnow::apps
