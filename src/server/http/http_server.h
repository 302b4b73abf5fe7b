#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "server/http/http_options.h"

namespace winnow::server {

// Listens, reads requests, hands them to the handlers and writes what it answers. Its threads run
// from Listen on.
class HttpServer {
 public:
  // Errors: the address cannot be used (says why), a key or certificate that cannot be read. The
  // log outlives the server.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, Handlers handlers,
                                                    Log& log);
  ~HttpServer();  // aborts what is left
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  // Takes no new connections, closes idle ones, and waits until all answers are out, for `patience`
  // at most.
  void Drain(std::chrono::milliseconds patience);

 private:
  struct Data;
  explicit HttpServer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::server
