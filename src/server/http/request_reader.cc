#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <cstdint>
#include <string>

namespace winnow::server {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

ApiError TooLong(int status, const char* what, size_t limit, const char* code) {
  return {.status = status,
          .message = std::string(what) + " longer than " + std::to_string(limit) + " bytes",
          .code = code};
}

}  // namespace

RequestReader::RequestReader(const HttpOptions& options, ByteLimit& large_bodies)
    : options_(options), large_body_(large_bodies) {}

void RequestReader::Begin() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser_->body_limit(options_.max_body_bytes);
  parser_->eager(true);
  header_bytes_ = 0;
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
}

void RequestReader::Append(std::span<const char> bytes) {
  buffer_.reserve(CapacityWith(bytes.size()));
  boost::asio::buffer_copy(buffer_.prepare(bytes.size()),
                           boost::asio::buffer(bytes.data(), bytes.size()));
  buffer_.commit(bytes.size());
}

std::optional<ApiError> RequestReader::Parse() {
  error_code error;
  while (buffer_.size() > 0 && !parser_->is_done()) {
    const bool had_header = parser_->is_header_done();
    const size_t n = parser_->put(buffer_.data(), error);
    buffer_.consume(n);
    if (!had_header && parser_->is_header_done()) header_bytes_ = n - parser_->get().body().size();
    if (error) break;
  }
  if (error && error != http::error::need_more) return ErrorFrom(error);
  // Beast limits only the header.
  if (error && parser_->is_header_done() && buffer_.size() > options_.max_header_bytes) {
    return TooLong(431, "a chunk's header or the trailer is", options_.max_header_bytes,
                   "header_too_large");
  }
  return std::nullopt;
}

bool RequestReader::expects_continue() const {
  const auto& request = parser_->get();
  return request.version() >= 11 &&
         boost::beast::iequals(request[http::field::expect], "100-continue");
}

size_t RequestReader::held_bytes() const {
  const size_t body = parser_ && !IsBodyLarge() ? parser_->get().body().capacity() : 0;
  return buffer_.capacity() + header_bytes_ + body + taken_bytes_;
}

size_t RequestReader::HeldBytesWith(size_t n_more) const {
  return held_bytes() - buffer_.capacity() + CapacityWith(n_more);
}

size_t RequestReader::CapacityWith(size_t n_more) const {
  const size_t needed = buffer_.size() + n_more;
  return needed <= buffer_.capacity() ? buffer_.capacity() : std::max(2 * buffer_.size(), needed);
}

RequestReader::Request RequestReader::Take() {
  taken_bytes_ = header_bytes_ + (IsBodyLarge() ? 0 : parser_->get().body().capacity());
  Request request = parser_->release();
  parser_.reset();
  header_bytes_ = 0;
  return request;
}

void RequestReader::Drop() {
  parser_.reset();
  header_bytes_ = 0;
  buffer_.clear();
  buffer_.shrink_to_fit();
  if (taken_bytes_ == 0) large_body_.Resize(0);  // otherwise its body is still in use
}

// Limits the buffers of all clients' large bodies together. A body counts as it arrives, so
// announcing one takes nothing from others. Smaller bodies do not count, so that large ones cannot
// keep them out.
std::optional<ApiError> RequestReader::CountLargeBody() {
  if (large_body_.Resize(IsBodyLarge() ? parser_->get().body().capacity() : 0)) return std::nullopt;
  return ApiError{.status = 503, .message = "too many large requests at once", .code = "busy"};
}

ApiError RequestReader::ErrorFrom(const error_code& error) const {
  if (error == http::error::header_limit) {
    return TooLong(431, "the header is", options_.max_header_bytes, "header_too_large");
  }
  if (error == http::error::body_limit) {
    return TooLong(413, "the body is", options_.max_body_bytes, "body_too_large");
  }
  return {.status = 400, .message = "not HTTP: " + error.message(), .code = "bad_request"};
}

}  // namespace winnow::server
