#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "report/record.h"
#include "server/http/answer_writer.h"
#include "server/http/deadlines.h"
#include "server/http/url.h"
#include "server/openai/api_error.h"

namespace winnow::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<tcp::socket>;

tcp::socket& TcpSocket(tcp::socket& stream) { return stream; }
tcp::socket& TcpSocket(TlsStream& stream) { return stream.next_layer(); }

// One read and one write are under way at most. A read nearly always is: what comes while an answer
// is made is the next request and waits in the buffer, and the read shows when the client goes
// away.
template <class Stream>
class HttpConnection final : public Connection,
                             public Wire,
                             public std::enable_shared_from_this<HttpConnection<Stream>> {
 public:
  template <class... Arguments>
  explicit HttpConnection(ConnectionShared& shared, Arguments&&... arguments)
      : stream_(std::forward<Arguments>(arguments)...),
        shared_(shared),
        options_(shared.options),
        deadlines_(std::make_shared<Deadlines>(stream_.get_executor())) {
    ++shared_.n_connections;
  }
  ~HttpConnection() override {
    ReleaseBody();
    --shared_.n_connections;
  }

  void Start() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
      error_code ignored;
      TcpSocket(self->stream_).set_option(tcp::no_delay(true), ignored);
      self->deadlines_->Start([weak = self->weak_from_this()](Deadlines::Kind kind) {
        if (const auto locked = weak.lock()) locked->OnDeadline(kind);
      });
      self->Handshake();
    });
  }
  void Drain() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (self->current_) return self->current_->CloseAfterwards();
      if (!self->parsing_) self->CloseAfterWriting();
    });
  }
  void Abort() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->Close(); });
  }

  void Queue(std::string bytes, bool limited) override {
    if (closed_) return;
    if (limited && queued_bytes_ > options_.max_queue_bytes) return Close();
    queued_bytes_ += bytes.size();
    queue_.push_back(std::move(bytes));
    if (pings_) deadlines_->Set(Deadlines::kPing, options_.ping);
    if (!writing_) WriteQueue();
  }
  void AnswerDone(bool keep_alive) override {
    SetPings(false);
    // Not here: the exchange that calls this may be destroyed by it.
    asio::post(stream_.get_executor(), [self = this->shared_from_this(), keep_alive] {
      self->current_ = nullptr;
      if (self->closed_) return;
      if (!keep_alive || self->peer_finished_ || self->shared_.draining)
        return self->CloseAfterWriting();
      self->NextRequest();
    });
  }
  void SetPings(bool on) override {
    pings_ = on;
    if (!on) return deadlines_->Clear(Deadlines::kPing);
    deadlines_->Set(Deadlines::kPing, options_.ping);
  }
  void Post(std::function<void()> work) override {
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this(), work = std::move(work)] { self->Run(work); });
  }
  void PostLong(std::function<void()> work) override {
    shared_.large_requests.Run([self = this->shared_from_this(), work = std::move(work)] {
      asio::post(self->stream_.get_executor(), [self, work] {
        self->Run(work);
        self->Run([&] { self->shared_.large_requests.Done(); });
      });
    });
  }
  void After(std::chrono::milliseconds delay, std::function<void()> work) override {
    auto timer = std::make_shared<asio::steady_timer>(stream_.get_executor(), delay);
    timer->async_wait(
        [self = this->shared_from_this(), timer, work = std::move(work)](const error_code& error) {
          if (!error && !self->closed_) self->Run(work);
        });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  // Memory that is not there ends this client's answer, not the thread.
  void Run(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception&) {
      Close();
    }
  }

  void Handshake() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      deadlines_->Set(Deadlines::kRead, options_.handshake);
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](const error_code& error) {
                                if (error) return self->Close();
                                self->NextRequest();
                              });
    } else {
      NextRequest();
    }
  }

  // Ready for a request, of which the buffer may have some or all.
  void NextRequest() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
    parser_->body_limit(options_.max_body_bytes);
    parser_->eager(true);
    parsing_ = continued_ = false;
    deadlines_->Set(Deadlines::kRead, options_.idle);
    if (buffer_.size() > 0) return Parse();
    buffer_.shrink_to_fit();
    Read();
  }

  void Read() {
    if (reading_ || closed_ || peer_finished_) return;
    // A client that sends on and on while it is answered has to wait.
    if (current_ && buffer_.size() >= options_.max_pipelined_bytes) return;
    reading_ = true;
    stream_.async_read_some(asio::buffer(incoming_),
                            [self = this->shared_from_this()](const error_code& error, size_t n) {
                              self->OnRead(error, n);
                            });
  }

  void OnRead(const error_code& error, size_t n) {
    reading_ = false;
    if (closed_) return;
    if (error) return OnReadError(error);
    if (closing_) return Read();  // unheard, until the client ends its side
    Run([this, n] {
      asio::buffer_copy(buffer_.prepare(n), asio::buffer(incoming_, n));
      buffer_.commit(n);
      if (current_) return Read();
      Parse();
    });
  }

  void OnReadError(const error_code& error) {
    const bool is_end = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
    if (!is_end) return Close();
    // Who ends his side has gone, or has asked all he wants (printf | nc): what is written already
    // still goes out, what is being generated for him ends.
    peer_finished_ = true;
    if (const auto exchange = std::exchange(current_, nullptr)) exchange->Closed();
    CloseAfterWriting();
  }

  void Parse() {
    if (!std::exchange(parsing_, true)) deadlines_->Set(Deadlines::kRead, options_.header);
    const bool had_header = parser_->is_header_done();
    error_code error;
    while (buffer_.size() > 0 && !parser_->is_done()) {
      const size_t n = parser_->put(buffer_.data(), error);
      buffer_.consume(n);
      if (error) break;
    }
    if (error && error != http::error::need_more) return Refuse(error);
    if (parser_->is_header_done()) {
      if (!had_header) deadlines_->Set(Deadlines::kRead, options_.body);
      if (!ReserveBody()) return;
    }
    if (parser_->is_done()) return Dispatch();
    if (parser_->is_header_done() && !std::exchange(continued_, true)) {
      if (parser_->get()[http::field::expect] == "100-continue") {
        Queue("HTTP/1.1 100 Continue\r\n\r\n", false);
      }
    }
    Read();
  }

  // Bodies of all clients together are limited. False: this one was refused.
  bool ReserveBody() {
    const auto length = parser_->content_length();
    const size_t wanted =
        std::max(parser_->get().body().size(), length ? static_cast<size_t>(*length) : 0);
    if (wanted <= body_reserved_) return true;
    const size_t more = wanted - body_reserved_;
    if (shared_.body_bytes.fetch_add(more) + more > options_.max_bodies_bytes) {
      shared_.body_bytes -= more;
      RefuseWith({.status = 503, .message = "too many large requests at once", .code = "busy"});
      return false;
    }
    body_reserved_ = wanted;
    return true;
  }
  void ReleaseBody() { shared_.body_bytes -= std::exchange(body_reserved_, 0); }

  void Refuse(const error_code& error) {
    const auto longer = [](const char* what, size_t limit) {
      return std::string(what) + " is longer than " + std::to_string(limit) + " bytes";
    };
    if (error == http::error::header_limit) {
      return RefuseWith({.status = 431,
                         .message = longer("the header", options_.max_header_bytes),
                         .code = "header_too_large"});
    }
    if (error == http::error::body_limit) {
      return RefuseWith({.status = 413,
                         .message = longer("the body", options_.max_body_bytes),
                         .code = "body_too_large"});
    }
    RefuseWith({.status = 400, .message = "not HTTP: " + error.message(), .code = "bad_request"});
  }

  // Answers a request that was not read to its end, which ends the connection.
  void RefuseWith(const ApiError& error) {
    parsing_ = false;
    deadlines_->Clear(Deadlines::kRead);
    current_ =
        std::make_shared<HttpExchange>(this->shared_from_this(), AnswerForm{.keep_alive = false});
    std::shared_ptr(current_)->Send(
        {.status = error.status, .body = report::ToJson(ErrorRecord(error))});
    Read();
  }

  void Dispatch() {
    parsing_ = false;
    deadlines_->Clear(Deadlines::kRead);
    auto message = parser_->release();
    const auto exchange = std::make_shared<HttpExchange>(
        this->shared_from_this(),
        AnswerForm{.is_head = message.method() == http::verb::head,
                   .is_http_1_0 = message.version() < 11,
                   .keep_alive = message.keep_alive() && !shared_.draining,
                   .is_large = message.body().size() >= options_.large_body_bytes});
    current_ = exchange;
    auto target = ParseTarget({message.target().data(), message.target().size()});
    if (!target) {
      exchange->Send(
          {.status = 400, .body = report::ToJson(ErrorRecord({.message = "the path is no path"}))});
    } else {
      Call call = {.method = std::string(message.method_string()),
                   .path = std::move(target->path),
                   .query = std::move(target->query),
                   .body = std::move(message.body())};
      for (const auto& field : message) {
        const auto name = field.name_string();
        call.headers.emplace_back(LowerCase({name.data(), name.size()}),
                                  std::string(field.value()));
      }
      if (call.body.size() >= options_.large_body_bytes)
        return HandleLarge(std::move(call), exchange);
      shared_.handler(call, exchange);
    }
    ReleaseBody();
    Read();
  }

  void HandleLarge(Call call, const std::shared_ptr<HttpExchange>& exchange) {
    const auto held = std::make_shared<const Call>(std::move(call));
    PostLong([self = this->shared_from_this(), held, exchange] {
      if (self->current_ == exchange) self->Run([&] { self->shared_.handler(*held, exchange); });
      self->ReleaseBody();
    });
    Read();
  }

  void WriteQueue() {
    if (queue_.empty() || closed_) return;
    writing_ = true;
    deadlines_->Set(Deadlines::kWrite, options_.write);
    constexpr size_t kMaxPieces = 32;
    n_writing_ = std::min(queue_.size(), kMaxPieces);
    std::vector<asio::const_buffer> buffers;
    for (size_t i = 0; i < n_writing_; ++i) buffers.push_back(asio::buffer(queue_[i]));
    asio::async_write(stream_, buffers,
                      [self = this->shared_from_this()](const error_code& error, size_t) {
                        self->OnWritten(error);
                      });
  }

  void OnWritten(const error_code& error) {
    writing_ = false;
    deadlines_->Clear(Deadlines::kWrite);
    if (closed_) return;
    if (error) return Close();
    for (; n_writing_ > 0; --n_writing_) {
      queued_bytes_ -= queue_.front().size();
      queue_.pop_front();
    }
    if (!queue_.empty()) return WriteQueue();
    if (closing_) FinishWriting();
  }

  void CloseAfterWriting() {
    closing_ = true;
    if (!writing_) FinishWriting();
  }

  // Closing with bytes unread would reset the connection, and the end of the answer with it: the
  // client gets a moment to end its side.
  void FinishWriting() {
    error_code ignored;
    TcpSocket(stream_).shutdown(tcp::socket::shutdown_send, ignored);
    if (peer_finished_ || ignored) return Close();
    deadlines_->Set(Deadlines::kRead, options_.linger);
    Read();
  }

  void OnDeadline(Deadlines::Kind kind) {
    if (closed_) return;
    if (kind == Deadlines::kPing) {
      if (const auto exchange = current_) exchange->Write(":\n\n");
      return;
    }
    if (kind == Deadlines::kWrite || !parsing_) return Close();
    RefuseWith({.status = 408,
                .message = "the request did not come to its end in time",
                .code = "timeout"});
  }

  void Close() {
    if (std::exchange(closed_, true)) return;
    deadlines_->Stop();
    error_code ignored;
    TcpSocket(stream_).close(ignored);
    if (const auto exchange = std::exchange(current_, nullptr)) exchange->Closed();
    if (!writing_) queue_.clear();
  }

  Stream stream_;
  ConnectionShared& shared_;
  const HttpOptions& options_;
  std::array<char, 4096> incoming_;  // what the read under way brings
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<HttpExchange> current_;  // the answer that is being made
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  size_t n_writing_ = 0;  // pieces of the queue that are being written
  size_t body_reserved_ = 0;
  bool reading_ = false;
  bool writing_ = false;
  bool parsing_ = false;    // some of a request has come
  bool continued_ = false;  // whether 100 Continue was decided
  bool closing_ = false;    // once all is written
  bool peer_finished_ = false;
  bool closed_ = false;
  bool pings_ = false;
  const std::shared_ptr<Deadlines> deadlines_;
};

}  // namespace

std::shared_ptr<Connection> MakeConnection(tcp::socket socket, ConnectionShared& shared) {
  return std::make_shared<HttpConnection<tcp::socket>>(shared, std::move(socket));
}

std::shared_ptr<Connection> MakeTlsConnection(tcp::socket socket, asio::ssl::context& tls,
                                              ConnectionShared& shared) {
  return std::make_shared<HttpConnection<TlsStream>>(shared, std::move(socket), tls);
}

}  // namespace winnow::server
