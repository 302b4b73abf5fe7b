#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <utility>

#include "report/record.h"
#include "server/http/deadlines.h"
#include "server/http/http_exchange.h"
#include "server/http/request_reader.h"
#include "server/http/sockets.h"
#include "server/http/to_http_request.h"
#include "server/http/write_queue.h"
#include "server/openai/api_error.h"

namespace winnow::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// At most one read and one write are in progress. A read nearly always is: bytes that arrive while
// a response is made belong to the next request and wait in the buffer, and the read reports a
// client that disconnects. While the buffer is full, a periodic check does that instead.
template <class Stream>
class HttpConnection final : public Connection,
                             public Wire,
                             public std::enable_shared_from_this<HttpConnection<Stream>> {
 public:
  template <class... Arguments>
  HttpConnection(ConnectionShared& shared, Arguments&&... arguments)
      : stream_(std::forward<Arguments>(arguments)...),
        shared_(shared),
        options_(shared.options),
        reader_(shared.options, shared.large_bodies),
        read_share_(shared.buffers),
        queue_share_(shared.buffers),
        answer_share_(shared.buffers),
        deadlines_(std::make_shared<Deadlines>(stream_.get_executor())) {
    ++shared_.n_connections;
  }
  ~HttpConnection() override { --shared_.n_connections; }

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
  void Queue(std::string bytes, std::string more, bool limited) override {
    if (closed_) return;
    if (limited && queue_.n_bytes() > options_.max_queue_bytes) return Close();
    queue_.Push(std::move(bytes));
    if (!more.empty()) queue_.Push(std::move(more));
    if (!HoldQueue()) return Close();
    if (pings_) deadlines_->Set(Deadlines::kPing, options_.ping);
    if (!writing_) WriteNext();
  }
  void AnswerDone(bool keep_alive) override {
    SetPings(false);
    // Posted, because running this here could destroy the exchange that calls it.
    asio::post(stream_.get_executor(), [self = this->shared_from_this(), keep_alive] {
      self->current_ = nullptr;
      if (self->closed_) return;
      if (!keep_alive || self->closing_ || self->shared_.draining) return self->CloseAfterWriting();
      self->NextRequest();
    });
  }
  void SetPings(bool on) override {
    pings_ = on;
    on ? deadlines_->Set(Deadlines::kPing, options_.ping) : deadlines_->Clear(Deadlines::kPing);
  }
  void Post(std::function<void()> work) override {
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this(), work = std::move(work)] { self->Run(work); });
  }
  void PostWork(WorkSlots::Size size, std::function<void()> work) override {
    shared_.slots.Run(size, [self = this->shared_from_this(), size, work = std::move(work)] {
      asio::post(self->stream_.get_executor(), [self, size, work] {
        self->Run(work);
        self->Run([&] { self->shared_.slots.Done(size); });
      });
    });
  }
  void AcquireMemorySlot(std::function<void(Exchange::MemorySlot slot)> work) override {
    const auto self = this->shared_from_this();
    RunInSlot(shared_.memory_slots, [self, work = std::move(work)](auto slot) {
      asio::post(self->stream_.get_executor(), [self, slot, work] {
        if (self->current_ != nullptr) self->Run([&] { work(slot); });
      });
    });
  }
  bool Hold(size_t bytes) override { return answer_share_.Resize(bytes); }
  void After(std::chrono::milliseconds delay, std::function<void()> work) override {
    auto timer = std::make_shared<asio::steady_timer>(stream_.get_executor(), delay);
    timer->async_wait(
        [self = this->shared_from_this(), timer, work = std::move(work)](const error_code& error) {
          if (!error && !self->closed_) self->Run(work);
        });
  }

 private:
  // If memory runs out, this connection closes and the thread goes on.
  void Run(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception&) {
      Close();
    }
  }

  bool IsAnswering() const { return current_ != nullptr || is_next_delayed_; }

  void Handshake() {
    deadlines_->Set(Deadlines::kRead, options_.handshake);
    AsyncHandshake(stream_, [self = this->shared_from_this()](const error_code& error) {
      error ? self->Close() : self->NextRequest();
    });
  }

  void NextRequest() {
    Run([this] { BeginNext(); });
  }
  void BeginNext() {
    // Wait until earlier responses are sent: pipelined ones would fill the shared buffers.
    is_next_delayed_ = !queue_.empty();
    if (is_next_delayed_) return Read();
    reader_.Begin();
    if (reader_.n_buffered() == 0) HoldRead();  // releases what was held for reading ahead
    parsing_ = false;
    // A client that has sent nothing yet gets only the header's time: connections are limited.
    const auto first = std::min(options_.header, options_.idle);
    deadlines_->Set(Deadlines::kRead, std::exchange(is_first_, false) ? first : options_.idle);
    if (reader_.n_buffered() > 0) return Parse();
    Read();
  }

  void Read() {
    if (reading_ || closed_ || (peer_finished_ && (closing_ || IsAnswering()))) return;
    if (peer_finished_) return CloseAfterWriting();  // the rest is no whole request
    // A client that keeps sending while its response is made has to wait.
    if (IsAnswering() && (reader_.n_buffered() >= options_.max_pipelined_bytes ||
                          !Hold(read_share_, reader_.HeldBytesWith(incoming_.size())))) {
      return deadlines_->Set(Deadlines::kHangup, options_.hangup);
    }
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
    if (closing_) return Read();  // discarded, until the client closes its side
    Run([this, n] {
      reader_.Append({incoming_.data(), n});
      if (IsAnswering()) return Read();
      Parse();
    });
  }

  void OnReadError(const error_code& error) {
    if (error != asio::error::eof && error != asio::ssl::error::stream_truncated) return Close();
    // The client has left, or has sent all its requests (printf | nc): these are answered up to one
    // whose handler does not answer at once, because a client that left must not occupy the engine.
    peer_finished_ = true;
    if (closing_) return CloseAfterWriting();
    CancelUnanswered();
    Read();  // closes if no request is left
  }
  void CancelUnanswered() {
    if (current_ == nullptr || current_->is_done() || is_waiting_) return;
    std::exchange(current_, nullptr)->Closed();
    CloseAfterWriting();
  }

  void CheckDisconnected() {
    if (current_ == nullptr || reading_ || closing_) return;
    if (HasHungUp(TcpSocket(stream_))) CancelUnanswered();
    Read();  // other connections may have freed buffer space; otherwise looks again
  }

  void Parse() {
    if (!std::exchange(parsing_, true)) deadlines_->Set(Deadlines::kRead, options_.header);
    const bool had_header = reader_.has_header();
    if (const auto error = reader_.Parse()) return RefuseWith(*error);
    const bool is_new = !had_header && reader_.has_header();
    // Check the key before reading the body, so that an unauthorized client takes no buffer space.
    // If the body has already arrived, the handler checks instead and the connection stays open.
    if (is_new && !reader_.is_complete()) {
      const auto refused = shared_.handlers.check_head(ToHttpRequest(reader_.header()));
      if (refused) return RefuseWith(*refused);
    }
    if (reader_.has_header()) {
      if (const auto error = reader_.CountLargeBody()) return RefuseWith(*error);
    }
    if (reader_.is_complete()) return Dispatch();
    if (!HoldRead()) {
      return RefuseWith(
          {.status = 503, .message = "the buffers of all connections are full", .code = "busy"});
    }
    if (is_new) {
      deadlines_->Set(Deadlines::kRead, options_.body);
      if (reader_.expects_continue()) Queue("HTTP/1.1 100 Continue\r\n\r\n", "", false);
    }
    Read();
  }

  // Answers a request that was not read to its end, then closes the connection.
  void RefuseWith(const ApiError& error) {
    parsing_ = false;
    deadlines_->Clear(Deadlines::kRead);
    const HttpRequest head = reader_.has_header() ? ToHttpRequest(reader_.header()) : HttpRequest();
    reader_.Drop();
    const ResponseOptions last = {.keep_alive = false};
    const auto exchange = std::make_shared<HttpExchange>(this->shared_from_this(), last);
    current_ = exchange;
    shared_.handlers.refuse(head, exchange, error);
    Read();
  }

  void Dispatch() {
    parsing_ = false;
    deadlines_->Clear(Deadlines::kRead);
    auto message = reader_.Take();
    const size_t n_bytes = message.body().size();
    ResponseOptions form = ResponseOptionsFrom(message);
    if (shared_.draining) form.keep_alive = false;
    if (n_bytes >= options_.large_body_bytes) form.size = WorkSlots::Size::kLarge;
    const auto exchange = std::make_shared<HttpExchange>(this->shared_from_this(), form);
    current_ = exchange;
    HttpRequest request = ToHttpRequest(message);
    request.body = std::move(message.body());
    const bool has_path = !request.path.empty();
    if (has_path && n_bytes > 0) {
      HandleBody(std::move(request), exchange);
      return Read();
    }
    if (has_path) {
      Handle(request, exchange);
    } else {
      exchange->Send({.status = 400,
                      .body = report::ToJson(ErrorRecord({.message = "invalid request target"}))});
    }
    reader_.ReleaseTaken();
    Read();
  }

  void Handle(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    is_waiting_ = false;
    shared_.handlers.handle(request, exchange);
    if (peer_finished_) CancelUnanswered();
  }

  // Slow: parsing and building a prompt. At most one waits per connection; its bytes still count.
  void HandleBody(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
    is_waiting_ = true;
    const auto held = std::make_shared<const HttpRequest>(std::move(request));
    exchange->PostWork([self = this->shared_from_this(), held, exchange] {
      if (self->current_ == exchange) self->Run([&] { self->Handle(*held, exchange); });
      self->reader_.ReleaseTaken();
      self->HoldRead();
    });
  }

  void WriteNext() {
    if (queue_.empty() || closed_) return;
    writing_ = true;
    deadlines_->Set(Deadlines::kWrite, options_.write);
    asio::async_write(stream_, queue_.BeginWriting(),
                      [self = this->shared_from_this()](const error_code& error, size_t) {
                        self->OnWritten(error);
                      });
  }

  void OnWritten(const error_code& error) {
    writing_ = false;
    deadlines_->Clear(Deadlines::kWrite);
    if (error) Close();
    closed_ ? queue_.Clear() : queue_.PopWritten();
    HoldQueue();
    if (closed_) return;
    if (!queue_.empty()) {
      WriteNext();
    } else if (closing_) {
      return FinishWriting();
    }
    if (is_next_delayed_) NextRequest();
  }

  void CloseAfterWriting() {
    closing_ = true;
    is_next_delayed_ = false;
    if (!writing_) FinishWriting();
  }

  // Closing a socket with unread input resets the connection and can lose the end of the response.
  // Give the client a moment to close first.
  void FinishWriting() {
    deadlines_->Set(Deadlines::kRead, options_.linger);
    if (std::exchange(is_shutting_down_, true)) return peer_finished_ ? Close() : Read();
    AsyncShutdown(stream_, [self = this->shared_from_this()](auto...) { self->FinishTcp(); });
    Read();
  }
  void FinishTcp() {
    if (closed_) return;
    error_code ignored;
    TcpSocket(stream_).shutdown(tcp::socket::shutdown_send, ignored);
    if (peer_finished_ || ignored) return Close();
    Read();
  }

  void OnDeadline(Deadlines::Kind kind) {
    if (closed_) return;
    if (kind == Deadlines::kPing) {
      if (const auto exchange = current_) exchange->Write(":\n\n");
      return;
    }
    if (kind == Deadlines::kHangup) return CheckDisconnected();
    if (kind == Deadlines::kWrite || !parsing_) return Close();
    const ApiError error = {408, "timed out before the request was complete", "", "timeout"};
    Run([&] { RefuseWith(error); });
  }

  void Close() {
    if (std::exchange(closed_, true)) return;
    deadlines_->Stop();
    error_code ignored;
    TcpSocket(stream_).close(ignored);
    if (const auto exchange = std::exchange(current_, nullptr)) exchange->Closed();
    reader_.Drop();  // now: the handler may keep this connection alive for long
    HoldRead();
    if (writing_) return;  // the write in progress still uses the queue
    queue_.Clear();
    HoldQueue();
  }

  // Count this client's request and response buffers against the limit for all connections, as
  // separate shares: reading ahead must not end a response. False: above the limit.
  bool HoldRead() { return Hold(read_share_, reader_.held_bytes()); }
  bool HoldQueue() { return Hold(queue_share_, queue_.capacity()); }
  bool Hold(ByteLimit::Share& share, size_t bytes) const {
    return share.Resize(bytes > options_.uncounted_buffer_bytes ? bytes : 0);
  }

  Stream stream_;
  ConnectionShared& shared_;
  const HttpOptions& options_;
  std::array<char, 4096> incoming_;  // target of the read in progress
  RequestReader reader_;
  ByteLimit::Share read_share_, queue_share_, answer_share_;  // of the buffers of all connections
  std::shared_ptr<HttpExchange> current_;                     // of the response being made
  WriteQueue queue_;
  bool is_first_ = true;  // the next request is the first
  bool reading_ = false;
  bool writing_ = false;
  bool parsing_ = false;          // part of a request has arrived
  bool is_waiting_ = false;       // the request waits for its handler
  bool is_next_delayed_ = false;  // the next request waits until all is written
  bool closing_ = false;          // close once all is written
  bool is_shutting_down_ = false;
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
