#pragma once

#include <algorithm>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "server/http/byte_limit.h"
#include "server/http/http_options.h"
#include "server/openai/api_error.h"

namespace winnow::server {

// A body that takes memory as it comes, and none beyond what the header announces. Beast's
// string_body reserves that at once.
struct ArrivingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>& /*header*/, std::string& body)
        : body_(body) {}
    void init(const boost::optional<uint64_t>& length, boost::system::error_code& error) {
      if (length) length_ = *length;
      error = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t n = boost::beast::buffer_bytes(buffers);
      if (body_.size() + n > body_.capacity()) Grow(body_.size() + n);
      for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      error = {};
      return n;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    // To a new string: one that has some would double.
    void Grow(size_t needed) {
      std::string grown;
      grown.reserve(std::max<uint64_t>(needed, std::min<uint64_t>(2 * body_.capacity(), length_)));
      grown.append(body_);
      body_ = std::move(grown);
    }

    std::string& body_;
    uint64_t length_ = std::numeric_limits<uint64_t>::max();  // not announced: chunks
  };
};

// Finds one request after another in the bytes of a connection, within the limits of the options.
// What it throws: std::bad_alloc.
class RequestReader {
 public:
  using Request = boost::beast::http::request<ArrivingBody>;

  // Both outlive it. `large_bodies`: of all connections.
  RequestReader(const HttpOptions& options, ByteLimit& large_bodies);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  void Begin();  // a request, of which the buffer may have some or all
  void Append(std::span<const char> bytes);
  size_t n_buffered() const { return buffer_.size(); }  // bytes that wait to be parsed
  // By the request, one that was taken, and what waits; but for large bodies.
  size_t held_bytes() const;
  size_t HeldBytesWith(size_t n_more) const;  // after Append() of that many
  // Takes what it can from the buffer. An error ends the connection: the rest cannot be read.
  std::optional<ApiError> Parse();
  // Counts a large body as far as it has come. After Parse; an error as there.
  std::optional<ApiError> ReserveBody();
  bool has_header() const { return parser_ && parser_->is_header_done(); }
  const boost::beast::http::request_header<>& header() const { return parser_->get(); }
  bool expects_continue() const;  // once it has the header
  bool is_complete() const { return parser_->is_done(); }
  Request Take();  // once it is complete
  // What was taken no longer counts: its request was handed on.
  void ReleaseTaken() {
    taken_bytes_ = 0;
    large_body_.Resize(0);
  }
  void Drop();  // a request that was refused, and what waits behind it

 private:
  size_t CapacityWith(size_t n_more) const;  // of the buffer; doubles
  bool IsBodyLarge() const { return parser_->get().body().size() >= options_.large_body_bytes; }
  ApiError ErrorFrom(const boost::system::error_code& error) const;

  const HttpOptions& options_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<ArrivingBody>> parser_;
  size_t header_bytes_ = 0;  // of the request, once they are parsed
  size_t taken_bytes_ = 0;   // of the request before it, until it is handed on
  ByteLimit::Share large_body_;
};

}  // namespace winnow::server
