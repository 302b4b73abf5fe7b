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

// A body that grows as bytes arrive, and never beyond the announced length. Beast's string_body
// reserves the announced length at once.
struct IncrementalBody {
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
    // Into a new string: reserve() on a string with content may double its capacity.
    void Grow(size_t needed) {
      std::string grown;
      grown.reserve(std::max<uint64_t>(needed, std::min<uint64_t>(2 * body_.capacity(), length_)));
      grown.append(body_);
      body_ = std::move(grown);
    }

    std::string& body_;
    uint64_t length_ = std::numeric_limits<uint64_t>::max();  // unknown with chunked encoding
  };
};

// Parses the requests of a connection one after another, within the limits of the options. Throws
// std::bad_alloc only.
class RequestReader {
 public:
  using Request = boost::beast::http::request<IncrementalBody>;

  // Both must outlive the reader. `large_bodies` is shared by all connections.
  RequestReader(const HttpOptions& options, ByteLimit& large_bodies);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  void Begin();  // starts a request; the buffer may hold some or all of it
  void Append(std::span<const char> bytes);
  size_t n_buffered() const { return buffer_.size(); }  // not parsed yet
  // Held by the current request, the one taken before it, and unparsed bytes; without large bodies.
  size_t held_bytes() const;
  size_t HeldBytesWith(size_t n_more) const;  // after Append() of that many
  // Parses what the buffer has. After an error the connection must close: the rest cannot be
  // parsed.
  std::optional<ApiError> Parse();
  // Counts a large body's buffer against `large_bodies`. Call it after Parse. Error: 503, above the
  // limit.
  std::optional<ApiError> CountLargeBody();
  bool has_header() const { return parser_ && parser_->is_header_done(); }
  const boost::beast::http::request_header<>& header() const { return parser_->get(); }
  bool expects_continue() const;  // requires has_header()
  bool is_complete() const { return parser_->is_done(); }
  Request Take();  // requires is_complete()
  // The request from Take() was handed on and no longer counts.
  void ReleaseTaken() {
    taken_bytes_ = 0;
    large_body_.Resize(0);
  }
  void Drop();  // the refused request and all unparsed bytes

 private:
  size_t CapacityWith(size_t n_more) const;  // of the buffer; grows by doubling
  bool IsBodyLarge() const { return parser_->get().body().size() >= options_.large_body_bytes; }
  ApiError ErrorFrom(const boost::system::error_code& error) const;

  const HttpOptions& options_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<IncrementalBody>> parser_;
  size_t header_bytes_ = 0;  // of the request, once they are parsed
  size_t taken_bytes_ = 0;   // of the request before, until it is handed on
  ByteLimit::Share large_body_;
};

}  // namespace winnow::server
