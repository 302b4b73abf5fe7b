#include "server/http/http_server.h"

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/connection.h"

namespace winnow::server {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::Data {
  Data(const HttpOptions& asked, Handlers handlers, Log& where)
      : options(asked), log(where), shared{options, std::move(handlers)} {}

  // These must not throw: nothing would restart accepting, and no client could connect.
  void Accept() {
    const auto accepted = [this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return AcceptLater();  // mostly out of file descriptors
      try {
        Take(std::move(socket));
      } catch (const std::exception&) {  // out of memory; the client is dropped
        return AcceptLater();
      }
      Accept();
    };
    try {
      acceptor.async_accept(asio::make_strand(context), accepted);
    } catch (const std::exception&) {
      AcceptLater();
    }
  }
  void AcceptLater() {
    constexpr std::chrono::milliseconds kPause{100};
    for (;;) {
      try {
        retry.expires_after(kPause);
        return retry.async_wait([this](const error_code& error) {
          if (!error) Accept();
        });
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kPause);
      }
    }
  }
  void Take(tcp::socket socket) {
    if (options.on_connection) options.on_connection();
    // Over the limit, close without an error response: it would need the resources that ran out.
    if (shared.n_connections >= options.max_connections) return;
    auto connection = tls ? MakeTlsConnection(std::move(socket), *tls, shared)
                          : MakeConnection(std::move(socket), shared);
    {
      const std::lock_guard lock(mutex);
      if (connections.size() >= 2 * shared.n_connections + 64) {
        std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
      }
      connections.push_back(connection);
    }
    connection->Start();
  }

  void RunThread() {
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::exception& problem) {
        log.Error(std::string("http: ") + problem.what());
      }
    }
  }

  template <class Action>
  void ForAll(Action action) {
    std::vector<std::weak_ptr<Connection>> all;
    {
      const std::lock_guard lock(mutex);
      all = connections;
    }
    for (const auto& weak : all) {
      if (const auto connection = weak.lock()) action(*connection);
    }
  }

  const HttpOptions options;
  Log& log;
  ConnectionShared shared;
  asio::io_context context;
  std::optional<asio::ssl::context> tls;
  asio::any_io_executor strand = asio::make_strand(context);  // of acceptor and retry
  tcp::acceptor acceptor{strand};
  asio::steady_timer retry{strand};
  uint16_t port = 0;
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> connections;
  std::vector<std::thread> threads;
};

namespace {

Result<asio::ssl::context> MakeTls(const HttpOptions& options) {
  asio::ssl::context tls(asio::ssl::context::tls_server);
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                  asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                  asio::ssl::context::no_tlsv1_1);
  error_code error;
  tls.use_certificate_chain_file(options.cert_file, error);
  const auto unusable = [&](std::string_view option, const std::string& file) {
    return Error{std::string(option) + ": " + file + ": " + error.message()};
  };
  if (error) return unusable(options.words.cert_file, options.cert_file);
  tls.use_private_key_file(options.key_file, asio::ssl::context::pem, error);
  if (error) return unusable(options.words.key_file, options.key_file);
  return tls;
}

// The endpoint of a host name or a numeric address.
Result<tcp::endpoint> Resolve(asio::io_context& context, const HttpOptions& options) {
  tcp::resolver resolver(context);
  error_code error;
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  const std::string host = std::string(options.words.host) + " " + options.host;
  if (error) return Error{host + ": " + error.message()};
  if (found.empty()) return Error{host + ": no such address"};
  // A name may resolve to several addresses: prefer IPv4, which curl and browsers try for
  // "localhost".
  for (const auto& entry : found) {
    if (entry.endpoint().protocol() == tcp::v4()) return entry.endpoint();
  }
  return found.begin()->endpoint();
}

}  // namespace

HttpServer::HttpServer(std::unique_ptr<Data> data) : data_(std::move(data)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                       Handlers handlers, Log& log) {
  const bool has_key = !options.key_file.empty();
  if (has_key == options.cert_file.empty()) {
    const HttpOptionNames& words = options.words;
    return Error{std::string(has_key ? words.cert_file : words.key_file) +
                 " is missing: TLS needs it together with " +
                 std::string(has_key ? words.key_file : words.cert_file)};
  }
  auto data = std::make_unique<Data>(options, std::move(handlers), log);
  if (has_key) {
    WINNOW_ASSIGN(asio::ssl::context tls, MakeTls(options));
    data->tls.emplace(std::move(tls));
  }
  WINNOW_ASSIGN(const tcp::endpoint endpoint, Resolve(data->context, options));
  error_code error;
  const auto failed = [&] {
    return Error{"cannot listen on " + options.host + " port " + std::to_string(options.port) +
                 ": " + error.message() +
                 (error == asio::error::address_in_use
                      ? "; choose another with " + std::string(options.words.port)
                      : "")};
  };
  data->acceptor.open(endpoint.protocol(), error);
  if (error) return failed();
  data->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  data->acceptor.bind(endpoint, error);
  if (error) return failed();
  data->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed();
  data->port = data->acceptor.local_endpoint(error).port();
  data->Accept();
  // Its destructor joins the threads that have begun when the next one cannot.
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(data)));
  Data* const running = server->data_.get();
  const int n_threads = options.n_threads + 1;  // see ConnectionShared::slots
  running->threads.reserve(static_cast<size_t>(n_threads));
  for (int i = 0; i < n_threads; ++i) {
    running->threads.emplace_back([running] { running->RunThread(); });
  }
  return server;
}

HttpServer::~HttpServer() {
  try {
    data_->ForAll([](Connection& connection) { connection.Abort(); });
    asio::post(data_->strand, [this] {
      error_code ignored;
      data_->acceptor.close(ignored);
      data_->retry.cancel(ignored);
    });
  } catch (const std::bad_alloc&) {  // what cannot be ended gently ends with the context
  }
  data_->work.reset();
  // Give aborted connections time to close; requests that still wait for the engine are dropped.
  constexpr std::chrono::milliseconds kMoment{200};
  const auto deadline = std::chrono::steady_clock::now() + kMoment;
  while (data_->shared.n_connections > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  data_->context.stop();
  for (std::thread& thread : data_->threads) thread.join();
  data_->shared.memory_slots.Clear();
  data_->shared.slots.Clear();  // waiting work holds sockets, which end before the context
}

uint16_t HttpServer::port() const { return data_->port; }

std::string HttpServer::url() const {
  std::string host = data_->options.host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return (data_->tls ? "https://" : "http://") + host + ":" + std::to_string(port());
}

void HttpServer::Drain(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  data_->shared.draining = true;
  asio::post(data_->strand, [this] {
    error_code ignored;
    data_->acceptor.close(ignored);
    data_->retry.cancel(ignored);
  });
  data_->ForAll([](Connection& connection) { connection.Drain(); });
  constexpr std::chrono::milliseconds kLook{10};
  while (data_->shared.n_connections > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace winnow::server
