#pragma once

#include <poll.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

namespace winnow::server {

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

inline boost::asio::ip::tcp::socket& TcpSocket(boost::asio::ip::tcp::socket& stream) {
  return stream;
}
inline boost::asio::ip::tcp::socket& TcpSocket(TlsStream& stream) { return stream.next_layer(); }

// The handshake and the end of TLS. Without its end (close_notify), clients must take a response
// for truncated. A plain socket has neither: `done` is called at once.
template <class Done>
void AsyncHandshake(boost::asio::ip::tcp::socket& /*stream*/, Done done) {
  done(boost::system::error_code());
}
template <class Done>
void AsyncHandshake(TlsStream& stream, Done done) {
  stream.async_handshake(boost::asio::ssl::stream_base::server, std::move(done));
}
template <class Done>
void AsyncShutdown(boost::asio::ip::tcp::socket& /*stream*/, Done done) {
  done(boost::system::error_code());
}
template <class Done>
void AsyncShutdown(TlsStream& stream, Done done) {
  stream.async_shutdown(std::move(done));
}

// Whether the client has closed its side or reset the connection, even if unread bytes come before
// the end.
inline bool HasHungUp(boost::asio::ip::tcp::socket& socket) {
  pollfd asked = {.fd = socket.native_handle(), .events = POLLRDHUP, .revents = 0};
  return poll(&asked, 1, 0) > 0;
}

}  // namespace winnow::server
