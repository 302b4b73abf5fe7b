#include "server/http/http_exchange.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

namespace winnow::server {
namespace {

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string HttpDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  // Not strftime: its names follow the locale.
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<size_t>(parts.tm_wday)], parts.tm_mday,
                kMonths[static_cast<size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
  return text.data();
}

std::string Hex(size_t n) {
  std::array<char, 20> text = {};
  std::snprintf(text.data(), text.size(), "%zx", n);
  return text.data();
}

bool HasBody(int status) { return status != 204 && status != 304; }

}  // namespace

HttpExchange::HttpExchange(std::shared_ptr<Wire> wire, ResponseOptions form)
    : wire_(std::move(wire)), form_(form) {}

std::string HttpExchange::Head(const HttpResponse& response, const char* length_header,
                               size_t length) const {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     ReasonPhrase(response.status) + "\r\nServer: winnow\r\nDate: " + HttpDate() +
                     "\r\n";
  const bool has_body = HasBody(response.status);
  if (has_body) head += "Content-Type: " + response.content_type + "\r\n";
  if (length_header != nullptr && has_body) {
    head += std::string(length_header) + ": ";
    head += length_header[0] == 'C' ? std::to_string(length) : std::string("chunked");
    head += "\r\n";
  }
  for (const auto& [name, value] : response.headers) {
    head.append(name).append(": ").append(value).append("\r\n");
  }
  head += form_.keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head + "\r\n";
}

void HttpExchange::Send(HttpResponse response) {
  if (state_ != State::kOpen) return;
  std::string head = Head(response, "Content-Length", response.body.size());
  if (!gone_) {
    wire_->Hold(0);  // the write queue counts the bytes from here on
    if (form_.is_head || !HasBody(response.status)) response.body.clear();
    wire_->Queue(std::move(head), std::move(response.body), false);  // may be large: not copied
  }
  Finish();
}

void HttpExchange::BeginStream(HttpResponse head) {
  if (state_ != State::kOpen) return;
  state_ = State::kStreaming;
  if (form_.is_http_1_0) form_.keep_alive = false;  // closing the connection ends the body
  if (gone_) return;
  wire_->Queue(Head(head, form_.is_http_1_0 ? nullptr : "Transfer-Encoding", 0), "", false);
  if (form_.is_head) {  // no body follows, so the handler can stop
    const auto closed = std::exchange(closed_, nullptr);
    Finish();
    if (closed) closed();
    return;
  }
  wire_->SetPings(head.content_type == "text/event-stream");
}

void HttpExchange::Write(std::string bytes) {
  if (state_ != State::kStreaming || gone_ || bytes.empty()) return;
  if (form_.is_http_1_0) return wire_->Queue(std::move(bytes), "", true);
  std::string chunk = Hex(bytes.size()) + "\r\n";
  chunk += bytes;
  chunk += "\r\n";
  wire_->Queue(std::move(chunk), "", true);
}

void HttpExchange::End() {
  if (state_ != State::kStreaming) return;
  if (!gone_ && !form_.is_http_1_0) wire_->Queue("0\r\n\r\n", "", false);
  Finish();
}

void HttpExchange::Finish() {
  state_ = State::kDone;
  closed_ = nullptr;
  if (!gone_) wire_->AnswerDone(form_.keep_alive);
}

void HttpExchange::OnClosed(std::function<void()> closed) {
  if (state_ == State::kDone) return;
  if (gone_) return closed();
  closed_ = std::move(closed);
}

void HttpExchange::Closed() {
  if (gone_ || state_ == State::kDone) return;
  gone_ = true;
  wire_->Hold(0);
  if (const auto closed = std::exchange(closed_, nullptr)) closed();
}

void HttpExchange::Post(std::function<void()> work) { wire_->Post(std::move(work)); }

void HttpExchange::PostWork(std::function<void()> work) {
  wire_->PostWork(form_.size, std::move(work));
}

void HttpExchange::AcquireMemorySlot(std::function<void(MemorySlot slot)> work) {
  wire_->AcquireMemorySlot(std::move(work));
}

bool HttpExchange::Hold(size_t bytes) {
  return gone_ || state_ == State::kDone || wire_->Hold(bytes);
}

void HttpExchange::After(std::chrono::milliseconds delay, std::function<void()> work) {
  if (!gone_ && state_ != State::kDone) wire_->After(delay, std::move(work));
}

}  // namespace winnow::server
