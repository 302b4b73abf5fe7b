// Sends a load to a server with the /completion protocol (winnow's or llama.cpp's) and prints the
// clients' measurements as one JSON object. Uses one thread, so that the server has the other
// cores.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "stream.h"

namespace winnow::bench {
namespace {

struct Load {
  int port = 8080;
  int clients = 1;   // concurrent streams
  int requests = 1;  // total
  int prompt = 512;  // random tokens per request
  int generate = 128;
  int vocabulary = 30000;  // token ids are below this
  int idle = 0;            // connections without a request
  int long_prompt = 0;     // prompt tokens of a further client, after all others stream; 0: none
  int read_first = 0;      // 1: all prompts are read in a first phase, then requested again
  int seed = 1;
  int seconds = 3600;  // time limit
  std::string fields;  // further fields of every request, as JSON without braces
};

const std::map<std::string, int Load::*>& Numbers() {
  static const std::map<std::string, int Load::*> numbers = {{"--port", &Load::port},
                                                             {"--clients", &Load::clients},
                                                             {"--requests", &Load::requests},
                                                             {"--prompt", &Load::prompt},
                                                             {"--generate", &Load::generate},
                                                             {"--vocabulary", &Load::vocabulary},
                                                             {"--idle", &Load::idle},
                                                             {"--long-prompt", &Load::long_prompt},
                                                             {"--seed", &Load::seed},
                                                             {"--seconds", &Load::seconds},
                                                             {"--read-first", &Load::read_first}};
  return numbers;
}

std::optional<Load> Parse(int argc, char** argv) {
  Load load;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const auto number = Numbers().find(flag);
    if (number != Numbers().end()) {
      load.*number->second = std::atoi(argv[i + 1]);
    } else if (flag == "--fields") {
      load.fields = argv[i + 1];
    } else {
      return std::nullopt;
    }
  }
  if (argc % 2 == 0 || load.clients < 1 || load.requests < 1 || load.prompt < 1)
    return std::nullopt;
  return load;
}

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A quantile of sorted numbers; 0 if there are none.
double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)));
  return sorted[at];
}

class Player {
 public:
  explicit Player(const Load& load)
      : load_(load), random_(static_cast<unsigned>(load.seed)), began_(Clock::now()) {}

  // False: the server did not respond, or not within load.seconds.
  bool Play();
  void Print() const;

 private:
  // A prompt of random tokens: "[1,2,3]".
  std::string Prompt(int n_prompt);
  std::string Body(const std::string& prompt, int n_generate) const;
  bool Begin(const std::string& prompt, int n_generate);
  bool ReadFirst();
  bool Wait();
  // Whether every stream has received some tokens.
  bool AllStream() const;

  Load load_;
  std::mt19937 random_;
  Clock::time_point began_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<int> idle_;
  std::vector<std::string> read_;  // prompts that the server has read
  size_t n_read_ = 0;              // streams of the first phase, which only read prompts
  double read_s_ = 0;
  int n_begun_ = 0;
  int n_open_ = 0;
  const Stream* long_ = nullptr;
};

std::string Player::Prompt(int n_prompt) {
  std::uniform_int_distribution<int> token(100, load_.vocabulary - 1);
  std::string prompt = "[";
  for (int i = 0; i < n_prompt; ++i) {
    if (i > 0) prompt += ',';
    prompt += std::to_string(token(random_));
  }
  return prompt + "]";
}

std::string Player::Body(const std::string& prompt, int n_generate) const {
  // Request token ids: a token that is part of a character has no text, so it would send no event.
  std::string body = "{\"return_tokens\":true,\"prompt\":" + prompt +
                     ",\"n_predict\":" + std::to_string(n_generate) +
                     ",\"stream\":true,\"temperature\":0,\"ignore_eos\":true,\"cache_prompt\":" +
                     (load_.read_first == 0 ? "false" : "true");
  if (!load_.fields.empty()) body += "," + load_.fields;
  return body + "}";
}

bool Player::Begin(const std::string& prompt, int n_generate) {
  const std::optional<int> socket = Stream::Connect(load_.port);
  if (!socket) return false;
  streams_.push_back(std::make_unique<Stream>(*socket, Body(prompt, n_generate)));
  ++n_open_;
  return true;
}

// Reads all prompts first, so that decode is measured without concurrent prefill: otherwise a
// server that reads prompts one after another finishes the first response before it has read the
// last prompt.
bool Player::ReadFirst() {
  while (std::ssize(read_) < load_.requests || n_open_ > 0) {
    while (std::ssize(read_) < load_.requests && n_open_ < load_.clients) {
      read_.push_back(Prompt(load_.prompt));
      if (!Begin(read_.back(), 1)) return false;
    }
    if (!Wait()) return false;
  }
  n_read_ = streams_.size();
  read_s_ = Seconds(began_, Clock::now());
  return true;
}

bool Player::AllStream() const {
  return std::ranges::all_of(streams_,
                             [](const auto& stream) { return stream->times().size() > 3; });
}

bool Player::Wait() {
  std::vector<pollfd> polled;
  std::vector<Stream*> of;
  for (const auto& stream : streams_) {
    if (stream->done()) continue;
    polled.push_back(
        {.fd = stream->socket(),
         .events = static_cast<short>(POLLIN | (stream->wants_to_write() ? POLLOUT : 0)),
         .revents = 0});
    of.push_back(stream.get());
  }
  if (poll(polled.data(), polled.size(), 1000) < 0) return false;
  for (size_t i = 0; i < of.size(); ++i) {
    if (polled[i].revents == 0) continue;
    of[i]->Continue();
    if (of[i]->done()) --n_open_;
  }
  return Seconds(began_, Clock::now()) < load_.seconds;
}

bool Player::Play() {
  for (int i = 0; i < load_.idle; ++i) {
    const std::optional<int> socket = Stream::Connect(load_.port);
    if (!socket) return false;
    idle_.push_back(*socket);
  }
  began_ = Clock::now();
  if (load_.read_first != 0 && !ReadFirst()) return false;
  while (n_begun_ < load_.requests || n_open_ > 0) {
    while (n_begun_ < load_.requests && n_open_ < load_.clients) {
      const bool is_read = load_.read_first != 0;
      const std::string prompt =
          is_read ? read_[static_cast<size_t>(n_begun_)] : Prompt(load_.prompt);
      if (!Begin(prompt, load_.generate)) return false;
      ++n_begun_;
    }
    if (load_.long_prompt > 0 && long_ == nullptr && n_begun_ == load_.requests && AllStream()) {
      if (!Begin(Prompt(load_.long_prompt), 1)) return false;
      long_ = streams_.back().get();
    }
    if (!Wait()) return false;
  }
  for (const int socket : idle_) close(socket);
  return true;
}

void Player::Print() const {
  std::vector<double> first, gaps;
  double longest_during = 0;  // longest gap while the long prompt is read
  int64_t n_tokens = 0, n_failed = 0;
  std::string problem;
  // Interval in which all streams decode.
  Clock::time_point all_from = began_, all_to = Clock::time_point::max(), end = began_;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto& stream = streams_[i];
    const auto& times = stream->times();
    if (!stream->problem().empty() || times.empty()) {
      ++n_failed;
      problem = stream->problem();
      continue;
    }
    end = std::max(end, times.back());
    if (stream.get() == long_ || i < n_read_) continue;
    n_tokens += stream->n_tokens();
    first.push_back(Seconds(stream->started(), times.front()));
    all_from = std::max(all_from, times.front());
    all_to = std::min(all_to, times.back());
    for (size_t t = 1; t < times.size(); ++t) {
      const double gap = Seconds(times[t - 1], times[t]);
      gaps.push_back(gap);
      const bool during = long_ != nullptr && !long_->times().empty() &&
                          times[t] > long_->started() && times[t - 1] < long_->times().front();
      if (during) longest_during = std::max(longest_during, gap);
    }
  }
  std::ranges::sort(first);
  std::ranges::sort(gaps);
  int64_t n_together = 0;
  for (const auto& stream : streams_) {
    for (const Clock::time_point time : stream->times()) {
      n_together += time > all_from && time <= all_to ? 1 : 0;
    }
  }
  const double together = all_to > all_from ? Seconds(all_from, all_to) : 0;
  const double wall = Seconds(began_, end);
  for (char& c : problem) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  const auto ms = [](double seconds) { return seconds * 1000; };
  std::printf(
      "{\"requests\":%zu,\"failed\":%lld,\"tokens\":%lld,\"wall_s\":%.3f,\"read_s\":%.3f,"
      "\"tokens_per_s\":%.2f,"
      "\"decode_tokens_per_s\":%.2f,\"first_p50_ms\":%.1f,\"first_p99_ms\":%.1f,\"gap_p50_ms\":%."
      "1f,"
      "\"gap_p99_ms\":%.1f,\"gap_max_ms\":%.1f,\"gap_max_while_long_ms\":%.1f,\"long_first_ms\":%."
      "1f,"
      "\"problem\":\"%s\"}\n",
      streams_.size(), static_cast<long long>(n_failed), static_cast<long long>(n_tokens), wall,
      read_s_, wall > 0 ? static_cast<double>(n_tokens) / wall : 0,
      together > 0 ? static_cast<double>(n_together) / together : 0, ms(Quantile(first, 0.5)),
      ms(Quantile(first, 0.99)), ms(Quantile(gaps, 0.5)), ms(Quantile(gaps, 0.99)),
      ms(gaps.empty() ? 0 : gaps.back()), ms(longest_during),
      long_ != nullptr && !long_->times().empty()
          ? ms(Seconds(long_->started(), long_->times().front()))
          : 0,
      problem.c_str());
}

int Main(int argc, char** argv) {
  const std::optional<Load> load = Parse(argc, argv);
  if (!load) {
    std::fprintf(stderr, "winnow_server_load:");
    for (const auto& [flag, member] : Numbers()) std::fprintf(stderr, " [%s N]", flag.c_str());
    std::fprintf(stderr, " [--fields JSON]\n");
    return 2;
  }
  Player player(*load);
  const bool played = player.Play();
  player.Print();
  if (!played)
    std::fprintf(stderr,
                 "winnow_server_load: the server did not respond, or not within --seconds\n");
  return played ? 0 : 1;
}

}  // namespace
}  // namespace winnow::bench

int main(int argc, char** argv) { return winnow::bench::Main(argc, argv); }
