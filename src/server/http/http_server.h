#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "server/http/http_options.h"

namespace winnow::server {

// Listens, reads requests, passes them to the handlers and writes their responses. Its threads
// start in Listen.
class HttpServer {
 public:
  // Errors: the address cannot be used (says why), a key or certificate cannot be read. The log
  // must outlive the server.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, Handlers handlers,
                                                    Log& log);
  ~HttpServer();  // aborts open connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  // Takes no new connections, closes idle ones, and waits up to `patience` until the others have
  // their responses and are closed.
  void Drain(std::chrono::milliseconds patience);

 private:
  struct Data;
  explicit HttpServer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::server
